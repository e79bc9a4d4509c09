"""Laws of correlated noise: matrices that are another mechanism, and simpler ones."""

import math

from dp_accounting import dp_event as stock
from hypothesis import given
from hypothesis import strategies as st
from lawful import accountant_of
from lawful import assert_meet
from lawful import assert_no_worse
from lawful import deltas
from lawful import law
import pytest
import tree_strategies

import dp_accounting_ext as ext

sigmas = tree_strategies.log_scale(0.05, 10.0, 40)
event_rates = tree_strategies.log_scale(1e-3, 1.0, 20)
entries = st.floats(0.05, 1.0).map(lambda x: round(x, 3))


def diagonal(values):
    return [
        [x if i == j else 0.0 for j in range(len(values))] for i, x in enumerate(values)
    ]


@law
@given(sigmas, st.integers(1, 6), deltas)
def test_independent_noise_is_random_allocation(sigma, bins, delta):
    matrix = accountant_of(ext.MatrixAllocationEvent((1.0,), sigma, bins, 1))
    allocated = ext.RandomAllocationEvent(stock.GaussianDpEvent(sigma), 1, bins)
    assert_meet(matrix, accountant_of(allocated), delta)


@pytest.mark.nightly
@law
@given(sigmas, st.lists(entries, min_size=1, max_size=3), deltas)
def test_uneven_steps_are_a_schedule(sigma, scales, delta):
    matrix = ext.MatrixAllocationEvent(diagonal(scales), sigma, len(scales), 1)
    steps = [stock.GaussianDpEvent(sigma / scale) for scale in scales]
    schedule = ext.ScheduledAllocationEvent(steps, [1] * len(steps), len(steps))
    one, other = accountant_of(matrix), accountant_of(schedule)
    # Quotients are rounded: of noise a little smaller and a little larger.
    finer, coarser = (
        accountant_of(
            ext.MatrixAllocationEvent(diagonal(scales), sigma * c, len(scales), 1)
        )
        for c in (1 + 1e-12, 1 - 1e-12)
    )
    assert_no_worse(finer, other, delta)
    assert_no_worse(other, coarser, delta)
    assert one.get_epsilon_bounds(delta)[0] <= coarser.get_epsilon(delta)


@law
@given(sigmas, st.lists(entries, min_size=1, max_size=4), deltas)
def test_one_bin_is_a_gaussian_of_its_column(sigma, tail, delta):
    column = (1.0, *tail)
    matrix = accountant_of(ext.MatrixAllocationEvent(column, sigma, 1, 1))
    # Only the first step of one runs, of norm 1: later rows do not exist.
    assert_meet(matrix, accountant_of(stock.GaussianDpEvent(sigma)), delta)


@law
@given(
    tree_strategies.log_scale(1.0, 10.0, 40),
    st.sampled_from([(1, 2), (2, 1)]).flatmap(
        lambda n: st.tuples(st.lists(entries, min_size=n[0], max_size=n[0]), st.just(n))
    ),
)
def test_more_correlation_tells_no_less(sigma, columns):
    """And no more than the Gaussian of all of a record's columns together."""
    tail, (number, epochs) = columns
    bins = number + 1
    alone, correlated = (
        accountant_of(ext.MatrixAllocationEvent(strategy, sigma, bins, epochs))
        for strategy in ((1.0,), (1.0, *tail))
    )
    whole = accountant_of(
        stock.GaussianDpEvent(sigma / (epochs * (1 + sum(tail)) * (1 + 1e-12)))
    )
    lows, highs = zip(
        *(each.get_epsilon_bounds(1e-6) for each in (alone, correlated, whole)),
        strict=True,
    )
    assert lows[0] <= highs[1] and lows[1] <= highs[2]


@law
@given(sigmas, st.lists(entries, max_size=2), st.integers(1, 3), st.floats(1.1, 60.0))
def test_divergences_are_numbers_between_a_step_and_all(sigma, tail, epochs, order):
    event = ext.MatrixAllocationEvent((1.0, *tail), sigma, len(tail) + 1, epochs)
    found = ext.RdpAccountant([order]).compose(event).rdp[0]
    norm = epochs * (1 + sum(tail))
    assert 0 < found <= order * norm**2 / (2 * sigma**2) * (1 + 1e-9)


@law
@given(sigmas, st.lists(entries, max_size=2), st.integers(1, 9), event_rates, deltas)
def test_windows_of_one_step_are_cyclic_poisson_samples(
    sigma, tail, cycles, rate, delta
):
    column = (1.0, *tail)
    windows = ext.WindowedAllocationEvent(column, sigma, 1, 3, cycles, rate)
    norm = math.hypot(*column)
    sample = stock.PoissonSampledDpEvent(rate, stock.GaussianDpEvent(sigma / norm))
    known = accountant_of(stock.SelfComposedDpEvent(sample, cycles))
    low, high = accountant_of(windows).get_epsilon_bounds(delta)
    least, most = known.get_epsilon_bounds(delta)
    assert low <= most and least <= high
