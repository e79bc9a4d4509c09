"""Privacy whatever the solver does, one interface, errors."""

import pickle

import numpy as np
import pytest
from scipy import sparse
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import certified_projection
from dp_accounting_ext.wpm.projections import linear_programs


def points(size, seed=0):
    return np.random.default_rng(seed).random((size, 2))


def graph(size):
    edges = np.column_stack([np.arange(size), np.roll(np.arange(size), -1)])
    return wpm.GraphCost.from_edges(edges, np.ones(size))


MAKERS = {
    "uniform": lambda size, epsilon: wpm.WassersteinProjectionMechanism(
        wpm.PointCost(points(size)), epsilon
    ),
    "minimax": lambda size, epsilon: wpm.WassersteinProjectionMechanism(
        wpm.PointCost(points(size)), epsilon, "minimax"
    ),
    "line": lambda size, epsilon: wpm.from_points(np.arange(size), epsilon),
    "graph": lambda size, epsilon: wpm.WassersteinProjectionMechanism(
        graph(size), epsilon
    ),
    "regularized": lambda size, epsilon: wpm.WassersteinProjectionMechanism(
        wpm.PointCost(points(size)), epsilon, regularization=0.02, iterations=5
    ),
    "kl": lambda size, epsilon: wpm.KLProjectionMechanism(
        wpm.PointCost(points(size)), epsilon
    ),
    "exponential": lambda size, epsilon: wpm.ExponentialMechanism(
        wpm.PointCost(points(size)), epsilon
    ),
}
NAMES = list(MAKERS)


def mechanism_of(name, size=9, epsilon=2.0):
    return MAKERS[name](size, epsilon)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.1, 3.0, 40.0])
def test_every_mechanism_is_private_in_exact_arithmetic(name, epsilon):
    mechanism = mechanism_of(name, epsilon=epsilon)
    generator = np.random.default_rng(1)
    users = np.concatenate([np.eye(9), generator.dirichlet(np.full(9, 0.2), size=30)])
    weights = mechanism.integer_weights(users)
    wpm_oracles.assert_private(weights, mechanism.integer_bounds.total, epsilon)


@pytest.mark.parametrize("name", NAMES)
def test_one_interface(name):
    mechanism = mechanism_of(name)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_cost_is_known_before_the_draw(name):
    """Every user's mean cost is below the worst; one output is never likelier."""
    mechanism = mechanism_of(name)
    expected = mechanism.expected_cost()
    users = np.concatenate(
        [np.eye(9), np.random.default_rng(3).dirichlet(np.ones(9), size=20)]
    )
    laws = np.asarray(mechanism.project(users))
    matrix = mechanism.cost.matrix()
    assert laws.max() <= expected.most_likely * (1 + 1e-9)
    assert expected.average <= expected.worst
    points = (laws[:9] * matrix).sum(axis=1)
    assert points.mean() <= expected.average * (1 + 1e-9)
    assert points.max() <= expected.worst * (1 + 1e-9)
    if name not in ("kl", "exponential", "regularized"):
        for user, law in zip(users, laws, strict=True):
            reached = wpm_oracles.reaching_cost(user, matrix, law)
            assert reached <= expected.worst * (1 + 1e-9)


USERS = np.random.default_rng(0).dirichlet(np.ones(9), size=4)


@pytest.fixture
def weights_after(monkeypatch):
    """The weights of users where a function changes what the solver finds."""
    mechanism, solve = mechanism_of("uniform"), certified_projection.ExactSolver.solve

    def weights(change):
        def solved(*arguments):
            return change(solve(*arguments), arguments[-1])

        monkeypatch.setattr(certified_projection.ExactSolver, "solve", solved)
        mechanism.sample(USERS)
        return mechanism.integer_weights(USERS), mechanism.integer_bounds

    return weights


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, None])
def test_a_failing_solver_changes_nothing_but_the_law(weights_after, error):
    """No exception, and weights that no input has a part in."""

    def fault(found, masses):
        if error is not None:
            raise error

    weights, bounds = weights_after(fault)
    np.testing.assert_array_equal(weights, np.tile(bounds.public_weights, (4, 1)))


def test_a_failing_program_fails_for_its_user_alone(weights_after):
    def sometimes(found, masses):
        if (masses == USERS[1]).all():
            raise linear_programs.SolverError("no")
        return found

    good = mechanism_of("uniform").integer_weights(USERS)
    weights, bounds = weights_after(sometimes)
    np.testing.assert_array_equal(weights, [good[0], bounds.public_weights, *good[2:]])


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -1.0, 0.0, 1e300])
def test_a_solver_that_returns_nonsense_stays_private(weights_after, nonsense):
    def spoiled(found, masses):
        found.distribution[int(10 * masses[0])] = nonsense
        return found

    weights, bounds = weights_after(spoiled)
    wpm_oracles.assert_private(weights, bounds.total, 2.0)


