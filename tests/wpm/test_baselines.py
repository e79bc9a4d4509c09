"""The mechanisms to compare with are the published ones."""

import numpy as np
import pytest

from dp_accounting_ext import wpm


def points(size, seed=0):
    return np.random.default_rng(seed).random((size, 2))


def test_kl_mechanism_is_the_published_one():
    """max(μ / r, 1 / (e^ε + k − 1)), also where masses are zero."""
    cost = wpm.PointCost(points(6))
    mechanism = wpm.KLProjectionMechanism(cost, 1.5)
    masses = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    floor = 1 / (np.exp(1.5) + 5)
    law = mechanism.project(masses)
    scaled = law[:2] / masses[:2]
    assert scaled[0] == pytest.approx(scaled[1], rel=1e-9)
    np.testing.assert_allclose(law[3:], floor, rtol=1e-9)
    assert law[2] == pytest.approx(max(scaled[0] * 0.1, floor), rel=1e-9)


def test_kl_mechanism_with_support_that_cannot_hold_all():
    cost = wpm.PointCost(points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1.0, 0.0, 0.0, 0.0])
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)
    # What is left rises in proportion to the base measure.
    np.testing.assert_allclose(law[1:] / measure[1:], law[1] / measure[1], rtol=1e-9)


def test_kl_mechanism_fills_what_has_any_mass_first():
    cost = wpm.PointCost(points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1 - 1e-7, 1e-7, 0.0, 0.0])
    np.testing.assert_allclose(law[2:], measure[2:] * np.exp(-0.25), rtol=1e-9)
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)


def test_exponential_mechanism_is_the_published_one():
    cost = np.random.default_rng(4).random((5, 7))
    mechanism = wpm.ExponentialMechanism(cost, 2.0)
    masses = np.random.default_rng(5).dirichlet(np.ones(5))
    weights = np.exp(-2.0 * (masses @ cost) / (2 * np.ptp(cost, axis=0).max()))
    np.testing.assert_allclose(
        mechanism.project(masses), weights / weights.sum(), rtol=1e-9
    )
    constant = wpm.ExponentialMechanism(np.ones((3, 2)), 1.0)
    np.testing.assert_allclose(constant.project([1, 0, 0]), 0.5)


def test_kl_mechanism_wants_the_same_points():
    with pytest.raises(ValueError, match=r"cost must be square.*shape \(2, 3\)"):
        wpm.KLProjectionMechanism(np.ones((2, 3)), 1.0)
