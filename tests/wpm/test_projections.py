"""Projections: certificates, the polytope, and the entropic one."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import entropic_projection
from dp_accounting_ext.wpm.projections import ldp_polytope


def test_value_is_the_cost_of_reaching_the_distribution():
    masses, cost, measure, epsilon = wpm_oracles.random_case(np.random.default_rng(5))
    found = wpm.project(masses, cost, measure, epsilon)
    law = found.distribution
    assert found.value == pytest.approx(
        wpm_oracles.reaching_cost(masses, cost, law), rel=1e-9
    )


def test_a_batch_is_its_users():
    generator = np.random.default_rng(3)
    cost = generator.random((9, 7))
    users = generator.dirichlet(np.ones(9), size=4)
    measure = np.full(7, 1 / 7)
    batch = wpm.project(users, cost, measure, 1.0)
    for place, user in enumerate(users):
        single = wpm.project(user, cost, measure, 1.0)
        np.testing.assert_array_equal(batch.distribution[place], single.distribution)
        assert batch.value[place] == single.value
        assert batch.gap[place] == single.gap


def test_costs_of_zero_leave_nothing_to_do():
    found = wpm.project([0.25, 0.75], np.zeros((2, 3)), np.full(3, 1 / 3), 1.0)
    assert found.value == 0.0 and found.converged


@pytest.mark.parametrize("regularization", [1.0, 1e4, 1e12, 1e20, 1e100])
@pytest.mark.parametrize("epsilon", [1.0, 40.0])
def test_prices_far_above_the_costs_prove_no_more_than_is_true(regularization, epsilon):
    """Prices grow with the regularization, and cancel in the bound."""
    generator = np.random.default_rng(4)
    for size in (2, 3, 7):
        cost = generator.random((size, size))
        np.fill_diagonal(cost, 0.0)
        masses = generator.dirichlet(np.ones(size))
        measure = np.full(size, 1 / size)
        least = wpm.project(masses, cost, measure, epsilon).value
        found = wpm.project(masses, cost, measure, epsilon, regularization)
        assert 0.0 <= found.lower_bound <= least <= found.value * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_any_prices_bound_the_least_cost(seed):
    """Against the linear program; and the same number in rational arithmetic."""
    generator = np.random.default_rng(seed)
    masses, cost, measure, epsilon = wpm_oracles.random_case(generator, most=12)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    prices = generator.normal(size=cost.shape[1]) * generator.choice([0.1, 1.0, 30.0])
    found = duality.lower_bound(masses, prices, cost, polytope)
    slack = 1e-12 * (1 + np.abs(prices).max())
    assert found <= truth + slack + 1e-8 * truth
    exact = wpm_oracles.rational_lower_bound(
        masses, prices, cost, polytope.lower, polytope.upper
    )
    assert abs(found - float(exact)) <= slack


def test_bounds_of_outputs_far_above_one():
    """What is left for the second is not the difference of two such bounds."""
    polytope = ldp_polytope.LdpPolytope(np.array([0.0, 0.5]), np.array([0.3, 7.9e14]))
    cost = np.array([[0.0, 1.0]])
    found = duality.lower_bound(np.array([1.0]), cost[0], cost, polytope)
    assert found == pytest.approx(0.7, rel=1e-15)


def test_completed_prices_leave_the_nearest_as_near():
    generator = np.random.default_rng(0)
    cost, outputs = generator.random((5, 8)), np.array([0, 2, 3, 7])
    prices = generator.normal(size=4)
    completed = duality.complete_prices(prices, cost, outputs)
    np.testing.assert_array_equal(completed[outputs], prices)
    nearest = (cost[:, outputs] - prices).min(axis=1)
    np.testing.assert_allclose((cost - completed).min(axis=1), nearest, atol=1e-15)
    higher = completed + np.where(np.isin(np.arange(8), outputs), 0, 1e-6)
    assert ((cost - higher).min(axis=1) < nearest).any()


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


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds, wpm_oracles.st.sampled_from([0.3, 0.03]))
def test_excess_cost_is_within_the_bound(seed, regularization):
    masses, cost, polytope = positive_case(seed)
    settings = entropic_projection.make_settings(regularization, 1e-6, 5000)
    found = entropic_projection.solve(masses[0], cost, polytope, settings)
    law = found.distribution
    reached = wpm_oracles.reaching_cost(masses[0], cost, law)
    least = wpm_oracles.transport_program(
        masses[0], cost, polytope.lower, polytope.upper
    )
    bound = entropic_projection.error_bound(regularization, cost.shape[1])
    assert reached - least <= bound + found.regularized_gap
    assert reached <= found.value * (1 + 1e-9)


def test_bound_is_below_the_papers():
    assert entropic_projection.error_bound(0.1, 30) <= 2 * 0.1 * np.log(30) / 2


def test_costs_that_overflow_over_the_parameter_have_an_answer():
    masses, cost, polytope = positive_case(1)
    settings = entropic_projection.make_settings(0.05, 1e-6, 100)
    found = entropic_projection.solve(masses[0], cost * 1e307, polytope, settings)
    law = found.distribution
    assert law.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.all((law >= polytope.lower * (1 - 1e-12)) & (law <= polytope.upper))
    reached = wpm_oracles.reaching_cost(masses[0], cost, law)
    assert reached <= found.value / 1e307 * (1 + 1e-9) < np.inf
    assert 0 <= found.regularized_gap < np.inf


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


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds)
def test_newton_steps_reach_the_limit_of_the_papers_iteration(seed):
    masses, cost, polytope = positive_case(seed)
    problem = entropic_projection.Problem(masses[0], cost / 0.2, polytope)
    prices = np.zeros(cost.shape[1])
    for _ in range(400):
        potentials = problem.row_prices(prices)
        logs, _ = entropic_projection.weigh(problem, potentials)
        law = ldp_polytope.kl_projection(logs[np.newaxis], polytope)[0]
        prices = np.log(law) - logs
    tight = entropic_projection.make_settings(0.2, 1e-10, 200)
    found = entropic_projection.solve(masses[0], cost, polytope, tight)
    assert found.converged
    np.testing.assert_allclose(found.distribution, law, atol=1e-6)
