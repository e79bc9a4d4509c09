"""Pairs from profiles: the larger or the tighter of several bounds, or a reflection."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Literal

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Tuning: each choice is certified. Not measured.
_CLEARLY = 1e-9  # Relative difference from which one profile counts as tighter.
_TANGENT_STEPS = 20  # A limit for the search of a common tangent.


class _Profile:
    """The divergences E(Z − κ)_+ of a pair, as a function of κ."""

    def __init__(self, pair: DominatingPair) -> None:
        self.ratios = pair.ratios
        self._infinity = pair.infinity_mass
        self._q = np.append(np.cumsum(pair.masses[::-1])[::-1], 0.0)
        self._p = np.append(np.cumsum(pair.p_masses[::-1])[::-1], 0.0)

    def at(self, kappa: FloatArray) -> FloatArray:
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

    def mass_from(self, kappa: float, side: Literal["left", "right"]) -> float:
        """Returns the Q-mass at or above κ (left), or above it (right)."""
        return float(self._q[np.searchsorted(self.ratios, kappa, side)])

    def rounding(self) -> float:
        return 4 * (self.ratios.size + 16) * floats.UNIT_ROUNDOFF


def combine(main: DominatingPair, tail: DominatingPair) -> DominatingPair:
    """Returns a pair as tight as `main` up to some ratio, and as `tail` above it.

    Above the ratio 1 the two profiles are compared. From the ratio on above which
    `tail` is the tighter, it takes over: lower bounds by the larger of the two
    profiles, upper bounds by the convex minorant of the smaller.

    Args:
        main: n atoms.
        tail: m atoms, a bound on the same mechanism from the same side.

    Returns:
        At most n + m + 1 atoms; `main` itself where `tail` is not the tighter far
        out, `tail` itself where it is the tighter all the way.

    Raises:
        ValueError: If one is an upper bound and the other a lower one.

    Source:
        https://arxiv.org/abs/2602.17284, Claim B.3, for the convex order.
    """
    if main.bound is not tail.bound:
        raise ValueError(
            "main and tail must bound from the same side. "
            f"Found {main.bound.value} and {tail.bound.value}."
        )
    upper = main.bound is Bound.UPPER
    ours, theirs = _Profile(main), _Profile(tail)
    places = np.union1d(main.ratios, tail.ratios)
    places = places[places > 1]
    if places.size == 0:
        return main
    here, there = ours.at(places), theirs.at(places)
    margin = _CLEARLY * np.maximum(here, there)
    tighter = there < here - margin if upper else there > here + margin
    gone = np.maximum(here, there) <= 0  # Beyond all ratios of both.
    worse = np.flatnonzero(~(tighter | gone))
    first = int(worse[-1]) + 1 if worse.size else 0
    if not tighter[first:].any():
        return main
    if first == 0:
        return tail
    before, after = float(places[first - 1]), float(places[first])
    join = _bridge if upper else _crossing
    joints, masses, low, high = join(ours, theirs, before, after)
    below, above = main.ratios < low, tail.ratios > high
    ratios = np.concatenate([main.ratios[below], joints, tail.ratios[above]])
    return dataclasses.replace(
        main,
        ratios=ratios,
        masses=np.concatenate([main.masses[below], masses, tail.masses[above]]),
        infinity_mass=tail.infinity_mass,
        mass_error=max(main.mass_error, tail.mass_error),
        ratio_error=max(main.ratio_error, tail.ratio_error),
    )


def _crossing(
    ours: _Profile, theirs: _Profile, before: float, after: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns the atom where two lower profiles cross, both linear in between."""
    gaps = ours.at(np.array([before, after])) - theirs.at(np.array([before, after]))
    share = min(max(gaps[0] / (gaps[0] - gaps[1]), 0.0), 1.0)
    place = before + share * (after - before)
    steep = ours.mass_from(after, "left")
    flat = theirs.mass_from(after, "left")
    mass = max(steep * (1 - ours.rounding()) - flat * (1 + theirs.rounding()), 0.0)
    return np.array([place]), np.array([mass]), after, before


def _bridge(
    ours: _Profile, theirs: _Profile, before: float, after: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns the two atoms that the common tangent of two upper profiles joins."""
    lows = ours.ratios[ours.ratios <= before]
    highs = theirs.ratios[theirs.ratios >= after]
    low_values, high_values = ours.at(lows), theirs.at(highs)
    i, j = lows.size - 1, 0
    for _ in range(_TANGENT_STEPS):
        j = int(np.argmin((high_values - low_values[i]) / (highs - lows[i])))
        best = int(np.argmax((high_values[j] - low_values) / (highs[j] - lows)))
        if best == i:
            break
        i = best
    low, high = float(lows[i]), float(highs[j])
    slope = float(high_values[j] - low_values[i]) / (high - low)
    rounding = ours.rounding() + theirs.rounding()
    rounding *= 1 + float(low_values[i]) / (high - low)
    left, right = ours.mass_from(low, "left"), theirs.mass_from(high, "right")
    masses = np.array([left + slope, -slope - right])
    masses = np.maximum(masses, 0.0) + rounding * left
    return np.array([low, high]), masses, low, high


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
    pairs, profiles = (one, other), (_Profile(one), _Profile(other))
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
    profiles: tuple[_Profile, _Profile], places: FloatArray
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


def _crossings(profiles: tuple[_Profile, _Profile], places: FloatArray) -> FloatArray:
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
    above = pair.ratios > 1
    ratios, masses = pair.ratios[above], pair.masses[above]
    twins = ratios * masses
    rest = max(1.0 - pair.infinity_mass - float(masses.sum() + twins.sum()), 0.0)
    rest += 2 * (masses.size + 4) * floats.UNIT_ROUNDOFF  # What a complement may lack.
    return dataclasses.replace(
        pair,
        ratios=np.concatenate([1 / ratios[::-1], [1.0], ratios]),
        masses=np.concatenate([twins[::-1], [rest], masses]),
        zero_mass=pair.infinity_mass,
        mass_error=pair.mass_error + pair.ratio_error + 4 * floats.UNIT_ROUNDOFF,
        ratio_error=pair.ratio_error + 4 * floats.UNIT_ROUNDOFF,
    )
