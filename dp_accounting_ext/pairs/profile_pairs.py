"""Profiles as convex, decreasing and piecewise linear functions, and pairs of them."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Certified: smaller positive values are raised to this, where floats have all digits.
SMALLEST = 1e-250
# Tuning: rounding lowers a corner by less than this share; underflow may lower it more.
_ROUNDED = 1e-6


def values_at(
    places: FloatArray, ratios: FloatArray, masses: FloatArray, infinity_mass: float
) -> FloatArray:
    """Returns infinity_mass + Σ mass · (ratio − κ)_+ of n atoms at m places κ.

    All terms are nonnegative: the relative error is at most 2 (n + 4) units of
    rounding.

    Args:
        places: (m,) κ, at least 0.
        ratios: (n,) ratios, increasing.
        masses: (n,) masses, at least 0.
        infinity_mass: The value beyond all ratios.
    """
    slopes = np.cumsum(masses[::-1])[::-1]
    falls = np.append(slopes[1:] * np.diff(ratios), 0.0)
    values = np.append(infinity_mass + np.cumsum(falls[::-1])[::-1], infinity_mass)
    above = np.append(ratios, np.inf)
    following = np.searchsorted(ratios, places)
    gaps = np.where(following < ratios.size, above[following] - places, 0.0)
    result: FloatArray = values[following] + np.append(slopes, 0.0)[following] * gaps
    return result


def pair_above(places: FloatArray, bounds: FloatArray) -> DominatingPair:
    """Returns an upper pair of H(P‖Q), from bounds on this profile.

    Args:
        places: (n,) κ, positive and increasing.
        bounds: (n,) upper bounds on H_κ(P‖Q).
    """
    ratios, masses, infinity_mass = atoms_above(places, bounds)
    error = 8 * (ratios.size + 16) * floats.UNIT_ROUNDOFF
    return DominatingPair(
        ratios,
        masses,
        infinity_mass=min(infinity_mass, 1.0),
        zero_mass=max(1.0 - float(masses.sum()), 0.0) + error,
        bound=Bound.UPPER,
        mass_error=error,
        ratio_error=error,
    )


def atoms_above(
    places: FloatArray, bounds: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Returns atoms whose function bounds a convex function from above.

    Up to rounding, this is the greatest convex minorant of the bounds: a convex, not
    increasing function that is at most `bounds` at `places`, and at most one at zero,
    is below it.

    Args:
        places: (n,) κ, positive and increasing.
        bounds: (n,) upper bounds. A bound of zero is taken as exact.

    Returns:
        (m,) places of the atoms, m ≤ n; (m,) masses of the atoms; and the value beyond
        them.

    Guarantees:
        `values_at` of the atoms, computed in floats, is at least `bounds` at the place
        of each atom, and at least one at zero.

    Source:
        https://arxiv.org/abs/2602.17284, Claim B.3, for the convex order: the greatest
        convex minorant of the smaller of two upper bounds is an upper bound.
    """
    places = np.append(0.0, places)
    raised = np.where(bounds > 0, np.maximum(bounds, SMALLEST), 0.0)
    heights = np.minimum.accumulate(np.append(1.0, raised))
    # Of several equal places the last has the smallest height.
    differ = np.append(np.diff(places) > 0, True)
    places, heights = places[differ], heights[differ]
    corners = _lower_hull(places, heights)
    places, heights = places[corners], heights[corners]
    slopes = np.append((heights[:-1] - heights[1:]) / np.diff(places), 0.0)
    masses = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    infinity_mass = float(heights[-1])
    attained = values_at(places, places[1:], masses, infinity_mass)
    # Where masses have underflowed, the value beyond the atoms takes their place.
    short = np.where(heights > (1 + _ROUNDED) * attained, heights - attained, 0.0)
    beyond = (1 + _ROUNDED) * float(short.max())
    infinity_mass, attained = infinity_mass + beyond, attained + beyond
    # If rounding has lowered a corner, all masses are raised.
    rise = floats.raised(
        float((heights / np.maximum(attained, floats.SMALLEST_MASS)).max(initial=1.0))
    )
    return places[1:], masses * rise, infinity_mass * rise


