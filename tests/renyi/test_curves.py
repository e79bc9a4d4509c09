"""Laws of Rényi curves: how they compose, and what samples and groups leave of them."""

import math

import numpy as np
import pytest

from dp_accounting_ext.renyi import curves

ORDERS = (1.5, 2.0, 4.0, 16.0, 64.0)


def told_all(delta):
    """With probability δ everything is told; else as much as by σ = 2."""
    gaussian = curves.gaussian(0.5)
    return curves.Curve(gaussian.kernel, gaussian.parameters, delta=delta)


def test_a_gaussian_is_a_line():
    """α d² / 2: https://arxiv.org/abs/1702.07476, Proposition 7."""
    found = curves.gaussian(0.5).rdp(ORDERS)
    assert np.all(found >= np.array(ORDERS) / 8)
    assert found == pytest.approx(np.array(ORDERS) / 8, rel=1e-14)


def test_gaussians_become_one():
    together = curves.together({curves.gaussian(0.3): 2, curves.gaussian(0.4): 1})
    assert sum(together.values()) == 1
    (only,) = together
    assert only.distance() == pytest.approx(math.sqrt(2 * 0.09 + 0.16), rel=1e-14)


def test_a_composition_is_a_sum():
    one, other = told_all(1e-3), curves.on_poisson_sample(curves.gaussian(1.0), 0.1)
    both = curves.compose({one: 2, other: 3})
    expected = 2 * one.rdp(ORDERS) + 3 * other.rdp(ORDERS)
    assert both.rdp(ORDERS) == pytest.approx(expected, rel=1e-12)
    assert np.all(both.rdp(ORDERS) >= expected)
    assert 1 - (1 - 1e-3) ** 2 <= both.delta <= 2e-3


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.3, 1.0])
def test_a_sample_tells_less(rate):
    inner = told_all(1e-2)
    sample = curves.on_poisson_sample(inner, rate)
    assert np.all(sample.rdp(ORDERS) <= inner.rdp(ORDERS) * (1 + 1e-12))
    assert rate * 1e-2 <= sample.delta <= rate * 1e-2 * (1 + 1e-9)
    if rate == 0:
        assert not sample.rdp(ORDERS).any()


def test_a_batch_of_all_records_is_no_sample():
    inner = told_all(1e-2)
    whole = curves.on_batch(inner, 1.0)
    assert whole.delta >= inner.delta
    assert np.all(whole.rdp(ORDERS) >= inner.rdp(ORDERS) * (1 - 1e-12))


def test_a_group_has_a_row_a_split():
    family = curves.group(3, [(0.2, curves.gaussian(0.5), 4)])
    rows = family.rdp(ORDERS)
    assert rows.shape == (4, len(ORDERS))
    single = curves.on_poisson_sample(curves.gaussian(0.5), 0.2).rdp(ORDERS)
    assert np.all(rows.max(axis=0) >= 4 * single * (1 - 1e-9))


def test_the_best_of_several_tells_more_than_one():
    inner = curves.gaussian(0.1)
    assert np.all(curves.selected(inner, 5.0, 1.0).rdp(ORDERS) >= inner.rdp(ORDERS))


@pytest.mark.parametrize("delta", [0.0, 1e-20, 0.3, 1.0])
def test_what_is_kept_and_what_is_told_are_inverses(delta):
    kept = told_all(delta).log_kept()
    assert delta <= curves.told(kept) <= delta * (1 + 1e-12)
