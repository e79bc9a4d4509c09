"""Brackets by sampling: against quadrature, over many seeds, and when it gives up."""

import dataclasses

import correlated_oracles
import dp_accounting
import min_sep_oracles
import numpy as np
import pytest
from scipy import optimize

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated.sampling import bets
from dp_accounting_ext.correlated.sampling import moment_tilts
from dp_accounting_ext.correlated.sampling import sampling_certificate
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.pairs import gaussian

GRAM = np.array([[1.0, 0.6], [0.6, 1.0]])
BAND = (1.0, 0.5, 0.25)
EVENT = ext.MatrixAllocationEvent(BAND, 3.0, 8, 2)


def truth(gram, delta):
    def excess(epsilon):
        return correlated_oracles.profile(gram, epsilon, remove=True) - delta

    return optimize.brentq(excess, 0.0, 20.0)


@pytest.fixture
def few_samples(monkeypatch):
    """So few leave no slack but that of a bet."""
    for name, fewer in {
        "_FEWEST": 30,
        "_MOST_OF_PILOT": 300,
        "_GRID": np.linspace(-2.5, 2.5, 21),
        "_FEWEST_OF_PILOT": 300,
    }.items():
        monkeypatch.setattr(bets, name, fewer)
    monkeypatch.setattr(moment_tilts, "_MOST_MOMENTS", 3)


@pytest.mark.usefixtures("few_samples")
def test_hardly_any_seed_of_four_hundred_fails():
    """At α = 0.1 forty may."""
    known, failures, widths = truth(GRAM, 0.01), 0, []
    for seed in range(400):
        found = sampling_certificate.certify_mixture(GRAM, 0.01, 0.1, 0.1, seed)
        widths.append(found.upper - found.lower)
        failures += not found.lower <= known <= found.upper
    assert failures <= 40, failures
    assert np.median(widths) < 0.35 * known


@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_bracket_of_few_bins_holds(delta):
    gram = correlated_oracles.toeplitz_gram(BAND, 3, 2, 2.0)
    found = sampling_certificate.certify_mixture(gram, delta, seed=5)
    assert found.lower <= truth(gram, delta) <= found.upper < 1.025 * found.lower


@pytest.mark.parametrize(
    ("bins", "common", "own"), [(5, 0.5, 0.5), (16, 1.0, 0.3), (40, 0.05, 0.8)]
)
def test_many_bins_with_one_thing_in_common(bins, common, own):
    """Given what they have in common they are 1 of t steps, whose law is known."""
    factor = np.linspace(-11.0, 11.0, 4001)
    weights = np.exp(-(factor**2) / 2) * (factor[1] - factor[0]) / np.sqrt(2 * np.pi)
    moved = np.sqrt(common) * factor - common / 2

    def epsilon(bound):
        step = gaussian.dominating_pair_of(own**-0.5, bound, tail_mass=1e-25)
        pair = random_allocation.random_allocation(step, bins, accuracy.Accuracy(1e-22))
        profile = pair.profile(Direction.REMOVE)

        def excess(goal):
            deltas = profile.deltas(goal - moved)
            return float((weights * np.exp(moved) * deltas).sum()) - 1e-5

        return optimize.brentq(excess, 0.0, 20.0)

    low, high = epsilon(Bound.LOWER), epsilon(Bound.UPPER)
    found = sampling_certificate.certify_mixture(
        common + own * np.eye(bins), 1e-5, relative_width=0.02, seed=3
    )
    assert found.lower <= high
    assert low <= found.remove_upper <= 1.05 * found.lower


def test_an_event_is_bracketed_in_both_directions():
    found = ext.certify_by_sampling(EVENT, 1e-4, relative_width=0.03, seed=1)
    low, high = ext.PLDAccountant().compose(EVENT).get_epsilon_bounds(1e-4)
    assert low <= found.upper
    assert found.lower <= high
    assert found.upper == max(found.remove_upper, found.add_upper)
    assert found.upper - found.lower < high - low