def _lower_hull(places: FloatArray, values: FloatArray) -> IndexArray:
    """Returns the corners of the greatest convex minorant, both ends included."""
    x, y = places.tolist(), values.tolist()
    corners, slopes = [0], [-math.inf]
    for index in range(1, len(x)):
        while True:
            last = corners[-1]
            slope = (y[index] - y[last]) / (x[index] - x[last])
            if len(corners) == 1 or slope > slopes[-1]:
                break
            corners.pop()
            slopes.pop()
        corners.append(index)
        slopes.append(slope)
    return np.array(corners)


@dataclasses.dataclass(frozen=True)
class Hinges:
    """An upper bound on H(P‖Q) that need not be the profile of any two laws.

    H_κ(P‖Q) ≤ infinity_mass + Σ mass · (ratio − κ)₊ at every κ ≥ 0. The masses may sum
    to more than one: a bound may be above one where κ is small. Bounds on H(Q‖P) are
    computed with the duals.

    Attributes:
        ratios: (n,) κ at which the hinges bend, increasing.
        masses: (n,) masses of the hinges, at least 0.
        infinity_mass: The bound beyond all ratios.
        mass_error: A bound on the relative error of any mass.
        ratio_error: A bound on the relative error of any place.
    """

    ratios: FloatArray
    masses: FloatArray
    infinity_mass: float
    mass_error: float
    ratio_error: float

    @classmethod
    def of(cls, pair: DominatingPair) -> "Hinges":
        """Returns the profile H(P‖Q) of an upper pair."""
        return cls(
            pair.ratios,
            pair.masses,
            pair.infinity_mass,
            pair.mass_error,
            pair.ratio_error,
        )

    def values(self, places: FloatArray) -> FloatArray:
        """Returns the (m,) bounds at κ ≥ 0, errors included."""
        shift, factor = dominating_pair.allowance(
            Bound.UPPER, self.ratios.size, self.mass_error, self.ratio_error
        )
        divergences = values_at(
            places * math.exp(shift), self.ratios, self.masses, self.infinity_mass
        )
        bounds: FloatArray = factor * divergences
        return bounds

    def exact(self) -> "Hinges":
        """Returns the same bound, with its errors in its masses and ratios."""
        shift, factor = dominating_pair.allowance(
            Bound.UPPER, self.ratios.size, self.mass_error, self.ratio_error
        )
        return Hinges(
            self.ratios * math.exp(-shift),
            self.masses * (factor * math.exp(shift)),
            self.infinity_mass * factor,
            0.0,
            0.0,
        )


# The bound one, which always holds.
TRIVIAL = Hinges(np.ones(1), np.zeros(1), 1.0, 0.0, 0.0)


def least(bounds: Sequence[Hinges], *, most: int | None = None) -> DominatingPair:
    """Returns the pair of the smallest of several bounds on H(P‖Q), which it bounds.

    Args:
        bounds: The bounds.
        most: The largest number of ratios of a bound at which all are compared, or None
            for all ratios.
    """
    ratios = [bound.ratios for bound in bounds]
    if most is not None:
        # The first and the last ratio of a bound are among those that remain.
        ratios = [
            r[np.linspace(0, r.size - 1, min(most, r.size)).astype(np.int64)]
            for r in ratios
        ]
    places = np.unique(np.concatenate(ratios))
    values = np.min([bound.values(places) for bound in bounds], axis=0)
    # A value that underflowed is not zero.
    return pair_above(places, np.clip(values, SMALLEST, 1.0))


