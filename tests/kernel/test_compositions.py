"""Compositions are accurate in the tails that are asked about, and count errors."""

import math

import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.pairs import gaussian


@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_direction_is_accurate_in_its_own_tail(count):
    """A Gaussian composed is a Gaussian; its two laws are far apart."""
    mean = 30.0
    for bound in Bound:
        step = gaussian.dominating_pair_of(
            math.sqrt(count) / mean, bound, tail_mass=1e-30
        )
        pairs = dominating_pair.DirectedPairs.same(step)
        both = law_sums.ComposedLosses(
            [(lambda pairs=pairs: pairs, count)], bound, accuracy.Accuracy(1e-25)
        )
        for direction in Direction:
            for epsilon in (400.0, 500.0, 560.0):
                truth = gaussian.delta(mean, epsilon, bound)
                found = (
                    both.losses(direction)
                    .profile(direction)
                    .deltas(np.array([epsilon]))[0]
                )
                if bound is Bound.UPPER:
                    assert truth * (1 - 1e-9) <= found <= truth * 1.05
                else:
                    assert truth * 0.95 <= found <= truth * (1 + 1e-9)


# By how much masses are off, as a function of the ratio.
PATTERNS = {
    "above one": lambda ratios: np.where(ratios > 1, 1.0, -1.0),
    "below one": lambda ratios: np.where(ratios > 1, -1.0, 1.0),
    "far from one": lambda ratios: np.where(np.abs(np.log(ratios)) > 0.1, 1.0, -1.0),
    "all": lambda ratios: np.ones(ratios.size),
    "none": lambda ratios: -np.ones(ratios.size),
    "in turn": lambda ratios: np.where(np.arange(ratios.size) % 2, 1.0, -1.0),
}


def _perturbed(sigma, bound, pattern, error, told=0.0):
    """Returns a Gaussian's pair whose masses are off, and a part `told` in sinks."""
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-30)
    return dominating_pair.DominatingPair(
        pair.ratios,
        pair.masses * (1 + error * PATTERNS[pattern](pair.ratios)) * (1 - told),
        pair.infinity_mass + told,
        pair.zero_mass + told,
        bound,
        pair.mass_error + 1.01 * error,
        pair.ratio_error,
    )


def _composed(pair, bound, copies):
    """Returns the profiles of both directions."""
    pairs = dominating_pair.DirectedPairs.same(pair)
    composed = law_sums.ComposedLosses(
        [(lambda: pairs, copies)], bound, accuracy.Accuracy(1e-25)
    )
    return [composed.losses(way).profile(way) for way in Direction]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sigma", [30.0, 1000.0])
def test_masses_that_are_off(sigma, pattern):
    """Against the closed form. Masses of the sum are off by 3 %."""
    copies, error, deltas = 3000, 1e-5, np.array([1e-3, 1e-6, 1e-15])
    mean = math.sqrt(copies) / sigma
    truth = [gaussian.epsilon(mean, delta, Bound.UPPER) for delta in deltas]
    bounds = {}
    for bound in Bound:
        profiles = _composed(_perturbed(sigma, bound, pattern, error), bound, copies)
        bounds[bound] = np.max([way.epsilons(deltas) for way in profiles], axis=0)
    assert (bounds[Bound.LOWER] <= truth).all()
    assert (truth <= bounds[Bound.UPPER]).all()


@pytest.mark.parametrize("pattern", ["all", "none", "in turn"])
@pytest.mark.parametrize("copies", [3000, 1_000_000])
def test_sinks_beside_masses_that_are_off(copies, pattern):
    """A sink is a probability: masses that sum to more than one take none of it."""
    error, told = 0.1 / copies, 3e-4 / copies
    pair = _perturbed(math.sqrt(copies), Bound.UPPER, pattern, error, told)
    epsilons = np.array([1.0, 5.0, 9.5])
    finite = math.exp(copies * math.log1p(-told))
    for profile in _composed(pair, Bound.UPPER, copies):
        found = profile.deltas(epsilons)
        for epsilon, delta in zip(epsilons, found, strict=True):
            of_finite = gaussian.delta(1.0, epsilon, Bound.LOWER)
            assert 1 - finite + finite * of_finite <= delta
        # All that is told beyond is in the sink.
        assert profile.epsilons(np.array([(1 - finite) * 0.999]))[0] == math.inf


@pytest.mark.parametrize("bound", Bound)
def test_errors_that_fit_no_float_say_nothing(bound):
    pair = _perturbed(30.0, bound, "in turn", 0.2)
    nothing = (1.0, math.inf) if bound is Bound.UPPER else (0.0, 0.0)
    for profile in _composed(pair, bound, 10_000):
        assert profile.deltas(np.array([1.0]))[0] == nothing[0]
        assert profile.epsilons(np.array([1e-6]))[0] == nothing[1]


@pytest.mark.parametrize("drift", [3e-7, -3e-7])
def test_masses_that_are_all_too_large_or_too_small_have_a_billion_copies(drift):
    """Their product is off by e^±300."""
    ratios, copies = np.array([1 - 1e-5, 1 + 1e-5]), 10**9
    # Of losses ±1e-5 the sum is normal but for 1e-5, of mean 0.05 and variance 0.1.
    delta = gaussian.delta(math.sqrt(0.1), 0.3, Bound.LOWER)
    for bound in Bound:
        pair = dominating_pair.DominatingPair(
            ratios, np.full(2, (1 + drift) / 2), 0.0, 0.0, bound, 3.1e-7, 2e-16
        )
        found = _composed(pair, bound, copies)[0].deltas(np.array([0.3]))[0]
        assert found >= delta * 0.98 if bound is Bound.UPPER else found <= delta * 1.02
