"""Privacy loss distributions for users of them without accountants."""

from fractions import Fraction
import math

import dp_accounting
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.reading import stock_pld

Bound = dominating_pair.Bound
NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
PLD = privacy_loss_distribution.PrivacyLossDistribution


def brackets(event, epsilon, **options):
    return [
        pld.from_event(
            event, pessimistic_estimate=side, **options
        ).get_delta_for_epsilon(epsilon)
        for side in (False, True)
    ]


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("interval", [1e-2, 1e-4])
def test_both_sides_of_a_gaussian(epsilon, interval):
    lower, upper = brackets(
        Gaussian(1.0), epsilon, value_discretization_interval=interval
    )
    truth = oracles.gaussian_delta(1.0, epsilon)
    assert lower <= truth <= upper
    assert upper <= truth * (1 + interval**2 + 1e-5)
    assert lower >= truth * (1 - 5 * interval)


def test_each_direction_is_a_bound():
    rate = 0.2
    found = pld.from_event(Poisson(rate, Gaussian(1.0)))
    for epsilon in (0.0, 0.1, 1.0):
        truths = oracles.shift_mixture_deltas(
            [(0.0, 1 - rate), (1.0, rate)], [(0.0, 1.0)], epsilon
        )
        for pmf, name in ((found._pmf_remove, "remove"), (found._pmf_add, "add")):
            delta = pmf.get_delta_for_epsilon(epsilon)
            assert truths[name] <= delta <= truths[name] * (1 + 1e-5) + 1e-15


