"""Laws of what hardly tells anything: adding it never lowers an upper bound.

A question for one true positive rate is asked by itself: among several the least rate
decides how small tails are, and hides what a larger one would show.
"""

import math

import dp_accounting
from dp_accounting import privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from lawful import accountant_of
from lawful import any_trees
from lawful import assert_no_worse
from lawful import deltas
from lawful import law
import nights
import pytest
import registered
import tree_strategies

import dp_accounting_ext as ext

Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Runs = dp_accounting.SelfComposedDpEvent
NeighborRel = privacy_accountant.NeighboringRelation

# Of Gaussian(1) alone, by its closed form.
DELTA_AT_ONE, EPSILON_AT_1E6 = 0.12693673750664397, 4.886529574125448
POWER_AT_HALF = 0.8413447460685429


def assert_adding_lowers_nothing(alone, both, delta, rate):
    assert_no_worse(alone, both, delta)
    low, _ = alone.get_true_positive_rate_bounds(rate)
    _, high = both.get_true_positive_rate_bounds(rate)
    assert low <= high


@law
@given(
    any_trees | tree_strategies.rare_parts() | st.builds(Gaussian, st.just(1.0)),
    tree_strategies.rare_parts(),
    deltas,
    st.sampled_from([1e-12, 1e-3, 0.1, 0.5]),
)
def test_a_rare_part_never_lowers_a_bound(event, rare, delta, rate):
    alone, both = accountant_of(event), accountant_of(event, rare)
    assert_adding_lowers_nothing(alone, both, delta, rate)
    assert_adding_lowers_nothing(accountant_of(rare), both, delta, rate)


@law
@given(tree_strategies.rare_parts(), st.sampled_from(list(NeighborRel)), deltas)
def test_rare_parts_have_bounds(rare, relation, delta):
    accountant = accountant_of(rare, relation=relation)
    low, high = accountant.get_epsilon_bounds(delta)
    assert 0 <= low <= high
    least, most = accountant.get_delta_bounds(0.0)
    assert 0 <= least <= most <= 1


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


def test_epsilons_where_delta_is_more_than_the_whole():
    rare = accountant_of(Runs(Poisson(1e-28, Laplace(0.1)), 100))
    assert rare.get_epsilon_bounds(0.05) == (0.0, 0.0)


def test_a_law_without_finite_losses_has_the_sinks_of_all_its_runs():
    rare = accountant_of(Runs(Poisson(1e-50, Laplace(0.1)), 5000))
    # One run has δ(0) = q (1 − e^−5): of two exponential tails, to their middle.
    assert rare.get_delta(0.0) >= 1e-50 * -math.expm1(-5.0) * math.sqrt(5000)


def rare_allocation(rate):
    return ext.PLDSubsampleEvent(rate, ext.RandomAllocationEvent(Gaussian(1.0), 1, 3))


def rare_shift(weight):
    weights = [1 - weight, weight]
    return dp_accounting.dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], weights)


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        *nights.at_night((rare_allocation(1e-10), 1e-16)),
        (rare_shift(10**-11.5), 1e-14),
        (rare_shift(1e-20), 1e-24),
        (rare_shift(1e-180), 1e-16),
    ],
    ids=str,
)
def test_rare_steps_of_a_record_that_is_replaced(event, delta):
    replaced = accountant_of(event, relation=NeighborRel.REPLACE_ONE)
    removed = accountant_of(event)
    low, high = replaced.get_epsilon_bounds(delta)
    # The new record may contribute nothing.
    assert removed.get_epsilon_bounds(delta)[0] <= high
    assert 0 <= low <= high < 1e-6
