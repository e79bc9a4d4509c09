"""The papers' figures, with few points: what is drawn is what the mathematics says."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import catalogue
from dp_accounting_ext.papers import group_privacy
from dp_accounting_ext.papers import projection
from dp_accounting_ext.studies import drawing

ROUTE_POINTS = {
    allocation_sums.Route.GEOMETRIC: (250, 1000),
    allocation_sums.Route.ADDITIVE: (2048, 8192),
}
SMALL = {
    "paper1-figure1": {"steps": (10, 1000), "points": 3},
    "paper1-figure2": {"batch": 2**20, "points": 3},
    "paper1-figure3": {"steps": (10,), "points": (250, 1000), "counts": (10, 100)},
    "paper1-figure4": {"settings": ((1.0, 10),), "points": 2, "runs": 2000},
    "paper1-figure5": {"rates": (0.1,), "block_sizes": (2048, 32_768)},
    "paper1-figure6": {"batches": (2**20, 2**21), "points": 3},
    "paper1-figure7": {"points": 5},
    "paper1-figure8": {"route_points": ROUTE_POINTS},
    "paper1-figure9": {"steps": (10, 50), "points": (250, 1000)},
    "paper1-figure10": {"selected": (3,), "points": 3},
    "paper1-figure11": {"selected": (1, 3, 10)},
    "paper2-figure3": {"truths": (0.75,), "points": 4},
    "paper2-figure4": {"sizes": (1, 4), "points": 5},
    "paper2-figure5": {"sizes": (1, 4), "points": 3},
    "paper2-figure6": {
        "sizes": (8,),
        "steps": (60_000, 100_000),
        "wide_sizes": (1, 2),
        "wide_steps": (10, 300),
    },
    "paper3-figure1": {"data": projection.ring(passes=(1, 20, 200))},
}


@pytest.fixture(scope="module")
def pictures():
    return {name: catalogue.FIGURES[name](**sizes) for name, sizes in SMALL.items()}


def curves_of(picture, panel=0):
    return {curve.label: curve for curve in picture.panels[panel].curves}


def test_every_figure_is_here():
    assert set(SMALL) == set(catalogue.FIGURES)


@pytest.mark.parametrize("name", SMALL)
def test_every_figure_can_be_drawn(pictures, name, tmp_path):
    picture = pictures[name]
    drawing.draw(picture, tmp_path / "picture.png")
    drawing.write_table(picture, tmp_path / "picture.csv")
    assert 5_000 < (tmp_path / "picture.png").stat().st_size < 150_000
    points = sum(len(c.x) for panel in picture.panels for c in panel.curves)
    lines = (tmp_path / "picture.csv").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == 1 + points


@pytest.mark.parametrize("name", SMALL)
def test_bands_are_bands(pictures, name):
    for panel in pictures[name].panels:
        labels = [curve.label for curve in panel.curves]
        assert len(set(labels)) == len(labels)
        for curve in panel.curves:
            assert len(curve.x) == len(curve.upper) > 1
            assert np.isfinite(curve.upper).all()
            if curve.lower is not None:
                assert (np.asarray(curve.lower) <= curve.upper).all()


@pytest.mark.parametrize("name", ["1", "10", "11"])
def test_epsilon_falls_with_noise_and_rises_with_steps(pictures, name):
    picture = pictures[f"paper1-figure{name}"]
    sign = 1 if name == "11" else -1
    for panel in picture.panels:
        for curve in panel.curves:
            assert (sign * np.diff(curve.upper) > 0).all()
            if curve.lower is not None:
                assert (sign * np.diff(curve.lower) > 0).all()
        renyi, drawn, poisson = panel.curves
        assert (np.asarray(renyi.upper) >= drawn.lower).all()
        assert (np.asarray(drawn.upper) <= poisson.upper).all()


@pytest.mark.parametrize("name", ["paper1-figure2", "paper1-figure6", "paper1-figure7"])
def test_profiles_fall(pictures, name):
    for curve in pictures[name].panels[0].curves:
        assert (np.diff(curve.upper) < 0).all()
    certified = curves_of(pictures[name])["random allocation, certified"]
    assert (np.asarray(certified.upper) <= np.multiply(certified.lower, 1.01)).all()


def test_the_second_figure_is_in_the_sixth(pictures):
    (panel,) = pictures["paper1-figure2"].panels
    assert panel == pictures["paper1-figure6"].panels[0]


def test_poisson_and_allocation_cross(pictures):
    _, ratio = pictures["paper1-figure7"].panels[1].curves
    assert ratio.lower[0] > 1 > ratio.upper[-1]


def test_finer_sums_take_longer_and_are_tighter(pictures):
    first, slope = pictures["paper1-figure3"].panels[0].curves
    assert first.x[1] > first.x[0] and min(first.upper) > 0
    assert slope.upper[1] / slope.upper[0] == pytest.approx(
        (slope.x[1] / slope.x[0]) ** 2
    )


def test_simulated_errors_are_as_expected(pictures):
    curves = curves_of(pictures["paper1-figure4"])
    for scheme in ("random allocation", "Poisson sampling"):
        expected = np.asarray(curves[scheme].upper)
        simulated = np.asarray(curves[f"{scheme}, simulated"].upper)
        # Six deviations of a mean of squares of normal errors.
        assert (abs(simulated / expected - 1) < 6 * math.sqrt(2 / 2000)).all()
    assert curves["random allocation"].upper[-1] < curves["Poisson sampling"].upper[-1]


def test_larger_blocks_need_more_noise(pictures):
    (curve,) = pictures["paper1-figure5"].panels[0].curves
    assert 1 < curve.upper[0] < curve.upper[1] < 1.5


def test_both_routes_hold_the_same_epsilon(pictures):
    add, remove, both = pictures["paper1-figure8"].panels
    for panel in (add, remove, both):
        lower = max(max(curve.lower) for curve in panel.curves)
        upper = min(min(curve.upper) for curve in panel.curves)
        assert lower <= upper <= lower * 1.001
    for one, other in zip(remove.curves, both.curves, strict=True):
        assert other.upper == one.upper  # At this δ, remove is the larger.


def test_moments_are_next_to_the_closed_form(pictures):
    for panel, steps in zip(pictures["paper1-figure9"].panels, (10, 50), strict=True):
        band, truth = panel.curves
        assert truth.upper[0] == pytest.approx(math.log1p((math.e - 1) / steps))
        assert (np.asarray(band.lower) <= truth.upper).all()
        assert (np.asarray(band.upper) >= np.multiply(truth.upper, 1 - 1e-4)).all()
        assert band.upper[1] - band.lower[1] < 0.5 * (band.upper[0] - band.lower[0])


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_tight_group_bounds_are_below_what_was_known(pictures, number):
    for panel in pictures[f"paper2-figure{number}"].panels:
        curves = list(panel.curves)
        for tight, known in zip(curves[::2], curves[1::2], strict=True):
            assert (np.asarray(tight.upper) <= np.multiply(known.upper, 1.0001)).all()


@pytest.mark.parametrize("number", [4, 5])
def test_larger_groups_have_less_privacy(pictures, number):
    single, group = pictures[f"paper2-figure{number}"].panels[0].curves[::2]
    above = np.asarray(group.lower) > single.upper
    assert (above | (np.asarray(group.lower) == 0)).all() and above[0]


def test_the_laplace_profile_of_one_record(pictures):
    """r (1 − e^{(ε' − 1)/2}), e^{ε'} = 1 + (e^ε − 1)/r, where it is positive."""
    tight = curves_of(pictures["paper2-figure4"])["K = 1, tight"]
    for epsilon, lower, upper in zip(tight.x, tight.lower, tight.upper, strict=True):
        with mpmath.workdps(40):
            rate = mpmath.mpf(0.2)
            inner = mpmath.log1p(mpmath.expm1(epsilon) / rate)
            exact = rate * max(0, -mpmath.expm1((inner - 1) / 2))
        assert lower <= exact <= upper


def test_the_gaussian_profile_of_one_record(pictures):
    tight = curves_of(pictures["paper2-figure5"])["K = 1, tight"]
    for epsilon, lower, upper in zip(tight.x, tight.lower, tight.upper, strict=True):
        inner = math.log1p(math.expm1(epsilon) / 0.2)
        first, second = stats.norm.cdf([0.25 - 2 * inner, -0.25 - 2 * inner])
        exact = 0.2 * (first - math.exp(inner) * second)
        assert lower == pytest.approx(exact, rel=1e-6)
        assert upper == pytest.approx(exact, rel=1e-6)


def test_more_steps_have_less_privacy(pictures):
    for panel in pictures["paper2-figure6"].panels:
        for curve in panel.curves:
            assert curve.upper[0] < curve.upper[1]


def test_the_ring(pictures):
    laws = curves_of(pictures["paper3-figure1"])
    for name in ("private distribution", "KL projection", "Wasserstein projection"):
        assert sum(laws[name].upper) == pytest.approx(1.0)
    cost, masses = projection.ring_cost(), np.array(laws["private distribution"].upper)
    reached = [
        projection.reaching_cost(masses, cost, np.array(laws[name].upper))
        for name in ("Wasserstein projection", "KL projection")
    ]
    assert reached[0] < 0.6 * reached[1]
    paths = curves_of(pictures["paper3-figure1"], 1)
    exact = paths["exact projection"].upper[0]
    assert exact == pytest.approx(reached[0] ** 0.5)
    finest = paths["λ = 0.0005 max C"].upper
    assert finest[0] > 2 * exact and exact <= finest[-1] < 1.01 * exact


def test_the_ring_for_another_epsilon():
    data = projection.ring(2.0, passes=(1, 10), regularizations=(0.01,))
    picture = projection.figure_1(2.0, data=data)
    assert "ε = 2" in picture.title
    assert list(curves_of(picture, 1)) == ["λ = 0.01 max C", "exact projection"]


def test_published_settings_are_the_default():
    """Laplace of scale 1 and a Gaussian of σ = 2, both with r = 0.2."""
    assert "scale 1" in group_privacy.figure_4(sizes=(1,), points=2).title
    assert "r = 0.2" in group_privacy.figure_5(sizes=(1,), points=2).title
