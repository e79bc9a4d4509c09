"""Sums of functions of a Gaussian Markov chain, on either side of the convex order.

The chain is x_1 ~ N(0, 1), x_{i+1} = r x_i + s ξ with r² + s² = 1. Each step adds
e^{a x_i − a²/2} W_i to a sum S, with W_i independent variables of mean one. The state
(x, S) is kept on a grid of either: whatever falls between two points is split between
them so that its mean stays. What is convex and increasing in the sum is convex in x and
in S, so that it only grows. Towards both ends the chain may vary more, by a share of
its variance that falls by r² a step; steps still have the mean one.
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

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# Certified: Gauss–Legendre on a cell of at most LARGEST_CELL standard deviations, up to
# _FURTHEST of them away, errs by less than QUADRATURE_ERROR, relatively, and so does a
# rule of fewer nodes on a cell of at most NARROW_CELL. Further away
# a cell has the largest density that it meets: more mass only raises an upper bound.
LARGEST_CELL, NARROW_CELL = 0.5, 0.2
_FURTHEST = 10.0
QUADRATURE_ERROR = 1e-12
_NODES, _FEW_NODES = 12, 6

# Certified: sums of masses of thousands of cells, relatively.
_CHECKED = 1e-11

# Certified: masses below it are dropped, and counted as lost.
SMALLEST_MASS = 1e-220

# Tuning: states whose moves, and whose additions, are one product.
_ROWS = 32

# Masses of two sides are multiplied by it. It is a power of two.
_SCALE = 2.0**500


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain, what its steps add to the sum, and the grids of both.

    Attributes:
        states: (n,) increasing values of x, 0 and a among their range.
        correlation: r, in [0, 1).
        scale: a ≥ 0.
        factors: (m,) values of W, increasing and positive.
        probabilities: (m,) their probabilities; the rest is that of W = 0.
        lost_factor: What the mean of W lacks to one, at most.
        places: (l,) values of S, or of that of one side, increasing from 0.
        length: Number of steps, at least 1.
        excess: By how much the variance is larger at either end, in [0, 1].
        smallest_mass: Of a state and a cell of sums: less is left out, and from above
            counted as lost. There it is of the larger of Q's mass and P's.
        factor_gap: From above, factors that are nearer to each other than that many
            cells of sums, times a state's ratio, are split between their neighbors.
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
        """(n,) what a step adds in each state, but for its factor."""
        return np.asarray(np.exp(self.scale * self.states - self.scale**2 / 2))

    def most_to_come(self) -> FloatArray:
        """Returns (n,) bounds on the mean of any later step's ratio, from each state.

        Given x, and t ≥ 0 the coefficient of x in a later one, which an excess e keeps
        below 1 + e, the mean of the ratio is e^{a t x − a² t² / 2} at most. Splits
        raise it by no more than `drift`, and what is lifted to the lowest state adds
        less than one.
        """
        real = np.maximum(self.states + self.scale * self.excess / 2, 0.0)
        most = self.scale * (1 + self.excess)
        logs = np.where(real <= most, real**2 / 2, most * real - most**2 / 2)
        return np.asarray(1 + np.exp(logs + drift(self)))

    def likelihoods(self, variance: float) -> FloatArray:
        """Returns (n,) densities of states under Q, over the largest one.

        Args:
            variance: Of x. Its mean is lowered as much as `variances` says.
        """
        away = self.states + self.scale * (variance - 1) / 2
        return np.asarray(np.exp(-(away**2) / (2 * variance)))

    @functools.cached_property
    def least_masses(self) -> FloatArray:
        """(n, l) masses of states and sums that are worth while.

        Of P's mass they have so many times that of Q, at most.
        """
        to_come = self.most_to_come()[:, np.newaxis]
        return np.asarray(
            self.smallest_mass / (1 + to_come + self.places / self.length)
        )

    def likely_rows(self, variance: float) -> slice:
        """Returns the states that have some of Q's mass, or of P's."""
        masses = self.likelihoods(variance) * self.most_to_come()
        likely = np.flatnonzero(masses > self.smallest_mass * self.places.size)
        return slice(int(likely[0]), int(likely[-1]) + 1)

    def variances(self) -> FloatArray:
        """(length,) of x_i. States are x_i less half of a times what is above one.

        At distance d from an end that is e r^{2d}, e the excess. A thousandth is as
        good as less, so that most steps are alike.
        """
        places = np.arange(self.length)
        distances = np.minimum(places, places[::-1])
        more = self.excess * np.power(self.correlation, 2.0 * distances)
        return np.asarray(1 + np.maximum(more, min(self.excess, 1e-3)))

    def steps(self) -> Iterator[tuple[float, float, float]]:
        """Yields the coefficient of x_{i−1} in x_i, and the variances of both."""
        before, slope = 1.0, 0.0
        for variance in self.variances().tolist():
            # Towards the end the chain is that from the end on, reversed.
            yield slope * max(variance / before, 1.0), before, variance
            before, slope = variance, self.correlation


@dataclasses.dataclass(frozen=True)
class SumLaw:
    """The law of a sum, larger than the true one.

    Attributes:
        places: (l,) values of the sum, increasing from 0.
        masses: (l,) their masses.
        lost_mean: At most so much of the sum's mean is at infinity.
        lost_mass: At most so much probability was lost above.
        lifted_mass: At most so much was lifted from below the lowest state.
        mass_error: Bound on the relative rounding error of any mass.
    """

    places: FloatArray
    masses: FloatArray
    lost_mean: float
    lost_mass: float
    lifted_mass: float
    mass_error: float


@dataclasses.dataclass(frozen=True)
class Moves:
    """Where the chain goes from each state.

    Attributes:
        matrix: (n, n) probabilities, from rows to columns.
        above: (n,) probabilities of what is above the highest state.
        ratio_above: (n,) means of e^{a x − a²/2} there.
        below: (n,) probabilities of what is below the lowest state.
    """

    matrix: FloatArray
    above: FloatArray
    ratio_above: FloatArray
    below: FloatArray

    @functools.cached_property
    def _bands(self) -> list[tuple[slice, slice, FloatArray]]:
        """Blocks of the matrix: their rows, their columns, and the block."""
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
        """Writes means of values after a move.

        Args:
            values: (n, l) of the states moved to,
            out: and their means, of the rows moved from.
        """
        for rows, columns, block in self._bands:
            np.matmul(block, values[columns], out=out[rows])


class _Side(NamedTuple):
    """Laws of the sum of a line of steps, from every state that the line starts at.

    Attributes:
        rows: Which states are looked at.
        masses: (n, l) of the chain's places.
        lost_mass: (n,) bounds on the probability that is among none of them,
        lost_mean: (n,) and on what the sum's mean has there.
        lifted: (n,) bounds on what was lifted from below the lowest state.
    """

    rows: slice
    masses: FloatArray
    lost_mass: FloatArray
    lost_mean: FloatArray
    lifted: FloatArray

    def whole(self) -> FloatArray:
        """Returns (n,) masses, those that are lost among them."""
        return np.asarray(self.masses.sum(axis=1) + self.lost_mass)


def upper_sum(chain: Chain) -> SumLaw:
    """Returns the law of the chain's sum, from above.

    Given the state in the middle both sides of it are independent. The law of a side
    from each state is a recursion from its end to the middle, the same for both sides.

    Guarantees:
        E φ of the true sum is at most Σ masses · φ(places), for φ(S) = (S − k)₊ once
        lost_mean is added, and for φ(S) = (k − S)₊, at sums divided by the growth that
        `drift` bounds, once k times the lost and lifted masses are added: with the
        masses raised by their error, and the places by `place_error`.
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
    # Without the middle's own step a side has half of the steps, rounded down.
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
        variance: Of the state in the middle.
        side: One side, with the step in the middle,
        without: and the other one, without it.
        error: Bound on the relative error that a step brings to masses.
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
    """Returns masses of twice the places, of sums of two, and the most terms of one.

    Args:
        places: (l,) increasing from 0.
        middle: (n,) masses of states.
        first: (n, l) masses of places, given a state,
        second: and of the other ones.
    """
    # Scaled, so that no product of two small ones is zero that matters.
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
    """Returns a side with one more step.

    Args:
        chain: The chain.
        additions: What a step adds, of all states.
        side: The laws.
        variance: Of the state that they are given.
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
    """Returns the laws of a side from one step nearer to the middle.

    Args:
        rows: The states that are looked at there.
        moves: From these to those of the side.
        side: The laws,
        steps: of so many steps.
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
    """Returns the law of a chain's sum times an independent factor, from above.

    Args:
        chain: The chain.
        law: Of its sum.
        factors: (m,) values of the factor, increasing and positive.
        probabilities: (m,) their probabilities; the rest is that of 0.
        lost: What the mean of the factor lacks to one, at most.
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
    """Checks that an upper law of a chain's sum has lost neither mass nor mean.

    Splits and what is lifted only raise either.

    Raises:
        MassError: If it has less mass, or a lower mean.
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
    """Returns the law of the chain's sum, from below.

    Args:
        chain: Its places are about the lower ends of cells of sums: a number times
            e^x − 1, x = 0, h, 2h, … Its factors are dominated by the true ones.
        scales: (length,) a of each step, up to the chain's.

    Returns:
        (k,) sums, increasing; (k,) their masses; and a bound on the relative error of
        any of either. What left the grids is missing.

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
    # In an addition a cell gathers from its own state alone.
    gathered = chain.places.size * chain.factors.size
    operations = gathered + 4 * chain.states.size + 64
    each = operations * floats.UNIT_ROUNDOFF + 2 * QUADRATURE_ERROR
    sums, masses = total[kept] / mass[kept], mass[kept]
    order = np.argsort(sums, kind="stable")
    # A mean is a quotient of two sums, and becomes a term of the next step's.
    return sums[order], masses[order], 4 * chain.length**2 * each


def spread_to_split(variance: float, cell: float) -> float:
    """Returns a deviation s with which N(m, s²), once it is split, is below N(m, V).

    V (1 + √(1 − h² / V)) / 2 is taken for s²: h²/4, and hardly more, less than V.

    Args:
        variance: V, at least h².
        cell: h, the widest of the cells between whose ends it is split.

    Guarantees:
        In the convex order, for every m and every such grid (docs/matrix.md).
    """
    squared = variance * (1 + math.sqrt(1 - cell**2 / variance)) / 2
    return math.sqrt(floats.lowered(squared))


def _grouped_after(
    chain: Chain, ratios: FloatArray, masses: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns masses, and masses times sums, after an addition, by state and cell."""
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
        # Whatever is the cell of a sum, a group has its mean.
        cells = (np.log1p(sums / unit) * each).astype(np.intp)
        np.minimum(cells, count - 1, out=cells)
        cells += firsts
        weights = probability * mass
        new_masses += np.bincount(cells, weights, masses.size)
        new_totals += np.bincount(cells, weights * sums, masses.size)
    return new_masses.reshape(masses.shape), new_totals.reshape(masses.shape)