def minimum(pairs: Sequence[DirectedPairs]) -> DirectedPairs:
    """Returns pairs whose profiles are the smallest of those of several upper bounds.

    Each direction has its own pair, so that its own tail is accurate.

    Source:
        That of `atoms_above`.
    """
    add = [Hinges.of(dominating_pair.dual(pair.add)) for pair in pairs]
    return DirectedPairs(
        least([Hinges.of(pair.remove) for pair in pairs]),
        dominating_pair.dual(least(add)),
    )


def maximum(pairs: Sequence[DirectedPairs]) -> DirectedPairs:
    """Returns pairs whose profiles are at least, and nearly, the largest of several.

    They bound a mechanism whose divergence is the largest of several, none of which is
    the largest everywhere. Each direction has its own pair, so that its own tail is
    accurate.

    Args:
        pairs: Upper bounds.

    Source:
        https://arxiv.org/abs/2403.04867, Appendix J (pairs from bounds that are no
        divergence of one pair).
    """
    remove = functools.reduce(_larger, [pair.remove for pair in pairs])
    add = functools.reduce(_larger, [dominating_pair.dual(pair.add) for pair in pairs])
    return DirectedPairs(remove, dominating_pair.dual(add))


def _larger(first: DominatingPair, second: DominatingPair) -> DominatingPair:
    """Returns a pair whose H(P‖Q) is at least that of two pairs.

    Between the places of atoms, the two profiles are lines, which may cross.
    """
    one, other = Hinges.of(first), Hinges.of(second)
    places = np.union1d(one.ratios, other.ratios)
    apart = one.values(places) - other.values(places)
    (crossed,) = np.nonzero(np.sign(apart[1:]) * np.sign(apart[:-1]) < 0)
    share = apart[crossed] / (apart[crossed] - apart[crossed + 1])
    between = places[crossed] + share * np.diff(places)[crossed]
    places = np.union1d(places, between)
    return pair_above(places, np.maximum(one.values(places), other.values(places)))


def joined(above: DominatingPair, below: DominatingPair) -> DominatingPair:
    """Returns the pair of two profiles for κ ≥ 1, one for each direction.

    For κ < 1 the profile follows from that of the exchanged datasets: 1 − κ + κ
    H_{1/κ}. A pair joined with its dual is the pair itself. At κ = 1 both directions
    have the same divergence, so that the smaller bound there holds for both.

    Args:
        above: An upper bound on H_κ(P‖Q), of which ratios above one are used.
        below: An upper bound on H_κ(Q‖P), of which ratios below one are used.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 11 (sampling a subset, replacing).
    """
    # The profiles have different errors, and one pair has one bound on them: so errors
    # are added to masses and ratios first.
    profiles = [
        Hinges.of(pair).exact() for pair in (above, dominating_pair.dual(below))
    ]
    at_one = min(1.0, *(float(profile.values(np.ones(1))[0]) for profile in profiles))
    high, low = (_from_one_on(profile, at_one) for profile in profiles)
    low_masses = (low.ratios * low.masses)[::-1]
    rounding = 4 * (high.ratios.size + low.ratios.size + 8) * floats.UNIT_ROUNDOFF
    # The mass that is left for a ratio of one.
    rest = 1.0 - low.infinity_mass - float(low_masses.sum() + high.masses.sum())
    places, masses = _without_negative(
        np.concatenate([1 / low.ratios[::-1], [1.0], high.ratios]),
        np.concatenate([low_masses, [rest + rounding], high.masses]),
        low.ratios.size,
    )
    if not places.size:
        return dominating_pair.trivial_pair(Bound.UPPER)
    return DominatingPair(
        places,
        masses,
        infinity_mass=high.infinity_mass,
        zero_mass=low.infinity_mass,
        bound=Bound.UPPER,
        mass_error=rounding,
        ratio_error=rounding,
    )


