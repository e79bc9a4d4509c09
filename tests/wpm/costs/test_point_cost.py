"""Costs between points, and binning to the nearest."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.costs import point_cost

DEGREES = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


def great_circle(one, other):
    """Kilometres by the haversine formula in forty digits."""
    with mpmath.workdps(40):
        a, b, c, d = (mpmath.radians(mpmath.mpf(x)) for x in (*one, *other))
        h = mpmath.sin((c - a) / 2) ** 2
        h += mpmath.cos(a) * mpmath.cos(c) * mpmath.sin((d - b) / 2) ** 2
        arc = mpmath.asin(min(mpmath.sqrt(h), 1))
        return float(2 * mpmath.mpf(point_cost.EARTH_RADIUS) * arc)


@settings(max_examples=100, deadline=None)
@given(DEGREES, DEGREES)
def test_haversine(one, other):
    found = wpm.PointCost([one], [other], metric="haversine").matrix()[0, 0]
    # Where points are opposite, the arc sine is ill conditioned.
    assert found == pytest.approx(great_circle(one, other), rel=1e-7, abs=1e-6)


def test_a_function_of_two_points():
    cost = wpm.PointCost([0, 2], [5], metric=lambda x, y: abs(x[0] - y[0]), order=2)
    np.testing.assert_allclose(cost.matrix(), [[25], [9]])
    assert cost.metric_order is None


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", "haversine"])
def test_counts_are_at_the_nearest_point(metric):
    generator = np.random.default_rng(2)
    points, trace = 50 * generator.random((30, 2)), 50 * generator.random((200, 2))
    counts = wpm.counts_at(points, trace, metric=metric)
    nearest = wpm.PointCost(points, trace, metric=metric).matrix().argmin(axis=0)
    np.testing.assert_array_equal(counts, np.bincount(nearest, minlength=30))
    assert counts.dtype == np.int64


def test_counts_go_into_a_mechanism():
    points = np.random.default_rng(3).random((20, 2))
    mechanism = wpm.from_points(points, 2.0)
    counts = wpm.counts_at(points, points[[4, 4, 9]])
    law = mechanism.project(counts)
    shares = np.zeros(20)
    shares[[4, 9]] = 2 / 3, 1 / 3
    np.testing.assert_array_equal(law, mechanism.project(shares))


@pytest.mark.parametrize(
    ("points", "options", "error", "message"),
    [
        (
            [[91.0, 0.0]],
            {"metric": "haversine"},
            ValueError,
            r"in the first column. Found a latitude beyond a pole, 91\.",
        ),
        ([[1.0]], {"metric": "haversine"}, ValueError, "points must have two columns"),
        ([[math.nan, 0.0]], {}, ValueError, "points must be finite"),
        ([], {}, ValueError, "points must be a list of points"),
        ([["a", "b"]], {}, TypeError, "points must be an array of real numbers"),
        ([[1.0, 2.0]], {"outputs": [[1.0]]}, ValueError, "of one dimension"),
        (
            [[1.0, 2.0]],
            {"metric": "nowhere"},
            ValueError,
            "metric must be .* Found 'nowhere'",
        ),
        ([[1.0, 2.0]], {"metric": None}, TypeError, "metric must be .* Found None"),
        (
            [[1.0, 2.0]],
            {"metric": lambda one, other: "near"},
            TypeError,
            "metric must return a real number. Found 'near'",
        ),
        ([[1.0], [math.inf]], {}, ValueError, "points must be .* inf at index 1"),
        (
            [[0.0, 400.0]],
            {"metric": "haversine"},
            ValueError,
            r"longitudes in \[-360, 360\].* Found 400",
        ),
    ],
)
def test_bad_points(points, options, error, message):
    with pytest.raises(error, match=message):
        wpm.PointCost(points, **options)


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
    message = f"points must be such that distances to the order {order} are"
    with pytest.raises(ValueError, match=message):
        wpm.PointCost(points, metric=metric, order=order)
    with pytest.raises(ValueError, match=message):
        wpm.PointCost(points[:1], points[1:], metric=metric, order=order)


def test_distances_that_are_no_known_metric_are_refused_when_met():
    cost = wpm.PointCost([[0.0], [1e120]], metric=lambda x, y: abs(x - y)[0], order=2)
    with pytest.raises(ValueError, match="points must be such that distances to"):
        cost.rows([1])


def test_a_point_that_has_no_distances_is_found_before_any_user():
    points = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    for inputs, outputs in ((points, points[:2]), (points[:2], points)):
        with pytest.raises(ValueError, match="Found nan in row"):
            wpm.PointCost(inputs, outputs, metric="cosine")


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
    assert "91.2" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must have longitudes") as caught:
        wpm.counts_at([[0.0, 0.0]], [[1.0, 412.3456]], metric="haversine")
    assert "412.3" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must be finite") as caught:
        wpm.counts_at([[0.0, 0.0]], [[0.0, 0.0], [1.0, math.inf]])
    assert "inf " not in str(caught.value) and "index" not in str(caught.value)


def test_points_of_one_number_each_are_on_a_line():
    line = wpm.from_points([0.0, 1.0, 3.0], 1.0)
    assert line == wpm.from_points([[0.0], [1.0], [3.0]], 1.0)