def drift(chain: Chain) -> float:
    """Bounds the growth, in nats, of a ratio's mean by splits, whatever the path.

    Split once a step, a state moves by less than a cell h with mean 0, and what it
    moved by decays by r a step, up to a factor 1 + e of an excess e: Hoeffding's lemma
    for each split.
    """
    step = float(np.diff(chain.states).max()) * (1 + chain.excess)
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    return floats.raised((chain.scale * step) ** 2 / 8 / innovation)


def place_error(chain: Chain) -> float:
    """Bounds the relative error of a sum: of ratios, their products, and places."""
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
    """Returns the moves of a step, without those that hardly ever happen.

    Args:
        chain: The chain.
        rows: From where.
        slope: The coefficient of x in what follows it: 0 for the first one.
        before: The variance of x,
        variance: and of what follows.
        reached: Which states may be reached.
    """
    shifts = chain.scale * (before - 1) / 2, chain.scale * (variance - 1) / 2
    means = slope * (chain.states[rows] + shifts[0]) - shifts[1]
    found = moves(chain, means, math.sqrt(variance - slope**2 * before))
    # What hardly ever happens, to Q or to P, is counted as if it went above.
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
        rows: From where,
        inner: and the variance of x there.
        reached: Where to, at most,
        outer: and the variance there.
    """
    slope = chain.correlation * max(outer / inner, 1.0)
    return _moves_of(chain, rows, slope, inner, outer, reached)


def moves(chain: Chain, means: FloatArray, spread: float) -> Moves:
    """Returns where N(mean, spread²) goes, split between the states around it."""
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
    """Returns (means, states) shares of N(mean, spread²) split between its neighbors.

    Args:
        states: (n,) where it is split to.
        means: (m,) means.
        spread: The standard deviation.
        raised: Whether the furthest shares are raised, or left out.

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
    """Returns the normal density, or more where that is no normal float."""
    exponents = np.maximum(-(places**2) / 2, -floats.LARGEST_EXPONENT)
    return np.asarray(np.exp(exponents) / math.sqrt(2 * math.pi))


