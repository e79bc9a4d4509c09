"""Brackets by sampling: against quadrature, over many seeds, and when it gives up."""

import dataclasses
import math

import correlated_oracles
import dp_accounting
import numpy as np
import pytest
from scipy import optimize

import dp_accounting_ext as ext
from dp_accounting_ext import sampling_certificate

GRAM = np.array([[1.0, 0.6], [0.6, 1.0]])
BAND = (1.0, 0.5, 0.25)
EVENT = ext.MatrixAllocationEvent(BAND, 3.0, 20, 2)


def truth(gram, delta):
    def excess(epsilon):
        return correlated_oracles.profile(gram, epsilon, remove=True) - delta

    return optimize.brentq(excess, 0.0, 20.0)


def test_hardly_any_seed_of_a_thousand_fails(monkeypatch):
    """At α = 0.1 a hundred may. So few samples leave no slack but that of a bet."""
    for name, fewer in (("_FEWEST", 30), ("_MOST_OF_PILOT", 300)):
        monkeypatch.setattr(sampling_certificate, name, fewer)
    monkeypatch.setattr(sampling_certificate, "_GRID", np.linspace(-2.5, 2.5, 21))
    monkeypatch.setattr(sampling_certificate, "_FEWEST_OF_PILOT", 300)
    monkeypatch.setattr(sampling_certificate, "_MOST_MOMENTS", 3)
    known, failures, widths = truth(GRAM, 0.01), 0, []
    for seed in range(1000):
        found = sampling_certificate.certify_mixture(GRAM, 0.01, 0.1, 0.1, seed)
        widths.append(found.upper - found.lower)
        failures += not found.lower <= known <= found.upper
    assert failures <= 100, failures
    assert np.median(widths) < 0.35 * known


@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_bracket_of_few_bins_holds(delta):
    gram = correlated_oracles.toeplitz_gram(BAND, 3, 2, 2.0)
    found = sampling_certificate.certify_mixture(gram, delta, seed=5)
    assert found.lower <= truth(gram, delta) <= found.upper < 1.025 * found.lower


def test_an_event_is_bracketed_in_both_directions():
    found = ext.certify_by_sampling(EVENT, 1e-4, relative_width=0.03, seed=1)
    low, high = ext.PLDAccountant().compose(EVENT).get_epsilon_bounds(1e-4)
    assert low <= found.upper
    assert found.lower <= high
    assert found.upper == max(found.remove_upper, found.add_upper)
    assert found.upper - found.lower < high - low
    again = ext.certify_by_sampling(EVENT, 1e-4, relative_width=0.03, seed=1)
    assert dataclasses.replace(again, seconds=0) == dataclasses.replace(
        found, seconds=0
    )


def test_a_seed_is_drawn_where_none_is_given():
    first, second = (
        sampling_certificate.certify_mixture(GRAM, 0.1, 0.1, 0.05) for _ in range(2)
    )
    assert first.seed != second.seed
    assert first.failure_probability == 0.1


def test_what_is_nearly_private_has_a_lower_bound_of_zero():
    found = sampling_certificate.certify_mixture(GRAM / 1e4, 0.05, 0.1, 0.1, 1)
    assert found.lower == 0
    assert 0 <= found.upper < 0.05


def test_it_says_when_its_budget_will_not_do():
    with pytest.raises(sampling_certificate.BudgetError, match="most_seconds, 0.001"):
        sampling_certificate.certify_mixture(
            GRAM, 1e-6, relative_width=1e-3, seed=1, most_seconds=1e-3
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delta": 0.0}, "delta must be in"),
        ({"delta": math.nan}, "delta must be a number"),
        ({"failure_probability": 1.0}, "failure_probability must be in"),
        ({"relative_width": -1.0}, "relative_width must be in"),
    ],
)
def test_bad_arguments(fields, message):
    with pytest.raises(ValueError, match=message):
        ext.certify_by_sampling(EVENT, **{"delta": 0.01, **fields})


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "positive semidefinite. Found the eigenvalue -1"),
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric. Found entries that differ by 0.1"),
        ([[1.0, -0.1], [-0.1, 1.0]], r"entries in \[0, 600\]. Found -0.1"),
        ([[math.nan]], r"entries in \[0, 600\]. Found nan"),
        ([[1e3]], r"entries in \[0, 600\]. Found 1000"),
        ([1.0, 0.5], r"square matrix. Found shape \(2,\)"),
        (np.eye(3)[:2], r"square matrix. Found shape \(2, 3\)"),
        (np.empty((0, 0)), r"square matrix. Found shape \(0, 0\)"),
        (np.zeros((2, 2)), "an entry above 0"),
        (np.broadcast_to(1.0, (4097, 4097)), "at most 4096 rows. Found 4097"),
    ],
)
def test_matrices_that_no_means_have(gram, message):
    with pytest.raises(ValueError, match=f"gram.* must .*{message}"):
        sampling_certificate.certify_mixture(gram, 0.01)


