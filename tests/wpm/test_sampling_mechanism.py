"""Privacy whatever the solver does, one interface, and users' distributions."""

from fractions import Fraction
import pickle

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import nights
import numpy as np
import pytest
from scipy import sparse
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.projections import certified_projection
from dp_accounting_ext.wpm.projections import entropic
from dp_accounting_ext.wpm.projections import linear_programs

SIZE = 20
POINTS = np.random.default_rng(5).random((SIZE, 2))
MORE_POINTS = np.random.default_rng(9).random((SIZE + 10, 2))
PLANE, LINE = wpm.PointCost(POINTS), POINTS[:, 0]
RING = np.column_stack([np.arange(SIZE), np.roll(np.arange(SIZE), -1)])
Projection = wpm.WassersteinProjectionMechanism


def ring_graph():
    """As a sparse matrix of lengths."""
    lengths = np.random.default_rng(0).uniform(0.5, 2, SIZE)
    return sparse.csr_matrix((lengths, (RING[:, 0], RING[:, 1])), shape=(SIZE, SIZE))


WAYS = {
    "points": lambda epsilon: wpm.from_points(POINTS, epsilon),
    "haversine": lambda epsilon: wpm.from_points(50 * POINTS, epsilon, "haversine", 2),
    "line": lambda epsilon: wpm.from_points(LINE, epsilon, outputs=POINTS[:, 1]),
    "line of order two": lambda epsilon: wpm.from_points(
        LINE, epsilon, order=2, outputs=POINTS[:, 1]
    ),
    "other outputs": lambda epsilon: wpm.from_points(
        POINTS, epsilon, outputs=MORE_POINTS
    ),
    "graph": lambda epsilon: Projection(
        wpm.GraphCost.from_edges(RING, np.ones(SIZE)), epsilon
    ),
    "sparse graph": lambda epsilon: Projection(wpm.GraphCost(ring_graph()), epsilon),
    "minimax": lambda epsilon: Projection(PLANE, epsilon, "minimax"),
    "linear": lambda epsilon: wpm.from_points(POINTS, epsilon, linear=True),
    "regularized": lambda epsilon: Projection(
        PLANE, epsilon, regularization=0.02, iterations=5
    ),
    "kl": lambda epsilon: wpm.KLProjectionMechanism(PLANE, epsilon),
    "exponential": lambda epsilon: wpm.ExponentialMechanism(PLANE, epsilon),
}
# Of these the law is no nearest one.
NO_PROJECTIONS = "linear", "regularized", "kl", "exponential"
every_way = pytest.mark.parametrize("name", WAYS)


def crowd():
    """Dense masses, sparse masses, and counts of the same users."""
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 3, (25, SIZE)) * (generator.random((25, SIZE)) < 0.3)
    counts[:, 0] += counts.sum(axis=1) == 0
    masses = counts / counts.sum(axis=1, keepdims=True)
    return {"masses": masses, "sparse": sparse.csr_matrix(masses), "counts": counts}


@every_way
@pytest.mark.parametrize("epsilon", [0.1, 40.0, *nights.at_night(3.0)])
def test_every_way_in_is_private_in_exact_arithmetic(name, epsilon):
    mechanism = WAYS[name](epsilon)
    rows = [mechanism.integer_weights(users) for users in crowd().values()]
    weights = np.concatenate([*rows, mechanism.integer_weights(np.eye(SIZE))])
    wpm_oracles.assert_private(
        np.asarray(weights), mechanism.integer_bounds.total, epsilon
    )
    np.testing.assert_array_equal(rows[0], rows[1])
    # Counts are divided as integers, and masses are sums of rounded floats. So solvers
    # are given slightly different rows, and their laws agree in some seven digits.
    counted, divided = (np.asarray(rows[k], dtype=float) for k in (2, 0))
    rounding = 1e-13 * mechanism.integer_bounds.total
    np.testing.assert_allclose(counted, divided, rtol=1e-7, atol=rounding)


