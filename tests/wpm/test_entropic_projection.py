"""The entropic projection: its limit, its certificate, its batches and its speed."""

import dataclasses

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.entropic import gibbs_kernel


def ring(size, order=2):
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.minimum(apart, size - apart).astype(float) ** order


def positive_case(seed, most=12):
    """A case with all masses positive, as the rate's theorem wants it."""
    generator = np.random.default_rng(seed)
    k, size = generator.integers(2, most, 2)
    cost = generator.random((k, size))
    masses = generator.dirichlet(np.full(k, 0.5)) * 0.99 + 0.01 / k
    epsilon = float(generator.choice([0.3, 1.0, 4.0]))
    place = generator.uniform(-0.9, 0.9)
    measure = generator.dirichlet(np.full(size, 2.0)) * np.exp(place * epsilon / 2)
    return masses[np.newaxis], cost, wpm_oracles.polytope_of(measure, epsilon)


def entropic_cost(plan, cost, regularization):
    return (plan * cost).sum() + regularization * (plan * np.log(plan)).sum()


@settings(max_examples=50, deadline=None)
@given(wpm_oracles.seeds)
def test_kl_projection_satisfies_its_conditions(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 30))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    measure = generator.dirichlet(np.full(size, 0.7)) + 1e-9
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / measure.sum()
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    logs = generator.normal(size=(3, size)) * generator.choice([0.1, 10.0, 500.0])
    found = ldp_polytope.kl_projection(logs, polytope)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-11)
    for law, weights in zip(found, logs, strict=True):
        # One θ for all strictly between; larger needed above, smaller below.
        theta = np.log(law) - weights
        low = law <= polytope.lower * (1 + 1e-12)
        high = law >= polytope.upper * (1 - 1e-12)
        least = theta[~low].max(initial=-np.inf)
        most = theta[~high].min(initial=np.inf)
        assert least <= most + 1e-9 * (1 + abs(most))


@settings(max_examples=15, deadline=None)
@given(wpm_oracles.seeds)
def test_plain_iteration_contracts_at_the_birkhoff_rate(seed):
    masses, cost, polytope = positive_case(seed)
    regularization = 0.4
    factor = alternating_projections.contraction_factor(cost, regularization)
    problem = alternating_projections.make_problem(
        masses, cost / regularization, polytope
    )

    def distance(left, right):
        return np.ptp(left - right)

    limit = alternating_projections.project(problem, 300)
    prices = np.random.default_rng(seed).normal(size=limit.prices.shape)
    first = distance(prices, limit.prices)
    for count in range(1, 8):
        found = alternating_projections.step(problem, prices)
        reached = factor ** (count - 1) * first
        q, goal = found.distributions[0], limit.distributions[0]
        assert q @ np.log(q / goal) <= 2 * factor * reached + 1e-12
        assert distance(found.prices, limit.prices) <= factor * reached + 1e-11
        prices = found.prices


def test_contraction_factor_is_birkhoffs():
    cost = np.array([[0.0, 1.0], [1.0, 0.0]])
    found = alternating_projections.contraction_factor(cost, 0.5)
    assert found == pytest.approx(np.tanh(1.0) ** 2, rel=1e-15)


@settings(max_examples=15, deadline=None)
@given(wpm_oracles.seeds)
def test_acceleration_reaches_the_limit_of_the_plain_iteration(seed):
    masses, cost, polytope = positive_case(seed)
    problem = alternating_projections.make_problem(masses, cost / 0.2, polytope)
    limit = alternating_projections.project(problem, 1000)
    found = entropic_projection.solve(masses, cost, polytope, 0.2, relative_gap=1e-12)
    np.testing.assert_allclose(found.distributions, limit.distributions, atol=1e-6)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds)
