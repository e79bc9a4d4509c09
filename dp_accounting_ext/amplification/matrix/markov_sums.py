"""Laws of sums along a Gaussian Markov chain, above or below in the convex order.

The chain is x_1 ~ N(0, 1), x_{i+1} = r x_i + s ξ with r² + s² = 1. Each step adds
e^{a x_i − a²/2} W_i to a sum S, where the factors W_i are independent and have the
mean one. Both x and S are kept on grids. A value between two grid points, which are
called states for x and places for S, is split: it is moved to one of the two at random,
so that its mean stays the same. If φ is convex and increasing, then E φ(S) is convex in
x and in S. So splitting can only increase it.

Near both ends the variance of x may be larger than one. At the ends it is larger by the
excess e, and by the factor r² less at each step away from them. Each step still adds
the mean one.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy import special

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# Certified: the relative error of Gauss–Legendre quadrature with _NODES nodes is below
# QUADRATURE_ERROR if the cell is at most LARGEST_CELL standard deviations wide and at
# most _FURTHEST from the mean. With _FEW_NODES nodes it is if the cell is at most
# NARROW_CELL wide. Cells further away are given the largest density in them, as more
# mass only raises an upper bound.
LARGEST_CELL, NARROW_CELL = 0.5, 0.2
_FURTHEST = 10.0
QUADRATURE_ERROR = 1e-12
_NODES, _FEW_NODES = 12, 6

# Certified: a bound on the relative rounding error of sums of thousands of masses.
_CHECKED = 1e-11

# Certified: masses below it are dropped and counted as lost.
SMALLEST_MASS = 1e-220

# Tuning: the number of states whose moves, or additions, are computed as one product.
_ROWS = 32

# Masses are scaled by this power of two before two small ones are multiplied.
_SCALE = 2.0**500


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain, what its steps add to the sum, and the grids of both.

    Attributes:
        states: (n,) The increasing grid of x. Its range contains 0 and a.
        correlation: The correlation r of successive x, in [0, 1).
        scale: a ≥ 0.
        factors: (m,) The values of W, increasing and positive.
        probabilities: (m,) Their probabilities. W is 0 with the remaining probability.
        lost_factor: A bound on the amount by which the mean of W is below one.
        places: (l,) The grid of S, increasing from 0. For upper bounds S is the sum of
            one half of the steps.
        length: The number of steps, at least 1.
        excess: The amount e in [0, 1] by which the variance of x exceeds one at both
            ends.
        smallest_mass: Smaller masses of a state and a place are dropped. For upper
            bounds they are counted as lost, and a mass is only dropped if it is small
            under both Q and P.
        factor_gap: For upper bounds, factors are thinned out until the gap between two
            of them, times the state's ratio, is this many cells of sums, or until one
            is twice the other. The factors that are left out are split between those
            that remain.
    """

    states: FloatArray
    correlation: float
    scale: float
    factors: FloatArray
    probabilities: FloatArray
    lost_factor: float
    places: FloatArray
    length: int
    excess: float = 0.0
    smallest_mass: float = SMALLEST_MASS
    factor_gap: float = 0.0

    @property
    def ratios(self) -> FloatArray:
        """(n,) What a step adds to the sum in each state if its factor is one."""
        return np.asarray(np.exp(self.scale * self.states - self.scale**2 / 2))

    def most_to_come(self) -> FloatArray:
        """Returns (n,) bounds on the mean of any later step's ratio, given the state.

        Let t be the coefficient of x in a later state, 0 ≤ t ≤ 1 + e. Given x, the mean
        of that step's ratio is at most e^{a t x − a² t² / 2}. Its maximum over t is
        taken. Splits raise the logarithm by at most `drift`. Lifting states to the
        lowest one adds less than one.
        """
        real = np.maximum(self.states + self.scale * self.excess / 2, 0.0)
        most = self.scale * (1 + self.excess)
        logs = np.where(real <= most, real**2 / 2, most * real - most**2 / 2)
        return np.asarray(1 + np.exp(logs + drift(self)))

    def likelihoods(self, variance: float) -> FloatArray:
        """Returns (n,) densities of x at the states under Q, relative to the largest.

        Args:
            variance: The variance of x. The states are shifted as in `variances`.
        """
        away = self.states + self.scale * (variance - 1) / 2
        return np.asarray(np.exp(-(away**2) / (2 * variance)))

    @functools.cached_property
    def least_masses(self) -> FloatArray:
        """(n, l) The least masses of a state and a place that are kept.

        The divisor bounds the ratio of P's mass to Q's, plus one.
        """
        to_come = self.most_to_come()[:, np.newaxis]
        return np.asarray(
            self.smallest_mass / (1 + to_come + self.places / self.length)
        )

    def likely_rows(self, variance: float) -> slice:
        """Returns the states whose mass under Q or P is not negligible."""
        masses = self.likelihoods(variance) * self.most_to_come()
        likely = np.flatnonzero(masses > self.smallest_mass * self.places.size)
        return slice(int(likely[0]), int(likely[-1]) + 1)

    def variances(self) -> FloatArray:
        """Returns (length,) variances of x_i.

        At the distance d from an end the variance is 1 + e r^{2d}, where e is the
        excess. The term e r^{2d} is replaced by `chain_fits.LEAST_EXCESS` where it is
        smaller, so that most steps are equal. So that each ratio has the mean one, the
        grid holds x_i minus a / 2 times the amount by which its variance exceeds one.
        """
        places = np.arange(self.length)
        distances = np.minimum(places, places[::-1])
        more = self.excess * np.power(self.correlation, 2.0 * distances)
        return np.asarray(
            1 + np.maximum(more, min(self.excess, chain_fits.LEAST_EXCESS))
        )

    def steps(self) -> Iterator[tuple[float, float, float]]:
        """Yields for each i the coefficient of x_{i−1} in x_i and both variances."""
        before, slope = 1.0, 0.0
        for variance in self.variances().tolist():
            # The second half of the chain is the first half, reversed.
            yield slope * max(variance / before, 1.0), before, variance
            before, slope = variance, self.correlation


