"""One contract of exact projections, over every kind of user."""

import contextlib

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import nights
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import certified_projection
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_programs

GAP = 1e-6
KINDS = list(wpm_oracles.kinds_of_masses(np.random.default_rng(0), 5))
WAYS = ["POT", "HiGHS"]


@contextlib.contextmanager
def solved_by(way, alone=4):
    """Programs are solved in a way, whatever is installed; few outputs stand alone."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "HiGHS":
            patch.setattr(linear_programs, "_by_simplex", None)
        patch.setattr(certified_projection, "_FEWEST_GROUPS", alone)
        yield


SCENES = {
    "random": lambda cost: cost,
    "zero distances": np.zeros_like,
    "ties": lambda cost: np.round(4 * cost),
    "far apart": lambda cost: np.concatenate([cost[:1] + 1e4, cost[1:]]),
}


def solve(masses, cost, polytope, gap=GAP):
    """The projection of one user, of all outputs in their order."""
    rows = np.flatnonzero(masses)
    solver = certified_projection.ExactSolver(costs.as_cost(cost), polytope, gap)
    return solver.solve(rows, masses[rows])


@settings(max_examples=60)
@example(48594, "random", None)
@example(11463259, "random", None)
@given(
    wpm_oracles.seeds, st.sampled_from(list(SCENES)), st.sampled_from([None, *KINDS])
)
def test_every_user_gets_the_nearest_law(seed, scene, kind):
    """A law within its bounds, whose cost is a linear program's, as a bound proves."""
    generator = np.random.default_rng(seed)
    masses, cost, measure, epsilon = wpm_oracles.random_case(generator)
    cost = SCENES[scene](cost)
    if kind:
        masses = wpm_oracles.kinds_of_masses(generator, masses.size)[kind]
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    alone = int(np.random.default_rng(seed).integers(1, 40))
    with solved_by(WAYS[seed % 2], alone):
        found = wpm.project(masses, cost, measure, epsilon)
    slack = 1e-7 * truth + 1e-12 * cost.max()
    assert found.converged
    assert truth - slack <= found.value <= truth * (1 + GAP) + slack
    assert found.value * (1 - GAP) - slack <= found.lower_bound <= truth + slack
    wpm_oracles.assert_in_polytope(found.distribution, polytope)
    reached = wpm_oracles.reaching_cost(masses, cost, found.distribution)
    assert reached <= found.value + slack + 1e-9 * cost.max()


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[5], *nights.at_night(*KINDS[1:5])])
def test_many_outputs_of_every_kind_of_user(kind):
    """Groups of outputs reach what a program of all of them does."""
    generator = np.random.default_rng(3)
    points = generator.random((4000, 2))
    cost = wpm.PointCost(points)
    near = np.argsort(cost.between_inputs(5))[:200]
    for places in (generator.choice(4000, 20, replace=False), near[::10]):
        masses = np.zeros(4000)
        masses[places] = wpm_oracles.kinds_of_masses(generator, 20)[kind]
        measure = np.full(4000, 1 / 4000)
        found = wpm.project(masses, cost, measure, 2.0)
        assert found.converged and found.gap <= GAP * found.value
        rows = np.flatnonzero(masses)
        other = certified_projection.by_columns(
            masses[rows], cost.rows(rows), wpm_oracles.polytope_of(measure, 2.0), GAP
        )
        assert found.value == pytest.approx(other.value, rel=2 * GAP)
        assert found.lower_bound <= other.value * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_many_outputs_of_uneven_measures(epsilon):
    """Bounds beyond one are one, and out of proportion with the others."""
    generator = np.random.default_rng(4)
    points = generator.random((3500, 2))
    measure = generator.pareto(1.0, 3500)
    measure /= measure.sum()
    masses = np.zeros(3500)
    masses[:15] = generator.dirichlet(np.ones(15))
    found = wpm.project(masses, wpm.PointCost(points), measure, epsilon)
    assert found.gap <= GAP * found.value
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    wpm_oracles.assert_in_polytope(found.distribution, polytope)


