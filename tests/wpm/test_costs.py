"""Costs: matrices, points, nodes of a graph; binning; places that are far apart."""

import math
import warnings

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
from scipy import sparse
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs


def test_a_matrix_comes_back():
    matrix = np.random.default_rng(0).random((3, 4))
    cost = costs.as_cost(matrix)
    assert costs.as_cost(cost) is cost
    np.testing.assert_array_equal(cost.matrix(), matrix)
    np.testing.assert_array_equal(cost.rows([2]), matrix[2:])
    assert cost.metric_order is None


DEGREES = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


def great_circle(one, other):
    """Kilometres by the haversine formula in forty digits."""
    with mpmath.workdps(40):
        a, b, c, d = (mpmath.radians(mpmath.mpf(x)) for x in (*one, *other))
        h = mpmath.sin((c - a) / 2) ** 2
        h += mpmath.cos(a) * mpmath.cos(c) * mpmath.sin((d - b) / 2) ** 2
        arc = mpmath.asin(min(mpmath.sqrt(h), 1))
        return float(2 * mpmath.mpf(costs.EARTH_RADIUS) * arc)


@settings(max_examples=100, deadline=None)
@given(DEGREES, DEGREES)
def test_haversine(one, other):
    found = wpm.PointCost([one], [other], metric="haversine").matrix()[0, 0]
    # Where points are opposite, the arc sine is ill conditioned.
    assert found == pytest.approx(great_circle(one, other), rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("metric", checks.METRICS)
def test_counts_are_at_the_nearest_point(metric):
    generator = np.random.default_rng(2)
    points, trace = 50 * generator.random((30, 2)), 50 * generator.random((200, 2))
    counts = wpm.counts_at(points, trace, metric=metric)
    nearest = wpm.PointCost(points, trace, metric=metric).matrix().argmin(axis=0)
    np.testing.assert_array_equal(counts, np.bincount(nearest, minlength=30))
    assert counts.dtype == np.int64


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev"])
@pytest.mark.parametrize(
    ("points", "order"),
    [
        ([[0.0, 0.0], [1e202, 0.0], [0.0, 1e202]], 1),
        ([[0.0, 0.0], [1e150, 0.0], [0.0, 1e150]], 2),
        ([[1e308, 2.0], [-1e308, 3.0]], 1),
        ([[48.0, 2.0], [58.0, 3.0], [10.0, 40.0]], 1000),
    ],
)
def test_distances_that_overflow_are_refused(metric, points, order):
    message = f"points must be such that the largest cost .* to the order {order};"
    with pytest.raises(ValueError, match=message):
        wpm.PointCost(points, metric=metric, order=order)
    with pytest.raises(ValueError, match=message):
        wpm.PointCost(points[:1], points[1:], metric=metric, order=order)


def test_what_was_given_may_be_changed_after():
    points = np.random.default_rng(0).random((6, 2))
    cost = wpm.PointCost(points)
    before = cost.rows([0])
    points[:] = 0
    np.testing.assert_array_equal(cost.rows([0]), before)


def test_near_places_may_have_a_high_order():
    cost = wpm.PointCost([[48.85, 2.35], [48.86, 2.35]], metric="haversine", order=100)
    assert 1 < cost.matrix().max() < 1.2**100


def test_bad_traces_show_no_place():
    with pytest.raises(ValueError, match="trace must have the dimension") as caught:
        wpm.counts_at([[0.0, 0.0]], [[0.123456, 1.0, 2.0]])
    assert "1234" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must have") as caught:
        wpm.counts_at([[0.0, 0.0]], [[91.23456, 1.0]], metric="haversine")
    assert "91" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must have longitudes") as caught:
        wpm.counts_at([[0.0, 0.0]], [[1.0, 412.3456]], metric="haversine")
    assert "412.3" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must be finite") as caught:
        wpm.counts_at([[0.0, 0.0]], [[0.0, 0.0], [1.0, math.inf]])
    assert "inf " not in str(caught.value) and "index" not in str(caught.value)


def dense_paths(matrix):
    """Floyd and Warshall."""
    size = len(matrix)
    found = np.where(matrix > 0, matrix, np.inf)
    found = np.minimum(found, found.T)
    np.fill_diagonal(found, 0)
    for middle in range(size):
        found = np.minimum(found, found[:, [middle]] + found[[middle]])
    return found


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_rows_are_shortest_paths(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(2, 12))
    matrix = np.zeros((size, size))
    for node in range(1, size):
        matrix[node, generator.integers(node)] = generator.uniform(0.1, 2)
    more = generator.random((size, size)) < 0.1
    matrix[more] = generator.uniform(0.1, 2, more.sum())
    cost = wpm.GraphCost(sparse.csr_matrix(matrix), order=2)
    np.testing.assert_allclose(cost.matrix(), dense_paths(matrix) ** 2, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "length"), [("float64", 1.5), ("int8", 100)])
