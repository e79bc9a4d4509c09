"""Cyclic Poisson sampling from secret groups: quadrature, and simpler names of it."""

import itertools
import math

from dp_accounting import dp_event as stock
import min_sep_oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import cyclic

Event = ext.CyclicPoissonEvent
BAND = (1.0, 0.5)


def bounds(event, delta=1e-5):
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)


def law_of_steps(rate, length, steps):
    """{set of steps: probability}, all subsets of every group's steps."""
    found = {}
    for group in range(length):
        own = range(group, steps, length)
        for taken in itertools.product((False, True), repeat=len(own)):
            chosen = tuple(s for s, is_in in zip(own, taken, strict=True) if is_in)
            rest = len(own) - len(chosen)
            chance = rate ** len(chosen) * (1 - rate) ** rest / length
            found[chosen] = found.get(chosen, 0) + chance
    return found


@pytest.mark.parametrize(
    ("sigma", "rate", "length", "steps"),
    [(1.0, 0.3, 2, 3), (1.5, 0.6, 2, 4), (2.0, 1.0, 3, 4), (1.5, 0.1, 4, 3)],
)
def test_tiny_runs_against_quadrature(sigma, rate, length, steps):
    matrix = min_sep_oracles.toeplitz(BAND, steps)
    gram = min_sep_oracles.gram_of(matrix, sigma)
    law = law_of_steps(rate, length, steps)
    run = cyclic.Run(BAND, sigma, rate, length, steps)
    min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.5))


def test_groups_whose_noise_is_not_correlated_are_an_allocation():
    sample = stock.PoissonSampledDpEvent(0.3, stock.GaussianDpEvent(1.5))
    whole = stock.SelfComposedDpEvent(sample, 2)
    assert bounds(Event((1.0,), 1.5, 0.3, 4, 8)) == bounds(
        ext.RandomAllocationEvent(whole, 1, 4)
    )
    longer = stock.SelfComposedDpEvent(sample, 3)
    assert bounds(Event((1.0,), 1.5, 0.3, 4, 9)) == bounds(
        ext.ScheduledAllocationEvent([longer, whole], [1, 3], 4)
    )
    assert bounds(Event((1.0,), 1.5, 0.3, 1, 2)) == bounds(whole)


def test_a_secret_group_tells_no_more_than_one_that_is_known():
    noise = stock.GaussianDpEvent(3.0 / math.sqrt(1.25))
    known = stock.SelfComposedDpEvent(stock.PoissonSampledDpEvent(0.4, noise), 5)
    low, high = bounds(Event(BAND, 3.0, 0.4, 4, 20))
    assert 0 < low < high
    assert high == pytest.approx(bounds(known)[1], rel=1e-6)
    assert bounds(Event(BAND, 3.0, 0.0, 4, 20)) == (0.0, 0.0)
    nothing = ext.PLDAccountant().compose(Event(BAND, 0.0, 0.4, 4, 8))
    low, high = nothing.get_delta_bounds(1.0)
    assert low <= 1 - 0.6**2 <= high