def _from_one_on(profile: Hinges, at_one: float) -> Hinges:
    """Returns the part of a profile for κ ≥ 1, changed so that it is `at_one` at κ = 1.

    Args:
        profile: An upper bound on H_κ(P‖Q), without errors.
        at_one: An upper bound on H_1(P‖Q), no larger than that of the profile.
    """
    is_above = profile.ratios > 1
    ratios, masses = profile.ratios[is_above], profile.masses[is_above]
    infinity_mass = min(profile.infinity_mass, at_one)
    heights = values_at(np.append(1.0, ratios), ratios, masses, infinity_mass)
    if heights[0] > at_one:
        # A line that begins at κ = 1 replaces the profile up to one of its ratios. It
        # is an upper bound whichever ratio that is. The result is convex if the line is
        # at least as steep as the profile beyond it. The first such ratio is taken.
        slopes = (at_one - heights[1:]) / (ratios - 1)
        following = np.append(np.cumsum(masses[::-1])[::-1], 0.0)[1:]
        first = int(np.argmax(slopes >= following))
        ratios, masses = ratios[first:], masses[first:].copy()
        masses[0] = slopes[first] - following[first]
    else:
        # What is missing are roundings of a mass of at most one at a ratio of one.
        nearest = math.exp(64 * (ratios.size + 16) * floats.UNIT_ROUNDOFF)
        place = int(np.searchsorted(ratios, nearest))
        ratios = np.insert(ratios, place, nearest)
        masses = np.insert(masses, place, (at_one - heights[0]) / (nearest - 1))
    return dataclasses.replace(
        profile, ratios=ratios, masses=masses, infinity_mass=infinity_mass
    )


def _without_negative(
    places: FloatArray, masses: FloatArray, middle: int
) -> tuple[FloatArray, FloatArray]:
    """Returns the atoms of a greatest convex minorant, where one mass is negative.

    The two branches of a true profile meet in a convex function. Where the branches of
    bounds do not, their convex minorant is a bound, too: a line from an atom on the
    left to one on the right replaces the masses between them. No other mass changes.

    Args:
        places: (n,) κ, increasing.
        masses: (n,) masses, of which only the one in the middle may be negative.
        middle: The index of that mass.

    Returns:
        (m,) places and masses, which are nonnegative; or none if there is no such line.
    """
    if masses[middle] >= 0:
        return places, masses
    low, high = middle - 1, middle + 1
    while low >= 0 and high < places.size:
        between = slice(low + 1, high)
        # Each share has all its digits, as masses may be multiplied by large ratios.
        moved = masses[between] / (places[high] - places[low])
        at_low = masses[low] + float(((places[high] - places[between]) * moved).sum())
        at_high = masses[high] + float(((places[between] - places[low]) * moved).sum())
        if min(at_low, at_high) >= 0:
            remaining = np.append(np.arange(low + 1), np.arange(high, places.size))
            raised = masses.copy()
            raised[low], raised[high] = at_low, at_high
            return places[remaining], raised[remaining]
        low, high = low - (at_low < 0), high + (at_high < 0)
    return places[:0], masses[:0]


def symmetric(kappas: FloatArray, deltas: FloatArray) -> DominatingPair:
    """Returns a pair with one profile in both directions, from bounds at κ ≥ 1.

    Args:
        kappas: (n,) κ, increasing from 1.
        deltas: (n,) bounds on the profile there, decreasing.

    Source:
        https://arxiv.org/abs/2106.08567, Proposition 11 (profiles that belong to a
        pair).
    """
    above = pair_above(kappas, deltas)
    return joined(above, dominating_pair.dual(above))


