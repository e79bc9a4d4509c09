"""Poisson subsampling of any pair, against the mixture's own ratio."""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import pytest

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import laplace_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


def normal_deltas(distance, rate, epsilon):
    """δ both ways of a sampled Gaussian, where the ratio of densities is e^ε."""
    below, kappa = mpmath.ncdf, mpmath.exp(epsilon)

    def crossing(level):
        return distance / 2 + mpmath.log(1 + (level - 1) / rate) / distance

    remove = 1 - kappa
    if kappa > 1 - rate:
        at = crossing(kappa)
        remove = rate * below(distance - at) + (1 - rate - kappa) * below(-at)
    add = mpmath.mpf(0)
    if 1 / kappa > 1 - rate:
        at = crossing(1 / kappa)
        spent = (1 - rate) * below(at) + rate * below(at - distance)
        add = below(at) - kappa * spent
    return {Direction.REMOVE: remove, Direction.ADD: add}


def deltas_between(distance, rate, epsilon, direction):
    """A lower and an upper bound on δ of a sampled Gaussian."""
    return [
        poisson_subsampling.delta(
            lambda place, bound=bound: gaussian.delta(distance, place, bound),
            rate,
            epsilon,
            direction,
            bound,
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


def epsilons_between(noise, distance, rate, delta):
    """A lower and an upper bound on ε of sampled noise, where a record is removed."""
    return [
        poisson_subsampling.epsilon(
            lambda share, bound=bound: noise.epsilon(distance, share, bound),
            rate,
            delta,
            bound,
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


@given(
    st.floats(0.05, 5.0),
    st.floats(1e-6, 1.0, exclude_max=True),
    st.floats(-3.0, 20.0),
)
def test_a_sampled_gaussian_in_closed_form(distance, rate, epsilon):
    with mpmath.workdps(60):
        exact = (mpmath.mpf(value) for value in (distance, rate, epsilon))
        truths = normal_deltas(*exact)
        for direction, truth in truths.items():
            lower, upper = deltas_between(distance, rate, epsilon, direction)
            assert lower <= truth <= upper
            if truth > 1e-30:
                assert upper - lower <= 1e-6 * truth


@pytest.mark.parametrize("rate", [1e-9, 0.3, 0.75, 1 - 2.0**-53])
@pytest.mark.parametrize("ulps", [-3, -1, 0, 1, 3])
def test_where_the_least_ratio_is(rate, ulps):
    """At κ = 1 − λ, and 1 over that, where all of one side's digits cancel."""
    for direction, sign in ((Direction.REMOVE, 1.0), (Direction.ADD, -1.0)):
        epsilon = sign * math.log1p(-rate)
        for _ in range(abs(ulps)):
            epsilon = math.nextafter(epsilon, math.copysign(math.inf, ulps))
        lower, upper = deltas_between(1.0, rate, epsilon, direction)
        with mpmath.workdps(60):
            exact = (mpmath.mpf(value) for value in (1.0, rate, epsilon))
            assert lower <= normal_deltas(*exact)[direction] <= upper
        assert upper - lower <= 1e-9


@given(
    st.floats(0.01, 30.0),
    st.floats(1e-6, 1.0, exclude_max=True),
    st.floats(-300, -0.01).map(math.exp),
)
def test_epsilon_where_a_record_is_removed(distance, rate, delta):
    lower, upper = epsilons_between(laplace_mixture, distance, rate, delta)
    with mpmath.workdps(60):
        share = mpmath.mpf(delta) / mpmath.mpf(rate)
        truth = mpmath.mpf(0)
        if share < 1:
            level = mpmath.exp(distance + 2 * mpmath.log(1 - share))
            truth = max(mpmath.log(1 + rate * (level - 1)), truth)
        assert lower <= truth <= upper
    assert upper - lower <= 1e-10
