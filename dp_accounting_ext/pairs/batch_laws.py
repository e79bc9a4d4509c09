"""The worst case of two laws over batches, from the distances between the batches.

A batch of class k has probability p_k in the first dataset and q_k in the second. With
f_d(v) the largest probability of an event for outputs on a batch, if it has probability
v on a batch at distance d, and c_k = p_k − κ q_k, the divergence H_κ is at most

    V(κ) = max { Σ c_k u_k : 0 ≤ u_k ≤ 1, u_k ≤ f_d(u_l) for d = d_kl and all k ≠ l }.

Noise on batches that are placed on a line attains it. Let I be the classes with c > 0,
J those with c < 0, and h_d(t) = max_v f_d(v) − t v, the profile of two batches at
distance d. Any λ, ρ ≥ 0 on I × J with Σ_j λ_ij ≥ c_i and Σ_i ρ_ij ≤ −c_j prove that
V(κ) ≤ Σ λ_ij h_d(ρ_ij / λ_ij). Only this sum is used (`batch_programs.certified`). λ
and ρ are those of concave programs at some κ, and are interpolated in between. V is
convex in κ. So chords make it a pair.

Source:
    docs/mathematics.md, "Any two laws over batches"; https://arxiv.org/abs/2403.04867,
    Proposition 3.5 (the bound), Theorem 3.4 (λ and ρ are a coupling of conditional
    laws); https://arxiv.org/abs/1807.01647, Theorem 2 (advanced joint convexity, which
    the sum is with the best split).
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import batch_programs
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import trade_off_curves

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Certified: each weight may have this relative error, if no other is named.
WEIGHT_ERROR = 7e-13
# Certified: weights c that are this small, relatively to p, have any sign.
_SAME = 2e-13

# Tuning, all of these constants.
# The share of a value by which one that is interpolated may be larger, and the number
# of rounds in which programs are solved at further κ for this.
_INTERPOLATED, _ROUNDS = 1e-3, 10
# The logarithm of the factor by which values may fall from one κ to the next.
_STEEP = 4.0
# Programs are solved at no more values of κ than this number divided by the number of
# pairs of classes.
_MOST_SOLVED = 1 << 17
# The first κ − 1 as a share of the total variation; the ratio of the next; and how many
# of them are solved before it is known whether others are of interest.
_FIRST, _RATIO, _AT_ONCE = 1e-3, 1.3, 16
# The logarithm of the factor from value to value of the pair.
_STEP = 0.006
_TAIL = 1e-250
# The most levels at which trade-off curves are mixed, and the slope beyond all atoms.
_MOST_LEVELS, _LEAST_RATIO = 1 << 15, 1e-290
# The tests of a lower pair, and the share of V(1) for whose κ its placement is best.
_TESTS, _PLACED = 1 << 13, 0.03
# The least scale on which κ − 1 is looked at.
_SMALLEST_SCALE = 1e-12


def is_symmetric(first: FloatArray, second: FloatArray, distances: FloatArray) -> bool:
    """Returns whether exchanging classes exchanges the datasets. It may miss that.

    Args:
        first: (n,) probabilities of the classes in the first dataset.
        second: (n,) probabilities in the second.
        distances: (n, n) distances between classes.
    """
    rows = np.sort(distances, axis=1).T
    order = np.lexsort([*rows, second, first])
    swapped = np.lexsort([*rows, first, second])
    return (
        np.array_equal(first[order], second[swapped])
        and np.array_equal(second[order], first[swapped])
        and np.array_equal(
            distances[np.ix_(order, order)], distances[np.ix_(swapped, swapped)]
        )
    )


def mixture_and_common(
    parts: Sequence[tuple[DirectedPairs, float]], common: float, lost: float
) -> DirectedPairs:
    """Returns upper pairs of batches at random distances and of a common batch.

    The first dataset's output is the mixture w₀ b₀ + Σ w_d b_d, the second one's is b₀.
    At κ = Σ w_d t_d, with t₀ = 1, the divergence is at most Σ w_d h_d(t_d), which is
    least if all t_d are slopes at one level of b₀. In the other direction it is at most
    κ Σ w_d h_d(t_d) / t_d at κ = 1 / Σ (w_d / t_d).

    Args:
        parts: Upper pairs of (b_d, b₀), with the weight of each.
        common: w₀.
        lost: The weight that is left out, whose outputs may be any.

    Source:
        docs/mathematics.md, "Any two laws over batches"; less than the average over d
        in https://arxiv.org/abs/2403.04867, section 3.2.
    """
    weights = np.array([weight for _, weight in parts])
    error = WEIGHT_ERROR + 8 * (len(parts) + 4) * floats.UNIT_ROUNDOFF

    def pair_of(kappas: FloatArray, bounds: FloatArray) -> DominatingPair:
        order = np.argsort(kappas, kind="stable")
        bounds = np.minimum(bounds[order], 1.0)
        return _with_error(profile_pairs.pair_above(kappas[order], bounds), error)

    leaving = [pair.remove for pair, _ in parts]
    slopes, profiles = _at_levels(leaving, [pair.masses for pair in leaving], 0.0)
    remove = pair_of(common + weights @ slopes, weights @ profiles + lost)
    joining = [dominating_pair.dual(pair.add) for pair, _ in parts]
    slopes, profiles = _at_levels(
        joining, [pair.p_masses for pair in joining], _LEAST_RATIO
    )
    kappas = 1 / (common + weights @ (1 / slopes))
    add = pair_of(kappas, kappas * (weights @ (profiles / slopes)))
    return DirectedPairs(remove, dominating_pair.dual(add))


def _with_error(pair: DominatingPair, error: float) -> DominatingPair:
    """Returns the pair of weights that have a further relative error."""
    return dataclasses.replace(
        pair,
        mass_error=pair.mass_error + error,
        ratio_error=pair.ratio_error + 2 * error,
    )


def _at_levels(
    pairs: Sequence[DominatingPair], masses: Sequence[FloatArray], last_slope: float
) -> tuple[FloatArray, FloatArray]:
    """Returns (d, n) slopes of d trade-off curves at common levels, and profiles there.

    Args:
        pairs: Upper pairs.
        masses: The mass of each atom of a pair in the law whose levels are common.
        last_slope: The slope beyond the last atom.
    """
    ends = [np.cumsum(masses_of_pair[::-1]) for masses_of_pair in masses]
    levels = np.unique(np.concatenate(ends))
    if levels.size > _MOST_LEVELS:
        levels = levels[np.linspace(0, levels.size - 1, _MOST_LEVELS).astype(np.int64)]
    levels = np.append((levels + np.append(0.0, levels[:-1])) / 2, 2.0)
    slopes = np.array(
        [
            np.append(pair.ratios[::-1], last_slope)[np.searchsorted(end, levels)]
            for pair, end in zip(pairs, ends, strict=True)
        ]
    )
    profiles = [
        profile_pairs.Hinges.of(pair).values(row)
        for pair, row in zip(pairs, slopes, strict=True)
    ]
    return slopes, np.array(profiles)


@dataclasses.dataclass(frozen=True, eq=False)
class Laws:
    """Two laws over classes of batches, and the distances between classes.

    Attributes:
        first: (n,) probabilities of the classes in the first dataset.
        second: (n,) probabilities in the second.
        distances: (n, n) least distances between batches of two classes. No detour is
            shorter.
        curves: The trade-off curves of outputs by distance.
        error: Bound on the relative error of each probability.
    """

    first: FloatArray
    second: FloatArray
    distances: FloatArray
    curves: trade_off_curves.Curves
    error: float = WEIGHT_ERROR

    def swapped(self) -> "Laws":
        """Returns the laws with the datasets exchanged."""
        return dataclasses.replace(self, first=self.second, second=self.first)

    def upper_pair(self, tail_mass: float) -> DominatingPair:
        """Returns a pair that bounds both directions.

        Args:
            tail_mass: The probability that may be moved to the sinks.
        """
        tail_mass = max(tail_mass, _TAIL)
        # Outputs of rare classes may be any.
        likeliest = np.maximum(self.first, self.second)
        is_rare = likeliest <= tail_mass / (4 * likeliest.size)
        likely_places = np.flatnonzero(~is_rare)
        likely = dataclasses.replace(
            self,
            first=self.first[likely_places],
            second=self.second[likely_places],
            distances=self.distances[np.ix_(likely_places, likely_places)],
        )
        pair = likely._pair(tail_mass)
        return dataclasses.replace(
            pair,
            infinity_mass=pair.infinity_mass + floats.raised(self.first[is_rare].sum()),
            zero_mass=pair.zero_mass + floats.raised(self.second[is_rare].sum()),
        )

    def _pair(self, tail_mass: float) -> DominatingPair:
        """Returns the pair of these weights, which are as good as their errors."""
        if (np.abs(self.first - self.second) <= _SAME * self.first).all():
            # Weights that are equal but for their errors.
            identity = dominating_pair.identity_pair(Bound.UPPER)
            return _with_error(identity, self.error)
        above = self._above(tail_mass)
        if is_symmetric(self.first, self.second, self.distances):
            return profile_pairs.joined(above, dominating_pair.dual(above))
        below = self.swapped()._above(tail_mass)
        return profile_pairs.joined(above, dominating_pair.dual(below))

    def _above(self, tail_mass: float) -> DominatingPair:
        """Returns a pair that bounds the first law's divergence from the second."""
        pair = profile_pairs.pair_above(*self._bounds(tail_mass))
        return _with_error(pair, self.error)

    def lower_pairs(self, tail_mass: float) -> DirectedPairs | None:
        """Returns pairs of noise around one placement of the classes on a line.

        The placement is the worst for a κ at which V has fallen to a share of V(1). The
        tests are half-lines.

        Args:
            tail_mass: The probability that may be left out.

        Returns:
            Pairs that noise on batches attains if they can be placed like this. None if
            outputs are not those of noise.
        """
        curves = self.curves
        if not isinstance(curves, trade_off_curves.NoiseCurves):
            return None
        ends = curves.places(np.array([max(tail_mass, _TAIL)]))
        places = self._placed(curves)
        low, high = places.min() + ends[0], places.max() - ends[0]
        tests = np.linspace(low, high, _TESTS)[:, np.newaxis]
        pairs = []
        for p, q, margins in (
            (self.first, self.second, places - tests),
            (self.second, self.first, tests - places),
        ):
            within = margins >= -curves.reach
            reached = curves.reached(np.where(within, margins, -curves.reach))
            pairs.append(
                profile_pairs.pair_below(
                    np.array([np.where(within, reached, 0.0) @ p, reached @ q]),
                    mass_error=self.error + trade_off_curves.REACHED_ERROR,
                    ratio_error=2 * (self.error + trade_off_curves.REACHED_ERROR),
                )
            )
        return DirectedPairs(pairs[0], dominating_pair.dual(pairs[1]))

    def _placed(self, curves: trade_off_curves.NoiseCurves) -> FloatArray:
        """Returns (n,) places, no further apart than the distances."""
        worst_kappa, largest = None, 0.0
        for kappa in 1 + np.geomspace(1e-9, self._end(1e-6), 256):
            (sides,) = self.sides(np.array([kappa]))
            if not sides.distances.size:
                break
            worth = float(batch_programs.start(*sides.program, curves)[1][0])
            largest = max(largest, worth)
            if worth <= _PLACED * largest:
                break
            worst_kappa = kappa
        if worst_kappa is None:
            return np.zeros(self.first.size)
        (sides,) = self.sides(np.array([worst_kappa]))
        gain, cost, distances = sides.gain, sides.cost, sides.distances
        solved = batch_programs.solved(*sides.program, curves)
        below = curves.places(solved.below[0])
        places = np.empty(self.first.size)
        places[gain] = (below + distances).min(axis=1)
        places[cost] = (places[gain][:, np.newaxis] - distances).max(axis=0)
        # Classes with c = 0 may be anywhere that the distances allow.
        placed = np.concatenate([gain, cost])
        for other in np.setdiff1d(np.arange(places.size), placed):
            places[other] = (places[placed] + self.distances[other, placed]).min()
            placed = np.append(placed, other)
        # By rounding, no two classes are further apart than their distance.
        middle = places.mean()
        shrunk: FloatArray = middle + (places - middle) * (1 - 1e-12)
        return shrunk

    def _bounds(self, tail_mass: float) -> tuple[FloatArray, FloatArray]:
        """Returns κ, from one on and increasing, and bounds on V there."""
        with np.errstate(divide="ignore", invalid="ignore"):
            turns = self.first / self.second
        last = self._end(tail_mass)
        if np.isfinite(turns[self.first > 0]).all():
            # Beyond, no class has c > 0.
            last = min(last, float(turns[self.first > 0].max()))
        nodes = _Nodes(self, tail_mass)
        nodes.fill(max(last, 1 + 2 * _SAME))
        kappas, bounds = nodes.bounds()
        return kappas, np.minimum(bounds, 1.0)

    def _end(self, tail_mass: float) -> float:
        """Returns a κ ≥ 2 at which no two batches are further apart than tail_mass."""
        kappas = np.exp(np.linspace(math.log(2), floats.LARGEST_LOSS, 4096))
        furthest = self.distances.max()
        values = self.curves.profile(np.full(kappas.shape, furthest), kappas)
        is_in_tail = np.append(values[:-1] <= tail_mass, True)
        return float(kappas[int(is_in_tail.argmax())])

    def sides(self, kappas: FloatArray) -> "list[_Sides]":
        """Returns (k,) κ, which increase, in runs that have the same classes in I."""
        weights = self.first - np.multiply.outer(kappas, self.second)
        # Of a weight that is as good as zero, no sign is known.
        signs = np.sign(weights) * (np.abs(weights) > _SAME / 2 * self.first)
        changes = np.flatnonzero((signs[1:] != signs[:-1]).any(axis=1)) + 1
        runs: list[_Sides] = []
        if not kappas.size:
            return runs
        for places in np.split(np.arange(kappas.size), changes):
            gain, cost = (
                np.flatnonzero(signs[places[0]] == sign) for sign in (1.0, -1.0)
            )
            runs.append(
                _Sides(
                    places,
                    gain,
                    cost,
                    weights[np.ix_(places, gain)],
                    -weights[np.ix_(places, cost)],
                    self.distances[np.ix_(gain, cost)],
                )
            )
        return runs


