"""Pairs from profiles: the largest of several, or a reflection."""

from collections.abc import Sequence
import functools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Bound = dominating_pair.Bound
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Tuning: each choice is certified. Not measured.
_CLEARLY = 1e-9  # Relative difference from which one profile counts as tighter.


class Profile:
    """The divergences E(Z − κ)_+ of a pair, as a function of κ."""

    def __init__(self, pair: DominatingPair) -> None:
        self.ratios = pair.ratios
        self._infinity = pair.infinity_mass
        self._q = np.append(np.cumsum(pair.masses[::-1])[::-1], 0.0)
        self._p = np.append(np.cumsum(pair.p_masses[::-1])[::-1], 0.0)

    def at(self, kappa: FloatArray) -> FloatArray:
        """Returns the (n,) divergences at each κ, up to `rounding` of a P-mass."""
        first = np.searchsorted(self.ratios, kappa)
        values: FloatArray = self._infinity + self._p[first] - kappa * self._q[first]
        return values

    def masses_above(self, kappa: FloatArray) -> FloatArray:
        """Returns the (n,) Q-masses above each κ."""
        masses: FloatArray = self._q[np.searchsorted(self.ratios, kappa, "right")]
        return masses

    def p_masses_from(self, kappa: FloatArray) -> FloatArray:
        """Returns the (n,) P-masses at or above each κ."""
        masses: FloatArray = self._p[np.searchsorted(self.ratios, kappa)]
        return masses

    def rounding(self) -> float:
        """Returns what a divergence is off by at most, over the P-mass from κ on."""
        return 4 * (self.ratios.size + 16) * floats.UNIT_ROUNDOFF


def maximum(pairs: Sequence[DirectedPairs]) -> DirectedPairs:
    """Returns pairs whose profiles are at least each of several, and hardly more.

    For a bound on a mechanism that is the largest of several divergences, none of
    which is the largest everywhere. Each direction has its own, so that its far
    tail is accurate.

    Args:
        pairs: Upper bounds.

    Source:
        https://arxiv.org/abs/2403.04867, Appendix J (pairs from bounds that are no
        divergence of one pair).
    """
    remove = functools.reduce(_larger, [pair.remove for pair in pairs])
    add = functools.reduce(_larger, [dominating_pair.dual(pair.add) for pair in pairs])
    return DirectedPairs(remove, dominating_pair.dual(add))


def _larger(one: DominatingPair, other: DominatingPair) -> DominatingPair:
    """Returns a pair whose profile is at least those of two, of a removed record.

    Between the places of two atoms profiles are lines. Where one is the larger all
    around, its atoms are taken as they are; where the larger changes, a chord.
    """
    pairs, profiles = (one, other), (Profile(one), Profile(other))
    places = np.union1d(one.ratios, other.ratios)
    places = np.union1d(places, _crossings(profiles, places))
    choice = _larger_at(profiles, places)
    first, second = (profile.masses_above(places) for profile in profiles)
    slopes = np.where(choice, second, first)
    changes = np.flatnonzero(choice[1:] != choice[:-1])
    values = np.where(choice, profiles[1].at(places), profiles[0].at(places))
    chords = (values[changes] - values[changes + 1]) / np.diff(places)[changes]
    # A chord of a convex function lies between the slopes at its ends.
    ends = first[changes], second[changes]
    slopes[changes] = np.clip(chords, np.minimum(*ends), np.maximum(*ends))
    masses = np.where(choice, *(_masses_at(pair, places) for pair in reversed(pairs)))
    # A mass is the change of the slope; at the ends of a chord only as a difference.
    joints = np.union1d(changes, changes + 1)
    whole = float(pairs[int(choice[0])].masses.sum())
    steep = np.where(joints > 0, slopes[joints - 1], whole)
    error = max(profile.rounding() for profile in profiles)
    masses[joints] = np.maximum(steep - slopes[joints], 0.0) + error * steep
    kept = masses > 0
    return DominatingPair(
        places[kept],
        masses[kept],
        infinity_mass=max(pair.infinity_mass for pair in pairs),
        zero_mass=max(pair.zero_mass for pair in pairs),
        bound=Bound.UPPER,
        mass_error=max(pair.mass_error for pair in pairs) + error,
        ratio_error=max(pair.ratio_error for pair in pairs) + error,
    )


