"""Public places that are far apart are warned of, and others are not."""

import warnings

import numpy as np
import pytest

from dp_accounting_ext import wpm

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


def test_one_point_has_no_scale():
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


def test_what_is_public_is_checked_as_points_are():
    with pytest.raises(ValueError, match=r"public_trace must be finite. Found nan at"):
        wpm.check_public_trace(PARIS, [[np.nan, 1.0]])
    with pytest.raises(ValueError, match=r"public_trace must have the dimension of"):
        wpm.check_public_trace(PARIS, [[1.0, 1.0, 1.0]])


def test_a_private_trace_is_not_warned_of():
    """Whether it is far tells of it: `counts_at` and draws say nothing."""
    mechanism = wpm.from_points(PARIS, 1.0, metric="haversine")
    for trace in (TRACE, TRACE[:, ::-1], FIJI):

        def draw(trace=trace):
            mechanism.sample(wpm.counts_at(PARIS, trace, metric="haversine"), rng=0)

        assert warned(draw) == []
