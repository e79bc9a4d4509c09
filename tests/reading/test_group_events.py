"""Groups of which it is told who may leave and who may join."""

import math

import dp_accounting
import nights
import numpy as np
import pytest
from scipy import stats

import dp_accounting_ext as ext

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
Gaussian = dp_accounting.GaussianDpEvent
Group = ext.GroupSubsampledEvent
SAMPLED = dp_accounting.PoissonSampledDpEvent(0.2, Gaussian(1.5))


def composed(*events, count=1):
    accountant = ext.PLDAccountant()
    for event in events:
        accountant.compose(event, count)
    return accountant


def delta_of_split(removed, inserted, epsilon, direction):
    """By quadrature: those who leave move the sum up, and those who join down."""
    x = np.arange(-16, 16, 1e-3)

    def density(members, sign):
        weights = stats.binom.pmf(range(members + 1), members, 0.2)
        return sum(
            weight * stats.norm.pdf(x, sign * number / 1.5)
            for number, weight in enumerate(weights)
        )

    first, second = density(removed, 1), density(inserted, -1)
    if direction == "add":
        first, second = second, first
    gained = np.maximum(first - math.exp(epsilon) * second, 0)
    return float(gained.sum() * 1e-3)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("split", [(3, 0), (2, 1), (4, 1), (2, 2)])
def test_a_told_split_against_quadrature(split, direction):
    accountant = composed(Group(sum(split), SAMPLED, num_removed=split[0]))
    for epsilon in (-0.5, 0.0, 0.7, 2.0):
        truth = delta_of_split(*split, epsilon, direction)
        lower, upper = accountant.get_delta_bounds(epsilon, direction=direction)
        assert lower * (1 - 1e-7) <= truth <= upper * (1 + 1e-7)


@pytest.mark.parametrize(
    "event",
    [
        SAMPLED,
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0)),
        *nights.at_night(ext.RandomAllocationEvent(Gaussian(1.0), 1, 5)),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize(
    "accountant", [ext.PLDAccountant, lambda: ext.RdpAccountant([2.0, 4.0, 9.0, 30.0])]
)
def test_the_largest_told_split_is_the_bound_of_all(event, accountant):
    def epsilon(removed):
        return accountant().compose(Group(3, event, removed), 4).get_epsilon(1e-5)

    told = [epsilon(removed) for removed in range(4)]
    assert told == told[::-1]
    assert max(told) == pytest.approx(epsilon(None), rel=2e-3)


def test_all_events_are_of_the_told_split():
    """Those of single records, whenever they are composed, and in what is nested."""
    group = Group(3, SAMPLED, num_removed=2)
    truth = composed(group, Group(3, Gaussian(9.0), 2)).get_epsilon(1e-5)
    assert composed(Gaussian(9.0), group).get_epsilon(1e-5) == truth
    assert composed(group, Gaussian(9.0)).get_epsilon(1e-5) == truth
    assert composed(Group(1, Gaussian(9.0), 0), group).get_epsilon(1e-5) == truth


@pytest.mark.parametrize(
    "other",
    [Group(3, SAMPLED), Group(3, SAMPLED, 3), Group(2, SAMPLED), Group(5, SAMPLED, 2)],
)
def test_groups_that_tell_different_splits_are_refused(other):
    accountant = composed(Group(3, SAMPLED, num_removed=2))
    before = accountant.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="num_removed and group_size must be the same"):
        accountant.compose(other)
    assert accountant.get_epsilon(1e-5) == before
    with pytest.raises(ValueError, match="num_removed and group_size must be the same"):
        composed(dp_accounting.ComposedDpEvent([other, Group(3, SAMPLED, 1)]))