def _masses_at(pair: DominatingPair, places: FloatArray) -> FloatArray:
    """Returns (n,) masses of a pair's atoms at places, all of them among these."""
    cells = np.searchsorted(places, pair.ratios)
    return sums.gather(cells, pair.masses, places.size)


def _larger_at(
    profiles: tuple[Profile, Profile], places: FloatArray
) -> npt.NDArray[np.bool_]:
    """Tells at which of (n,) places the second of two profiles is the larger.

    Where rounding decides, as at the next larger place where it does not: what is
    lost so is within the rounding that is allowed.
    """
    here, there = (profile.at(places) for profile in profiles)
    noise = sum(
        profile.rounding() * profile.p_masses_from(places) for profile in profiles
    )
    sure = np.abs(there - here) > noise
    sure[-1] = True
    last = np.where(sure, np.arange(places.size), places.size)
    nearest = np.minimum.accumulate(last[::-1])[::-1]
    larger: npt.NDArray[np.bool_] = (there > here)[nearest]
    return larger


def _crossings(profiles: tuple[Profile, Profile], places: FloatArray) -> FloatArray:
    """Returns where the larger of two profiles changes, between neighbouring places."""
    choice = _larger_at(profiles, places)
    changes = np.flatnonzero(choice[1:] != choice[:-1])
    gaps = np.abs(profiles[0].at(places) - profiles[1].at(places))
    before, after = gaps[changes], gaps[changes + 1]
    total = before + after
    share = np.divide(before, total, out=np.zeros_like(total), where=total > 0)
    inside = (share > _CLEARLY) & (share < 1 - _CLEARLY)
    crossings: FloatArray = (places[changes] + share * np.diff(places)[changes])[inside]
    return crossings


def reflected(pair: DominatingPair) -> DominatingPair:
    """Returns the pair that has this one's profile for κ ≥ 1, both ways.

    For κ < 1 the profile of two datasets exchanged: 1 − κ + κ H_{1/κ}. Ratios above
    one stay, each has its inverse for a twin, and what is left sits at one.

    Args:
        pair: An upper bound.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 11 (sampling a subset, replacing).
    """
    return joined(pair, dominating_pair.dual(pair))


def joined(above: DominatingPair, below: DominatingPair) -> DominatingPair:
    """Returns the pair of two profiles for κ ≥ 1, one for each direction.

    At κ = 1 both directions have one divergence: where the bounds there differ, the
    smaller profile is raised by a factor.

    Args:
        above: An upper bound on H_κ(P‖Q); its ratios above one are taken.
        below: An upper bound on H_κ(Q‖P); its ratios below one are taken.
    """
    more, less = above.ratios > 1, below.ratios < 1
    masses = above.masses[more], below.masses[less]
    ratios = above.ratios[more], below.ratios[less]
    apart = (
        above.infinity_mass + float((masses[0] * (ratios[0] - 1)).sum()),
        below.zero_mass + float((masses[1] * (1 - ratios[1])).sum()),
    )
    rounding = 4 * (masses[0].size + masses[1].size + 8) * floats.UNIT_ROUNDOFF
    # Where they differ by rounding alone its error says so.
    raised = [
        max(apart) / each if each and max(apart) > each * (1 + rounding) else 1.0
        for each in apart
    ]
    high, low = masses[0] * raised[0], masses[1] * raised[1]
    infinity_mass = above.infinity_mass * raised[0] + (0 if apart[0] else apart[1])
    zero_mass = below.zero_mass * raised[1] + (0 if apart[1] else apart[0])
    # What a complement may lack.
    rest = max(1.0 - zero_mass - float(high.sum() + low.sum()), 0.0) + rounding
    return DominatingPair(
        np.concatenate([ratios[1], [1.0], ratios[0]]),
        np.concatenate([low, [rest], high]),
        infinity_mass=infinity_mass,
        zero_mass=zero_mass,
        bound=Bound.UPPER,
        mass_error=max(above.mass_error, below.mass_error) + rounding,
        ratio_error=max(above.ratio_error, below.ratio_error) + rounding,
    )


