"""Newton steps reach the limit of the paper's iteration, at any λ."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.entropic import newton_projection


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds)
def test_it_reaches_the_limit_of_the_plain_iteration(seed):
    problem = wpm_oracles.problem_of(seed)
    limit = alternating_projections.project(problem, 400)
    start = np.zeros(problem.masses.size)
    found, _, met = newton_projection.project(problem, start, 1e-10, 200)
    assert met
    np.testing.assert_allclose(found.distribution, limit.distribution, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.1, 1e-2, 1e-3, 1e-4])
def test_any_regularisation_converges(share, epsilon):
    """Also where λ is far below what a float can hold an exponential of."""
    cost = wpm_oracles.ring(30)
    masses = np.random.default_rng(2).dirichlet(np.full(30, 0.1))
    measure = np.full(30, 1.1 / 30)
    strength = share * cost.max()
    found = wpm.project(masses, cost, measure, epsilon, strength)
    assert found.converged and found.iterations < 400
    bound = entropic_projection.error_bound(strength, 30)
    assert -1e-9 <= found.gap <= bound + found.regularized_gap


def test_outputs_that_may_hold_nothing():
    cost = wpm_oracles.ring(12, order=1)
    measure = np.where(np.arange(12) % 3 == 0, 0.0, 1 / 8)
    masses = np.full(12, 1 / 12)
    entropic = wpm.project(masses, cost, measure, 1.0, 1e-3)
    exact = wpm.project(masses, cost, measure, 1.0)
    assert (entropic.distribution[::3] == 0).all()
    assert exact.gap <= 1e-12
    assert exact.value <= entropic.value + 1e-12 <= exact.value + 0.01


def test_a_count_that_is_too_low_is_not_called_converged():
    cost = wpm_oracles.ring(30)
    masses = np.random.default_rng(1).dirichlet(np.full(30, 0.1))
    found = wpm.project(
        masses, cost, np.full(30, 1 / 30), 1.0, 1e-3 * cost.max(), max_iterations=3
    )
    assert not found.converged and found.iterations == 3
    assert found.regularized_gap > 1e-6 * found.value
