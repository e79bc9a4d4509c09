"""The figures of paper 2, with few points, are as the mathematics says."""

import math

import mpmath
import numpy as np
import picture_checks
import pytest
from scipy import stats

from dp_accounting_ext.papers import catalogue
from dp_accounting_ext.papers import group_figures

MODULE = group_figures.__name__
SMALL = {
    "3": (group_figures.figure_3, {"truths": (0.75,), "points": 4}),
    "4": (group_figures.figure_4, {"sizes": (1, 4), "points": 5}),
    "5": (group_figures.figure_5, {"sizes": (1, 4), "points": 3}),
    "6": (
        group_figures.figure_6,
        {
            "sizes": (8,),
            "steps": (60_000, 100_000),
            "wide_sizes": (1, 2),
            "wide_steps": (10, 300),
        },
    ),
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


@pytest.mark.parametrize("number", ["3", "4", "5", "6"])
def test_tight_group_bounds_are_below_what_was_known(pictures, number):
    for panel in pictures[number].panels:
        curves = list(panel.curves)
        for tight, known in zip(curves[::2], curves[1::2], strict=True):
            assert (np.asarray(tight.upper) <= np.multiply(known.upper, 1.0001)).all()


@pytest.mark.parametrize("number", ["4", "5"])
def test_larger_groups_have_less_privacy(pictures, number):
    single, group = pictures[number].panels[0].curves[::2]
    above = np.asarray(group.lower) > single.upper
    assert (above | (np.asarray(group.lower) == 0)).all() and above[0]


def test_the_laplace_profile_of_one_record(pictures):
    """r (1 − e^{(ε' − 1)/2}), e^{ε'} = 1 + (e^ε − 1)/r, where it is positive."""
    tight = picture_checks.curves_of(pictures["4"])["K = 1, tight"]
    for epsilon, lower, upper in zip(tight.x, tight.lower, tight.upper, strict=True):
        with mpmath.workdps(40):
            rate = mpmath.mpf(0.2)
            inner = mpmath.log1p(mpmath.expm1(epsilon) / rate)
            exact = rate * max(0, -mpmath.expm1((inner - 1) / 2))
        assert lower <= exact <= upper


def test_the_gaussian_profile_of_one_record(pictures):
    tight = picture_checks.curves_of(pictures["5"])["K = 1, tight"]
    for epsilon, lower, upper in zip(tight.x, tight.lower, tight.upper, strict=True):
        inner = math.log1p(math.expm1(epsilon) / 0.2)
        first, second = stats.norm.cdf([0.25 - 2 * inner, -0.25 - 2 * inner])
        exact = 0.2 * (first - math.exp(inner) * second)
        assert lower == pytest.approx(exact, rel=1e-6)
        assert upper == pytest.approx(exact, rel=1e-6)


def test_more_steps_have_less_privacy(pictures):
    for panel in pictures["6"].panels:
        for curve in panel.curves:
            assert curve.upper[0] < curve.upper[1]


def test_published_settings_are_the_default():
    """Laplace of scale 1 and a Gaussian of σ = 2, both with r = 0.2."""
    assert "scale 1" in group_figures.figure_4(sizes=(1,), points=2).title
    assert "r = 0.2" in group_figures.figure_5(sizes=(1,), points=2).title
