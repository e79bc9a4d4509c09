"""Lower bounds on means of correlated Gaussian ratios, by blocks of neighboring bins.

A Gram matrix with smaller entries has smaller divergences (docs/matrix.md). So the
products between bins of different blocks are lowered to zero, and the products within a
block to the covariances of a Gaussian Markov chain. Blocks are then independent of each
other. A law below that of the sum of a block's ratios, in the convex order, is computed
by a recursion over the state of the chain and the sum so far, as in `markov_sums`. Any
group of sums may be replaced by their mean, and so may any group of factors: a mean of
convex functions of them can only become smaller.
"""

import collections
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import chain_steps
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

# Tuning, all of these constants.
# The largest number of bins in a block, with which ε is at most 0.2 % lower than with
# 32.
_LONGEST_BLOCK = 16
# Each of these widths of cells lowers ε by 0.1 %.
_CELL = 0.13  # Of states, in standard deviations of a move.
# Of large sums, relatively, over the standard deviation of a ratio's exponent, or over
# 1.5 if that is less. Cells of sums below _UNIT, over the mean sum, are equally wide.
_PLACE, _UNIT = 0.085, 0.03

_BLOCK_SLACK = 1e-12  # Certified: more than the rounding of a block's entries.
# Certified: the least mass, and the least mean, that must be missing, so that its
# difference from one keeps its digits.
_LEAST_LOST = 1e-3


@dataclasses.dataclass(frozen=True)
class Block:
    """A chain of neighboring bins with the covariances a_i a_j r^|i−j| + w 1_{i=j}.

    Attributes:
        scales: The scale a_i of each bin.
        own: The part w of the variance that each bin has alone.
        correlation: The correlation r of neighbors, in [0, 1).
    """

    scales: tuple[float, ...]
    own: float
    correlation: float

    @property
    def length(self) -> int:
        """Number of bins."""
        return len(self.scales)

    @property
    def variance(self) -> float:
        """The largest variance of a bin."""
        return max(self.scales) ** 2 + self.own


@dataclasses.dataclass(frozen=True)
class Grids:
    """What the steps of a chain add to a sum from below, and the grids of both.

    Attributes:
        states: (n,) The increasing grid of x.
        correlation: The correlation r of successive x, in [0, 1).
        factors: (m,) The values of a step's factor, increasing and positive.
        probabilities: (m,) Their probabilities.
        unit: c, where c (e^x − 1) for x = 0, h, 2h, … are the lower ends of the cells
            of sums.
        density: 1 / h.
        count: The number of cells.
        smallest_mass: Smaller masses of a state and a place are left out.
    """

    states: FloatArray
    correlation: float
    factors: FloatArray
    probabilities: FloatArray
    unit: float
    density: float
    count: int
    smallest_mass: float


def cut_into_blocks(gram: FloatArray) -> dict[Block, int]:
    """Returns chains for blocks of neighboring bins, with covariances below a matrix.

    All blocks have one length. As bins differ most at the end of a run, the last block
    has a chain of its own, and all others share one. Bins that are left at the start
    are blocks of one bin.

    Args:
        gram: (b, b) inner products of the bins, rounded down.

    Returns:
        The number of blocks that each chain is for. Together they have b bins.
    """
    longest = min(len(gram), _LONGEST_BLOCK)
    cuts = [
        _cut(gram, length)
        for length in sorted({int(x) for x in np.geomspace(1, longest, 12)})
    ]
    return max(
        cuts,
        key=lambda cut: math.fsum(n * _total(block) for block, n in cut.items()),
    )


def _cut(gram: FloatArray, length: int) -> collections.Counter[Block]:
    """Returns blocks of one length, and of one bin for those left at the start."""
    left = len(gram) % length
    starts = range(left, len(gram), length)
    parts = np.array([gram[i : i + length, i : i + length] for i in starts])
    blocks = collections.Counter([_block_of(parts[-1])])
    if len(parts) > 1:
        blocks[_block_of(parts[:-1].min(axis=0))] += len(parts) - 1
    if left:
        blocks[_block_of(gram.diagonal()[:left].min().reshape(1, 1))] += left
    return blocks


def _block_of(gram: FloatArray) -> Block:
    """Returns the chain with the largest moment among those below a Gram matrix.

    The chain has the diagonal v of the matrix G. For each r, its w is the least one
    with (v_i − w) (v_j − w) r^{2|i−j|} ≤ G_ij² for all pairs i < j.
    """
    size = len(gram)
    gram = gram / (1 + _BLOCK_SLACK)
    variances = gram.diagonal()
    rows, columns = np.triu_indices(size, 1)
    total_variances = variances[rows] + variances[columns]
    differences = variances[rows] - variances[columns]
    best, largest = Block(tuple(np.sqrt(variances).tolist()), 0.0, 0.0), -math.inf
    for correlation in chain_fits.CORRELATIONS[::4].tolist():
        # The w at which a pair's two sides are equal, the smaller root of a quadratic.
        limits = 2 * gram[rows, columns] * correlation ** (rows - columns)
        roots = (total_variances - np.hypot(differences, limits)) / 2
        own = max(float(roots.max(initial=0.0)), 0.0)
        if own > variances.min():
            continue
        squares = np.maximum(variances - own - _BLOCK_SLACK * variances.max(), 0.0)
        block = Block(tuple(np.sqrt(squares).tolist()), own, correlation)
        total = _total(block)
        if total > largest:
            best, largest = block, total
    return best


