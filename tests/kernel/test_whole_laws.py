"""Laws that sum to one err less on the whole than mass by mass, as is said."""

import functools
import itertools
import math
import statistics

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import composed_losses
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import whole_laws
from dp_accounting_ext.pairs import gaussian

Closeness = whole_laws.Closeness
# By how much masses are off, as a function of the ratio.
PATTERNS = {
    "above one": lambda ratios: np.where(ratios > 1, 1.0, -1.0),
    "below one": lambda ratios: np.where(ratios > 1, -1.0, 1.0),
    "far from one": lambda ratios: np.where(np.abs(np.log(ratios)) > 0.1, 1.0, -1.0),
    "near one": lambda ratios: np.where(np.abs(np.log(ratios)) > 0.1, -1.0, 1.0),
    "all": lambda ratios: np.ones(ratios.size),
    "none": lambda ratios: -np.ones(ratios.size),
    "in turn": lambda ratios: np.where(np.arange(ratios.size) % 2, 1.0, -1.0),
}


@functools.cache
def _tails(chance, copies):
    """Returns the chances of k or more of so many, exact to 40 digits."""
    terms = [
        math.comb(copies, k) * chance**k * (1 - chance) ** (copies - k)
        for k in range(copies + 1)
    ]
    return [*itertools.accumulate(reversed(terms))][::-1]


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (1, 1), (-1, -1), (0, 1)])
@pytest.mark.parametrize("share", ["0.5", "0.1", "0.001"])
def test_chances_of_sums_of_two_outcomes(signs, share):
    copies, error = 200, mpmath.mpf("0.02")
    with mpmath.workdps(40):
        p = mpmath.mpf(share)
        off = [p * (1 + signs[0] * error), (1 - p) * (1 + signs[1] * error)]
        true, seen = _tails(p, copies), _tails(off[0] / (off[0] + off[1]), copies)
        claimed = Closeness(float(-mpmath.log(1 - error)))
        for _ in range(3):
            claimed = claimed.of_sum(claimed, 0.0)
        fine = functools.reduce(
            lambda known, _: known.of_sum(claimed, 0.0), range(copies // 8 - 1), claimed
        )
        chances = np.array([float(chance) for chance in seen])
        most, least = (
            fine.most(chances * (1 + 1e-14)),
            fine.least(chances / (1 + 1e-14)),
        )
        for low, exact, high in zip(least, true, most, strict=True):
            assert low <= exact <= high
        if signs == (1, -1) and share == "0.5":
            # A fourth of it is too little.
            less = Closeness(fine.spread / 4).least(chances)
            assert any(low > exact for low, exact in zip(less, true, strict=True))


def test_one_is_the_other_backwards():
    chances = np.array([1.0, 0.7, 1e-3, 1e-60, 1e-250])
    for spread in (1e-9, 1e-3, 0.5):
        there = Closeness(spread)
        back = there.most(there.least(chances))
        assert back == pytest.approx(chances, rel=1e-9)
    assert 0 < Closeness(1e-9).most(np.zeros(1))[0] < 1e-299
    assert (Closeness().least(chances) == 0).all()
    assert (Closeness().most(chances) == 1).all()


def test_a_law_that_lacks_much_claims_nothing():
    assert Closeness(1e-9).without(1e-3).spread == math.inf
    assert Closeness(1e-9).without(1e-9).spread == 1e-9


def test_what_is_made_of_a_pair_claims_nothing():
    """Of a pair with other ratios no claim is known."""
    pair = gaussian.dominating_pair_of(1.0, Bound.UPPER, tail_mass=1e-20)
    assert pair.closeness.spread < 1e-10
    assert dominating_pair.without_tails(pair, 1e-3).closeness.spread == math.inf


def _perturbed(sigma, bound, pattern, error, claim=1.0):
    """Returns a Gaussian's pair with masses that are off, and claim to be no more."""
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-30)
    off = dominating_pair.DominatingPair(
        pair.ratios,
        pair.masses * (1 + error * PATTERNS[pattern](pair.ratios)),
        pair.infinity_mass,
        pair.zero_mass,
        bound,
        pair.mass_error + 1.01 * error,
        pair.ratio_error,
    )
    return off.as_close_as(pair.closeness.rounded(claim * 1.01 * error))