def test_certificate_encloses_the_regularised_optimum(seed):
    """At any iterate: the dual below, the feasible plan's cost above."""
    masses, cost, polytope = positive_case(seed)
    scaled = cost / 0.2
    problem = alternating_projections.make_problem(masses, scaled, polytope)
    limit = alternating_projections.project(problem, 1000)
    exponents = limit.prices[0] - scaled
    plan = np.exp(problem.potentials(limit.prices)[:, np.newaxis] + exponents)
    optimum = entropic_cost(plan, scaled, 1.0)
    starts = np.zeros_like(limit.prices), limit.prices + 0.1
    wild = np.random.default_rng(seed).normal(size=limit.prices.shape)
    for prices in (*starts, wild, 30 * wild):
        iterate = alternating_projections.step(problem, prices)
        certificate = entropic_projection.certify(problem, iterate, scaled)
        assert iterate.dual[0] <= optimum + 1e-9
        assert iterate.dual[0] + certificate.gaps[0] >= optimum - 1e-9


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds, wpm_oracles.st.sampled_from([0.3, 0.03]))
def test_excess_cost_is_within_the_bound(seed, regularization):
    masses, cost, polytope = positive_case(seed)
    found = entropic_projection.solve(masses, cost, polytope, regularization)
    law = found.distributions[0]
    reached = wpm_oracles.reaching_cost(masses[0], cost, law)
    least = wpm_oracles.transport_program(
        masses[0], cost, polytope.lower, polytope.upper
    )
    bound = entropic_projection.error_bound(regularization, cost.shape[1])
    assert reached - least <= bound + found.regularized_gaps[0]
    assert reached <= found.values[0] * (1 + 1e-9)


def test_bound_is_below_the_papers():
    assert entropic_projection.error_bound(0.1, 30) <= 2 * 0.1 * np.log(30) / 2


@pytest.mark.parametrize(("share", "plain"), [(0.01, 300), (0.001, 3000)])
def test_far_fewer_passes_than_the_plain_iteration(share, plain):
    """On the ring of 30, to a regularised gap of 1e-6 of the cost."""
    cost = ring(30)
    regularization = share * cost.max()
    masses = np.random.default_rng(1).dirichlet(np.full(30, 0.1))[np.newaxis]
    polytope = wpm_oracles.polytope_of(np.full(30, 1 / 30), 1.0)
    found = entropic_projection.solve(masses, cost, polytope, regularization)
    scaled = cost[masses[0] > 0] / regularization
    users = masses[:, masses[0] > 0]
    problem = alternating_projections.make_problem(users, scaled, polytope)
    slow = alternating_projections.project(problem, plain)
    certificate = entropic_projection.certify(problem, slow, scaled)
    assert certificate.gaps[0] > 1e-6 * certificate.values[0]
    assert found.converged[0] and found.iterations[0] < plain / 5


@pytest.mark.parametrize("share", [0.1, 1e-3, 1e-4])
def test_kernels_agree_at_any_regularisation(share):
    """The absorbing kernel at λ far below what a float can hold an exponential of."""
    cost = ring(30)
    masses = np.random.default_rng(2).dirichlet(np.full(30, 0.1))
    found = wpm.project(masses, cost, np.full(30, 1.5 / 30), 5.0, share * cost.max())
    bound = entropic_projection.error_bound(share * cost.max(), 30)
    assert found.converged
    assert -1e-9 <= found.gap <= bound + found.regularized_gap


def test_both_kernels_take_the_same_sums():
    generator = np.random.default_rng(0)
    cost = 100 * generator.random((6, 5))
    masses = generator.dirichlet(np.ones(6))[np.newaxis]
    support = gibbs_kernel.Support(masses)
    shared = gibbs_kernel._SharedKernel(cost, support)
    absorbing = gibbs_kernel._AbsorbingKernel(cost)
    for spread in (1.0, 30.0, 300.0):
        prices = spread * generator.normal(size=(1, 5))
        potentials = spread * generator.normal(size=6)
        for kernel in (shared, absorbing):
            rows = kernel.log_row_sums(prices)
            truth = np.logaddexp.reduce(prices - cost, axis=1)
            np.testing.assert_allclose(rows, truth, rtol=1e-12, atol=1e-10)
            columns = kernel.log_column_sums(potentials)[0]
            truth = np.logaddexp.reduce(potentials[:, np.newaxis] - cost, axis=0)
            np.testing.assert_allclose(columns, truth, rtol=1e-12, atol=1e-10)


