"""One contract of exact projections, over every kind of user and every algorithm."""

import contextlib

from hypothesis import example
from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import column_generation
from dp_accounting_ext.wpm.projections import exact_projection
from dp_accounting_ext.wpm.projections import line_sweep
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import network_simplex
from dp_accounting_ext.wpm.projections import price_ascent

GAP = 1e-6
Algorithm = exact_projection.Algorithm
KINDS = list(wpm_oracles.kinds_of_masses(np.random.default_rng(0), 5))
SCENES = ["plane", "line", "duplicates", "zero distances", "ties", "far apart"]
GENERAL = [Algorithm.COLUMN_GENERATION, Algorithm.PRICE_ASCENT]
WAYS = ["at once by POT", "by POT", "by HiGHS"]


@contextlib.contextmanager
def going(way):
    """Programs are solved in a way, whatever is installed."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "by POT":
            patch.setattr(column_generation, "_AT_ONCE", 0)
        patch.setattr(network_simplex, "is_installed", lambda: way != "by HiGHS")
        yield


def scene(name, generator, inputs, outputs):
    """Costs of a kind."""
    left, right = generator.random((inputs, 2)), generator.random((outputs, 2))
    if name == "line":
        left[:, 1] = right[:, 1] = 0
    if name == "duplicates":
        left, right = left[np.arange(inputs) % 3], right[np.arange(outputs) % 4]
    if name == "ties":
        left, right = np.round(4 * left), np.round(4 * right)
    if name == "far apart":
        left[0] += 1e4
    cost = np.linalg.norm(left[:, np.newaxis] - right, axis=2)
    return np.zeros_like(cost) if name == "zero distances" else cost


def solve(algorithm, masses, cost, polytope, gap=GAP):
    """The projection by one algorithm, whatever the sizes would choose."""
    rows = np.flatnonzero(masses)
    outputs = np.arange(cost.shape[1])
    solver = exact_projection.ExactSolver(
        costs.DenseCost(cost), polytope, gap, algorithm, outputs
    )
    return solver.solve(rows, masses[rows])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", GENERAL)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENES)
def test_every_user_gets_the_nearest_law(way, algorithm, kind, name):
    """A law within its bounds, whose cost is the linear program's, as prices prove."""
    generator = np.random.default_rng(7)
    for inputs, outputs, epsilon in ((1, 3, 1.0), (6, 4, 0.2), (12, 9, 3.0)):
        masses = wpm_oracles.kinds_of_masses(generator, inputs)[kind]
        cost = scene(name, generator, inputs, outputs)
        measure = generator.dirichlet(np.ones(outputs)) + 0.01
        polytope = wpm_oracles.polytope_of(measure / measure.sum(), epsilon)
        with going(way):
            found = solve(algorithm, masses, cost, polytope)
        truth = wpm_oracles.transport_program(
            masses, cost, polytope.lower, polytope.upper
        )
        slack = 1e-7 * truth + 1e-12 * cost.max()
        assert truth - slack <= found.value <= truth * (1 + GAP) + slack
        wpm_oracles.assert_in_polytope(found.distribution, polytope)
        reached = wpm_oracles.reaching_cost(masses, cost, found.distribution)
        assert reached <= found.value + slack + 1e-9 * cost.max()
        bound = wpm_oracles.rational_lower_bound(
            masses, found.prices, cost, polytope.lower, polytope.upper
        )
        assert found.value - float(bound) <= GAP * found.value + slack


@settings(max_examples=100, deadline=None)
@example(seed=48594)
@example(seed=11463259)
@given(wpm_oracles.seeds)
def test_cost_is_that_of_an_independent_program(seed):
    masses, cost, measure, epsilon = wpm_oracles.random_case(
        np.random.default_rng(seed)
    )
    with going(WAYS[seed % 3]):
        found = wpm.project(masses, cost, measure, epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    assert found.converged
    rounding = 1e-13 * cost.max()
    assert found.value <= truth * (1 + GAP + 1e-9) + rounding
    assert found.value >= truth * (1 - 1e-7) - rounding
    assert found.value * (1 - GAP - 1e-9) - rounding <= found.lower_bound
    assert found.lower_bound <= truth * (1 + 1e-7) + rounding
    wpm_oracles.assert_in_polytope(found.distribution, polytope)


@pytest.mark.parametrize("kind", KINDS)
def test_many_outputs_of_every_kind_of_user(kind):
    """Prices and groups of outputs reach what programs of all of them do."""
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
        solver = exact_projection.make_solver(
            cost, wpm_oracles.polytope_of(measure, 2.0), GAP
        )
        assert solver.algorithm is Algorithm.PRICE_ASCENT
        other = solve(
            Algorithm.COLUMN_GENERATION, masses[rows], cost.rows(rows), solver.polytope
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


def test_no_programs_leave_no_plan(monkeypatch):
    masses, polytope = (
        np.full(6, 1 / 6),
        wpm_oracles.polytope_of(np.full(40, 1 / 40), 1),
    )
    monkeypatch.setattr(price_ascent, "_MOST_ROUNDS", 0)
    with pytest.raises(linear_program.SolverError):
        solve(Algorithm.PRICE_ASCENT, masses, np.ones((6, 40)), polytope)


def test_what_the_simplex_cannot_solve_goes_to_a_program(monkeypatch):
    generator = np.random.default_rng(0)
    masses, cost = generator.dirichlet(np.ones(9)), generator.random((9, 7))
    polytope = wpm_oracles.polytope_of(np.full(7, 1 / 7), 1.0)
    by_simplex = solve(Algorithm.COLUMN_GENERATION, masses, cost, polytope)
    monkeypatch.setattr(network_simplex, "_MOST_PIVOTS", 1)
    otherwise = solve(Algorithm.COLUMN_GENERATION, masses, cost, polytope)
    assert by_simplex.value == pytest.approx(otherwise.value, rel=GAP)


def test_the_algorithm_is_chosen_by_public_sizes():
    choose = exact_projection.choose_algorithm
    for shape, expected in (
        ((80, 250), Algorithm.COLUMN_GENERATION),
        ((20_000, 3000), Algorithm.COLUMN_GENERATION),
        ((10, 3001), Algorithm.PRICE_ASCENT),
    ):
        cost = wpm.PointCost(np.zeros((shape[0], 2)), np.zeros((shape[1], 2)))
        assert choose(cost) is expected
    line = np.arange(100.0)
    assert choose(wpm.PointCost(line)) is Algorithm.LINE_SWEEP
    assert choose(wpm.PointCost(line, order=2)) is Algorithm.COLUMN_GENERATION


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_the_sweep_of_a_line_is_exact(seed):
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
    solver = exact_projection.make_solver(cost, polytope, GAP)
    assert solver.algorithm is Algorithm.LINE_SWEEP
    found = solver.solve(rows, masses[rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_sweep, "_MANY", 8)
        patch.setattr(line_sweep, "_PICTURE", 4)
        by_neighbors = solver.solve(rows, masses[rows])
    assert by_neighbors.value == pytest.approx(found.value, rel=GAP, abs=1e-12)
    wpm_oracles.assert_in_polytope(by_neighbors.distribution, polytope)
    assert found.value == pytest.approx(truth, rel=1e-7, abs=1e-12)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices, cost.matrix(), polytope.lower, polytope.upper
    )
    assert found.value - float(bound) <= 1e-9 * found.value + 1e-12
    wpm_oracles.assert_in_polytope(found.distribution, polytope)