def test_entries_of_a_matrix_that_are_named_twice_are_added(dtype, length):
    """As everywhere in SciPy; but narrow integers do not wrap."""
    lengths, nodes = np.full(4, length, dtype), [1, 1, 1, 2]
    for graph in (
        sparse.coo_matrix((lengths, ([0, 0, 0, 1], nodes)), shape=(3, 3)),
        sparse.csr_matrix((lengths, nodes, [0, 3, 4, 4]), shape=(3, 3)),
    ):
        cost = wpm.GraphCost(graph)
        paths = length * np.array([[0, 3, 4], [3, 0, 1], [4, 1, 0]])
        np.testing.assert_array_equal(cost.matrix(), paths)
        # The caller's is left as it was.
        np.testing.assert_array_equal(graph.data, lengths)


def test_parallel_edges_count_as_the_shortest():
    cost = wpm.GraphCost.from_edges([(0, 1), (1, 0), (1, 1)], [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(cost.matrix(), [[0, 2], [2, 0]])


POINTS = np.random.default_rng(0).random((7, 2))
EDGES = np.column_stack([np.arange(6), np.arange(1, 7)])
KINDS = {
    "points": lambda order=1: wpm.PointCost(POINTS, order=order),
    "line": lambda order=1: wpm.PointCost(POINTS[:, 0], order=order),
    "graph": lambda order=1: wpm.GraphCost.from_edges(EDGES, np.ones(6), order=order),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("order", [1, 2.5])
def test_rows_are_those_of_the_matrix(name, order):
    """And powers of the distances between inputs."""
    cost = KINDS[name](order)
    some = np.array([3, 0, 3])
    np.testing.assert_array_equal(cost.rows(some), cost.matrix()[some])
    assert cost.shape == (7, 7) and repr(cost).endswith("(7 inputs, 7 outputs)")
    assert cost.metric_order == order
    distances = cost.matrix() ** (1 / order)
    np.testing.assert_allclose(cost.between_inputs(4), distances[4], atol=1e-12)
    assert (cost.places_on_line() is None) == (name != "line" or order != 1)


def test_cosines_are_no_less_than_zero_and_do_not_overflow():
    same = np.random.default_rng(0).random((40, 9))
    cost = wpm.PointCost(same, metric="cosine", order=1.5).matrix()
    assert cost.min() >= 0
    assert wpm.PointCost(same, metric="cosine").metric_order is None
    scaled = wpm.PointCost(1e300 * same, 1e-300 * same, metric="cosine", order=1.5)
    np.testing.assert_allclose(scaled.matrix(), cost, atol=1e-12)


def test_distances_on_a_line_do_not_underflow():
    cost = wpm.PointCost([0.0, 1e-200], [3.0])
    assert wpm.PointCost([0.0, 1e-200]).matrix()[0, 1] == 1e-200
    np.testing.assert_array_equal(cost.matrix(), [[3.0], [3.0]])


def test_points_that_look_like_degrees_are_warned_of():
    """Of one country or so, where no metric is named; a unit square is none."""
    paris = [[48.85, 2.35], [48.86, 2.29], [48.89, 2.34]]
    with pytest.warns(UserWarning, match="metric should be haversine"):
        wpm.from_points(paris, 1.0)
    for points, metric in [
        (paris, "euclidean"),
        (paris, "haversine"),
        (np.random.default_rng(0).random((20, 2)), None),
        (10 * np.random.default_rng(0).random((20, 2)), None),
        (np.array(paris) + 1000, None),
        (np.round(paris), None),
        (np.array(paris)[:, :1], None),
    ]:
        wpm.from_points(points, 1.0, metric)


GENERATOR = np.random.default_rng(20261125)
PARIS = np.array([48.85, 2.35]) + 0.05 * GENERATOR.standard_normal((40, 2))
TRACE = PARIS[:7] + 0.001
FIJI = np.array([[-17.8, 177.9], [-16.5, -179.9], [-17.4, 179.0], [-16.8, 179.5]])


def warned(function, *args, **kwargs):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*args, **kwargs)
    return [str(warning.message) for warning in found]


@pytest.mark.parametrize("metric", ["haversine", "euclidean", "cityblock"])
def test_a_swapped_trace_is_told_and_a_good_one_is_not(metric):
    assert warned(wpm.check_public_trace, PARIS, TRACE, metric=metric) == []
    (told,) = warned(wpm.check_public_trace, PARIS, TRACE[:, ::-1], metric=metric)
    assert told.startswith("public_trace must be near the points. Found half of them")
    assert told.endswith("; with their two columns swapped they are near.")
    assert (" km" in told) == (metric == "haversine")


def test_a_trace_of_elsewhere_is_told_without_a_remedy():
    (told,) = warned(wpm.check_public_trace, PARIS, FIJI, metric="haversine")
    assert "must be near the points" in told and "swapped" not in told


def test_the_distance_is_that_of_half_of_the_trace():
    points = [[0.0, 0.0], [10.0, 0.0]]
    trace = [[0.0, 1.0], [0.0, 2.0], [13.0, 0.0]]
    assert wpm.check_public_trace(points, trace) == 2.0
    assert wpm.check_public_trace([[0.0], [9.0]], [[1.0]]) == 1.0
    degree = wpm.check_public_trace(points, [[1.0, 0.0]], metric="haversine")
    assert degree == pytest.approx(111.19, abs=0.01)
    cosine = wpm.check_public_trace([[1.0, 0.0]], [[0.0, 2.0]], metric="cosine")
    assert cosine == pytest.approx(1.0)
    # One point has no scale.
    assert warned(wpm.check_public_trace, [[0.0, 0.0]], [[5.0, 5.0]]) == []


def test_outputs_far_from_the_points_are_told():
    def made(outputs):
        return warned(wpm.from_points, PARIS, 1.0, metric="haversine", outputs=outputs)

    assert made(PARIS[:5]) == []
    (told,) = made(PARIS[:, ::-1])
    assert told.startswith("outputs must be near the points.") and "swapped" in told


def test_points_of_which_some_are_swapped_are_told():
    def made(points):
        return warned(wpm.from_points, points, 1.0, metric="haversine")

    assert made(PARIS) == [] == made(FIJI)
    for some in ([11], [3, 11, 12]):
        mixed = PARIS.copy()
        mixed[some] = mixed[some, ::-1]
        (told,) = made(mixed)
        assert f"Found {len(some)} of 40 that are far from the others" in told
        assert told.endswith(f"the first at index {some[0]}.")
    # Far away is not swapped.
    assert made(np.concatenate([PARIS, [[2.35, -48.85]]])) == []


def test_a_private_trace_is_not_warned_of():
    """Whether it is far tells of it: `counts_at` and draws say nothing."""
    mechanism = wpm.from_points(PARIS, 1.0, metric="haversine")
    for trace in (TRACE, TRACE[:, ::-1], FIJI):

        def draw(trace=trace):
            mechanism.sample(wpm.counts_at(PARIS, trace, metric="haversine"), rng=0)

        assert warned(draw) == []
