"""Privacy whatever the solver does, one interface, errors."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import column_generation


def points(size, seed=0):
    return np.random.default_rng(seed).random((size, 2))


def mechanisms(size=9, epsilon=2.0):
    cost = wpm.cost_matrix(points(size), points(size))
    edges = np.column_stack([np.arange(size), np.roll(np.arange(size), -1)])
    return {
        "uniform": wpm.WassersteinProjectionMechanism(cost, epsilon),
        "minimax": wpm.WassersteinProjectionMechanism(cost, epsilon, "minimax"),
        "entropic": wpm.WassersteinProjectionMechanism(
            cost, epsilon, regularization=0.05
        ),
        "line": wpm.WassersteinProjectionMechanism.on_line(
            np.arange(size), np.arange(size), epsilon
        ),
        "graph": wpm.WassersteinProjectionMechanism.on_graph(
            edges, np.ones(size), epsilon
        ),
        "kl": wpm.KLProjectionMechanism(cost, epsilon),
        "exponential": wpm.ExponentialMechanism(cost, epsilon),
    }


NAMES = list(mechanisms())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.1, 3.0, 40.0])
def test_every_mechanism_is_private_in_exact_arithmetic(name, epsilon):
    mechanism = mechanisms(epsilon=epsilon)[name]
    generator = np.random.default_rng(1)
    users = np.concatenate([np.eye(9), generator.dirichlet(np.full(9, 0.2), size=30)])
    weights = mechanism.integer_weights(users)
    wpm_oracles.assert_private(weights, mechanism.integer_bounds.total, epsilon)


@pytest.mark.parametrize("name", NAMES)
def test_one_interface(name):
    mechanism = mechanisms()[name]
    users = np.random.default_rng(2).dirichlet(np.ones(9), size=5)
    laws = mechanism.project(users)
    assert laws.shape == (5, 9)
    np.testing.assert_allclose(laws.sum(axis=1), 1, rtol=1e-14)
    least = np.exp(-1.0) * mechanism.base_measure
    assert (laws >= least * (1 - 1e-9)).all()
    assert (laws <= np.exp(2.0) * least * (1 + 1e-9)).all()
    np.testing.assert_allclose(mechanism.project(users[0]), laws[0], atol=1e-12)
    draws = mechanism.sample(users)
    assert draws.shape == (5,) and draws.dtype == np.int64
    assert isinstance(mechanism.sample(users[0]), int)
    again = [mechanism.sample(users, rng=np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert mechanism.epsilon == 2.0
    assert mechanism.worst_case_cost > 0
    assert isinstance(mechanism.dp_event, wpm.PrivateSamplingEvent)


def test_measure_is_a_copy():
    mechanism = mechanisms()["uniform"]
    mechanism.base_measure[:] = 0
    assert mechanism.base_measure.min() > 0


@pytest.mark.parametrize(
    "fault",
    [
        lambda *_, **__: 1 / 0,
        lambda *_, **__: (_ for _ in ()).throw(MemoryError),
        lambda *_, **__: None,
    ],
)
def test_a_failing_solver_changes_nothing_but_the_law(monkeypatch, fault):
    """No exception, and weights that no input has a part in."""
    mechanism = mechanisms()["uniform"]
    entropic = mechanisms()["entropic"]
    users = np.random.default_rng(0).dirichlet(np.ones(9), size=3)
    monkeypatch.setattr(column_generation, "solve", fault)
    monkeypatch.setattr(entropic_projection, "solve", fault)
    for broken in (mechanism, entropic):
        weights = broken.integer_weights(users)
        expected = np.tile(broken.integer_bounds.public_weights, (3, 1))
        np.testing.assert_array_equal(weights, expected)
        broken.sample(users)


def test_a_failing_program_fails_for_its_user_alone(monkeypatch):
    mechanism = mechanisms()["uniform"]
    users = np.random.default_rng(0).dirichlet(np.ones(9), size=3)
    good = mechanism.integer_weights(users)
    solve = column_generation.solve

    def sometimes(masses, *rest):
        if (masses == users[1]).all():
            raise linear_program.SolverError("no")
        return solve(masses, *rest)

    monkeypatch.setattr(column_generation, "solve", sometimes)
    found = mechanism.integer_weights(users)
    public = mechanism.integer_bounds.public_weights
    np.testing.assert_array_equal(found, [good[0], public, good[2]])


@pytest.mark.parametrize(
    "nonsense",
    [np.nan, np.inf, -1.0, 0.0, 1e300],
)
def test_a_solver_that_returns_nonsense_stays_private(monkeypatch, nonsense):
    mechanism = mechanisms()["uniform"]
    users = np.random.default_rng(0).dirichlet(np.ones(9), size=4)
    solve = column_generation.solve

    def spoiled(masses, *rest):
        found = solve(masses, *rest)
        found.distributions[0, int(10 * masses[0])] = nonsense
        return found

    monkeypatch.setattr(column_generation, "solve", spoiled)
    weights = mechanism.integer_weights(users)
    wpm_oracles.assert_private(weights, mechanism.integer_bounds.total, 2.0)
