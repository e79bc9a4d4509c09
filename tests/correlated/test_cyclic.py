"""Poisson samples of all records, or of secret groups: quadrature, simpler names."""

import math

from asked import bounds
from dp_accounting import dp_event as stock
import min_sep_oracles
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.correlated import runs
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies

Event = ext.CyclicPoissonEvent
Poisson = ext.PoissonMatrixEvent
BAND = (1.0, 0.5)


@pytest.mark.parametrize(
    ("column", "sigma", "rate", "length", "steps"),
    [
        (BAND, 1.0, 0.3, 2, 3),
        (BAND, 1.5, 0.6, 2, 4),
        (BAND, 2.0, 1.0, 3, 4),
        (BAND, 1.5, 0.1, 4, 3),
        # More bands than groups; then Poisson samples of all records.
        ((1.0, 0.7, 0.4), 1.5, 0.3, 2, 4),
        ((1.0, 0.7, 0.4, 0.9), 2.0, 0.6, 2, 4),
        (BAND, 1.5, 0.3, 1, 3),
        (BAND, 0.5, 0.3, 1, 3),
        (BAND, 2.0, 1.0, 1, 3),
        (BAND, 1.5, 0.6, 1, 4),
        ((1.0, 0.7, 0.4), 2.0, 0.1, 1, 4),
    ],
)
def test_tiny_runs_against_quadrature(column, sigma, rate, length, steps):
    matrix = min_sep_oracles.toeplitz(column, steps)
    gram = min_sep_oracles.gram_of(matrix, sigma)
    law = min_sep_oracles.law_of_groups(rate, length, steps)
    rows = tuple(map(tuple, matrix.tolist()))
    for entries in (column, rows):
        schedule = schedules.CyclicPoisson(steps, rate, length)
        run = runs.Run(strategies.Strategy(entries), sigma, schedule)
        min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.5, 1.5))


def test_rows_of_a_matrix_need_not_be_alike():
    """Whose second group has the larger columns, with two groups and with one."""
    rows = ((0.5, 0, 0, 0), (0.1, 2.0, 0, 0), (0, 0.3, 0.4, 0), (0.2, 0, 0.6, 1.0))
    for length in (1, 2):
        gram = min_sep_oracles.gram_of(rows, 2.0)
        law = min_sep_oracles.law_of_groups(0.4, length, 4)
        schedule = schedules.CyclicPoisson(4, 0.4, length)
        run = runs.Run(strategies.Strategy(rows), 2.0, schedule)
        min_sep_oracles.assert_bounded(run, gram, law, (0.0, 0.5, 1.5))
    event = ext.PoissonMatrixEvent(np.array(rows), 2.0, 0.4, 4)
    low, high = bounds(event)
    assert 0 < low < high


@pytest.mark.parametrize("column", [(1.0,), BAND])
@pytest.mark.parametrize(("length", "steps"), [(2, 3), (3, 5), (2, 4), (3, 2)])
def test_runs_without_noise_reveal_all_groups(column, length, steps):
    """Also if some groups have one step more than others."""
    event = Event(column, 0.0, 1.0, length, steps)
    lower, upper = ext.PLDAccountant().compose(event).get_delta_bounds(1.0)
    revealed = min(steps / length, 1.0)
    assert lower <= revealed <= upper
    assert upper - lower <= 1e-9


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
    # With more bands than groups it costs more.
    assert bounds(Event((1.0, 0.5, 0, 0, 0.2), 3.0, 0.4, 4, 20))[1] > high
    assert bounds(Event(BAND, 3.0, 0.0, 4, 20)) == (0.0, 0.0)
    nothing = ext.PLDAccountant().compose(Event(BAND, 0.0, 0.4, 4, 8))
    low, high = nothing.get_delta_bounds(1.0)
    assert low <= 1 - 0.6**2 <= high


@pytest.mark.nightly
def test_records_in_every_step_of_a_secret_group_are_balls_in_bins():
    for column in (BAND, (1.0, 0.5, 0.3, 0.1, 0.2)):
        bins = ext.MatrixAllocationEvent(column, 2.0, 4, 3)
        assert bounds(Event(column, 2.0, 1.0, 4, 12)) == bounds(bins)
        low, high = bounds(Event(column, 2.0, 0.9, 4, 12))
        assert low <= bounds(bins)[1] and 0 < low < high
    # In a cycle that is cut, some groups have one step less.
    low, high = bounds(Event(BAND, 2.0, 1.0, 4, 11))
    assert low <= bounds(ext.MatrixAllocationEvent(BAND, 2.0, 4, 3))[1]


def test_poisson_samples_whose_noise_is_not_correlated_and_none():
    sample = stock.PoissonSampledDpEvent(0.3, stock.GaussianDpEvent(1.5 / 0.8))
    whole = stock.SelfComposedDpEvent(sample, 20)
    assert bounds(Poisson((0.8,), 1.5, 0.3, 20)) == bounds(whole)
    assert bounds(Poisson((0.8, 0.0), 1.5, 0.3, 20)) == bounds(whole)
    assert bounds(Poisson(BAND, 3.0, 0.0, 20)) == (0.0, 0.0)
    # A run of one step does not use the second coefficient.
    assert bounds(Poisson(BAND, 3.0, 0.4, 1)) == bounds(Poisson((1.0,), 3.0, 0.4, 1))
    nothing = ext.PLDAccountant().compose(Poisson(BAND, 0.0, 0.4, 2))
    low, high = nothing.get_delta_bounds(1.0)
    assert low <= 1 - 0.6**2 <= high


def test_correlated_noise_costs_more_than_as_much_independent_noise():
    alone = stock.PoissonSampledDpEvent(0.05, stock.GaussianDpEvent(2 / 1.25**0.5))
    low, high = bounds(Poisson(BAND, 2.0, 0.05, 100))
    assert bounds(stock.SelfComposedDpEvent(alone, 100))[1] < low < high < 1.3 * low
    # A record in every step is a Gaussian, nearly the one of the sum of outputs.
    low, high = bounds(Poisson(BAND, 20.0, 1.0, 100))
    mean = math.sqrt(99 * 1.5**2 + 1) / 20
    known = bounds(stock.GaussianDpEvent(1 / mean))[1]
    assert low <= known <= high < (1 + 1e-6) * low
    # With little noise, independent noise over a column's norm is the better lower
    # bound. It counts all steps but the last, whose column is cut.
    low, _ = bounds(Poisson((1.0, 0.1), 0.4, 0.01, 200))
    alone = stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(0.4))
    assert low >= bounds(stock.SelfComposedDpEvent(alone, 199))[0]
