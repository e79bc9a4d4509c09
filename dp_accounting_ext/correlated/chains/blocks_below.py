"""Lower bounds on means of correlated Gaussian ratios, by blocks of neighboring bins.

A Gram matrix with smaller entries has smaller divergences (docs/matrix.md). So the
products between bins of different blocks are lowered to zero, and the products within a
block to the covariances of a Gaussian Markov chain. Blocks are then independent of each
other. The law of the sum of a block's ratios is computed by a recursion over the state
of the chain and the sum so far.
"""

import collections
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import sums_below
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

# Tuning: the width of a cell of states, in standard deviations of a move; the relative
# width of a cell of large sums, over the standard deviation of a ratio's exponent if
# that is below one; and the sum below which all cells of sums are about equally wide,
# over the mean sum. With a relative width of 0.025, ε is 0.06 % higher, in twice the
# time.
_CELL, _PLACE, _UNIT = 0.11, 0.06, 0.03
# Tuning: the largest number of bins in a block. With 53 bins and 64 bands, ε was 0.1 %
# higher, in one and a half times the time.
_LONGEST_BLOCK = 32
# Tuning: the factor of the covariances in the moment by which chains are compared.
_ORDER = 4.0
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


def cut_into_blocks(gram: FloatArray) -> dict[Block, int]:
    """Returns chains for blocks of neighboring bins, with covariances below a matrix.

    Bins differ most at the end of a run. So groups of blocks share one chain, and a
    group is larger if it is further from the end.

    Args:
        gram: (b, b) inner products of the bins, rounded down.

    Returns:
        The number of blocks that each chain is for. Together they have b bins.
    """
    longest = min(len(gram), _LONGEST_BLOCK)
    found = [
        _cut(gram, length) for length in {int(x) for x in np.geomspace(1, longest, 12)}
    ]
    return max(found, key=_whole)


def _whole(blocks: dict[Block, int]) -> float:
    return math.fsum(count * _total(block) for block, count in blocks.items())


def _cut(gram: FloatArray, length: int) -> collections.Counter[Block]:
    """Returns blocks of one length, and a shorter one for bins left at the start."""
    size, found = len(gram), collections.Counter[Block]()
    count, done = size // length, 0
    while done < count:
        number = min(max(done, 1), count - done)
        starts = size - length * np.arange(done + 1, done + number + 1)
        parts = [gram[i : i + length, i : i + length] for i in starts]
        found[_block_of(np.min(parts, axis=0))] += number
        done += number
    left = size - count * length
    if left:
        found[_block_of(gram[:left, :left])] += 1
    return found


def _block_of(gram: FloatArray) -> Block:
    """Returns the chain with the largest moment among those below a Gram matrix.

    The chain has the diagonal v of the matrix G. For each r, its w is the least one
    with (v_i − w) (v_j − w) r^{2|i−j|} ≤ G_ij² for all pairs i < j.
    """
    size = len(gram)
    gram = gram / (1 + _BLOCK_SLACK)
    variances = gram.diagonal()
    rows, columns = np.triu_indices(size, 1)
    whole = variances[rows] + variances[columns]
    apart = variances[rows] - variances[columns]
    best, most = Block(tuple(np.sqrt(variances).tolist()), 0.0, 0.0), -math.inf
    for correlation in chain_fits.CORRELATIONS[::4].tolist():
        across = 2 * gram[rows, columns] * correlation ** (rows - columns)
        roots = (whole - np.hypot(apart, across)) / 2
        own = max(float(roots.max(initial=0.0)), 0.0)
        if own > variances.min():
            continue
        left = np.maximum(variances - own - _BLOCK_SLACK * variances.max(), 0.0)
        found = Block(tuple(np.sqrt(left).tolist()), own, correlation)
        total = _total(found)
        if total > most:
            best, most = found, total
    return best


def _total(block: Block) -> float:
    """Returns the moment Σ_ij (e^{c G′_ij} − 1), where c is `_ORDER`.

    G′ are the covariances of the block.
    """
    scales, places = np.array(block.scales), np.arange(block.length)
    powers = block.correlation ** abs(places[:, np.newaxis] - places)
    covariances = np.outer(scales, scales) * powers
    covariances[np.diag_indices(block.length)] += block.own
    return float(chain_fits.grown(_ORDER * covariances).sum())


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
    each = markov_chain.tail_of_step(tail_mass, block.length)
    reach = -float(special.ndtri(each))
    highest = block.variance / 2 + math.sqrt(block.variance) * reach
    if highest > floats.LARGEST_EXPONENT:
        return None
    grids, error = _grids(block, each, highest)
    totals, masses, sum_error = sums_below.lower_sum(grids, np.array(block.scales))
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
    rest, missing = 1 - mass_above[first], 1 - mean_above[first]
    error += masses.size * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        np.append(missing / rest, ratios[first:]),
        np.append(rest, masses[first:]),
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=error / _LEAST_LOST,
        ratio_error=3 * error / _LEAST_LOST,
    )


def _grids(block: Block, each: float, highest: float) -> tuple[sums_below.Grids, float]:
    """Returns a block with its grids, and the error of its factors.

    Args:
        block: The block.
        each: The probability that may be lost in a step on either side.
        highest: The largest logarithm of a ratio for which sums have places.
    """
    scale, correlation = max(block.scales), block.correlation
    values, probabilities, error = _factors(block.own, block.variance, each)
    cell = _PLACE * min(math.sqrt(block.variance), 1.0)
    unit = _UNIT * block.length
    last = math.log1p(block.length / unit) + highest
    places = unit * np.expm1(np.arange(0.0, last, cell))
    reach = -float(special.ndtri(each))
    innovation = math.sqrt((1 - correlation) * (1 + correlation))
    number = math.ceil((scale + 2 * reach) / (_CELL * innovation)) + 1
    states = np.linspace(-reach, scale + reach, number)
    # Over all states and cells, this adds up to as much as the tails of a step.
    smallest = max(8 * each / (states.size * places.size), markov_chain.SMALLEST_MASS)
    grids = sums_below.Grids(
        states, correlation, values, probabilities, places, smallest
    )
    return grids, error


def _factors(
    own: float, variance: float, each: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns a law with few atoms that is below that of e^{g − w/2} for g ~ N(0, w).

    All values in a cell are replaced by their mean.

    Args:
        own: w, the variance of the independent noise of a step.
        variance: The variance of a step's whole exponent. The cells' widths are in
            proportion to its root.
        each: The probability that may be lost on either side.

    Returns:
        (m,) the atoms, (m,) their masses, and a bound on the relative error of any.
    """
    if own <= markov_chain.NO_NOISE * variance:
        return np.ones(1), np.ones(1), 0.0
    cells = markov_chain.FactorCells.of(own, variance, Bound.LOWER, tail_mass=each)
    starts = np.flatnonzero(np.diff(np.floor(cells.numbers), prepend=-np.inf))
    probabilities = np.add.reduceat(cells.law.masses, starts)
    means = np.add.reduceat(cells.law.p_masses, starts) / probabilities
    return means, probabilities, cells.error