@every_way
def test_one_interface(name):
    mechanism, users = WAYS[name](2.0), crowd()["masses"]
    laws = mechanism.project(users)
    assert laws.shape == (25, mechanism.cost.shape[1])
    np.testing.assert_allclose(laws.sum(axis=1), 1, rtol=1e-14)
    least = np.exp(-1.0) * mechanism.base_measure
    assert (laws >= least * (1 - 1e-9)).all()
    assert (laws <= np.exp(2.0) * least * (1 + 1e-9)).all()
    np.testing.assert_allclose(mechanism.project(users[0]), laws[0], atol=1e-12)
    draws = mechanism.sample(users)
    assert draws.shape == (25,) and draws.dtype == np.int64
    assert isinstance(mechanism.sample(users[0]), int)
    assert mechanism.worst_case_cost > 0
    assert isinstance(mechanism.dp_event, wpm.PrivateSamplingEvent)
    assert "epsilon=2.0" in repr(mechanism) and mechanism.epsilon == 2.0


@every_way
def test_the_cost_is_known_before_the_draw(name):
    """Every user's mean cost is below the worst; one output is never likelier."""
    mechanism = WAYS[name](2.0)
    expected = mechanism.expected_cost()
    users = np.concatenate([np.eye(SIZE), crowd()["masses"]])
    laws, matrix = np.asarray(mechanism.project(users)), mechanism.cost.matrix()
    assert laws.max() <= expected.most_likely * (1 + 1e-9)
    assert expected.average <= expected.worst
    points = (laws[:SIZE] * matrix).sum(axis=1)
    assert points.mean() <= expected.average * (1 + 1e-9)
    assert points.max() <= expected.worst * (1 + 1e-9)
    if name not in NO_PROJECTIONS:
        for user, law in zip(users[::3], laws[::3], strict=True):
            reached = wpm_oracles.reaching_cost(user, matrix, law)
            assert reached <= expected.worst * (1 + 1e-9)


USERS = np.random.default_rng(0).dirichlet(np.ones(SIZE), size=4)
SOLVERS = {
    "points": certified_projection.ExactSolver,
    "regularized": entropic.EntropicSolver,
}


@pytest.fixture
def weights_after(monkeypatch):
    """The weights of users where a function changes what the solver finds."""

    def weights(name, change):
        mechanism, kind = WAYS[name](2.0), SOLVERS[name]
        solve = kind.solve

        def solved(*arguments):
            return change(solve(*arguments), arguments[-1])

        monkeypatch.setattr(kind, "solve", solved)
        mechanism.sample(USERS)
        return mechanism.integer_weights(USERS), mechanism.integer_bounds

    return weights


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, None])
def test_a_failing_solver_changes_nothing_but_the_law(weights_after, name, error):
    """No exception, and weights that no input has a part in."""

    def fault(found, users):
        if error is not None:
            raise error

    weights, bounds = weights_after(name, fault)
    np.testing.assert_array_equal(weights, np.tile(bounds.public_weights, (4, 1)))


def test_a_failing_program_fails_for_its_user_alone(weights_after):
    def sometimes(found, masses):
        if np.allclose(masses, USERS[1]):
            raise linear_programs.SolverError("no")
        return found

    good = WAYS["points"](2.0).integer_weights(USERS)
    weights, bounds = weights_after("points", sometimes)
    np.testing.assert_array_equal(weights, [good[0], bounds.public_weights, *good[2:]])


def test_a_batch_that_fails_is_projected_user_by_user(weights_after):
    def limited(found, users):
        if len(users) > 1:
            raise MemoryError
        return found

    expected = WAYS["regularized"](2.0).integer_weights(USERS)
    weights, _ = weights_after("regularized", limited)
    np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -1.0, 0.0, 1e300])
def test_a_solver_that_returns_nonsense_stays_private(weights_after, name, nonsense):
    def spoiled(found, users):
        if name == "regularized":
            found[0][::2, 3] = nonsense
        else:
            found.distribution[int(10 * users[0])] = nonsense
        return found

    weights, bounds = weights_after(name, spoiled)
    wpm_oracles.assert_private(weights, bounds.total, 2.0)


def test_nobody_gets_no_draw():
    mechanism = WAYS["points"](1.0)
    for nobody in (np.zeros((0, SIZE)), sparse.csr_matrix((0, SIZE))):
        assert mechanism.sample(nobody).shape == (0,)
        assert mechanism.project(nobody).shape == (0, SIZE)
        assert mechanism.integer_weights(nobody).shape == (0, SIZE)
    assert wpm.project(
        np.zeros((0, SIZE)), mechanism.cost, np.full(SIZE, 1 / SIZE), 1.0
    )