def test_a_seed_has_one_answer():
    found, again = (
        dataclasses.replace(
            ext.certify_by_sampling(EVENT, 1e-4, relative_width=0.2, seed=1), seconds=0
        )
        for _ in range(2)
    )
    assert found == again


def test_it_says_when_its_budget_will_not_do():
    with pytest.raises(sampling_certificate.BudgetError, match="most_seconds, 0.001"):
        sampling_certificate.certify_mixture(
            GRAM, 1e-6, relative_width=1e-3, seed=1, most_seconds=1e-3
        )


def test_equal_means_are_a_gaussian():
    """A matrix of rank one is semidefinite but for rounding."""
    gaussian = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0))
    low, high = gaussian.get_epsilon_bounds(1e-3)
    found = sampling_certificate.certify_mixture(np.ones((3, 3)), 1e-3, 0.01, seed=1)
    assert found.lower <= high
    assert low <= found.upper <= 1.03 * found.lower


@pytest.mark.nightly
def test_one_that_no_sample_meets_is_refused_by_name():
    with pytest.raises(sampling_certificate.BudgetError) as refused:
        ext.certify_by_sampling(EVENT, 1e-300, 0.01, seed=1)
    assert "delta 1e-300" in str(refused.value)
    assert "get_epsilon_bounds needs no samples" in str(refused.value)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "delta"),
    [(0.7, 2, 5, 1e-5), (1.0, 4, 4, 1e-3), (0.6, 1, 30, 1e-6)],
)
def test_draws_of_steps_agree_with_their_certified_bracket(
    sigma, selected, steps, delta
):
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    event = ext.RandomAllocationEvent(gaussian, selected, steps)
    low, high = ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)
    found = ext.certify_by_sampling(event, delta, 1e-6, 0.02, seed=1)
    assert low <= found.upper <= 1.05 * high
    assert 0.95 * low <= found.lower <= high


def test_poisson_samples_with_correlated_noise_against_quadrature():
    """All sets of four steps, of whose means those that are near are correlated."""
    rate, sigma, column, delta = 0.2, 1.5, (1.0, 0.6, 0.3), 1e-4
    gram = min_sep_oracles.gram_of(min_sep_oracles.toeplitz(column, 4), sigma)
    law = min_sep_oracles.law_of_groups(rate, 1, 4)

    def excess(epsilon):
        return min_sep_oracles.profile(gram, law, epsilon, remove=True) - delta

    known = optimize.brentq(excess, 0.0, 20.0)
    event = ext.PoissonMatrixEvent(column, sigma, rate, 4)
    found = ext.certify_by_sampling(event, delta, 1e-6, 0.02, seed=1)
    assert found.lower <= known <= found.remove_upper < 1.05 * found.lower
    low, high = ext.PLDAccountant().compose(event).get_epsilon_bounds(delta)
    assert low <= known <= high
    assert found.upper == max(found.remove_upper, found.add_upper)
    assert found.remove_upper < high


@pytest.mark.nightly
@pytest.mark.usefixtures("few_samples")
def test_hardly_any_seed_of_two_hundred_fails_for_poisson_samples():
    """At α = 0.1 twenty may."""
    event, failures, widths = ext.PoissonMatrixEvent((1.0, 0.6), 1.5, 0.3, 3), 0, []
    gram = min_sep_oracles.gram_of(min_sep_oracles.toeplitz((1.0, 0.6), 3), 1.5)
    law = min_sep_oracles.law_of_groups(0.3, 1, 3)

    def excess(epsilon):
        return min_sep_oracles.profile(gram, law, epsilon, remove=True) - 0.01

    known = optimize.brentq(excess, 0.0, 20.0)
    for seed in range(200):
        found = ext.certify_by_sampling(event, 0.01, 0.1, 0.1, seed)
        widths.append(found.remove_upper - found.lower)
        failures += not found.lower <= known <= found.remove_upper
    assert failures <= 20, failures
    assert np.median(widths) < 0.35 * known
