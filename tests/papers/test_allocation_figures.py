"""The figures of paper 1, with few points, are as the mathematics says."""

import math

import numpy as np
import picture_checks
import pytest

from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import allocation_figures
from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import catalogue

MODULE = allocation_figures.__name__
Direction = dominating_pair.Direction
Route = allocation_figures.Route
ROUTE_POINTS = {Route.GEOMETRIC: (250, 1000), Route.ADDITIVE: (2048, 8192)}
SMALL = {
    "1": (allocation_figures.figure_1, {"steps": (10, 100), "points": 2}),
    "2": (
        allocation_figures.figure_2,
        {"batch": 2**20, "points": 3, "numbers": 1 << 14},
    ),
    "3": (
        allocation_figures.figure_3,
        {
            "steps": (10,),
            "points": (250, 1000),
            "alphas": (0.8, 0.4),
            "counts": (10, 100),
        },
    ),
    "4": (
        allocation_figures.figure_4,
        {"settings": ((1.0, 1),), "points": 2, "runs": 2000},
    ),
    "5": (
        allocation_figures.figure_5,
        {"rates": (0.1,), "block_sizes": (16_384, 32_768), "tolerance": 3e-2},
    ),
    "6": (
        allocation_figures.figure_6,
        {"batches": (2**20,), "points": 3, "numbers": 1 << 14},
    ),
    "7": (allocation_figures.figure_7, {"points": 5}),
    "8": (allocation_figures.figure_8, {"route_points": ROUTE_POINTS}),
    "9": (allocation_figures.figure_9, {"steps": (10, 50), "points": (250, 1000)}),
    "10": (
        allocation_figures.figure_10,
        {"num_steps": 20, "selected": (3,), "points": 2},
    ),
    "11": (allocation_figures.figure_11, {"num_steps": 8, "selected": (1, 2)}),
}


@pytest.fixture(scope="module")
def pictures():
    return picture_checks.Drawn(SMALL)


def test_every_figure_is_here():
    drawn = [draw for draw, _ in SMALL.values()]
    own = [each for each in catalogue.FIGURES.values() if each.__module__ == MODULE]
    assert drawn == own


@pytest.mark.parametrize("name", SMALL)
def test_every_figure_is_drawn_with_its_table(pictures, name, tmp_path):
    picture_checks.check_bands(pictures[name])
    picture_checks.check_files(pictures[name], tmp_path)


@pytest.mark.parametrize("name", ["1", "10", "11"])
def test_epsilon_falls_with_noise_and_rises_with_steps(pictures, name):
    picture = pictures[name]
    sign = 1 if name == "11" else -1
    for panel in picture.panels:
        for curve in panel.curves:
            assert (sign * np.diff(curve.upper) > 0).all()
            if curve.lower is not None:
                assert (sign * np.diff(curve.lower) > 0).all()
        *earlier, drawn, poisson = panel.curves
        for curve in earlier:
            assert (np.asarray(curve.upper) >= drawn.lower).all()
        assert (np.asarray(drawn.upper) <= poisson.upper).all()


@pytest.mark.parametrize("name", ["2", "6", "7"])
def test_profiles_fall(pictures, name):
    for curve in pictures[name].panels[0].curves:
        assert (np.diff(curve.upper) < 0).all()
    certified = picture_checks.curves_of(pictures[name])["random allocation, certified"]
    assert (np.asarray(certified.upper) <= np.multiply(certified.lower, 1.01)).all()


def test_the_second_figure_is_in_the_sixth(pictures):
    (panel,) = pictures["2"].panels
    assert panel == pictures["6"].panels[0]


def test_earlier_bounds_of_a_profile_are_on_their_side(pictures):
    for name in ("2", "6"):
        for panel in pictures[name].panels:
            curves = {curve.label: np.asarray(curve.upper) for curve in panel.curves}
            drawn = next(c for c in panel.curves if c.label.endswith("certified"))
            assert (curves[allocation_figures.COMBINED_LABEL] >= drawn.lower).all()
            assert (curves[allocation_figures.CHUA_LABEL] <= drawn.upper).all()
            means = curves[allocation_figures.MEAN_LABEL]
            assert (curves[allocation_figures.LIMIT_LABEL] >= means).all()


def test_poisson_and_allocation_cross(pictures):
    _, ratio = pictures["7"].panels[1].curves
    assert ratio.lower[0] > 1 > ratio.upper[-1]


def test_finer_sums_take_longer_and_are_tighter(pictures):
    first, slope = pictures["3"].panels[0].curves
    assert first.x[1] > first.x[0] and min(first.upper) > 0
    here, stated = pictures["3"].panels[1].curves
    assert here.upper == first.upper
    # The brackets' widths, here in nats and there relative: of nearly one ε.
    assert here.x[1] / here.x[0] == pytest.approx(first.x[1] / first.x[0], rel=0.01)
    assert stated.x == pytest.approx([1 / 0.8, 1 / 0.4])
    assert min(stated.upper) > 0
    assert slope.upper[1] / slope.upper[0] == pytest.approx(
        (slope.x[1] / slope.x[0]) ** 2
    )


def test_simulated_errors_are_as_expected(pictures):
    curves = picture_checks.curves_of(pictures["4"])
    for scheme in ("random allocation", "Poisson sampling"):
        expected = np.asarray(curves[scheme].upper)
        simulated = np.asarray(curves[f"{scheme}, simulated"].upper)
        # Six deviations of a mean of squares of normal errors.
        assert (abs(simulated / expected - 1) < 6 * math.sqrt(2 / 2000)).all()
    assert curves["random allocation"].upper[-1] < curves["Poisson sampling"].upper[-1]


def test_larger_blocks_need_more_noise(pictures):
    tight, renyi = pictures["5"].panels[0].curves
    assert 1 < tight.upper[0] < tight.upper[1] < 1.5
    assert (np.asarray(renyi.upper) > tight.upper).all()
    assert renyi.upper[1] > 1.1 * tight.upper[1]


def test_both_routes_hold_the_same_epsilon(pictures):
    add, remove, both = pictures["8"].panels
    for panel in (add, remove, both):
        lower = max(max(curve.lower) for curve in panel.curves)
        upper = min(min(curve.upper) for curve in panel.curves)
        assert lower <= upper <= lower * 1.001
    for one, other in zip(remove.curves, both.curves, strict=True):
        assert other.upper == one.upper  # At this δ, remove is the larger.


def test_fourier_sums_are_tighter_for_remove_and_the_grid_for_add():
    """Figure 8's claim, at little noise, where the lowest losses reach far."""
    geometric, additive = (
        allocation_sums.compute(0.5, 10, route, [4096, 16_384])
        for route in (Route.GEOMETRIC, Route.ADDITIVE)
    )
    few = [sums[0].gap(1e-6, Direction.REMOVE) for sums in (geometric, additive)]
    assert 1.5 * few[1] < few[0]
    many = [sums[1].gap(1e-6, Direction.ADD) for sums in (geometric, additive)]
    assert 1000 * many[0] < many[1]


def test_moments_are_next_to_the_closed_form(pictures):
    for panel, steps in zip(pictures["9"].panels, (10, 50), strict=True):
        band, truth = panel.curves
        assert truth.upper[0] == pytest.approx(math.log1p((math.e - 1) / steps))
        assert (np.asarray(band.lower) <= truth.upper).all()
        assert (np.asarray(band.upper) >= np.multiply(truth.upper, 1 - 1e-4)).all()
        assert band.upper[1] - band.lower[1] < 0.5 * (band.upper[0] - band.lower[0])
