"""The mechanisms: privacy whatever the solver does, one interface, errors."""

import ast
import pathlib

import numpy as np
import pytest
from test_integer_weights import assert_private
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import column_generation

PACKAGE = pathlib.Path(wpm.__file__).parent


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
    assert_private(weights, mechanism.integer_bounds.total, epsilon)


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
    found = column_generation.solve(users[0], mechanism._cost, mechanism._polytope)

    def spoiled(masses, *_):
        laws = found.distributions.copy()
        laws[0, int(10 * masses[0])] = nonsense
        object.__setattr__(found, "distributions", laws)
        return found

    monkeypatch.setattr(column_generation, "solve", spoiled)
    weights = mechanism.integer_weights(users)
    assert_private(weights, mechanism.integer_bounds.total, 2.0)


def test_projection_is_closer_than_the_baselines():
    """On the ring, on average over inputs, at the same ε."""
    apart = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    cost = np.minimum(apart, 30 - apart).astype(float) ** 2
    users = np.random.default_rng(0).dirichlet(np.full(30, 0.1), size=8)
    means = []
    for mechanism in (
        wpm.WassersteinProjectionMechanism(cost, 5.0),
        wpm.KLProjectionMechanism(cost, 5.0),
        wpm.ExponentialMechanism(cost, 5.0),
    ):
        laws = mechanism.project(users)
        reached = [
            wpm_oracles.reaching_cost(user, cost, law)
            for user, law in zip(users, laws, strict=True)
        ]
        means.append(np.mean(reached))
    assert means[0] < 0.5 * means[1] and means[0] < 0.5 * means[2]


def test_kl_mechanism_is_the_published_one():
    """max(μ / r, 1 / (e^ε + k − 1)), also where masses are zero."""
    cost = wpm.cost_matrix(points(6), points(6))
    mechanism = wpm.KLProjectionMechanism(cost, 1.5)
    masses = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    floor = 1 / (np.exp(1.5) + 5)
    law = mechanism.project(masses)
    scaled = law[:2] / masses[:2]
    assert scaled[0] == pytest.approx(scaled[1], rel=1e-9)
    np.testing.assert_allclose(law[3:], floor, rtol=1e-9)
    assert law[2] == pytest.approx(max(scaled[0] * 0.1, floor), rel=1e-9)


def test_kl_mechanism_with_support_that_cannot_hold_all():
    cost = wpm.cost_matrix(points(4), points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1.0, 0.0, 0.0, 0.0])
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)
    # What is left rises in proportion to the base measure.
    np.testing.assert_allclose(law[1:] / measure[1:], law[1] / measure[1], rtol=1e-9)


def test_kl_mechanism_fills_what_has_any_mass_first():
    cost = wpm.cost_matrix(points(4), points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1 - 1e-7, 1e-7, 0.0, 0.0])
    np.testing.assert_allclose(law[2:], measure[2:] * np.exp(-0.25), rtol=1e-9)
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)


def test_exponential_mechanism_is_the_published_one():
    cost = np.random.default_rng(4).random((5, 7))
    mechanism = wpm.ExponentialMechanism(cost, 2.0)
    masses = np.random.default_rng(5).dirichlet(np.ones(5))
    weights = np.exp(-2.0 * (masses @ cost) / (2 * np.ptp(cost, axis=0).max()))
    np.testing.assert_allclose(
        mechanism.project(masses), weights / weights.sum(), rtol=1e-9
    )
    constant = wpm.ExponentialMechanism(np.ones((3, 2)), 1.0)
    np.testing.assert_allclose(constant.project([1, 0, 0]), 0.5)


def test_worst_case_cost_is_attained():
    mechanism = mechanisms()["uniform"]
    laws = mechanism.project(np.eye(9))
    costs = (laws * mechanism._cost).sum(axis=1)
    assert costs.max() == pytest.approx(mechanism.worst_case_cost, rel=1e-9)