@pytest.mark.parametrize(
    "gram", [[[1.0], [1.0, 2.0]], "gram", [["1"]], [[True]], [[1, 1j], [-1j, 1]]]
)
def test_matrices_that_are_not_of_real_numbers(gram):
    with pytest.raises(TypeError, match="gram must be an array of real numbers"):
        sampling_certificate.certify_mixture(gram, 0.01)


def test_equal_means_are_a_gaussian():
    """A matrix of rank one is semidefinite but for rounding."""
    gaussian = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0))
    low, high = gaussian.get_epsilon_bounds(1e-3)
    found = sampling_certificate.certify_mixture(np.ones((3, 3)), 1e-3, 0.01, seed=1)
    assert found.lower <= high
    assert low <= found.upper <= 1.03 * found.lower


def test_a_rare_delta_is_answered():
    gaussian = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0))
    low, high = gaussian.get_epsilon_bounds(1e-30)
    found = sampling_certificate.certify_mixture(np.eye(1), 1e-30, 0.01, seed=1)
    assert found.lower <= high
    assert low <= found.upper <= 1.03 * found.lower


def test_one_that_no_sample_meets_is_refused_by_name():
    with pytest.raises(sampling_certificate.BudgetError) as refused:
        ext.certify_by_sampling(EVENT, 1e-300, 0.01, seed=1)
    assert "delta 1e-300" in str(refused.value)
    assert "get_epsilon_bounds needs no samples" in str(refused.value)


@pytest.mark.parametrize("seed", ["x", -1, 1.5, True])
def test_a_seed_is_a_non_negative_integer(seed):
    with pytest.raises(TypeError, match="seed must be None or a non-negative integer"):
        ext.certify_by_sampling(EVENT, 0.01, seed=seed)


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "delta"),
    [(0.7, 2, 8, 1e-5), (1.0, 4, 4, 1e-3), (0.6, 1, 30, 1e-6)],
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


@pytest.mark.parametrize(
    ("noise", "selected", "steps", "message"),
    [
        (dp_accounting.LaplaceDpEvent(1.0), 2, 9, "of Gaussian noise, not 0"),
        (dp_accounting.GaussianDpEvent(0.0), 2, 9, "of Gaussian noise, not 0"),
        (dp_accounting.GaussianDpEvent(1.0), 2, 92, "at most 4096 sets.*2 of 92"),
        (dp_accounting.GaussianDpEvent(1.0), 500, 1000, "Found 500 of 1000"),
        (dp_accounting.GaussianDpEvent(1.0), 10**9, 10**9, "sets, and steps"),
    ],
)
def test_draws_that_are_not_sampled(noise, selected, steps, message):
    event = ext.RandomAllocationEvent(noise, selected, steps)
    with pytest.raises(ValueError, match=message):
        ext.certify_by_sampling(event, 0.01)


def test_other_events_are_refused():
    with pytest.raises(TypeError, match=r"must be a MatrixAllocationEvent.*_mixture"):
        ext.certify_by_sampling(1.0, 0.01)
    bare = ext.MatrixAllocationEvent(BAND, 0.0, 20, 2)
    with pytest.raises(ValueError, match="must be positive. Found 0"):
        ext.certify_by_sampling(bare, 0.01)