POINTS = points(60, seed=5)
RING = np.column_stack([np.arange(60), np.roll(np.arange(60), -1)])


def ring_graph():
    """As a sparse matrix of lengths."""
    lengths = np.random.default_rng(0).uniform(0.5, 2, 60)
    return sparse.csr_matrix((lengths, (RING[:, 0], RING[:, 1])), shape=(60, 60))


WAYS_IN = {
    "points": lambda epsilon: wpm.from_points(POINTS, epsilon),
    "haversine": lambda epsilon: wpm.from_points(50 * POINTS, epsilon, "haversine", 2),
    "line of order two": lambda epsilon: wpm.from_points(
        POINTS[:, 0], epsilon, order=2, outputs=POINTS[:, 1]
    ),
    "line": lambda epsilon: wpm.from_points(
        POINTS[:, 0], epsilon, outputs=POINTS[:, 1]
    ),
    "sparse graph": lambda epsilon: wpm.WassersteinProjectionMechanism(
        wpm.GraphCost(ring_graph()), epsilon
    ),
    "other outputs": lambda epsilon: wpm.from_points(
        POINTS, epsilon, outputs=np.random.default_rng(9).random((90, 2))
    ),
}


def crowd():
    """Dense masses, sparse masses, and counts of the same users."""
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 3, (25, 60)) * (generator.random((25, 60)) < 0.2)
    counts[:, 0] += counts.sum(axis=1) == 0
    masses = counts / counts.sum(axis=1, keepdims=True)
    return {"masses": masses, "sparse": sparse.csr_matrix(masses), "counts": counts}


@pytest.mark.parametrize("name", WAYS_IN)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_every_way_in_is_private_in_exact_arithmetic(name, epsilon):
    mechanism = WAYS_IN[name](epsilon)
    rows = [mechanism.integer_weights(users) for users in crowd().values()]
    weights = np.concatenate([*rows, mechanism.integer_weights(np.eye(60)[:9])])
    wpm_oracles.assert_private(
        np.asarray(weights), mechanism.integer_bounds.total, epsilon
    )
    np.testing.assert_array_equal(rows[0], rows[1])
    # Quotients of floats that were rounded before are other floats, and solvers stop
    # where the cost is known to eleven digits: laws are, to fewer.
    counted, divided = (np.asarray(rows[k], dtype=float) for k in (2, 0))
    np.testing.assert_allclose(counted, divided, rtol=1e-7)


def test_nobody_gets_no_draw():
    mechanism = WAYS_IN["points"](1.0)
    for nobody in (np.zeros((0, 60)), sparse.csr_matrix((0, 60))):
        assert mechanism.sample(nobody).shape == (0,)
        assert mechanism.project(nobody).shape == (0, 60)
        assert mechanism.integer_weights(nobody).shape == (0, 60)
    assert wpm.project(np.zeros((0, 60)), mechanism.cost, np.full(60, 1 / 60), 1.0)


def test_seeds():
    mechanism, users = WAYS_IN["points"](1.0), crowd()["counts"]
    one = mechanism.sample(users, rng=1)
    np.testing.assert_array_equal(one, mechanism.sample(users, rng=np.int64(1)))
    generator = np.random.default_rng(1)
    np.testing.assert_array_equal(one, mechanism.sample(users, rng=generator))
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(TypeError, match="rng must be None, a non-negative integer"):
            mechanism.sample(users, rng=wrong)


@pytest.mark.parametrize("name", WAYS_IN)
def test_mechanisms_can_be_sent_to_a_worker(name):
    mechanism = WAYS_IN[name](2.0)
    assert "epsilon=2.0" in repr(mechanism) and mechanism.cost.shape[0] == 60
    copy, users = pickle.loads(pickle.dumps(mechanism)), crowd()["counts"]
    np.testing.assert_array_equal(
        copy.integer_weights(users), mechanism.integer_weights(users)
    )


def test_what_is_not_for_release_says_so():
    mechanism = WAYS_IN["points"](1.0)
    law = mechanism.project(np.eye(60)[0])
    assert isinstance(law, wpm.NotForRelease) and "NotForRelease" in repr(law)
    assert isinstance(mechanism.integer_weights(np.eye(60)[0]), wpm.NotForRelease)
    assert not isinstance(mechanism.sample(np.eye(60)), wpm.NotForRelease)


def test_no_user_depends_on_the_others():
    """Bit by bit: or the draw of one would tell of another."""
    users = crowd()["masses"]
    for name in ("points", "other outputs", "line of order two"):
        mechanism = WAYS_IN[name](2.0)
        whole = mechanism.integer_weights(users)
        for place in (0, 7, 24):
            alone = mechanism.integer_weights(users[place])
            np.testing.assert_array_equal(whole[place], alone)
