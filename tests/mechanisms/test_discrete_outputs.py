"""Noise by its sums, by its divergences alone, and its largest loss."""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import renyi_bounded


@pytest.mark.parametrize("tail_mass", [1e-9, 1e-300])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 30.0, 650.0])
@pytest.mark.parametrize(
    ("sigma", "shift"), [(0.05, 1), (0.09, 1), (0.2, 3), (1.0, 1), (7.0, 3)]
)
def test_a_discrete_gaussian_holds_the_truth(sigma, shift, epsilon, tail_mass):
    asked = accuracy.Accuracy.of_level(0, accuracy.CELLS).with_tails(tail_mass)
    lower, upper = (
        discrete_outputs.DiscreteGaussian(sigma, shift).pair(bound, asked)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    reach = math.ceil(60 * sigma) + 3 * shift
    with mpmath.workdps(40):
        kappa, deviation = mpmath.exp(epsilon), mpmath.mpf(sigma)
        p, q = (
            [
                mpmath.exp(-(((x - at) / deviation) ** 2) / 2)
                for x in range(-reach, reach)
            ]
            for at in (shift, 0)
        )
        excess = (max(a - kappa * b, 0) for a, b in zip(p, q, strict=True))
        truth = mpmath.fsum(excess) / mpmath.fsum(q)
        for way in Direction:
            low, high = lower.delta(epsilon, way), upper.delta(epsilon, way)
            assert low <= truth * (1 + mpmath.mpf(10) ** -30)
            assert high >= truth * (1 - mpmath.mpf(10) ** -30)
            if sigma >= 1:
                assert high - low <= 1e-9 * truth + 9 * tail_mass + 1e-280


def test_it_dominates_randomized_response():
    """Of divergences that grow to ε: their orders are few, and the tail is cut."""
    with mpmath.workdps(40):
        p = mpmath.e / (1 + mpmath.e)
        values = [
            float(
                mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a))
                / (a - 1)
            )
            * (1 + 1e-14)
            for a in map(mpmath.mpf, (1.5, 2, 4, 16, 64, 1024))
        ]
    orders = np.array([1.5, 2, 4, 16, 64, 1024])
    pair = renyi_bounded.dominating_pair_of(orders, np.array(values), 1e-20)
    for epsilon in np.linspace(-1, 1, 21):
        truth = max(p - mpmath.exp(epsilon) * (1 - p), 1 - mpmath.exp(epsilon))
        for direction in Direction:
            assert pair.delta(float(epsilon), direction) >= truth


def exact_loss(p, q):
    """The logarithm of the ratio of the densities, at either end of the shifts."""
    with mpmath.workdps(60):

        def log_ratio(x):
            laws = [
                sum(mpmath.mpf(w) * mpmath.exp(-abs(x - mpmath.mpf(s))) for s, w in law)
                for law in (p, q)
            ]
            return mpmath.log(laws[0] / laws[1])

        high = max(mpmath.mpf(s) for s, _ in p)
        low = min(mpmath.mpf(s) for s, _ in q)
        return max(log_ratio(high), -log_ratio(low))


@given(
    st.floats(-30.0, -0.001), st.floats(-12.0, 3.0), st.sampled_from([0.0, 0.5, 1.0])
)
def test_the_largest_loss_of_a_sample(log_rate, log_shift, also_below):
    """Small rates, small shifts: what used to be a difference of equal logarithms."""
    rate, shift = 10.0**log_rate, 10.0**log_shift
    with mpmath.workdps(60):
        rest = 1 - mpmath.mpf(rate)
    p = ((0.0, 1 - rate), (shift, rate))
    q = ((0.0, 1 - rate), (-also_below * shift, rate)) if also_below else ((0.0, 1.0),)
    truth = exact_loss(
        [(0, rest), (shift, rate)],
        [(0, rest), (-also_below * shift, rate)] if also_below else [(0, 1)],
    )
    found = additive_noise.LaplaceMixture(p, q).claims().loss
    assert truth * (1 - 1e-30) <= found == pytest.approx(float(truth), rel=2e-12)
