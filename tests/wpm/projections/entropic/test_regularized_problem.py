"""The regularised problem: weights, and a proof that encloses the optimum."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import wpm_oracles

from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import regularized_problem


def regularized_cost(plan, cost):
    return float((plan * cost).sum() + (plan * np.log(plan)).sum())


@settings(max_examples=15, deadline=None)
@given(wpm_oracles.seeds)
def test_proof_encloses_the_optimum_at_any_prices(seed):
    problem = wpm_oracles.problem_of(seed)
    limit = alternating_projections.project(problem, 200)
    potentials = regularized_problem.row_prices(problem, limit.prices)
    plan = np.exp(potentials[:, np.newaxis] + limit.prices - problem.cost)
    np.testing.assert_allclose(plan.sum(axis=1), problem.masses, rtol=1e-9)
    optimum = regularized_cost(plan, problem.cost)
    wild = np.random.default_rng(seed).normal(size=potentials.size)
    for prices in (potentials, potentials + 0.1, wild, 30 * wild):
        weights = regularized_problem.weigh(problem, prices)
        proof = regularized_problem.prove(problem, weights)
        dual = problem.masses @ prices + proof.distribution @ proof.prices
        assert dual <= optimum + 1e-9 * (1 + abs(optimum))
        assert dual + proof.gap >= optimum - 1e-9 * (1 + abs(optimum))
        wpm_oracles.assert_in_polytope(
            np.clip(proof.distribution, problem.polytope.lower, problem.polytope.upper),
            problem.polytope,
        )


def test_weights_are_sums_of_exponentials():
    problem = wpm_oracles.problem_of(1)
    prices = 300 * np.random.default_rng(1).normal(size=problem.masses.size)
    found = regularized_problem.weigh(problem, prices)
    truth = np.logaddexp.reduce(prices[:, np.newaxis] - problem.cost, axis=0)
    np.testing.assert_allclose(found.logs, truth, rtol=1e-12)
    np.testing.assert_allclose(found.shares.sum(axis=0), 1.0, rtol=1e-12)