def symmetric(kappas: FloatArray, deltas: FloatArray) -> DominatingPair:
    """Returns a pair, the same both ways, of values that bound a profile at κ ≥ 1.

    The profile is convex: it lies below the convex minorant of chords between the
    values as well, and that is the pair's.

    Args:
        kappas: (n,) places, increasing from 1.
        deltas: (n,) bounds on the profile there, decreasing.

    Source:
        https://arxiv.org/abs/2106.08567, Proposition 11 (profiles that belong to a
        pair).
    """
    corners = _corners(kappas, deltas)
    return _symmetric_pair(kappas[corners], deltas[corners])


def _corners(kappas: FloatArray, deltas: FloatArray) -> npt.NDArray[np.int64]:
    """Returns the indices of the corners, at κ ≥ 1, of a convex minorant.

    The function goes on below 1 as the profile of two datasets exchanged does, with
    the inverse of every corner for a corner. From the inverse of the first corner to
    itself it is a line, no steeper than the next.

    Args:
        kappas: (n,) places, increasing from 1.
        deltas: (n,) values there, decreasing.
    """
    corners: list[int] = []

    def slope(i: int, j: int) -> float:
        return float((deltas[j] - deltas[i]) / (kappas[j] - kappas[i]))

    for place in range(kappas.size):
        while len(corners) > 1 and slope(corners[-2], corners[-1]) >= slope(
            corners[-1], place
        ):
            corners.pop()
        corners.append(place)
    first = 0
    while first + 1 < len(corners):
        here = corners[first]
        if slope(here, corners[first + 1]) >= -(1 - deltas[here]) / (kappas[here] + 1):
            break
        first += 1
    return np.array(corners[first:], dtype=np.int64)


def _symmetric_pair(kappas: FloatArray, deltas: FloatArray) -> DominatingPair:
    """Returns a pair, the same both ways, whose profile is nowhere below corners.

    Args:
        kappas: (n,) places of the corners, increasing from 1 or more.
        deltas: (n,) values there, of a convex function.
    """
    slopes = np.append(np.diff(deltas) / np.diff(kappas), 0.0)
    before = np.append(-(1 - deltas[0]) / (kappas[0] + 1), slopes[:-1])
    masses = np.maximum(slopes - before, 0.0)
    twins = (kappas * masses)[::-1]
    ratios = np.concatenate([1 / kappas[::-1], kappas])
    masses = np.concatenate([twins, masses])
    sink = float(deltas[-1])
    # The check: what the atoms give, by sums of positive terms, where lines meet.
    above = np.cumsum(masses[:0:-1])[::-1]
    found = sink + np.append(np.cumsum((np.diff(ratios) * above)[::-1])[::-1], 0.0)
    goals = np.concatenate([1 - (1 - deltas[::-1]) / kappas[::-1], deltas])
    whole = sink + float((masses * ratios).sum())
    asked = goals > 0
    lacking = max(float((goals[asked] / found[asked]).max()) - 1, 1 / whole - 1, 0.0)
    rounding = 8 * (ratios.size + 16) * floats.UNIT_ROUNDOFF
    return DominatingPair(
        ratios,
        masses,
        infinity_mass=sink,
        zero_mass=sink,
        bound=Bound.UPPER,
        mass_error=lacking + rounding,
        ratio_error=rounding,
    )
