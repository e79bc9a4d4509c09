"""The entropic projection: its limit, its bound, its certificate."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext.wpm.projections.entropic import entropic_projection


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
    settings = entropic_projection.make_settings(regularization, 1e-6, 5000, "newton")
    found = entropic_projection.solve(masses[0], cost, polytope, settings)
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


def test_costs_that_overflow_over_the_parameter_have_an_answer():
    masses, cost, polytope = positive_case(1)
    settings = entropic_projection.make_settings(0.05, 1e-6, 100, "newton")
    found = entropic_projection.solve(masses[0], cost * 1e307, polytope, settings)
    law = found.distributions[0]
    assert law.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.all((law >= polytope.lower * (1 - 1e-12)) & (law <= polytope.upper))
    reached = wpm_oracles.reaching_cost(masses[0], cost, law)
    assert reached <= found.values[0] / 1e307 * (1 + 1e-9) < np.inf
    assert 0 <= found.regularized_gaps[0] < np.inf