class _Sides(NamedTuple):
    """The classes with c > 0 and with c < 0, for κ between the same two turns.

    Attributes:
        places: (k,) indices of the κ.
        gain: (m,) indices of the classes in I.
        cost: (n,) indices of the classes in J.
        gains: (k, m) c_i.
        costs: (k, n) −c_j.
        distances: (m, n) distances.
    """

    places: IndexArray
    gain: IndexArray
    cost: IndexArray
    gains: FloatArray
    costs: FloatArray
    distances: FloatArray

    @property
    def program(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The programs, as `batch_programs` takes them."""
        return self.gains, self.costs, self.distances

    @property
    def block(self) -> tuple[IndexArray, IndexArray]:
        """The places of I × J in an (n, n) matrix."""
        return self.gain[:, np.newaxis], self.cost

    def certified(
        self, curves: trade_off_curves.Curves, gains: FloatArray, costs: FloatArray
    ) -> FloatArray:
        """Returns (k,) upper bounds by (k, m, n) shares of c_i and of −c_j."""
        if self.distances.size:
            return batch_programs.certified(*self.program, curves, gains, costs)
        # No class has c > 0; or none has c < 0, as all others have a weight of zero but
        # for their errors.
        bounds: FloatArray = self.gains.sum(axis=1) * (1 + _SAME)
        return bounds


class _Nodes:
    """The κ = 1 + gap at which programs are solved.

    Attributes:
        laws: The laws.
        tail_mass: The value below which no other is of interest.
        gaps: (k,) gaps, increasing from zero.
        gains: (k, n, n) shares of c_i for i in I, and zero elsewhere.
        costs: (k, n, n) shares of −c_j for j in J, and zero elsewhere.
        values: (k,) bounds.
        logs: (k,) their logarithms, but for those that are rounding errors.
    """

    def __init__(self, laws: Laws, tail_mass: float) -> None:
        self.laws, self.tail_mass = laws, tail_mass
        number = laws.first.size
        self.gaps, self.values, self.logs = np.empty((3, 0))
        self.gains, self.costs = np.empty((2, 0, number, number))

    def fill(self, last: float) -> None:
        """Solves programs until what is interpolated is nearly as good.

        Args:
            last: The last κ.
        """
        self._solve(np.zeros(1))
        if self.values[0] <= self.tail_mass:
            return
        scale = max(float(self.values[0]), _SMALLEST_SCALE)
        width = last - 1
        first = _FIRST * min(scale, width)
        number = 2 + math.ceil((math.log(width) - math.log(first)) / math.log(_RATIO))
        number = min(number, max(self._room() // 2, 8))
        gaps = np.unique(np.geomspace(first, width, number))
        for few_gaps in np.array_split(gaps, math.ceil(gaps.size / _AT_ONCE)):
            if self.values[-1] > self.tail_mass:
                self._solve(few_gaps)
        new = self.gaps
        smallest = max(self.tail_mass, batch_programs.ZERO * self.values[0])
        for _ in range(_ROUNDS):
            # What would be interpolated at a new node tells how good the neighbors are.
            at = np.flatnonzero(np.isin(self.gaps[2:-1], new)) + 2
            between = self._interpolated(self.gaps[at], at - 1, at + 1)
            loose = between > (1 + _INTERPOLATED) * np.maximum(
                self.values[at], smallest
            )
            # Where values fall this fast, no node tells how good those in between are.
            falls = np.diff(np.maximum(self.logs[1:], math.log(smallest)))
            steep = np.flatnonzero(falls < -_STEEP) + 1
            low = np.unique(np.concatenate([at[loose] - 1, at[loose], steep]))
            # The values at the first ones are the largest.
            new = np.sqrt(self.gaps[low]) * np.sqrt(self.gaps[low + 1])
            new = new[: max(self._room(), 0)]
            if not new.size:
                break
            self._solve(new)

    def _room(self) -> int:
        """Returns how many more programs may be solved."""
        effort = self.laws.distances.size // 4 + 1
        return _MOST_SOLVED // (effort * self.laws.curves.effort) - self.gaps.size

    def _solve(self, gaps: FloatArray) -> None:
        """Solves more programs, and drops all beyond the first value in the tail."""
        curves = self.laws.curves
        values, logs = np.zeros((2, gaps.size))
        gains, costs = np.zeros((2, gaps.size, *self.laws.distances.shape))
        for sides in self.laws.sides(1 + gaps):
            places = sides.places
            lost = batch_programs.ZERO * sides.gains.sum(axis=1)
            block = (places[:, np.newaxis, np.newaxis], *sides.block)
            if sides.distances.size:
                solution = batch_programs.solved(*sides.program, curves)
                gains[block], costs[block] = solution.gains, solution.costs
                lost = np.where(solution.has_digits, 0.0, lost)
            values[places] = sides.certified(curves, gains[block], costs[block])
            digits = np.maximum(values[places], lost + floats.SMALLEST_MASS)
            logs[places] = np.log(digits)
        order = np.argsort(np.append(self.gaps, gaps), kind="stable")
        in_order = np.append(self.values, values)[order]
        is_above = np.append(in_order > self.tail_mass, False)
        order = order[: 1 + int(is_above.argmin())]
        self.gaps, self.values, self.logs, self.gains, self.costs = (
            np.concatenate(old_and_new)[order]
            for old_and_new in (
                (self.gaps, gaps),
                (self.values, values),
                (self.logs, logs),
                (self.gains, gains),
                (self.costs, costs),
            )
        )

    def _interpolated(
        self, gaps: FloatArray, low: IndexArray, high: IndexArray
    ) -> FloatArray:
        """Returns (g,) bounds at κ = 1 + gap between two nodes each.

        λ and ρ are interpolated: a share is a mean of the shares at the two nodes.

        Args:
            gaps: (g,) gaps, increasing.
            low: (g,) indices of nodes below, increasing.
            high: (g,) indices of nodes above.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.log(self.gaps)
            weights = (np.log(gaps) - ends[low]) / (ends[high] - ends[low])
        bounds = np.empty(gaps.size)
        size = max(1, batch_programs.BLOCK // self.laws.distances.size)
        for block in np.array_split(np.arange(gaps.size), 1 + gaps.size // size):
            for sides in self.laws.sides(1 + gaps[block]):
                places = block[sides.places]
                weight = weights[places, np.newaxis, np.newaxis]
                gains, costs = (
                    (1 - weight) * shares[(low[places, None, None], *sides.block)]
                    + weight * shares[(high[places, None, None], *sides.block)]
                    for shares in (self.gains, self.costs)
                )
                bounds[places] = sides.certified(
                    self.laws.curves, *batch_programs.normalized(gains, costs)
                )
        return bounds

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Returns κ and bounds, at the nodes and between them."""
        logs = np.maximum(self.logs[1:], math.log(self.tail_mass))
        step = _STEP * max(1.0, self.laws.first.size / 20)
        counts = np.maximum(np.ceil(-np.diff(logs) / step), 1).astype(np.int64)
        ends = zip(self.gaps[1:-1], self.gaps[2:], counts, strict=True)
        inner = [np.geomspace(low, high, n + 1)[1:-1] for low, high, n in ends]
        between = np.concatenate([np.empty(0), *inner])
        low = np.repeat(1 + np.arange(counts.size), [gaps.size for gaps in inner])
        kappas = 1 + np.append(self.gaps, between)
        values = np.append(self.values, self._interpolated(between, low, low + 1))
        order = np.argsort(kappas, kind="stable")
        return kappas[order], values[order]