def test_no_user_depends_on_the_others_of_a_batch():
    """Bit by bit, in batches of one size: easy and hard users around the first."""
    generator = np.random.default_rng(4)
    cost = ring(20, order=1)
    polytope = wpm_oracles.polytope_of(np.full(20, 1 / 20), 1.0)
    first = generator.dirichlet(np.full(20, 0.3))
    laws = []
    for others in (generator.dirichlet(np.full(20, 0.05), size=6), np.eye(20)[:6]):
        users = np.concatenate([first[np.newaxis], others])
        found = entropic_projection.solve(users, cost, polytope, 0.1)
        laws.append(found.distributions[0])
    np.testing.assert_array_equal(laws[0], laws[1])


def test_outputs_that_may_hold_nothing():
    cost = ring(12, order=1)
    measure = np.where(np.arange(12) % 3 == 0, 0.0, 1 / 8)
    masses = np.full(12, 1 / 12)
    entropic = wpm.project(masses, cost, measure, 1.0, 1e-3)
    exact = wpm.project(masses, cost, measure, 1.0)
    assert (entropic.distribution[::3] == 0).all()
    assert exact.gap <= 1e-12
    assert exact.value <= entropic.value + 1e-12 <= exact.value + 0.01


def test_no_step_lowers_the_dual(monkeypatch):
    """Mixed steps that would are met, and refused."""
    cost = ring(30)
    masses = np.random.default_rng(1).dirichlet(np.full(30, 0.1))[np.newaxis]
    polytope = wpm_oracles.polytope_of(np.full(30, 1 / 30), 1.0)
    choose, refused = entropic_projection._choose, []

    def watched(moved, users, new, old):
        chosen = choose(moved, users, new, old)
        assert chosen.dual[0] >= old.dual[0] - 1e-12 * abs(old.dual[0])
        refused.append(new.dual[0] < old.dual[0])
        return chosen

    monkeypatch.setattr(entropic_projection, "_choose", watched)
    entropic_projection.solve(masses, cost, polytope, 1e-3 * cost.max())
    assert any(refused)


def test_a_mix_that_leads_far_away_is_a_plain_step():
    """Steps that hardly changed the residual say nothing about where it vanishes."""
    mixing = entropic_projection._Mixing(2, 3, reach=10.0)
    images, residuals = np.ones((2, 3)), np.array([[1e-9] * 3, [0.5] * 3])
    mixing.add(images, residuals, np.array([True, True]))
    image, residual = np.zeros((2, 3)), np.ones((2, 3))
    found = mixing.mixed(image, residual, np.full((2, 3), 1 / 3))
    np.testing.assert_array_equal(found[0], image[0])
    np.testing.assert_allclose(found[1], -2.0)


def test_what_is_no_distribution_proves_nothing():
    masses, cost, polytope = positive_case(0)
    problem = alternating_projections.make_problem(masses, cost, polytope)
    iterate = alternating_projections.project(problem, 3)
    spoiled = dataclasses.replace(iterate, distributions=1.1 * iterate.distributions)
    assert np.isfinite(entropic_projection.certify(problem, iterate, cost).gaps[0])
    assert entropic_projection.certify(problem, spoiled, cost).gaps[0] == np.inf


def test_a_count_that_is_too_low_is_not_called_converged():
    cost = ring(30)
    masses = np.random.default_rng(1).dirichlet(np.full(30, 0.1))[np.newaxis]
    polytope = wpm_oracles.polytope_of(np.full(30, 1 / 30), 1.0)
    found = entropic_projection.solve(
        masses, cost, polytope, 1e-3 * cost.max(), max_iterations=40
    )
    assert not found.converged[0] and found.iterations[0] == 40
    assert found.regularized_gaps[0] > 1e-6 * found.values[0]
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