def _total(block: Block) -> float:
    """Returns the moment Σ_ij (e^{c G′_ij} − 1), where c is the order.

    G′ are the covariances of the block.
    """
    scales, places = np.array(block.scales), np.arange(block.length)
    powers = block.correlation ** abs(places[:, np.newaxis] - places)
    covariances = np.outer(scales, scales) * powers
    covariances[np.diag_indices(block.length)] += block.own
    return float(chain_fits.grown(chain_fits.ORDER * covariances).sum())


def lower_pair(
    block: Block, *, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the mean of a block's ratios.

    The recursion computes a lower bound of the sum's law in the increasing convex
    order. `pair_below` makes a pair of it.

    Args:
        block: The chain.
        tail_mass: The probability that may be left out.

    Returns:
        The pair, or None if sums do not fit a float, or if `pair_below` returns None.
    """
    tail = markov_chain.tail_of_step(tail_mass, block.length)
    reach = -float(special.ndtri(tail))
    highest = block.variance / 2 + math.sqrt(block.variance) * reach
    if highest > floats.LARGEST_EXPONENT:
        return None
    grids, error = _grids(block, tail, highest)
    totals, masses, sum_error = lower_sum(grids, np.array(block.scales))
    scale = max(block.scales)
    exponents = scale * float(np.abs(grids.states).max()) + scale**2
    rounding = (8 * block.length + 16 + 8 * exponents) * floats.UNIT_ROUNDOFF
    error = sum_error + block.length * error + rounding
    return pair_below(totals / block.length, masses, error)


def pair_below(
    ratios: FloatArray, masses: FloatArray, error: float
) -> dominating_pair.DominatingPair | None:
    """Returns a lower pair of a run, from a law of ratios that lacks some mass.

    Let f(κ) = Σ masses · (ratios − κ)₊, which is at most the profile. The profile is
    also at least 1 − κ. The pair has the profile max(f, 1 − κ): the missing mass and
    that of the lowest ratios get one common ratio, such that the mean is one.

    Args:
        ratios: (n,) ratios, increasing.
        masses: (n,) masses of the ratios under Q.
        error: A bound on the relative error of a ratio or of a mass.

    Returns:
        The pair, or None if so little is missing that differences from one would lose
        their digits.
    """
    mass_above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    mean_above = np.append(np.cumsum((ratios * masses)[::-1])[::-1], 0.0)
    reached = ratios * (1 - mass_above[:-1]) + mean_above[:-1] >= 1
    reached &= np.minimum(1 - mass_above, 1 - mean_above)[:-1] >= _LEAST_LOST
    if not reached.any():
        return None
    first = int(np.argmax(reached))
    lost_mass, lost_mean = 1 - mass_above[first], 1 - mean_above[first]
    error += masses.size * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        np.append(lost_mean / lost_mass, ratios[first:]),
        np.append(lost_mass, masses[first:]),
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=error / _LEAST_LOST,
        ratio_error=3 * error / _LEAST_LOST,
    )


def _grids(block: Block, tail: float, highest: float) -> tuple[Grids, float]:
    """Returns a block with its grids, and the error of its factors.

    Args:
        block: The block.
        tail: The probability that may be lost in a step on either side.
        highest: The largest logarithm of a ratio for which sums have places.
    """
    scale, correlation = max(block.scales), block.correlation
    values, probabilities, error = _factors(block.own, block.variance, tail)
    cell = _PLACE * min(math.sqrt(block.variance), 1.5)
    unit = _UNIT * block.length
    count = math.ceil((math.log1p(block.length / unit) + highest) / cell)
    reach = -float(special.ndtri(tail))
    innovation = math.sqrt((1 - correlation) * (1 + correlation))
    states = markov_chain.states_of(scale, reach, _CELL * innovation)
    # Over all states and cells, this adds up to as much as the tails of a step.
    smallest = max(8 * tail / (states.size * count), markov_chain.SMALLEST_MASS)
    cells = unit, 1 / cell, count
    grids = Grids(states, correlation, values, probabilities, *cells, smallest)
    return grids, error


def _factors(
    own: float, variance: float, tail: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns a law with few atoms that is below that of e^{g − w/2} for g ~ N(0, w).

    All values in a cell are replaced by their mean.

    Args:
        own: w, the variance of the independent noise of a step.
        variance: The variance of a step's whole exponent. The cells' widths are in
            proportion to its root.
        tail: The probability that may be lost on either side.

    Returns:
        (m,) the atoms, (m,) their masses, and a bound on the relative error of any.
    """
    if own <= markov_chain.NO_NOISE * variance:
        return np.ones(1), np.ones(1), 0.0
    law, error = markov_chain.law_of_noise(own, Bound.LOWER, tail)
    width = markov_chain.width_of_factors(variance)
    cells = markov_chain.LogCells.of(own, width)
    numbers = np.floor(cells.numbers(law.ratios))
    starts = np.flatnonzero(np.diff(numbers, prepend=-np.inf))
    probabilities = np.add.reduceat(law.masses, starts)
    means = np.add.reduceat(law.p_masses, starts) / probabilities
    return means, probabilities, error


def lower_sum(chain: Grids, scales: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Returns a law below that of the chain's sum.

    In each state, all sums in a cell are replaced by their mean.

    Args:
        chain: The chain with its grids. Its factors must be below the true ones in the
            convex order.
        scales: (length,) The scale a of each step.

    Returns:
        (k,) the sums, increasing; (k,) their masses; and a bound on the relative error
        of any of these numbers. The mass that left the grids is not included.

    Guarantees:
        Σ masses · (sums − k)₊ is at most the mean of (S − k)₊ for every k.
    """
    cell = float(np.diff(chain.states).max())
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    first_spread, spread = (
        chain_steps.spread_to_split(variance, cell) for variance in (1.0, innovation)
    )
    first = chain_steps.hats(chain.states, np.zeros(1), first_spread, raised=False)
    means = chain.correlation * chain.states
    moves = np.ascontiguousarray(
        chain_steps.hats(chain.states, means, spread, raised=False).T
    )
    masses = np.zeros((chain.states.size, chain.count))
    masses[:, 0] = first[0]
    totals = np.zeros_like(masses)
    for step, scale in enumerate(scales.tolist()):
        if step:
            masses, totals = moves @ masses, moves @ totals
        ratios = np.exp(scale * chain.states - scale**2 / 2)
        for start in range(0, ratios.size, markov_chain.ROWS):
            rows = slice(start, start + markov_chain.ROWS)
            added = _grouped_after(chain, ratios[rows], masses[rows], totals[rows])
            masses[rows], totals[rows] = added
    mass, total = masses.sum(axis=0), totals.sum(axis=0)
    occupied = mass > chain.smallest_mass
    # A step sums up over cells and factors in a state, and then over the states.
    operations = chain.count * chain.factors.size + 4 * chain.states.size + 64
    step_error = operations * floats.UNIT_ROUNDOFF + 2 * chain_steps.QUADRATURE_ERROR
    sums, masses = total[occupied] / mass[occupied], mass[occupied]
    order = np.argsort(sums, kind="stable")
    # Each mean is a quotient of two sums, and the terms of the next step's sums contain
    # it. So errors accumulate at most quadratically.
    return sums[order], masses[order], 4 * scales.size**2 * step_error


def _grouped_after(
    chain: Grids, ratios: FloatArray, masses: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the masses of states and cells after an addition, and masses times sums.

    Args:
        chain: The chain with its grids.
        ratios: (n,) What the step adds in each of some states, times a factor.
        masses: (n, l) The masses of these states and of cells before the addition.
        totals: (n, l) The masses times the mean of the sums in the cell.
    """
    occupied = masses > chain.smallest_mass
    rows = np.nonzero(occupied)[0]
    mass = masses[occupied]
    means = totals[occupied] / mass
    new_masses, new_totals = np.zeros(masses.size), np.zeros(masses.size)
    added, firsts = ratios[rows], rows * chain.count
    factors, probabilities = _merged(chain, float(ratios.max()))
    for factor, probability in zip(factors, probabilities, strict=True):
        sums = means + factor * added
        # The law stays below the true one even if rounding puts a sum into the wrong
        # cell, as a group of sums always has their mean.
        cells = (np.log1p(sums / chain.unit) * chain.density).astype(np.intp)
        np.minimum(cells, chain.count - 1, out=cells)
        cells += firsts
        weights = probability * mass
        new_masses += np.bincount(cells, weights, masses.size)
        new_totals += np.bincount(cells, weights * sums, masses.size)
    return new_masses.reshape(masses.shape), new_totals.reshape(masses.shape)


def _merged(chain: Grids, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Returns the chain's factors after some were merged, and their probabilities.

    A step adds a factor times a ratio, of which `ratio` is the largest. Factors are
    replaced by their mean if their products with it, as sums of one step, are in the
    same cell. Later sums are larger, and in wider cells.
    """
    numbers = np.floor(np.log1p(chain.factors * ratio / chain.unit) * chain.density)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1.0))
    probabilities = np.add.reduceat(chain.probabilities, starts)
    totals = np.add.reduceat(chain.factors * chain.probabilities, starts)
    return totals / probabilities, probabilities