@dataclasses.dataclass(frozen=True)
class SumLaw:
    """A law that is above that of a sum.

    Attributes:
        places: (l,) The values of the sum, increasing from 0.
        masses: (l,) Their masses.
        lost_mean: A bound on the part of the sum's mean that is not in `masses`.
        lost_mass: A bound on the probability that is not in `masses`.
        lifted_mass: A bound on the probability that the state was below the grid and
            was lifted to the lowest state.
        mass_error: A bound on the relative rounding error of any mass.
    """

    places: FloatArray
    masses: FloatArray
    lost_mean: float
    lost_mass: float
    lifted_mass: float
    mass_error: float


@dataclasses.dataclass(frozen=True)
class Moves:
    """The law of the next state, given each state.

    Attributes:
        matrix: (n, n) The probabilities of moves from rows to columns.
        above: (n,) The probabilities that the next x is above the highest state.
        ratio_above: (n,) The means of e^{a x − a²/2} over these x.
        below: (n,) The probabilities that the next x is below the lowest state.
    """

    matrix: FloatArray
    above: FloatArray
    ratio_above: FloatArray
    below: FloatArray

    @functools.cached_property
    def _bands(self) -> list[tuple[slice, slice, FloatArray]]:
        """The blocks of rows of the matrix: their rows, their columns, and the block.

        The columns that are zero on both sides of a block are left out.
        """
        bands = []
        for start in range(0, len(self.above), _ROWS):
            rows = slice(start, start + _ROWS)
            reached = np.flatnonzero(self.matrix[rows].any(axis=0))
            if reached.size:
                columns = slice(int(reached[0]), int(reached[-1]) + 1)
                block = np.ascontiguousarray(self.matrix[rows, columns])
                bands.append((rows, columns, block))
        return bands

    def apply(self, values: FloatArray, out: FloatArray) -> None:
        """Writes for each state the mean of the values at the next state.

        Args:
            values: (n, l) The values at the next state.
            out: The array that the means are written to, for the states moved from.
        """
        for rows, columns, block in self._bands:
            np.matmul(block, values[columns], out=out[rows])


