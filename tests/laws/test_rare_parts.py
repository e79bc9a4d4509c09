"""Laws of what hardly tells anything, and of correlated noise.

Adding a rare part never lowers an upper bound. A question for one true positive rate is
asked by itself: among several the least rate decides how small tails are, and hides
what a larger one would show. Some matrices are another mechanism, or simpler ones.
"""

import math

import dp_accounting
from dp_accounting import dp_event as stock
from hypothesis import given
from hypothesis import strategies as st
from lawful import accountant_of
from lawful import any_trees
from lawful import assert_meet
from lawful import assert_no_worse
from lawful import deltas
from lawful import law
import pytest
import registered
import tree_strategies

import dp_accounting_ext as ext

Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Runs = dp_accounting.SelfComposedDpEvent

# Of Gaussian(1) alone, by its closed form.
DELTA_AT_ONE, EPSILON_AT_1E6 = 0.12693673750664397, 4.886529574125448
POWER_AT_HALF = 0.8413447460685429


@law
@given(
    any_trees | tree_strategies.rare_parts() | st.builds(Gaussian, st.just(1.0)),
    any_trees | tree_strategies.rare_parts(),
    deltas,
    st.sampled_from([1e-12, 1e-3, 0.1, 0.5]),
)
def test_composition_never_tells_less(event, other, delta, rate):
    """However rare what is added is."""
    both = accountant_of(event, other)
    for each in (event, other):
        alone = accountant_of(each)
        assert_no_worse(alone, both, delta)
        low, _ = alone.get_true_positive_rate_bounds(rate)
        _, high = both.get_true_positive_rate_bounds(rate)
        assert low <= high


@pytest.mark.parametrize(
    "rare",
    [
        Poisson(1e-26, Laplace(1.0)),
        Runs(Poisson(1e-30, Laplace(1.0)), 10),
        Runs(Poisson(1e-26, Laplace(1.0)), 30),
        Poisson(1e-9, Laplace(1.0)),
        registered.SingleShiftEvent(),
        Runs(registered.SingleShiftEvent(), 100),
    ],
    ids=str,
)
def test_a_gaussian_beside_a_rare_laplace_query(rare):
    """An upper bound was halved once a run: where all shifts are one, so are atoms."""
    accountant = accountant_of(Gaussian(1.0), rare)
    assert DELTA_AT_ONE <= accountant.get_delta(1.0) <= DELTA_AT_ONE * (1 + 1e-5)
    epsilon = accountant.get_epsilon(1e-6)
    assert EPSILON_AT_1E6 <= epsilon <= EPSILON_AT_1E6 * (1 + 2e-5)
    _, power = accountant.get_true_positive_rate_bounds(0.5)
    assert POWER_AT_HALF <= power <= POWER_AT_HALF * (1 + 1e-6)


def test_powers_of_rare_laplace_queries():
    accountant = accountant_of(Poisson(2e-8, Laplace(1.0)))
    _, power = accountant.get_true_positive_rate_bounds(0.1)
    # The likelihood ratio is largest, e, above the larger shift; 0.1 is less than that.
    truth = 0.1 * (1 + 2e-8 * math.expm1(1.0))
    assert truth <= power <= truth + 1e-11


def test_a_law_without_finite_losses_has_the_sinks_of_all_its_runs():
    rare = accountant_of(Runs(Poisson(1e-50, Laplace(0.1)), 5000))
    # One run has δ(0) = q (1 − e^−5): of two exponential tails, to their middle.
    assert rare.get_delta(0.0) >= 1e-50 * -math.expm1(-5.0) * math.sqrt(5000)


sigmas = tree_strategies.log_scale(0.05, 10.0, 40)
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