def test_seeds():
    mechanism, users = WAYS["points"](1.0), crowd()["counts"]
    one = mechanism.sample(users, rng=1)
    np.testing.assert_array_equal(one, mechanism.sample(users, rng=np.int64(1)))
    generator = np.random.default_rng(1)
    np.testing.assert_array_equal(one, mechanism.sample(users, rng=generator))


@every_way
def test_mechanisms_can_be_sent_to_a_worker(name):
    mechanism = WAYS[name](2.0)
    copy, users = pickle.loads(pickle.dumps(mechanism)), crowd()["counts"]
    np.testing.assert_array_equal(
        copy.integer_weights(users), mechanism.integer_weights(users)
    )


def test_what_is_not_for_release_says_so():
    mechanism = WAYS["points"](1.0)
    law = mechanism.project(np.eye(SIZE)[0])
    assert isinstance(law, wpm.NotForRelease) and "NotForRelease" in repr(law)
    assert isinstance(mechanism.integer_weights(np.eye(SIZE)[0]), wpm.NotForRelease)
    assert not isinstance(mechanism.sample(np.eye(SIZE)), wpm.NotForRelease)


@every_way
def test_no_user_depends_on_the_others(name):
    """Bit by bit, wherever the row stands: or the draw of one would tell of another."""
    users, mechanism = crowd()["masses"], WAYS[name](2.0)
    whole = mechanism.integer_weights(users)
    turned = mechanism.integer_weights(users[::-1])[::-1]
    alone = [mechanism.integer_weights(user) for user in users[::8]]
    np.testing.assert_array_equal(whole, turned)
    np.testing.assert_array_equal(whole[::8], alone)


SECRET = 0.123456789


def dense(rows):
    """The (n, k) masses of users."""
    found = np.zeros(rows.table.shape)
    for user, row in enumerate(found):
        inputs, row_masses = rows.row(user)
        row[inputs] = row_masses
    return found


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
    mechanism = wpm.WassersteinProjectionMechanism(np.ones((2, 3)), 1.0)
    for call in (mechanism.project, mechanism.sample):
        with pytest.raises(error, match=message) as caught:
            call(masses)
        assert "1234" not in str(caught.value)


def test_sums_within_the_tolerance_are_normalised():
    mechanism = wpm.WassersteinProjectionMechanism(np.ones((2, 3)), 1.0)
    mechanism.project([0.5, 0.5 + 9e-7])
    with pytest.raises(ValueError, match="mu must sum to 1"):
        mechanism.project([0.5, 0.5 + 2e-6])


@pytest.mark.parametrize(
    "make", [np.array, sparse.csr_matrix, sparse.coo_matrix, sparse.dok_matrix]
)
def test_rows_are_read_as_they_are(make):
    generator = np.random.default_rng(0)
    masses = generator.dirichlet(np.full(9, 0.2), size=6)
    masses[masses < 0.05] = 0
    masses /= masses.sum(axis=1, keepdims=True)
    rows = private_rows.read("mu", make(masses), 9)
    np.testing.assert_allclose(dense(rows), masses, rtol=1e-15)
    assert len(rows) == 6 and rows.is_batch
    np.testing.assert_array_equal(dense(rows.part(2, 5)), dense(rows)[2:5])
    inputs, held = rows.row(3)
    assert (held > 0).all() and (np.diff(inputs) > 0).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=9).filter(any))
def test_counts_are_normalised_as_fractions(counts):
    """Each mass is the float nearest to the quotient of integers."""
    rows = private_rows.read("mu", counts, len(counts))
    total = sum(counts)
    for found, count in zip(dense(rows)[0], counts, strict=True):
        assert found == float(Fraction(count, total))


@pytest.mark.parametrize(("dtype", "count"), [("uint8", 200), ("int8", 100)])
def test_what_is_named_twice_does_not_wrap_and_stays_as_it_is(dtype, count):
    data, columns = np.full(3, count, dtype), [1, 1, 0]
    for table in (
        sparse.coo_matrix((data, ([0, 0, 0], columns)), shape=(1, 2)),
        sparse.csr_matrix((data, columns, [0, 3]), shape=(1, 2)),
    ):
        rows = private_rows.read("mu", table, 2)
        np.testing.assert_allclose(dense(rows), [[1 / 3, 2 / 3]])
        assert table.nnz == 3


def test_no_mass_is_shown():
    rows = private_rows.read("mu", [SECRET, 1 - SECRET], 2)
    for shown in (repr(rows), str(rows), f"{[rows.part(0, 1)]}"):
        assert "0.1" not in shown and "private" in shown