def pair_below(
    tests: FloatArray,
    infinity_mass: float = 0.0,
    *,
    mass_error: float = 0.0,
    ratio_error: float = 0.0,
) -> DominatingPair:
    """Returns a lower pair of H(P‖Q), from tests of P against Q.

    Args:
        tests: (2, n) lower bounds on the probabilities under P that a test decides for
            P, and upper bounds on these under Q, without outputs that Q never has.
        infinity_mass: P's probability of outputs that Q never has, rounded down.
        mass_error: The relative error that either bound may have besides.
        ratio_error: The relative error that their quotients may have besides.

    The test that always decides for P is one of them. So the masses of either law sum
    to one, which matters where the mechanism runs on a sample.
    """
    always_for_p = np.array([[floats.lowered(1 - infinity_mass, 1e-15)], [1.0]])
    gains, costs = _most_powerful(np.append(tests, always_for_p, axis=1))
    order = np.argsort(gains / costs, kind="stable")
    rounding = 4 * (order.size + 16) * floats.UNIT_ROUNDOFF
    return DominatingPair(
        (gains / costs)[order],
        costs[order],
        infinity_mass=infinity_mass,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=mass_error + rounding,
        ratio_error=ratio_error + 8 * floats.UNIT_ROUNDOFF,
    )


def largest_below(pairs: Sequence[DominatingPair]) -> DominatingPair:
    """Returns a lower pair whose H(P‖Q) is about the largest of several lower pairs.

    A test of any of the pairs has a test of the mechanism that is at least as powerful,
    and so has a mixture of two tests.

    Args:
        pairs: At least one lower pair.
    """
    if len(pairs) == 1:
        return pairs[0]
    certain = max(pair.infinity_mass for pair in pairs)
    tests = []
    for pair in pairs:
        error = pair.mass_error + pair.ratio_error
        error += (pair.masses.size + 16) * floats.UNIT_ROUNDOFF
        gains = np.cumsum(pair.p_masses[::-1]) * math.exp(-error)
        costs = np.cumsum(pair.masses[::-1]) * math.exp(error)
        # Outputs that Q never has count for P before all tests.
        gains -= floats.raised(certain - pair.infinity_mass)
        tests.append(np.array([gains, np.minimum(costs, 1.0)]))
    return pair_below(np.concatenate(tests, axis=1), certain)


def symmetric_below(tests: FloatArray, infinity_mass: float) -> DominatingPair:
    """Returns a lower pair with one profile in both directions, from tests.

    The datasets may be exchanged. The complement of a test is then a test, too, so that
    the more powerful half of the tests suffices.

    Args:
        tests: (2, n) as in `pair_below`, for outputs that both datasets have.
        infinity_mass: The probability of outputs that only one dataset has.
    """
    total = 1 - infinity_mass
    is_better_half = tests.sum(axis=0) <= total
    better = pair_below(np.where(is_better_half, tests, total - tests[::-1]))
    above = better.ratios > 1
    ratios, costs = better.ratios[above], better.masses[above]
    gains = ratios * costs
    rest = total - float(gains.sum()) - float(costs.sum())
    rest = max(rest - 8 * floats.UNIT_ROUNDOFF, 0.0)
    return DominatingPair(
        np.concatenate([1 / ratios[::-1], [1.0], ratios]),
        np.concatenate([gains[::-1], [rest], costs]),
        infinity_mass=floats.lowered(infinity_mass),
        zero_mass=floats.lowered(infinity_mass),
        bound=Bound.LOWER,
        mass_error=better.mass_error,
        ratio_error=better.ratio_error,
    )


def _most_powerful(tests: FloatArray) -> FloatArray:
    """Returns the upper hull of the powers of tests, as increments along the hull.

    Args:
        tests: (2, n) probabilities of n tests under P and under Q.

    Returns:
        (2, m) positive increments of the probabilities under P and under Q, from one
        corner of the hull to the next. The quotients P / Q increase.
    """
    tests = tests[:, tests[1] > 0]
    tests = np.insert(tests[:, np.lexsort((-tests[0], tests[1]))], 0, 0.0, axis=1)
    # Of several tests with one probability under Q the first is the most powerful.
    tests = tests[:, np.append(True, np.diff(tests[1]) > 0)]
    added: FloatArray = np.diff(tests[:, _lower_hull(tests[1], -tests[0])], axis=1)
    return added[:, added[0] > 0][:, ::-1]
