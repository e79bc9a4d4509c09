"""Means of correlated Gaussian ratios from below: blocks of neighboring bins.

A block of bins is a Gaussian Markov chain with no larger covariances, and blocks are
independent of each other. The law of a block's sum is a recursion with two states.
"""

import collections
import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

# Tuning: cells of states; of sums, relatively, and over the root of a small
# variance; and the sum below which cells of sums are even, over the mean. Cells of sums
# of 0.025 raise ε by 0.06 % and take twice as long.
_CELL, _PLACE, _UNIT = 0.11, 0.06, 0.03
# Tuning: blocks of 53 bins gave 0.1 % more for 64 bands, for half as much time again.
_LONGEST_BLOCK = 32
# Tuning: exponents count so many times in the moment that decides.
_ORDER = 4.0
_BLOCK_SLACK = 1e-12  # Certified: more than the rounding of a block's entries.
_LEAST_LOST = 1e-3  # Certified: of mass and mean: a difference keeps its digits.


@dataclasses.dataclass(frozen=True)
class Block:
    """A chain of neighbors, from below: G′_ij = a_i a_j r^|i−j| + w 1_{i=j}.

    Attributes:
        scales: a_i, as a tuple.
        own: w.
        correlation: r.
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
        """The largest entry."""
        return max(self.scales) ** 2 + self.own


def cut_into_blocks(gram: FloatArray) -> dict[Block, int]:
    """Returns blocks of neighboring bins, as chains below those of a Gram matrix.

    Bins differ most at the end of a run. So blocks are treated as equal in groups, and
    a group is the larger, the further it is from the end.

    Args:
        gram: (b, b) entries, rounded down.

    Returns:
        How many there are of each block; of all bins together.
    """
    longest = min(len(gram), _LONGEST_BLOCK)
    found = [
        _cut(gram, length) for length in {int(x) for x in np.geomspace(1, longest, 12)}
    ]
    return max(found, key=_whole)


def _whole(blocks: dict[Block, int]) -> float:
    return math.fsum(count * _total(block) for block, count in blocks.items())


def _cut(gram: FloatArray, length: int) -> collections.Counter[Block]:
    """Returns blocks of one length, but for the first one, which has what is left."""
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
    """Returns the chain with the largest moment whose entries are at most a matrix's.

    For each r the least w is known: (v_i − w) (v_j − w) r^{2|i−j|} ≤ G_ij² for all
    pairs, v_i the diagonal.
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
    """Returns Σ_ij (e^{c G′_ij} − 1) with the largest c that decides."""
    scales, places = np.array(block.scales), np.arange(block.length)
    powers = block.correlation ** abs(places[:, np.newaxis] - places)
    covariances = np.outer(scales, scales) * powers
    covariances[np.diag_indices(block.length)] += block.own
    return float(chain_fits.grown(_ORDER * covariances).sum())


def lower_pair(
    block: Block, *, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the mean of a block's ratios, or None.

    The recursion is below in the increasing convex order, and a profile is no less than
    1 − κ: low sums, and what is missing, may be raised to one number until the mean of
    all is one.

    Args:
        block: The chain.
        tail_mass: Probability that may be left out.
    """
    each = gauss_markov.tail_of_step(tail_mass, block.length)
    highest = gauss_markov.highest_log(block.variance, each)
    if highest > floats.LARGEST_EXPONENT:
        return None
    chain, error = _lower_chain(block, each, highest)
    totals, masses, sum_error = markov_sums.lower_sum(chain, np.array(block.scales))
    ratios = totals / block.length
    error = sum_error + block.length * error + markov_sums.place_error(chain)
    return pair_below(ratios, masses, error)


def pair_below(
    ratios: FloatArray, masses: FloatArray, error: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair below a run, from a law of ratios that is missing some mass.

    Args:
        ratios: (n,) increasing ratios of what was kept.
        masses: (n,) their masses under Q, so that f(κ) = Σ masses · (ratios − κ)₊ is
            at most the profile.
        error: Bound on the relative error of either.

    Returns:
        The pair of max(f, 1 − κ): the lowest ratios are raised to one number until the
        mean is one. None where hardly anything is missing, so that digits are.
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


def _lower_chain(
    block: Block, each: float, highest: float
) -> tuple[markov_sums.Chain, float]:
    """Returns the chain of a block with its grids, and the error of its factors."""
    scale = max(block.scales)
    values, probabilities, _, error = gauss_markov.factors(
        block.own, block.variance, Bound.LOWER, each
    )
    cell = _PLACE * min(math.sqrt(block.variance), 1.0)
    unit = _UNIT * block.length
    last = math.log1p(block.length / unit) + highest
    places = unit * np.expm1(np.arange(0.0, last, cell))
    grid = gauss_markov.states(scale, block.correlation, each, cell=_CELL)
    chain = markov_sums.Chain(
        states=grid,
        correlation=block.correlation,
        scale=scale,
        factors=values,
        probabilities=probabilities,
        lost_factor=0.0,
        places=places,
        length=block.length,
        # Of all states and cells together it is as much as a step's tails.
        smallest_mass=max(
            8 * each / (grid.size * places.size), markov_sums.SMALLEST_MASS
        ),
    )
    return chain, error
