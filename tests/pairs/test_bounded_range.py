"""The pair of the worst mechanism whose losses span ε."""

import mpmath
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.pairs import bounded_range


def profile(bounded, epsilon):
    """The largest over t of two outcomes with losses t − ε and t, by a search."""
    with mpmath.workdps(40):
        bounded, kappa = mpmath.mpf(bounded), mpmath.exp(mpmath.mpf(epsilon))

        def two_outcomes(t):
            p = (1 - mpmath.exp(t - bounded)) / (1 - mpmath.exp(-bounded))
            return max(p * (1 - kappa * mpmath.exp(-t)), 0) + max(
                (1 - p) * (1 - kappa * mpmath.exp(bounded - t)), 0
            )

        low = mpmath.mpf(max(epsilon, 0.0))
        high = bounded + min(mpmath.mpf(epsilon), 0)
        for _ in range(200):
            third = (high - low) / 3
            if two_outcomes(low + third) < two_outcomes(high - third):
                low += third
            else:
                high -= third
        return two_outcomes(low)


@pytest.mark.parametrize("bounded", [1e-6, 0.3, 3.0, 50.0])
@pytest.mark.parametrize("share", [-0.99, -0.4, 0.0, 0.5, 0.999])
def test_the_profile_of_the_worst_mechanism(bounded, share):
    epsilon = share * bounded
    truth = profile(bounded, epsilon)
    pair = bounded_range.dominating_pair_of(bounded, Bound.UPPER)
    attained = bounded_range.dominating_pair_of(bounded, Bound.LOWER)
    for direction in Direction:
        found = pair.delta(epsilon, direction)
        assert truth <= found <= truth * (1 + (1e-4 if share < 0.9 else 0.02)) + 1e-12
        assert attained.delta(epsilon, direction) <= truth


@pytest.mark.parametrize("bounded", [700.0, 1e5])
def test_losses_that_do_not_fit_a_float_say_nothing(bounded):
    assert bounded_range.dominating_pair_of(bounded, Bound.UPPER).infinity_mass == 1
    lower = bounded_range.dominating_pair_of(bounded, Bound.LOWER)
    assert (lower.bound, lower.infinity_mass) == (Bound.LOWER, 0.0)
    assert lower.delta(10.0, Direction.REMOVE) <= profile(bounded, 10.0)