def test_it_composes_with_stock_distributions():
    ours = pld.from_event(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    stock = privacy_loss_distribution.from_gaussian_mechanism(5.0)
    accountant = ext.PLDAccountant()
    accountant.compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    accountant.compose(Gaussian(5.0))
    together = ours.compose(stock).get_epsilon_for_delta(1e-6)
    assert together == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_subsampling_agrees_with_the_stocks_closed_form():
    ours = pld.poisson_subsample(pld.from_event(Gaussian(1.0)), 0.01)
    stock = privacy_loss_distribution.from_gaussian_mechanism(1.0, sampling_prob=0.01)
    ours, stock = (
        one.self_compose(1000).get_epsilon_for_delta(1e-6) for one in (ours, stock)
    )
    assert ours == pytest.approx(stock, rel=1e-6)


def test_a_stock_distribution_is_repaired_first():
    """Its Σ p e^{−loss} is above one, which subsampling would blow up."""
    stock = privacy_loss_distribution.from_gaussian_mechanism(1.0)
    found = pld.poisson_subsample(stock, 0.01).self_compose(1000)
    truth = ext.PLDAccountant().compose(Poisson(0.01, Gaussian(1.0)), 1000)
    lower, upper = truth.get_epsilon_bounds(1e-6)
    assert lower <= found.get_epsilon_for_delta(1e-6) <= upper * (1 + 5e-3)


def test_allocation_of_a_stock_distribution():
    stock = privacy_loss_distribution.from_laplace_mechanism(1.0)
    found = pld.random_allocation(stock, 2, 21)
    event = ext.RandomAllocationEvent(dp_accounting.LaplaceDpEvent(1.0), 2, 21)
    expected = ext.PLDAccountant().compose(event).get_epsilon(1e-6)
    assert found.get_epsilon_for_delta(1e-6) == pytest.approx(expected, rel=1e-2)


def test_optimistic_distributions_stay_below():
    event = Gaussian(1.0)
    optimistic = pld.from_event(event, pessimistic_estimate=False)
    pessimistic = pld.from_event(event)
    for change, close in (
        (lambda one: pld.poisson_subsample(one, 0.1), 1.01),
        (lambda one: pld.random_allocation(one, 1, 10), 1.01),
        # The lower end is the mechanism's own, the upper one that of blocks.
        (lambda one: pld.random_allocation(one, 3, 10), 1.2),
    ):
        low, high = change(optimistic), change(pessimistic)
        for epsilon in (0.0, 0.2, 1.0):
            least = low.get_delta_for_epsilon(epsilon)
            assert least <= high.get_delta_for_epsilon(epsilon) <= least * close


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sparse_distributions_by_hand(data):
    """Subsampled, δ_λ(ε) = λ δ(ln(1 + (e^ε − 1)/λ)) in the remove direction."""
    losses = data.draw(
        st.lists(st.integers(-30, 30), min_size=1, max_size=6, unique=True)
    )
    weights = data.draw(
        st.lists(st.floats(0.01, 1.0), min_size=len(losses), max_size=len(losses))
    )
    infinity = data.draw(st.sampled_from([0.0, 0.1]))
    interval = 0.1
    masses = np.array(weights) / sum(weights) * (1 - infinity)
    pmf = pld_pmf.SparsePLDPmf(
        dict(zip(losses, masses.tolist(), strict=True)), interval, infinity, True
    )
    rate = data.draw(st.floats(0.05, 1.0))
    found = pld.poisson_subsample(PLD(pmf), rate)
    for epsilon in (0.0, 0.15, 1.0):
        with mpmath.workdps(40):
            kappa = 1 + mpmath.expm1(mpmath.mpf(epsilon)) / rate
            given = [
                mass * max(1 - kappa * mpmath.exp(-loss * mpmath.mpf(interval)), 0)
                for loss, mass in zip(losses, masses.tolist(), strict=True)
            ]
            least = rate * (infinity + sum(given))
        assert found._pmf_remove.get_delta_for_epsilon(epsilon) >= least


def test_ends_of_the_arguments():
    given = pld.from_event(Gaussian(2.0))
    nothing = pld.poisson_subsample(given, 0.0)
    assert 0 <= nothing.get_delta_for_epsilon(0.0) < 1e-15
    same = pld.random_allocation(pld.poisson_subsample(given, 1.0), 1, 1)
    assert same.get_delta_for_epsilon(1.0) == pytest.approx(
        given.get_delta_for_epsilon(1.0), rel=1e-9
    )
    none = pld.from_event(dp_accounting.NonPrivateDpEvent())
    assert none.get_delta_for_epsilon(5.0) == 1.0
    no_op = pld.from_event(dp_accounting.NoOpDpEvent())
    assert 0 <= no_op.get_delta_for_epsilon(0.0) < 1e-15


def hostile(masses, infinity=0.0, start=0):
    dense = pld_pmf.DensePLDPmf(0.5, start, np.array(masses), infinity, True)
    return PLD(dense)


@pytest.mark.parametrize(
    ("distribution", "error", "message"),
    [
        (hostile([0.5, math.nan]), ValueError, "privacy_loss_distribution.*nan"),
        (hostile([0.9, 0.9]), ValueError, "sum to at most 1. Found a sum of 1.8"),
        (hostile([1.2, -0.3]), ValueError, "least mass of -0.3"),
        (hostile([1.0], math.nan), ValueError, "Found a sum of nan"),
        (hostile([0.5], -0.1), ValueError, "infinity mass of -0.1"),
        ("a string", TypeError, "must be a PrivacyLossDistribution. Found str"),
    ],
)
def test_bad_distributions(distribution, error, message):
    with pytest.raises(error, match=message):
        pld.poisson_subsample(distribution, 0.1)


def test_losses_that_cannot_be_are_raised():
    """All losses negative: no pair has that; the nearest above it says nothing."""
    found = pld.poisson_subsample(hostile([0.5, 0.5], start=-9), 0.5)
    assert found.get_delta_for_epsilon(0.0) <= 1e-9


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: pld.poisson_subsample(d, 1.5), ValueError, "sampling_probability"),
        (lambda d: pld.random_allocation(d, 0, 5), ValueError, "num_selected"),
        (lambda d: pld.random_allocation(d, 1, 2.0), TypeError, "num_steps"),
        (
            lambda d: pld.from_event(Gaussian(1.0), value_discretization_interval=0.0),
            ValueError,
            "value_discretization_interval",
        ),
        (
            lambda d: pld.from_event(Gaussian(1.0), value_discretization_interval=1e-8),
            ValueError,
            "value_discretization_interval must be at least",
        ),
        (
            lambda d: pld.from_event(dp_accounting.UnsupportedDpEvent()),
            privacy_accountant.UnsupportedEventError,
            "caused by subevent UnsupportedDpEvent",
        ),
        (
            lambda d: pld.from_event(
                dp_accounting.RandomizedResponseDpEvent(0.5, 2),
                neighboring_relation=NeighborRel.ADD_OR_REMOVE_ONE,
            ),
            privacy_accountant.UnsupportedEventError,
            "REPLACE_SPECIAL",
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(pld.from_event(Gaussian(3.0)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_read_is_a_realization(data):
    """Losses only rise, or are dropped, until Σ p e^{−loss} is at most one."""
    size = data.draw(st.integers(1, 8))
    start = data.draw(st.integers(-12, 4))
    weights = data.draw(st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size))
    masses = np.array(weights) / sum(weights)
    for pessimistic in (True, False):
        pmf = pld_pmf.DensePLDPmf(0.5, start, masses, 0.0, pessimistic)
        pairs, _ = stock_pld.read(PLD(pmf))
        pair = pairs.remove
        total = sum(oracles.exact(pair.masses)) + Fraction(pair.zero_mass)
        assert total <= 1 + Fraction(pair.mass_error) + Fraction(1, 2**50)
        for epsilon in (0.0, 0.7, 2.0):
            with mpmath.workdps(40):
                given = sum(
                    mpmath.mpf(float(mass)) * -mpmath.expm1(epsilon - loss)
                    for loss, mass in zip(
                        (start + np.arange(size)) / 2, masses, strict=True
                    )
                    if loss > epsilon
                )
            found = pair.delta(epsilon, dominating_pair.Direction.REMOVE)
            if pessimistic:
                assert found >= min(given, 1)
            else:
                assert found <= given


def test_optimistic_sinks_are_rounded_down():
    """P = (2, 0, 3)/5 and Q = (0, 4, 5)/9: a third of either is in a sink."""
    pair = dominating_pair.DominatingPair(
        np.array([27 / 25]), np.array([5 / 9]), 2 / 5, 4 / 9, Bound.LOWER, 2.0**-51
    )
    found = stock_pld.write(dominating_pair.DirectedPairs.same(pair), 1e-3)
    assert found._pmf_remove._infinity_mass < Fraction(2, 5)
    assert found._pmf_add._infinity_mass < Fraction(4, 9)
