"""Compositions are accurate in the tails that are asked about."""

import math

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import composed_losses
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import gaussian


@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_direction_is_accurate_in_its_own_tail(count):
    """A Gaussian composed is a Gaussian; its two laws are far apart."""
    mean = 30.0
    for bound in Bound:
        step = gaussian.dominating_pair_of(
            math.sqrt(count) / mean, bound, tail_mass=1e-30
        )
        pairs = dominating_pair.DirectedPairs.same(step)
        both = composed_losses.ComposedLosses(
            [(lambda pairs=pairs: pairs, count)],
            bound,
            accuracy.Accuracy(1e-25),
        )
        for direction in Direction:
            for epsilon in (400.0, 500.0, 560.0):
                truth = gaussian.delta(mean, epsilon, bound)
                found = (
                    both.losses(direction)
                    .profile(direction)
                    .deltas(np.array([epsilon]))[0]
                )
                if bound is Bound.UPPER:
                    assert truth * (1 - 1e-9) <= found <= truth * 1.05
                else:
                    assert truth * 0.95 <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize(("steps", "count"), [(2, 1), (30, 2)])
def test_rare_events_of_few_steps_are_as_tight_as_others(steps, count):
    """Sums of few ratios come near zero: these cells must not end there."""
    step = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, steps)
    accountant = ext.PLDAccountant().compose(step, count)
    for delta in (1e-54, 1e-240):
        lower, upper = accountant.get_epsilon_bounds(delta)
        assert lower <= upper <= lower * (1 + 1e-4)
