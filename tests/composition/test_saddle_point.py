"""Where a tilted loss lies: against the Gaussian, of which all is known."""

import math

import numpy as np
import pytest

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import saddle_point
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction

# Runs of σ = 5: the loss is N(runs / 50, runs / 25) under P.
RUNS = 40
MEAN, VARIANCE = RUNS / 50, RUNS / 25


@pytest.fixture(scope="module")
def sketch():
    pair = gaussian.dominating_pair_of(5.0, Bound.UPPER, tail_mass=1e-30)
    law = loss_distribution.from_pair(pair, Direction.REMOVE, RUNS)
    return saddle_point.LossSketch([law])


@pytest.mark.parametrize("tilt", [-2.0, -0.5, 0.0, 0.3, 2.0])
def test_cumulants_of_a_gaussian(sketch, tilt):
    value, mean, variance = sketch.cumulants(tilt)
    assert value == pytest.approx(tilt * MEAN + tilt**2 * VARIANCE / 2, abs=1e-4)
    assert mean == pytest.approx(MEAN + tilt * VARIANCE, abs=1e-3)
    assert variance == pytest.approx(VARIANCE, rel=1e-3)
    assert sketch.deviation == pytest.approx(math.sqrt(VARIANCE), rel=1e-3)


@pytest.mark.parametrize("place", [-6.0, -1.0, 0.8, 3.0, 9.0])
def test_tilts_centre_the_loss(sketch, place):
    tilt = sketch.tilt_for_mean(place)
    assert sketch.cumulants(tilt)[1] == pytest.approx(place, abs=0.01)


def test_a_loss_that_no_tilt_reaches_has_the_largest_tilt(sketch):
    assert sketch.tilt_for_mean(1e6) > 100 / sketch.deviation
    assert sketch.tilt_for_mean(-1e6) < -100 / sketch.deviation


@pytest.mark.parametrize("tilt", [0.0, 0.5, 3.0])
def test_an_eased_tilt_is_smaller(sketch, tilt):
    eased = sketch.eased(tilt)
    assert 0 <= eased <= tilt
    assert (eased < tilt) is (tilt > 0)


@pytest.mark.parametrize("tilt", [0.0, 0.4, 2.0])
def test_windows_hold_the_tilted_law(sketch, tilt):
    """A lower bound loses what folds onto its window: e^−45 on either side."""
    place = sketch.place(tilt, MEAN)
    assert place.tilt == sketch.eased(tilt)
    reach = math.sqrt(2 * 45) * math.sqrt(VARIANCE)
    centre = MEAN + place.tilt * VARIANCE
    assert place.low == pytest.approx(centre - reach, rel=0.05, abs=0.5)
    assert place.high == pytest.approx(centre + reach, rel=0.05, abs=0.5)
    assert place.lowest == pytest.approx(MEAN - math.sqrt(VARIANCE), rel=1e-3)


def test_losses_that_are_equal_but_for_rounding():
    law = loss_distribution.LossDistribution(
        np.array([1.0, 1.0 + 2e-16]), np.array([0.5, 0.5]), 0.0, 3, Bound.UPPER
    )
    assert saddle_point.LossSketch([law]).deviation >= 1e-12
