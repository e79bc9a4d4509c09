"""The paper's Algorithm 1: its rate, and how far its forty passes are."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections.entropic import alternating_projections


def birkhoff(cost):
    """The square of Birkhoff's coefficient of the kernel (Theorem 4.3, Lemma L.2)."""
    largest = max(np.ptp(cost - row, axis=1).max() for row in cost)
    return np.tanh(largest / 4) ** 2


def printed(problem, passes):
    """The algorithm as printed: kernel and scalings."""
    kernel = np.exp(-problem.cost)
    v = np.ones(kernel.shape[1])
    for _ in range(passes):
        u = problem.masses / (kernel @ v)
        sums = kernel.T @ u
        low, high = -60.0, 60.0
        for _ in range(200):
            theta = (low + high) / 2
            law = np.clip(
                np.exp(theta) * sums, problem.polytope.lower, problem.polytope.upper
            )
            low, high = (theta, high) if law.sum() < 1 else (low, theta)
        v = law / sums
    return law


@settings(max_examples=20, deadline=None)
@given(wpm_oracles.seeds)
def test_it_is_the_printed_algorithm(seed):
    problem = wpm_oracles.problem_of(seed)
    for passes in (1, 4):
        found = alternating_projections.project(problem, passes).distribution
        np.testing.assert_allclose(found, printed(problem, passes), atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(wpm_oracles.seeds)
def test_it_contracts_at_the_birkhoff_rate(seed):
    problem = wpm_oracles.problem_of(seed, strength=0.4)
    factor = birkhoff(problem.cost)
    limit = alternating_projections.project(problem, 300).prices
    first = np.ptp(limit)
    for passes in range(1, 8):
        found = alternating_projections.project(problem, passes).prices
        assert np.ptp(found - limit) <= factor**passes * first + 1e-10


def test_the_papers_forty_passes_by_name():
    """On the ring of 30, far from converged, and said to be."""
    cost = wpm_oracles.ring(30)
    masses = np.random.default_rng(1).dirichlet(np.full(30, 0.1))
    measure = np.full(30, 1 / 30)
    options = {"regularization": 0.001 * cost.max(), "max_iterations": 40}
    paper = wpm.project(masses, cost, measure, 1.0, algorithm="paper", **options)
    newton = wpm.project(
        masses, cost, measure, 1.0, options["regularization"], max_iterations=200
    )
    assert paper.iterations == 40 and not paper.converged
    assert newton.converged
    assert paper.regularized_gap > 100 * newton.regularized_gap
    mechanism = wpm.WassersteinProjectionMechanism(
        cost, 1.0, measure, algorithm="paper", **options
    )
    np.testing.assert_allclose(mechanism.project(masses), paper.distribution, atol=1e-9)


def test_unknown_algorithms():
    with pytest.raises(ValueError, match='algorithm must be "newton" or "paper"'):
        wpm.WassersteinProjectionMechanism(
            np.eye(2), 1.0, regularization=0.1, algorithm="sinkhorn"
        )