def _epsilons(pair, bound, copies, deltas, ways=tuple(Direction)):
    """Returns the larger ε of the directions."""
    pairs = dominating_pair.DirectedPairs.same(pair)
    composed = composed_losses.ComposedLosses(
        [(lambda: pairs, copies)], bound, accuracy.Accuracy(1e-25)
    )
    return np.max(
        [composed.losses(way).profile(way).epsilons(deltas) for way in ways], axis=0
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sigma", [30.0, 1000.0])
def test_compositions_of_masses_that_are_off(sigma, pattern):
    """Against the closed form. Mass by mass they are off by 3 %."""
    copies, error, deltas = 3000, 1e-5, np.array([1e-3, 1e-6, 1e-15])
    mean = math.sqrt(copies) / sigma
    truth = [gaussian.epsilon(mean, delta, Bound.UPPER) for delta in deltas]
    upper, lower = (
        _epsilons(_perturbed(sigma, bound, pattern, error), bound, copies, deltas)
        for bound in Bound
    )
    assert (lower <= truth).all()
    assert (truth <= upper).all()
    loose = _perturbed(sigma, Bound.UPPER, pattern, error).as_close_as(whole_laws.NONE)
    alone = _epsilons(loose, Bound.UPPER, copies, deltas)
    assert (upper <= alone).all()


@pytest.mark.parametrize("pattern", ["all", "none", "in turn"])
@pytest.mark.parametrize("copies", [3000, 1_000_000])
def test_sinks_beside_masses_that_are_off(copies, pattern):
    """A sink is a probability: masses that sum to more than one take none of it."""
    error, told = 0.1 / copies, 3e-4 / copies
    pair = _perturbed(math.sqrt(copies), Bound.UPPER, pattern, error)
    off = dominating_pair.DominatingPair(
        pair.ratios,
        pair.masses * (1 - told),
        pair.infinity_mass + told,
        pair.zero_mass + told,
        Bound.UPPER,
        pair.mass_error + 2.0**-52,
        pair.ratio_error,
    ).as_close_as(pair.closeness.rounded(2.0**-52))
    pairs = dominating_pair.DirectedPairs.same(off)
    composed = composed_losses.ComposedLosses(
        [(lambda: pairs, copies)], Bound.UPPER, accuracy.Accuracy(1e-25)
    )
    epsilons = np.array([1.0, 5.0, 9.5])
    finite = math.exp(copies * math.log1p(-told))
    for way in Direction:
        profile = composed.losses(way).profile(way)
        found = profile.deltas(epsilons)
        for epsilon, delta in zip(epsilons, found, strict=True):
            of_finite = gaussian.delta(1.0, epsilon, Bound.LOWER)
            truth = 1 - finite + finite * of_finite
            assert truth <= delta <= truth * 1.11
        # All that is told beyond is in the sink.
        assert profile.epsilons(np.array([(1 - finite) * 0.999]))[0] == math.inf


def test_a_claim_that_is_too_small_is_seen():
    copies, error, deltas = 3000, 1e-3, np.array([1e-6])
    truth = gaussian.epsilon(math.sqrt(copies) / 30, 1e-6, Bound.LOWER)
    for claim in (0.1, 1.0):
        pair = _perturbed(30.0, Bound.UPPER, "below one", error, claim)
        way = (Direction.REMOVE,)
        found = _epsilons(pair, Bound.UPPER, copies, deltas, way)[0]
        assert bool(found > truth) is (claim == 1)


@functools.cache
def _allocated(steps, bound, pattern, error):
    """Returns the pair of 1 of so many steps, and ε of ten of its runs."""
    step = _perturbed(1.0, bound, pattern, error)
    epoch = random_allocation.random_allocation(step, steps, tail_mass=1e-25)
    return epoch, _epsilons(epoch, bound, 10, np.array([1e-4, 1e-7, 1e-12]))


@pytest.mark.parametrize(
    ("steps", "pattern"),
    [*((99_999, pattern) for pattern in PATTERNS), (4096, "all"), (4096, "in turn")],
)
def test_allocations_of_masses_that_are_off(steps, pattern):
    """Of binary digits that differ: P's law draws one of unequal parts."""
    found = {}
    for bound in Bound:
        for error in (0.0, 1e-6):
            # Masses that are not off are the same ones for each pattern.
            which = pattern if error else "none"
            epoch, epsilons = _allocated(steps, bound, which, error)
            if error:
                assert epoch.closeness.spread < 20 * error * math.sqrt(steps)
            found[bound, error] = epsilons
    assert (found[Bound.LOWER, 1e-6] <= found[Bound.UPPER, 0.0]).all()
    assert (found[Bound.UPPER, 1e-6] >= found[Bound.LOWER, 0.0]).all()
    # Masses of 10 epochs are off by as much as 1e-6 × 1,000,000.
    width = found[Bound.UPPER, 1e-6] - found[Bound.LOWER, 0.0]
    assert (width <= 0.02 * found[Bound.UPPER, 0.0]).all()


@pytest.mark.parametrize("bound", Bound)
def test_errors_that_fit_no_float_say_nothing(bound):
    pair = _perturbed(30.0, bound, "in turn", 0.2).as_close_as(whole_laws.NONE)
    found = _epsilons(pair, bound, 10_000, np.array([1e-6]))
    assert found[0] == (math.inf if bound is Bound.UPPER else 0.0)
    pairs = dominating_pair.DirectedPairs.same(pair)
    composed = composed_losses.ComposedLosses(
        [(lambda: pairs, 10_000)], bound, accuracy.Accuracy(1e-25)
    )
    delta = (
        composed.losses(Direction.REMOVE)
        .profile(Direction.REMOVE)
        .deltas(np.array([1.0]))[0]
    )
    assert delta == (1.0 if bound is Bound.UPPER else 0.0)


@pytest.mark.parametrize("drift", [3e-7, -3e-7])
def test_masses_that_are_all_too_large_or_too_small_have_a_billion_copies(drift):
    """Their product would be off by e^±300, which floats do not hold."""
    ratios, copies = np.array([1 - 1e-5, 1 + 1e-5]), 10**9
    epsilon, bounds = 0.3, {}
    for bound in Bound:
        pair = dominating_pair.DominatingPair(
            ratios, np.full(2, (1 + drift) / 2), 0.0, 0.0, bound, 3.1e-7, 2e-16
        ).as_close_as(Closeness(1e-12))
        pairs = dominating_pair.DirectedPairs.same(pair)
        parts = [(lambda pairs=pairs: pairs, copies)]
        summed = composed_losses.ComposedLosses(parts, bound, accuracy.Accuracy(1e-20))
        profile = summed.losses(Direction.REMOVE).profile(Direction.REMOVE)
        bounds[bound] = profile.deltas(np.array([epsilon]))[0]
    # Of losses ±1e-5 the sum is normal but for 1e-5, of mean 0.05 and variance 0.1.
    mu, normal = math.sqrt(0.1), statistics.NormalDist()
    delta = normal.cdf(mu / 2 - epsilon / mu)
    delta -= math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
    assert bounds[Bound.LOWER] == pytest.approx(delta, rel=0.02)
    assert bounds[Bound.UPPER] == pytest.approx(delta, rel=0.02)