class _Side(NamedTuple):
    """The laws of the sum on one side of a step, given the state at that step.

    Attributes:
        rows: The states that are given. The others have no law.
        masses: (n, l) The masses of the chain's places, given each state.
        lost_mass: (n,) Bounds on the probability that is not in `masses`.
        lost_mean: (n,) Bounds on the part of the sum's mean that is not in `masses`.
        lifted: (n,) Bounds on the probability that was lifted to the lowest state.
    """

    rows: slice
    masses: FloatArray
    lost_mass: FloatArray
    lost_mean: FloatArray
    lifted: FloatArray

    def whole(self) -> FloatArray:
        """Returns (n,) total masses, including the mass that was lost."""
        return np.asarray(self.masses.sum(axis=1) + self.lost_mass)


def upper_sum(chain: Chain) -> SumLaw:
    """Returns a law above that of the chain's sum.

    Given the middle state, the sums on both sides of it are independent. The law of a
    side's sum given the state is computed by a recursion from the end of the chain to
    its middle. Both sides have the same law.

    Guarantees:
        Let the masses be raised by their error, and the places by `place_error`. Let S
        be the true sum. Then E (S − k)₊ is at most Σ masses · (places − k)₊ plus
        `lost_mean`. If the places are also divided by e^{drift}, then E (k − S)₊ is at
        most Σ masses · (k − places)₊ plus k times the lost and lifted masses.
    """
    count, half = chain.states.size, (chain.length + 1) // 2
    additions = [
        Addition.of(chain, slice(start, min(start + _ROWS, count)))
        for start in range(0, count, _ROWS)
    ]
    nothing = np.zeros((count, chain.places.size))
    nothing[:, 0] = 1.0
    variances = chain.variances()[:half].tolist()
    rows = chain.likely_rows(variances[0])
    without = _Side(rows, nothing, *np.zeros((3, count)))
    side = _added(chain, additions, without, variances[0])
    known: tuple[float, float, slice] | None = None
    # One of the sides contains the middle step. The other one has half of the steps,
    # rounded down.
    inward = [*variances[1:], *variances[-1:]][: chain.length // 2]
    for steps, (outer, inner) in enumerate(zip(variances, inward, strict=False), 1):
        if known != (outer, inner, side.rows):
            known = outer, inner, side.rows
            rows = chain.likely_rows(inner)
            moves = _moves_outward(chain, rows, inner, side.rows, outer)
        without = _moved(rows, moves, side, steps)
        if steps < half:
            side = _added(chain, additions, without, inner)
    operations = count + max(each.most_terms for each in additions) + 16
    error = operations * floats.UNIT_ROUNDOFF + 2 * QUADRATURE_ERROR
    return _joined(chain, variances[-1], side, without, error)


def _joined(
    chain: Chain, variance: float, side: _Side, without: _Side, error: float
) -> SumLaw:
    """Returns the law of the sum of both sides of the middle.

    Args:
        chain: The chain.
        variance: The variance of the middle state.
        side: The side that contains the middle step.
        without: The other side.
        error: A bound on the relative error of masses that one step adds.
    """
    start = _moves_of(chain, slice(0, 1), 0.0, 1.0, variance, side.rows)
    middle = start.matrix[0]
    lost_mass = float(start.above[0])
    lost_mean = chain.length * float(start.ratio_above[0])
    lifted = float(start.below[0])
    kept = side.masses.sum(axis=1)
    gone = kept * without.lost_mass + side.lost_mass * without.whole()
    lost_mass += float(middle @ gone)
    for one, other in ((side, without), (without, side)):
        totals = one.masses @ chain.places
        gone = one.lost_mean * other.whole() + totals * other.lost_mass
        lost_mean += float(middle @ gone)
        lifted += float(middle @ (one.lifted * other.whole()))
    masses, most_terms = _both(chain.places, middle, side.masses, without.masses)
    places = 2 * chain.places
    small = masses < SMALLEST_MASS
    lost_mass += float(masses[small].sum())
    lost_mean += float(masses[small] @ places[small])
    mass_error = (chain.length + 2) * error + most_terms * floats.UNIT_ROUNDOFF
    law = SumLaw(
        places=places,
        masses=np.where(small, 0.0, masses),
        lost_mean=floats.raised(lost_mean),
        lost_mass=floats.raised(lost_mass),
        lifted_mass=floats.raised(lifted),
        mass_error=mass_error,
    )
    _check_above(chain, law)
    return law


def _both(
    places: FloatArray, middle: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, int]:
    """Returns the law of the sum of two sides, split between twice the places.

    Args:
        places: (l,) The places, increasing from 0.
        middle: (n,) The masses of the middle state.
        first: (n, l) The masses of the first side's places, given the middle state.
        second: (n, l) The masses of the second side's places.

    Returns:
        (l,) the masses of the places 2 · places, and the largest number of terms of one
        of these masses.
    """
    # The scale keeps products of two small masses from underflow.
    roots = np.sqrt(middle)[:, np.newaxis] * _SCALE
    joint = (first * roots).T @ (second * roots)
    found, terms = np.zeros(places.size), np.zeros(places.size, np.int64)
    goals = 2 * places
    for start in range(0, places.size, _ROWS):
        rows = slice(start, start + _ROWS)
        sums = places[rows, np.newaxis] + places
        low = np.searchsorted(goals, sums.ravel(), side="right") - 1
        np.minimum(low, places.size - 2, out=low)
        share = (sums.ravel() - goals[low]) / (goals[low + 1] - goals[low])
        np.clip(share, 0.0, 1.0, out=share)
        masses = joint[rows].ravel()
        upper = masses * share
        found += np.bincount(low, masses - upper, places.size)
        found[1:] += np.bincount(low, upper, places.size)[:-1]
        terms += np.bincount(low, minlength=places.size)
    return found / _SCALE**2, 2 * int(terms.max()) + places.size // _ROWS + 8


def _added(
    chain: Chain, additions: Sequence["Addition"], side: _Side, variance: float
) -> _Side:
    """Returns a side whose sum also contains the step of the given state.

    Args:
        chain: The chain.
        additions: What a step adds, for all states.
        side: The side without this step.
        variance: The variance of the given state.
    """
    masses = np.zeros_like(side.masses)
    lost_mean = side.lost_mean + floats.raised(1.0) * chain.ratios * side.lost_mass
    for addition in additions:
        if (
            addition.rows.start < side.rows.stop
            and side.rows.start < addition.rows.stop
        ):
            lost_mean[addition.rows] += addition.apply(side.masses, masses)
    likely = chain.likelihoods(variance)[:, np.newaxis]
    least = np.maximum(
        chain.least_masses / np.maximum(likely, floats.TINY), SMALLEST_MASS
    )
    small = masses < least
    cleared = np.where(small, masses, 0.0)
    masses[small] = 0.0
    return side._replace(
        masses=masses,
        lost_mass=side.lost_mass + cleared.sum(axis=1),
        lost_mean=lost_mean + cleared @ chain.places,
    )


def _moved(rows: slice, moves: "Moves", side: _Side, steps: int) -> _Side:
    """Returns the laws of a side, given the state one step nearer to the middle.

    Args:
        rows: The states that are given then.
        moves: The moves from these states to those that `side` is given.
        side: The laws given the state further from the middle.
        steps: The number of steps in the side.
    """
    masses = np.zeros_like(side.masses)
    occupied = np.flatnonzero(side.masses.any(axis=0))
    used = slice(int(occupied[0]), int(occupied[-1]) + 1)
    moves.apply(side.masses[:, used], out=masses[rows, used])
    lost_mass, lost_mean, lifted = np.zeros((3, len(masses)))
    lost_mass[rows] = moves.above + moves.matrix @ side.lost_mass
    lost_mean[rows] = steps * moves.ratio_above + moves.matrix @ side.lost_mean
    lifted[rows] = moves.below + moves.matrix @ side.lifted
    return _Side(rows, masses, lost_mass, lost_mean, lifted)


def times(
    chain: Chain,
    law: SumLaw,
    factors: FloatArray,
    probabilities: FloatArray,
    lost: float,
) -> SumLaw:
    """Returns a law above that of a chain's sum times an independent factor.

    Args:
        chain: The chain.
        law: A law above that of the chain's sum.
        factors: (m,) The values of the factor, increasing and positive.
        probabilities: (m,) Their probabilities. The factor is 0 with the remaining
            probability.
        lost: A bound on the amount by which the factor's mean is below one.
    """
    values = np.outer(law.places, np.append(factors, 0.0))
    moved, above = split(law.places, values, probabilities)
    terms = int(np.diff(moved.indptr).max()) + 16
    gone = float(law.masses @ (above + lost * law.places))
    found = dataclasses.replace(
        law,
        masses=moved @ law.masses,
        lost_mean=law.lost_mean + floats.raised(gone),
        mass_error=law.mass_error + terms * floats.UNIT_ROUNDOFF,
    )
    _check_above(chain, found)
    return found


def _check_above(chain: Chain, law: SumLaw) -> None:
    """Checks that a law above that of a chain's sum has lost neither mass nor mean.

    Splitting and lifting can only raise them.

    Raises:
        MassError: If the mass is below one, or the mean below the number of steps.
    """
    error = law.mass_error + place_error(chain) + _CHECKED
    conservation.check_total(
        "masses of a chain's sum",
        float(law.masses.sum()) + law.lost_mass,
        1.0,
        error,
        more=math.inf,
    )
    conservation.check_total(
        "means of a chain's sum",
        float(law.masses @ law.places) + law.lost_mean,
        chain.length,
        chain.length * error,
        more=math.inf,
    )


def lower_sum(chain: Chain, scales: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Returns a law below that of the chain's sum.

    In each state, all sums in a cell are replaced by their mean.

    Args:
        chain: The chain. Its places are about the lower ends of the cells of sums,
            c (e^x − 1) for x = 0, h, 2h, … Its factors must be below the true ones in
            the convex order.
        scales: (length,) The scale a of each step, at most that of the chain.

    Returns:
        (k,) the sums, increasing; (k,) their masses; and a bound on the relative error
        of any of these numbers. The mass that left the grids is not included.

    Guarantees:
        Σ masses · (sums − k)₊ is at most the mean of (S − k)₊ for every k.
    """
    cell = float(np.diff(chain.states).max())
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    first_spread, spread = (spread_to_split(part, cell) for part in (1.0, innovation))
    first = hats(chain.states, np.zeros(1), first_spread, raised=False)
    means = chain.correlation * chain.states
    columns = np.ascontiguousarray(hats(chain.states, means, spread, raised=False).T)
    masses = np.zeros((chain.states.size, chain.places.size))
    masses[:, 0] = first[0]
    totals = np.zeros_like(masses)
    for step, scale in enumerate(scales.tolist()):
        if step:
            masses, totals = columns @ masses, columns @ totals
        ratios = np.exp(scale * chain.states - scale**2 / 2)
        masses, totals = _grouped_after(chain, ratios, masses, totals)
    mass, total = masses.sum(axis=0), totals.sum(axis=0)
    kept = mass > chain.smallest_mass
    # An addition does not change the state.
    gathered = chain.places.size * chain.factors.size
    operations = gathered + 4 * chain.states.size + 64
    each = operations * floats.UNIT_ROUNDOFF + 2 * QUADRATURE_ERROR
    sums, masses = total[kept] / mass[kept], mass[kept]
    order = np.argsort(sums, kind="stable")
    # Each mean is a quotient of two sums, and the terms of the next step's sums contain
    # it. So errors accumulate at most quadratically.
    return sums[order], masses[order], 4 * chain.length**2 * each


def spread_to_split(variance: float, cell: float) -> float:
    """Returns a deviation s such that N(m, s²), split to a grid, is below N(m, V).

    It is s² = V (1 + √(1 − h² / V)) / 2, which is about V − h² / 4.

    Args:
        variance: The variance V, at least h².
        cell: The largest width h of a cell of the grid.

    Guarantees:
        The split law is below N(m, V) in the convex order, for every m and every grid
        with cells of at most this width (docs/matrix.md).
    """
    squared = variance * (1 + math.sqrt(1 - cell**2 / variance)) / 2
    return math.sqrt(floats.lowered(squared))


def _grouped_after(
    chain: Chain, ratios: FloatArray, masses: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the masses of states and cells after an addition, and masses times sums.

    Args:
        chain: The chain.
        ratios: (n,) What the step adds in each state, times a factor.
        masses: (n, l) The masses of states and cells before the addition.
        totals: (n, l) The masses times the mean of the sums in the cell.
    """
    count = chain.places.size
    occupied = masses > chain.smallest_mass
    rows = np.nonzero(occupied)[0]
    mass = masses[occupied]
    means = totals[occupied] / mass
    new_masses, new_totals = np.zeros(masses.size), np.zeros(masses.size)
    added, firsts = ratios[rows], rows * count
    first, second = chain.places[1:3].tolist()
    each = 1 / math.log(second / first - 1)
    unit = first / math.expm1(1 / each)
    for factor, probability in zip(chain.factors, chain.probabilities, strict=True):
        sums = means + factor * added
        # The law stays below the true one even if rounding puts a sum into the wrong
        # cell, as a group of sums always has their mean.
        cells = (np.log1p(sums / unit) * each).astype(np.intp)
        np.minimum(cells, count - 1, out=cells)
        cells += firsts
        weights = probability * mass
        new_masses += np.bincount(cells, weights, masses.size)
        new_totals += np.bincount(cells, weights * sums, masses.size)
    return new_masses.reshape(masses.shape), new_totals.reshape(masses.shape)


def drift(chain: Chain) -> float:
    """Returns η such that splits raise a ratio's mean by a factor of at most e^η.

    This holds given the path of ξ. The state is split once a step. A split moves it by
    at most one cell h, with the mean 0. The later effect of this on x decays by the
    factor r a step, up to a factor 1 + e if there is an excess e. Hoeffding's lemma is
    applied to each split.
    """
    step = float(np.diff(chain.states).max()) * (1 + chain.excess)
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    return floats.raised((chain.scale * step) ** 2 / 8 / innovation)


def place_error(chain: Chain) -> float:
    """Bounds the relative rounding error of a sum of ratios."""
    exponents = chain.scale * float(np.abs(chain.states).max()) + chain.scale**2
    return (8 * chain.length + 16 + 8 * exponents) * floats.UNIT_ROUNDOFF


def _moves_of(
    chain: Chain,
    rows: slice,
    slope: float,
    before: float,
    variance: float,
    reached: slice,
) -> Moves:
    """Returns the moves of one step, without those of negligible probability.

    Args:
        chain: The chain.
        rows: The states that the moves start from.
        slope: The coefficient of x in the next state. It is 0 if there is no x yet.
        before: The variance of x.
        variance: The variance of the next state.
        reached: The states that the moves may reach.
    """
    shifts = chain.scale * (before - 1) / 2, chain.scale * (variance - 1) / 2
    means = slope * (chain.states[rows] + shifts[0]) - shifts[1]
    found = moves(chain, means, math.sqrt(variance - slope**2 * before))
    # Moves of negligible probability under both Q and P count as moves above the grid.
    to_come = chain.most_to_come()
    weights = (chain.likelihoods(before) if slope else np.ones(to_come.size))[rows]
    most = np.maximum(to_come[rows, np.newaxis], to_come)
    rare = weights[:, np.newaxis] * found.matrix * most
    left_out = rare < chain.smallest_mass * chain.places.size
    left_out[:, : reached.start] = left_out[:, reached.stop :] = True
    gone = np.where(left_out, found.matrix, 0.0)
    return dataclasses.replace(
        found,
        matrix=np.where(left_out, 0.0, found.matrix),
        above=found.above + gone.sum(axis=1),
        ratio_above=found.ratio_above + floats.raised(1.0) * (gone @ to_come),
    )


def _moves_outward(
    chain: Chain, rows: slice, inner: float, reached: slice, outer: float
) -> Moves:
    """Returns the moves from a state to the next one away from the middle.

    Args:
        chain: The chain.
        rows: The states that the moves start from.
        inner: The variance of x there.
        reached: The states that the moves may reach.
        outer: The variance of x there.
    """
    slope = chain.correlation * max(outer / inner, 1.0)
    return _moves_of(chain, rows, slope, inner, outer, reached)


def moves(chain: Chain, means: FloatArray, spread: float) -> Moves:
    """Returns the moves to N(mean, spread²), split between neighboring states.

    Args:
        chain: The chain.
        means: (m,) The means of the next x.
        spread: Its standard deviation.
    """
    states, scale = chain.states, chain.scale
    matrix = hats(states, means, spread, raised=True)
    below = _ndtr((states[0] - means) / spread)
    matrix[:, 0] += below
    above = _ndtr((means - states[-1]) / spread)
    moved = means + scale * spread**2
    growth = np.exp(scale * means - scale**2 / 2 * (1 - spread**2))
    ratio_above = growth * _ndtr((moved - states[-1]) / spread)
    return Moves(matrix, above, floats.raised(1.0) * ratio_above, below)


def hats(
    states: FloatArray, means: FloatArray, spread: float, *, raised: bool
) -> FloatArray:
    """Returns (m, n) masses of states if N(mean, spread²) is split to a grid.

    Args:
        states: (n,) The grid.
        means: (m,) The means.
        spread: The standard deviation.
        raised: Whether masses of cells far from the mean are rounded up. Otherwise they
            are left out.

    Raises:
        ValueError: If the states are too far apart for the quadrature.
    """
    cell = np.diff(states)
    if cell.max() > LARGEST_CELL * spread:
        raise ValueError(
            f"states must be at most {LARGEST_CELL} deviations apart. "
            f"Found {cell.max() / spread}."
        )
    ends = (states - means[:, np.newaxis]) / spread
    widths = np.diff(ends, axis=1)
    nearest = np.minimum(np.abs(ends[:, :-1]), np.abs(ends[:, 1:]))
    near = nearest <= _FURTHEST
    low = np.where(near, 0.0, widths * _density(nearest) / 2 if raised else 0.0)
    high = low.copy()
    starts, wide = ends[:, :-1][near], widths[near]
    narrow = float(cell.max()) <= NARROW_CELL * spread
    rule = np.polynomial.legendre.leggauss(_FEW_NODES if narrow else _NODES)
    for node, weight in zip((1 + rule[0]) / 2, rule[1] / 2, strict=True):
        mass = weight * wide * _density(starts + node * wide)
        low[near] += (1 - node) * mass
        high[near] += node * mass
    matrix = np.zeros(ends.shape)
    matrix[:, :-1] += low
    matrix[:, 1:] += high
    return matrix


def _density(places: FloatArray) -> FloatArray:
    """Returns the normal density, raised if it is too small for a normal float."""
    exponents = np.maximum(-(places**2) / 2, -floats.LARGEST_EXPONENT)
    return np.asarray(np.exp(exponents) / math.sqrt(2 * math.pi))


def _ndtr(points: FloatArray) -> FloatArray:
    """Returns an upper bound on Φ, above its rounding error and any underflow."""
    return np.asarray(special.ndtr(np.maximum(points, -37.0)) * floats.raised(1.0))


def fits(chain: Chain) -> bool:
    """Whether the largest sum of a chain's ratios fits a float."""
    largest = chain.scale * float(chain.states.max()) - chain.scale**2 / 2
    largest += math.log(float(chain.factors.max())) + math.log(chain.length)
    return largest <= floats.LARGEST_LOSS


@dataclasses.dataclass(frozen=True)
class Addition:
    """What a step adds to the sum, for some neighboring states.

    Attributes:
        rows: The states.
        matrix: The matrix from the masses before the addition to those after it. Each
            vector has the masses of all places for the first state, then those for the
            second state, and so on.
        most_terms: The largest number of products that sum to one mass.
        lost: (n, l) The part of the sum's mean that the addition loses at each state
            and place: sums above the highest place, and what the factor's mean lacks.
    """

    rows: slice
    matrix: sparse.csr_matrix
    most_terms: int
    lost: FloatArray

    @classmethod
    def of(cls, chain: Chain, rows: slice) -> "Addition":
        """Returns what a step adds in the given states."""
        places, ratios = chain.places, chain.ratios[rows]
        cells = np.diff(places)
        even = float(
            cells.max(where=places[1:] <= (chain.length + 1) // 2, initial=0.0)
        )
        factors, probabilities = _thinned(
            chain, chain.factor_gap * even / float(ratios[-1])
        )
        size, count, number = ratios.size, places.size, factors.size
        steps = (ratios[:, np.newaxis] * factors)[:, np.newaxis]
        added = np.minimum(places[:, np.newaxis] + steps, places[-1])
        low = np.searchsorted(places, added, side="right") - 1
        np.minimum(low, count - 2, out=low)
        share = (added - places[low]) / cells[low]
        np.clip(share, 0.0, 1.0, out=share)
        # The columns are the lower ends of the cells for each factor, then the upper
        # ends, and then the place itself for the factor 0.
        shares = np.empty((size, count, 2 * number + 1))
        goals = np.empty(shares.shape, np.int32)
        firsts = np.arange(0, size * count, count)[:, np.newaxis]
        np.add(low, firsts[:, :, np.newaxis], out=goals[:, :, :number])
        np.add(goals[:, :, :number], 1, out=goals[:, :, number:-1])
        goals[:, :, -1] = firsts + np.arange(count)
        np.multiply(probabilities, share, out=shares[:, :, number:-1])
        np.subtract(probabilities, shares[:, :, number:-1], out=shares[:, :, :number])
        shares[:, :, -1] = max(1 - float(probabilities.sum()), 0.0)
        starts = np.arange(size * count + 1, dtype=np.int32) * goals.shape[2]
        columns = shares.ravel(), goals.ravel(), starts
        matrix = sparse.csc_matrix(columns, shape=(size * count,) * 2).tocsr()
        most_terms = int(np.diff(matrix.indptr).max())
        matrix.sum_duplicates()
        lost = np.empty((size, count))
        lost[:] = chain.lost_factor * ratios[:, np.newaxis]
        for row, ratio in zip(lost, ratios.tolist(), strict=True):
            first = np.searchsorted(places, places[-1] - ratio * factors[-1])
            above = places[first:, np.newaxis] + ratio * factors - places[-1]
            row[first:] += np.maximum(above, 0.0) @ probabilities
        return cls(rows, matrix, most_terms, lost)

    def apply(self, masses: FloatArray, out: FloatArray) -> FloatArray:
        """Writes the masses after the addition, and returns the lost part of the mean.

        Args:
            masses: (n, l) The masses of states and places before the addition.
            out: The array that the masses after it are written to.
        """
        given = masses[self.rows]
        out[self.rows] = (self.matrix @ given.ravel()).reshape(given.shape)
        return np.asarray((given * self.lost).sum(axis=1))


def _thinned(chain: Chain, gap: float) -> tuple[FloatArray, FloatArray]:
    """Returns factors that are a gap apart, or a factor of two, and the probabilities.

    The factors that are left out are split between their neighbors. Small sums decide
    in the direction ADD, so that small factors are kept where they are a factor of two
    apart: otherwise most of their mass would go to the smallest one.
    """
    factors, probabilities = chain.factors, chain.probabilities
    kept, last = [0], float(factors[0])
    for index, factor in enumerate(factors.tolist()):
        if factor >= last + min(gap, last) and index:
            kept.append(index)
            last = factor
    if kept[-1] != factors.size - 1:
        kept.append(factors.size - 1)
    if len(kept) == factors.size:
        return factors, probabilities
    few = factors[kept]
    low = np.clip(np.searchsorted(few, factors, side="right") - 1, 0, few.size - 2)
    share = (factors - few[low]) / (few[low + 1] - few[low])
    share = np.clip(share, 0.0, 1.0)
    found = sums.gather_quickly(low, probabilities * (1 - share), few.size)
    found += sums.gather_quickly(low + 1, probabilities * share, few.size)
    return few, found


def split(
    places: FloatArray, sums: FloatArray, probabilities: FloatArray
) -> tuple[sparse.csr_matrix, FloatArray]:
    """Returns the matrix that moves each place to a random sum, split to the places.

    Args:
        places: (l,) The places, increasing from 0.
        sums: (l, m + 1) The sums that each place may move to, at least 0.
        probabilities: (m,) The probabilities of the first m sums. The last one has the
            remaining probability.

    Returns:
        The (l, l) matrix from the masses before to those after the move; and (l,) the
        mean of the part of a sum that is above the highest place.
    """
    count, number = sums.shape
    weights = np.append(probabilities, max(1 - float(probabilities.sum()), 0.0))
    above = np.maximum(sums - places[-1], 0.0)
    sums = sums - above
    low = np.searchsorted(places, sums, side="right") - 1
    np.minimum(low, count - 2, out=low)
    share = (sums - places[low]) / (places[low + 1] - places[low])
    np.clip(share, 0.0, 1.0, out=share)
    goals = np.concatenate([low, low + 1], axis=1).astype(np.int32)
    parts = np.concatenate([weights * (1 - share), weights * share], axis=1)
    starts = np.arange(count + 1, dtype=np.int32) * (2 * number)
    columns = parts.ravel(), goals.ravel(), starts
    matrix = sparse.csc_matrix(columns, shape=(count, count)).tocsr()
    return matrix, np.asarray(above @ weights)
