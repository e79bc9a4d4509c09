"""Profiles and trade-off curves: certified, told apart, and drawn."""

import dataclasses

from matplotlib import figure
import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(3.0, 3, 1, 3, 1e-8)
KNOWN, POISSON = training_run.NO_AMPLIFICATION, training_run.POISSON_SAMPLING


def by_name(found):
    return {(each.sampling, each.group_size): each for each in found}


@pytest.fixture(scope="module")
def profiles():
    two = dataclasses.replace(RUN, group_size=2)
    return by_name(curves.profiles(RUN, two, num_points=5))


@pytest.fixture(scope="module")
def trade_offs():
    run = training_run.TrainingRun(2.0, 3, 1, 3)
    two = dataclasses.replace(run, group_size=2)
    found = curves.trade_offs(run, two, least_rate=1e-4, num_points=4)
    return by_name(found)


def quantile(rate):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)


def test_bands_are_in_order_and_monotone(profiles, trade_offs):
    for found, sign in ((profiles, -1), (trade_offs, 1)):
        for curve in found.values():
            lower, upper = np.array(curve.lower), np.array(curve.upper)
            assert (np.diff(curve.x) > 0).all()
            assert (lower >= 0).all() and (lower <= upper).all() and (upper <= 1).all()
            assert (sign * np.diff(lower) >= 0).all()
            assert (sign * np.diff(upper) >= 0).all()


@pytest.mark.parametrize("size", [1, 2])
def test_profiles_of_known_batches_are_gaussian(profiles, size):
    """E steps of noise σ seen by K records: one of σ / (K √E)."""
    curve = profiles[KNOWN, size]
    with mpmath.workdps(40):
        mean = size * mpmath.sqrt(3) / mpmath.mpf(RUN.noise_multiplier)
    for at, low, high in zip(curve.x, curve.lower, curve.upper, strict=True):
        assert low <= oracles.gaussian_delta(mean, at) <= high <= low * (1 + 1e-8)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("scheme", "far"), [(KNOWN, 1), (training_run.SHUFFLED, 2)])
def test_trade_offs_of_known_batches_are_gaussian(trade_offs, scheme, far, size):
    """Three known steps: Φ(Φ⁻¹(α) + √3/2); twice that for two, or a replaced one."""
    curve = trade_offs[scheme, size]
    assert (curve.x[0], curve.x[-1]) == (pytest.approx(1e-4), 1)
    with mpmath.workdps(30):
        mean = far * size * mpmath.sqrt(3) / 2
        for rate, low, high in zip(
            curve.x[:-1], curve.lower[:-1], curve.upper[:-1], strict=True
        ):
            truth = mpmath.ncdf(quantile(rate) + mean)
            assert low <= truth <= high <= low * (1 + 1e-9)


def test_pictures_tell_curves_apart(profiles, trade_offs):
    """Colours and dashes are of schemes, marks of sizes of groups."""
    for found, count in ((profiles, 8), (trade_offs, 9)):
        axes = figure.Figure().add_subplot()
        assert curves.plot(list(found.values()), axes, title="a " * 90) is axes
        assert "\n" in axes.get_title(loc="left")
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert len(lines) == count and axes.get_xscale() == axes.get_yscale() == "log"
        for curve in found.values():
            line = lines[curve.label]
            alone = lines[found[curve.sampling, 1].label]
            assert line.get_color() == alone.get_color()
            assert line.get_linestyle() == alone.get_linestyle()
            assert (line.get_marker() == alone.get_marker()) == (curve.group_size == 1)
            assert list(line.get_ydata()) == [y for y in curve.upper if y > 0]
        looks = {(line.get_color(), line.get_marker()) for line in lines.values()}
        assert len(looks) == count


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (curves.profiles, {"num_points": 3}),
        (curves.profiles, {"epsilons": [0.5]}),
        (curves.trade_offs, {"num_points": 3}),
    ],
)
def test_progress_counts_curves(question, options):
    run = training_run.TrainingRun(1, 10, delta=1e-6, sampling="no-amplification")
    told = []
    question(run, run, progress=lambda *counts: told.append(counts), **options)
    assert told == [(0, 2), (1, 2), (2, 2)]
