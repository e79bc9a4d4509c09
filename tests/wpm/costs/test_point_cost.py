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
            r'for metric "haversine". Found a latitude beyond a pole, 91\.',
        ),
        ([[1.0]], {"metric": "haversine"}, ValueError, "points must be latitudes"),
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
    ],
)
def test_bad_points(points, options, error, message):
    with pytest.raises(error, match=message):
        wpm.PointCost(points, **options)


def test_bad_traces_show_no_place():
    with pytest.raises(ValueError, match="trace must have the dimension") as caught:
        wpm.counts_at([[0.0, 0.0]], [[0.123456, 1.0, 2.0]])
    assert "1234" not in str(caught.value)
    with pytest.raises(ValueError, match="trace must be latitudes") as caught:
        wpm.counts_at([[0.0, 0.0]], [[91.23456, 1.0]], metric="haversine")
    assert "91.2" not in str(caught.value)