@pytest.mark.parametrize(
    ("way", "spots"),
    [("POT", 1), ("HiGHS", 3), *nights.at_night(("POT", 3), ("HiGHS", 1))],
)
def test_many_outputs_on_one_spot_are_proven(spots, way):
    """As of a file with the same few places again and again."""
    generator = np.random.default_rng(spots)
    where = generator.random((spots, 2))
    points = where[generator.integers(spots, size=1200)]
    points[:100] = generator.random((100, 2))
    cost = wpm.PointCost(points, order=2)
    masses = np.zeros(1200)
    masses[generator.choice(1200, 20, replace=False)] = generator.dirichlet(np.ones(20))
    with solved_by(way, alone=500):
        for epsilon in (0.1, 2.0, 8.0):
            measure = wpm.uniform_base_measure(cost, epsilon).base_measure
            found = wpm.project(masses, cost, measure, epsilon)
            assert found.converged


def test_what_the_simplex_cannot_solve_goes_to_a_program(monkeypatch):
    generator = np.random.default_rng(0)
    masses, cost = generator.dirichlet(np.ones(9)), generator.random((9, 7))
    polytope = wpm_oracles.polytope_of(np.full(7, 1 / 7), 1.0)
    by_simplex = solve(masses, cost, polytope)
    monkeypatch.setattr(linear_programs, "_MOST_PIVOTS", 1)
    otherwise = solve(masses, cost, polytope)
    assert by_simplex.value == pytest.approx(otherwise.value, rel=GAP)


def test_what_no_program_can_solve_has_no_plan():
    polytope = ldp_polytope.LdpPolytope(np.array([0.9, 0.9]), np.ones(2))
    with solved_by("HiGHS"), pytest.raises(linear_programs.SolverError):
        solve(np.array([1.0]), np.ones((1, 2)), polytope)


@settings(max_examples=120, deadline=None)
@given(seed=wpm_oracles.seeds)
def test_the_sweep_of_a_line_is_exact(seed):
    """Of outputs with any bounds."""
    generator = np.random.default_rng(seed)
    inputs, outputs = generator.integers(1, 30, 2)
    places = [np.round(generator.random(n), 1 + seed % 3) for n in (inputs, outputs)]
    cost = wpm.PointCost(*places)
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    measure = wpm_oracles.random_measure(generator, outputs, epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    kinds = wpm_oracles.kinds_of_masses(generator, inputs)
    masses = kinds[KINDS[seed % len(KINDS)]]
    rows = np.flatnonzero(masses)
    truth = wpm_oracles.transport_program(
        masses, cost.matrix(), polytope.lower, polytope.upper
    )
    solver = certified_projection.ExactSolver(cost, polytope, 1e-10)
    found = solver.solve(rows, masses[rows])
    assert found.value == pytest.approx(truth, rel=1e-7, abs=1e-12)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices, cost.matrix(), polytope.lower, polytope.upper
    )
    assert found.value - float(bound) <= 1e-9 * found.value + 1e-12
    wpm_oracles.assert_in_polytope(found.distribution, polytope)


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_any_prices_bound_the_least_cost(seed):
    """Against the linear program; and the same number in rational arithmetic."""
    generator = np.random.default_rng(seed)
    masses, cost, measure, epsilon = wpm_oracles.random_case(generator, most=12)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    prices = generator.normal(size=cost.shape[1]) * generator.choice([0.1, 1.0, 30.0])
    found = ldp_polytope.lower_bound(masses, prices, cost, polytope)
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
    found = ldp_polytope.lower_bound(np.array([1.0]), cost[0], cost, polytope)
    assert found == pytest.approx(0.7, rel=1e-15)


@settings(max_examples=50, deadline=None)
@given(wpm_oracles.seeds)
def test_kl_projection_satisfies_its_conditions(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 30))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    measure = generator.dirichlet(np.full(size, 0.7)) + 1e-9
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / measure.sum()
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    weights = generator.normal(size=size) * generator.choice([0.1, 10.0, 100.0])
    (law,), _ = ldp_polytope.kl_projection(
        np.exp(weights)[np.newaxis], np.ones(1), polytope, 300
    )
    assert law.sum() == pytest.approx(1.0, rel=0, abs=1e-10)
    # One θ for all strictly between; larger needed above, smaller below.
    theta = np.log(law) - weights
    low = law <= polytope.lower * (1 + 1e-12)
    high = law >= polytope.upper * (1 - 1e-12)
    least = theta[~low].max(initial=-np.inf)
    most = theta[~high].min(initial=np.inf)
    assert least <= most + 1e-9 * (1 + abs(most))
