"""b-min-sep sampling: quadrature of tiny runs, other names of it, and all relations."""

import itertools
import math

from asked import bounds
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import min_sep_oracles
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.correlated import runs
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import block_chains

Event = ext.MinSepSamplingEvent
Relations = privacy_accountant.NeighboringRelation
BAND = (1.0, 0.5)


@pytest.mark.parametrize(
    ("strategy", "sigma", "rate", "apart", "steps", "warm"),
    [
        (BAND, 1.0, 0.3, 2, 3, True),
        (BAND, 1.5, 0.1, 2, 4, False),
        ((1.0, 0.9, 0.8), 1.0, 0.2, 3, 4, True),
        ((1.0, 0.9, 0.8), 1.5, 0.9, 3, 4, False),
        (BAND, 1.5, 0.2, 4, 4, True),
        # Blocks are shorter than b: as long as the run, half of it, or all bands.
        (BAND, 1.5, 0.2, 5, 1, True),
        ((1.0, 0.9, 0.8), 1.0, 0.3, 5, 2, False),
        (BAND, 1.0, 0.3, 3, 4, True),
        ((1.0,), 1.0, 0.3, 3, 4, False),
        ((1.0, 0.9, 0.8), 1.0, 0.3, 3, 4, True),
        (((1.0, 0.0, 0.0), (0.7, 0.4, 0.0), (0.0, 0.9, 1.0)), 1.0, 0.3, 2, 3, False),
    ],
)
def test_tiny_runs_against_quadrature(strategy, sigma, rate, apart, steps, warm):
    """Lower ≤ truth ≤ upper, in each direction by itself."""
    is_matrix = isinstance(strategy[0], tuple)
    matrix = strategy if is_matrix else min_sep_oracles.toeplitz(strategy, steps)
    gram = min_sep_oracles.gram_of(matrix, sigma)
    law = min_sep_oracles.law_of_steps(rate, apart, steps, warm=warm)
    schedule = schedules.MinSep(steps, rate, apart, warm)
    run = runs.Run(strategies.Strategy(strategy), sigma, schedule)
    min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.3, 1.0))


def test_counts_of_steps_are_those_of_the_definition():
    for warm, (steps, last) in itertools.product((True, False), ((7, 7), (7, 5))):
        found, _ = schedules.MinSep(steps, 0.3, 3, warm).numbers(last)
        truth = np.zeros(found.size)
        for taken, chance in min_sep_oracles.law_of_steps(
            0.3, 3, steps, warm=warm
        ).items():
            truth[sum(step < last for step in taken)] += chance
        assert found == pytest.approx(truth, rel=1e-13)


def test_steps_one_apart_are_poisson_samples():
    run = Event((2.0,), 1.0, 0.2, 1, 5)
    step = stock.PoissonSampledDpEvent(0.2, stock.GaussianDpEvent(0.5))
    assert bounds(run) == bounds(stock.SelfComposedDpEvent(step, 5))


def test_a_certain_record_is_hidden_by_noise_alone():
    low, high = bounds(Event(BAND, 2.0, 1.0, 3, 6, warm_start=False))
    whole = bounds(stock.GaussianDpEvent(2.0 / math.sqrt(2.5)))
    assert low <= whole[1]
    assert high == pytest.approx(whole[1], rel=1e-9)
    # With a warm start these are balls in bins, which tell less.
    bins = bounds(ext.MatrixAllocationEvent(BAND, 2.0, 3, 2))
    warm = bounds(Event(BAND, 2.0, 1.0, 3, 6))
    assert warm[0] <= bins[1] and bins[0] <= warm[1]


def test_steps_apart_tell_less_than_samples_in_turn():
    run = Event(BAND, 2.0, 0.05, 4, 40)
    low, high = bounds(run)
    assert 0 < low < high < 1.4 * low
    cyclic = stock.PoissonSampledDpEvent(0.2, stock.GaussianDpEvent(2.0 / 1.25**0.5))
    assert high < bounds(stock.SelfComposedDpEvent(cyclic, 10))[1]


def test_other_relations_groups_trees_and_no_noise():
    run = Event(BAND, 3.0, 0.1, 3, 9)
    one = bounds(run)
    assert bounds(run, relation=Relations.REPLACE_SPECIAL) == one
    for more in (
        bounds(run, relation=Relations.REPLACE_ONE),
        bounds(ext.GroupSubsampledEvent(2, run)),
        bounds(stock.ComposedDpEvent([run, stock.GaussianDpEvent(9.0)])),
    ):
        assert one[0] <= more[1]
        assert one[1] <= more[1] < math.inf
    inside = bounds(ext.PLDSubsampleEvent(0.25, run))
    assert 0 < inside[0] < inside[1] < one[1]
    renyi = ext.RdpAccountant([2.0, 8.0]).compose(run)
    assert one[0] <= renyi.get_epsilon(1e-5) < math.inf
    nothing = ext.PLDAccountant().compose(Event(BAND, 0.0, 0.1, 3, 9, False))
    low, high = nothing.get_delta_bounds(1.0)
    assert low <= 1 - 0.9**9 <= high < low + 1e-9
    assert bounds(Event(BAND, 3.0, 0.0, 3, 9)) == (0.0, 0.0)


@pytest.mark.parametrize(("apart", "steps", "most"), [(6, 7, 0.7), (6, 3, 0.57)])
def test_short_runs_are_no_whole_blocks(apart, steps, most):
    """With blocks of six steps ε is at most 0.75 and 0.64."""
    low, high = bounds(Event((1.0,), 1.0, 0.02, apart, steps))
    assert low < high < most


@pytest.mark.parametrize(
    ("rate", "sigma"), [(1e-9, 1.0), (0.999, 0.05), *nights.at_night((0.5, 1e4))]
)
def test_extremes(rate, sigma):
    accountant = ext.PLDAccountant().compose(Event(BAND, sigma, rate, 4, 20))
    for delta in (0.0, 1e-30, 1e-6, 0.5):
        low, high = accountant.get_epsilon_bounds(delta)
        assert 0 <= low <= high
    low, high = accountant.get_delta_bounds(1.0)
    assert 0 <= low <= high <= 1


def test_a_refined_chain_whose_ends_are_too_high_is_not_chosen():
    """It would have nearly no correlation, and thousands of states."""
    column = np.array([0.15, 0.0, 1.0])
    products = np.correlate(column, column, "full")[2:] / 2.2**2
    assert max(block_chains.fit(products, 10, is_alone=False).heights) < 10
    low, high = bounds(Event(column, 2.2, 0.01, 10, 60), delta=1e-6)
    assert 0.1 < low < high < 1.4 * low


@pytest.mark.parametrize(
    "event",
    [
        Event(BAND, 1e20, 0.1, 3, 6),
        ext.MatrixAllocationEvent(BAND, 1e20, 3, 2),
        ext.WindowedAllocationEvent(BAND, 1e20, 3, 2, 2),
    ],
)
def test_noise_that_hides_all(event):
    assert bounds(event, delta=1e-12) == (0, 0)


def test_blocks_hold_the_run_and_only_neighbors_share_noise():
    """What the proof asks of their length; a run of one block may be shorter."""
    for bands, apart, steps in itertools.product(
        range(1, 6), range(1, 7), range(1, 15)
    ):
        if bands > apart:
            continue
        schedule = schedules.MinSep(steps, 0.2, apart, warm_start=True)
        length = schedule.block_length(min(bands, steps))
        assert schedule.num_blocks * length >= steps
        assert length <= apart
        assert schedule.num_blocks == 1 or length >= bands