def _ndtr(points: FloatArray) -> FloatArray:
    """Returns Φ at points, raised: by more than it errs, and where no float is."""
    return np.asarray(special.ndtr(np.maximum(points, -37.0)) * floats.raised(1.0))


def fits(chain: Chain) -> bool:
    """Tells whether sums of a chain's ratios fit a float."""
    largest = chain.scale * float(chain.states.max()) - chain.scale**2 / 2
    largest += math.log(float(chain.factors.max())) + math.log(chain.length)
    return largest <= floats.LARGEST_LOSS


@dataclasses.dataclass(frozen=True)
class Addition:
    """What a step adds to the sum, for some neighbouring states.

    Attributes:
        rows: Which states.
        matrix: Takes their masses, one state's places after the other's, to those after
            the addition.
        most_terms: Of how many products a mass after it is the sum, at most.
        lost: (n, l) means of what goes above the highest place, or of no factor.
    """

    rows: slice
    matrix: sparse.csr_matrix
    most_terms: int
    lost: FloatArray

    @classmethod
    def of(cls, chain: Chain, rows: slice) -> "Addition":
        """Returns the addition in some states of a chain."""
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
        # Both ends of a cell for each factor, and where none is added.
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
        """Writes masses after the addition, and returns the means of what it lost.

        Args:
            masses: (n, l) by state and place, before,
            out: and after.
        """
        given = masses[self.rows]
        out[self.rows] = (self.matrix @ given.ravel()).reshape(given.shape)
        return np.asarray((given * self.lost).sum(axis=1))


def _thinned(chain: Chain, gap: float) -> tuple[FloatArray, FloatArray]:
    """Returns fewer factors and their probabilities; others are split between these."""
    factors, probabilities = chain.factors, chain.probabilities
    kept, last = [0], float(factors[0])
    for index, factor in enumerate(factors.tolist()):
        if factor >= last + gap and index:
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
    """Returns where sums go, each split between its neighbors so that its mean stays.

    Args:
        places: (l,) increasing from 0.
        sums: (l, m + 1) at least 0, of each place by what is drawn.
        probabilities: (m,) of what is drawn; the rest is that of the last column.

    Returns:
        The (l, l) matrix from masses to masses; and (l,) means of what is above the
        highest place.
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