COST = np.ones((2, 3))
BAD_CALLS = [
    (([[1, -1.0]], 1.0), ValueError, "cost must be non-negative.*Found -1.0 in row 0"),
    (([[1, np.nan]], 1.0), ValueError, "cost must be non-negative.*Found nan in row 0"),
    (([[1, np.inf]], 1.0), ValueError, "cost must be .* finite. Found inf"),
    (([1.0, 2.0], 1.0), ValueError, r"cost must be a matrix.*Found shape \(2,\)"),
    ((np.ones((0, 3)), 1.0), ValueError, r"cost must be a matrix.*shape \(0, 3\)"),
    (([["a"]], 1.0), TypeError, "cost must be an array of real numbers"),
    (([[1], [1, 2]], 1.0), TypeError, "cost must be .* unequal lengths"),
    ((COST, 0.0), ValueError, "epsilon must be positive and finite. Found 0.0"),
    ((COST, -1.0), ValueError, "epsilon must be positive and finite. Found -1.0"),
    ((COST, np.inf), ValueError, "epsilon must be positive and finite. Found inf"),
    ((COST, np.nan), ValueError, "epsilon must be a number. Found nan"),
    ((COST, 161.0), ValueError, "epsilon must be at most 160. Found 161.0"),
    ((COST, "1"), TypeError, "epsilon must be a real number. Found '1'"),
    ((COST, 1.0, "best"), ValueError, "base_measure must be .*Found 'best'"),
    ((COST, 1.0, [1, 1]), ValueError, r"each of the 3 outputs. Found shape \(2,\)"),
    ((COST, 1.0, [1, 1, -1]), ValueError, "non-negative and finite. Found -1.0 at"),
    ((COST, 1.0, [1, 1, np.nan]), ValueError, "and finite. Found nan at index 2"),
    ((COST, 1.0, [1, 1, 1]), ValueError, "have a sum in .* Found 3; scale it"),
    ((COST, 1.0, [0.1] * 3), ValueError, "have a sum in .* Found 0.3; scale it"),
    ((COST, 1.0, "uniform", 0.0), ValueError, "regularization must be positive"),
    ((COST, 1.0, "uniform", "x"), TypeError, "regularization must be a real number"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CALLS)
def test_bad_parameters(arguments, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism(*arguments)


SECRET = 0.123456789


@pytest.mark.parametrize(
    ("masses", "error", "message"),
    [
        ([SECRET, 1.0], ValueError, "mu must sum to 1 within 1e-06"),
        ([1 + SECRET, -SECRET], ValueError, "mu must be non-negative and finite"),
        ([np.nan, SECRET], ValueError, "mu must be non-negative and finite"),
        ([SECRET], ValueError, r"of the 2 inputs.*Found shape \(1,\)"),
        ([[[SECRET, 1]]], ValueError, r"Found shape \(1, 1, 2\)"),
        (["a", "b"], TypeError, "mu must be an array of real numbers"),
    ],
)
def test_bad_distributions_and_no_number_of_theirs(masses, error, message):
    mechanism = wpm.WassersteinProjectionMechanism(COST, 1.0)
    for call in (mechanism.project, mechanism.sample):
        with pytest.raises(error, match=message) as caught:
            call(masses)
        assert "1234" not in str(caught.value)


def test_sums_within_the_tolerance_are_normalised():
    mechanism = wpm.WassersteinProjectionMechanism(COST, 1.0)
    mechanism.project([0.5, 0.5 + 9e-7])
    with pytest.raises(ValueError, match="mu must sum to 1"):
        mechanism.project([0.5, 0.5 + 2e-6])


def test_kl_mechanism_wants_the_same_points():
    with pytest.raises(ValueError, match=r"cost must be square.*shape \(2, 3\)"):
        wpm.KLProjectionMechanism(COST, 1.0)


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "error", "message"),
    [
        ([0, 1], [0, 1], {"order": 0.5}, ValueError, "order must be at least 1"),
        ([0, 1], [0, 1], {"order": None}, TypeError, "order must be a real number"),
        ([[0, 1]], [[1]], {}, ValueError, "of one dimension. Found 2 and 1"),
        ([], [1], {}, ValueError, "inputs must be a list of points"),
        ([[0, 0]], [[1, 1]], {"metric": "cosine"}, ValueError, "cost must be .*nan"),
        ([np.inf], [1], {}, ValueError, "cost must be .* finite. Found inf"),
    ],
)
def test_bad_points(inputs, outputs, options, error, message):
    with pytest.raises(error, match=message):
        wpm.cost_matrix(inputs, outputs, **options)


def test_cost_matrix_is_a_power_of_a_distance():
    cost = wpm.cost_matrix([[0, 0], [3, 4]], [[0, 0]], order=2)
    np.testing.assert_allclose(cost, [[0], [25]])
    cost = wpm.cost_matrix([0, 2], [5], order=1, metric=lambda x, y: abs(x[0] - y[0]))
    np.testing.assert_allclose(cost, [[5], [3]])
    same = np.random.default_rng(0).random((40, 9))
    assert wpm.cost_matrix(same, same, metric="cosine", order=1.5).min() >= 0


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]


def test_package_stands_alone():
    """It imports nothing else of the library but its checks, and modules, not names."""
    root = PACKAGE.parent.parent
    for path in PACKAGE.rglob("*.py"):
        for module, names in imported(path):
            if not module.startswith("dp_accounting_ext"):
                continue
            if module == "dp_accounting_ext":
                assert names == ["validation"], path
            elif path.parent != PACKAGE or path.name != "__init__.py":
                assert module.startswith("dp_accounting_ext.wpm"), path
                home = root.joinpath(*module.split("."))
                assert (home / f"{names[0]}.py").exists(), path
