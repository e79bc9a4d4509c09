"""Places on a Gaussian, of which all is known, and on laws with jumps."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound

# Runs of σ = 5: the loss is N(runs / 50, runs / 25) under P.
RUNS = 40
MEAN, VARIANCE = RUNS / 50, RUNS / 25
DEVIATION = math.sqrt(VARIANCE)


def group_of(bound=Bound.UPPER, num_laws=1):
    pair = gaussian.dominating_pair_of(5.0, bound, tail_mass=1e-30)
    law = loss_distribution.from_pair(pair, dominating_pair.Direction.REMOVE, RUNS)
    return law, anchors.Group.of(law.losses, law.masses, RUNS, num_laws)


def anchors_of(bound=Bound.UPPER):
    law, group = group_of(bound)
    return anchors.Anchors([group], bound, RUNS * float(law.losses[-1]), 1e-270)


@pytest.mark.parametrize("num_laws", [1, 40, 10_000])
def test_a_group_has_a_law_s_moments_from_above(num_laws):
    """Exactly: no moment of the law is larger than its group's."""
    law, group = group_of(num_laws=num_laws)
    tilts = np.array([-3.0, -0.5, 0.0, 0.5, 2.0, 9.0])
    values = group.cumulants(tilts)[0] / RUNS
    for tilt, value in zip(tilts, values, strict=True):
        moment = math.fsum((law.masses * np.exp(tilt * law.losses)).tolist())
        assert math.exp(value) >= moment * (1 - 1e-12)
        assert value == pytest.approx(math.log(moment), abs=1e-3 * min(num_laws, 20))
    assert group.values.size <= (1025 if num_laws == 1 else 129)


def test_cumulants_of_a_gaussian():
    found = group_of()[1].cumulants(np.array([0.0, 0.3, 2.0]))
    for (value, mean, variance), tilt in zip(found.T, (0.0, 0.3, 2.0), strict=True):
        assert value == pytest.approx(tilt * MEAN + tilt**2 * VARIANCE / 2, abs=1e-3)
        assert mean == pytest.approx(MEAN + tilt * VARIANCE, abs=1e-2)
        assert variance == pytest.approx(VARIANCE, rel=1e-2)


def test_guesses_are_near_the_truth():
    found = anchors_of()
    deltas = np.array([1e-2, 1e-6, 1e-15])
    epsilons = found.epsilons(deltas)
    for delta, epsilon in zip(deltas, epsilons, strict=True):
        truth = gaussian.epsilon(DEVIATION, delta, Bound.UPPER)
        assert epsilon == pytest.approx(truth, abs=0.3 * DEVIATION)
    np.testing.assert_allclose(found.log_deltas(epsilons), np.log(deltas), rtol=1e-6)


@pytest.mark.parametrize("bound", list(Bound))
def test_every_epsilon_has_a_place_that_holds_it(bound):
    found = anchors_of(bound)
    epsilons = np.concatenate([[-30.0, 0.0], np.geomspace(1e-6, 30.0, 60)])
    keys = found.keys(epsilons)
    assert (np.diff(keys) >= 0).all()
    assert len(set(keys.tolist())) < 25
    for epsilon, key in zip(epsilons.tolist(), keys.tolist(), strict=True):
        place = found.place(key)
        assert place.tilt == 0 or place.lowest <= epsilon <= place.highest
        assert place.low <= place.lowest
        assert place.highest - place.low < 40 * DEVIATION
        # The tilted law has its centre below, and most of its mass in the window.
        centre = MEAN + place.tilt * VARIANCE
        assert place.tilt == 0 or centre <= epsilon + 0.01 * DEVIATION
        assert place.low < centre < place.high
        # No less than half of what there is of ε.
        assert place.centre >= min(epsilon / 2, 0.1 * DEVIATION)


@pytest.mark.parametrize("chance", [1e-3, 1e-6, 1e-12])
def test_a_rare_jump_has_tilts_of_its_own(chance):
    """Where the rate jumps from tilt to tilt, there are tilts in between."""
    losses, masses = (
        np.array([-chance, 0.0, 8.0]),
        np.array([0.5, 0.5 - chance, chance]),
    )
    group = anchors.Group.of(losses, masses, 5, 1)
    found = anchors.Anchors([group], Bound.UPPER, 40.0, 1e-270)
    roots = found._roots[found._roots < 30]
    assert (roots[1:] / np.maximum(roots[:-1], 0.25)).max() <= 1.61


def test_losses_that_are_equal_but_for_rounding():
    group = anchors.Group.of(np.array([1.0, 1.0 + 2e-16]), np.array([0.5, 0.5]), 3, 1)
    found = anchors.Anchors([group], Bound.UPPER, 3.0, 1e-270)
    assert found.deviation >= 1e-12
    for key in found.keys(np.array([0.0, 1.0, 2.99, 3.0])):
        place = found.place(int(key))
        assert math.isfinite(place.low) and math.isfinite(place.high)


def test_chernoff_s_bound_holds():
    """No sum of losses is far above it more often, and it is no line from nowhere."""
    tilts, exponents = anchors_of().chernoff(0.0)
    for epsilon in (0.5, 2.0, 6.0, 12.0):
        bound = math.exp(min(exponents - tilts * epsilon))
        truth = gaussian.delta(DEVIATION, epsilon, Bound.UPPER)
        assert truth <= bound <= 30 * truth


def test_what_a_tilt_hides_is_hidden_where_it_is_raised_to_as_well():
    """Under this tilt the lower atom is nothing, and raised it is half of the law."""
    losses, masses = np.array([-1.0, 0.0, 1.0]), np.array([1e-20, 0.5, 0.5])
    group = anchors.Group.of(losses, masses, 1, 1)
    assert group.negligible_below(100.0, 1e-12) == 1
    # A little tilt does not hide as much.
    assert group.negligible_below(1.0, 1e-30) == 0


@pytest.mark.parametrize("chance", [1e-14, 1e-20, 1e-40])
@pytest.mark.parametrize("gap", [5.0, 60.0])
def test_no_moment_of_a_group_is_smaller(chance, gap):
    """Not of a rare loss far above a likely one in its cell, nor of its mirror."""
    generator = np.random.default_rng(3)
    losses = np.sort(generator.normal(size=1500))
    losses[-1] = losses[-2] + gap
    masses = generator.random(1500)
    masses[-2:] = 300.0, chance
    masses /= masses.sum()
    tilts = np.array([0.3, 1.0, 4.0, 20.0, -0.3, -4.0, -20.0])
    for places, weights in ((losses, masses), (-losses[::-1], masses[::-1])):
        found = anchors.Group.of(places, weights, 1, 1).cumulants(tilts)[0]
        with mpmath.workdps(50):
            for tilt, value in zip(tilts.tolist(), found.tolist(), strict=True):
                truth = mpmath.log(
                    mpmath.fsum(
                        mpmath.mpf(weight) * mpmath.exp(mpmath.mpf(tilt) * place)
                        for place, weight in zip(places, weights, strict=True)
                    )
                )
                assert truth <= value + anchors._ROUNDING
