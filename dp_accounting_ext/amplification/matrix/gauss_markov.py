"""Means of correlated Gaussian ratios: one exponential for all correlations.

Z = (1/b) Σ e^{g_i − G_ii/2} with g ~ N(0, G). A larger G, entry by entry, gives a
larger Z in the convex order, and of G_ij = v (A r^|i−j| + (1 − A) 1_{i=j}) the law of Z
is a recursion with two states. From below, blocks of bins are chains with less
covariance than they have, and independent of each other.
"""

import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian

FloatArray = npt.NDArray[np.float64]
Bound = dominating_pair.Bound

# Tuning.
# Of states, over the innovation's standard deviation. With 0.14 ε is 0.2 % higher.
_CELL = 0.1
_WIDEST_CELL, _FEW_BINS = 0.4, 384  # It grows as the root of more bins than so many.
_FACTOR_CELL = 0.155  # Of the factors' logarithms, over the root of the variance.
_CORE, _WIDENING = 2.5, 1.6  # Beyond so many deviations their cells grow by so much.
_PLACE_VARIANCE = 0.02  # Of a cell of sums squared, over the variance of a ratio.
# Cells of sums, over their square, where they are above the bulk. 1e-3 takes a quarter
# more time for 0.02 % of ε, and so do factors' cells of 0.12.
_COARSER = 2e-3
_COARSEST, _WIDER = 0.02, 0.02  # Cells of sums, relatively; each by so much wider.
_HALVINGS = 24  # Of the first cell of sums.
_MOST_EVEN_PLACES = 4000.0  # Of sums up to the bulk; few only for tiny variances.
# To choose between chains: the law of each, with cells so many times as wide.
_COARSE, _COARSE_TAIL = 2.5, 1e-2
MOST_GROWTH = 30.0
# From below: cells of states and factors as above, cells of sums relatively.
# With cells of 0.1 and 0.12 ε is 0.2 % higher, for twice the time.
_LOWER_CELL, _LOWER_FACTOR_CELL, _LOWER_PLACE = 0.12, 0.15, 0.025
_BLOCK_ORDER = 3.0  # Of the moment that decides: 1 gives 0.4 % less for 16 bands.
_MOST_EXPONENT = 600.0
_LEAST_SUM = 1e-4
# Blocks of 53 in place of 28 bins gave 0.1 % more for 64 bands, for half as much time
# again.
_LONGEST_BLOCK, _LENGTHS, _MOST_KINDS = 32, 24, 6
_ALIKE = (1e-9, 1e-3, 1e-2, 3e-2)  # Variances, relatively, of bins taken for alike.
_BLOCK_SLACK = 1e-12  # Certified: more than the rounding of a block's entries.
_LEAST_LOST = 1e-3  # Certified: of mass and mean: a difference keeps its digits.
_NO_NOISE = 1e-6


Fit = chain_fits.Fit


def fit(gram: FloatArray, *, delta: float) -> Fit:
    """Returns the chain that suits a Gram matrix best, by coarse bounds.

    Args:
        gram: (b, b) entries, rounded up, at least 0.
        delta: About the δ that is to be asked for.
    """
    found = chain_fits.candidates(gram)
    if len(found) == 1:
        return found[0]

    def epsilon(chain_fit: Fit) -> float:
        tail_mass = delta * _COARSE_TAIL
        pairs = upper_pairs(chain_fit, tail_mass=tail_mass, coarser=_COARSE)
        return pairs.remove.epsilon(delta, dominating_pair.Direction.REMOVE)

    return min(found, key=epsilon)


def upper_pairs(
    chain_fit: Fit, *, tail_mass: float, coarser: float = 1.0
) -> dominating_pair.DirectedPairs:
    """Returns pairs that dominate the mean of a window's ratios.

    Args:
        chain_fit: The chain.
        tail_mass: Probability that may be moved to the sinks.
        coarser: How many times as wide cells of states and factors are, and how many
            times the variance of a cell of sums is as large.

    Guarantees:
        Each pair dominates in its direction. Splitting states raises the mean of Z, in
        the direction REMOVE on the safe side; in the direction ADD Z is divided by the
        most by which it may grow, whatever the path.
    """
    if chain_fit.variance > MOST_GROWTH**2:
        return dominating_pair.DirectedPairs.same(
            dominating_pair.trivial_pair(Bound.UPPER)
        )
    chain, factor_error = _chain_above(chain_fit, tail_mass=tail_mass, coarser=coarser)
    if not markov_sums.fits(chain):
        return dominating_pair.DirectedPairs.same(
            dominating_pair.trivial_pair(Bound.UPPER)
        )
    law = markov_sums.upper_sum(chain)
    mass_error = law.mass_error + chain.length * factor_error
    rounding = floats.raised(1 + mass_error)
    kept = law.masses > floats.SMALLEST_MASS
    kept[0] = False
    lost = (law.lost_mass + float(law.masses[~kept].sum())) * rounding
    remove = dominating_pair.DominatingPair(
        chain.places[kept] / chain.length,
        law.masses[kept],
        infinity_mass=min(law.lost_mean * rounding / chain.length, 1.0),
        zero_mass=min(lost, 1.0),
        bound=Bound.UPPER,
        mass_error=mass_error,
        ratio_error=markov_sums.place_error(chain) + factor_error,
    )
    shrink = math.exp(-markov_sums.drift(chain))
    add = dataclasses.replace(
        remove,
        ratios=remove.ratios * shrink,
        zero_mass=min(
            remove.zero_mass + floats.raised(law.lifted_mass * (1 + mass_error)), 1.0
        ),
        infinity_mass=max(1 - shrink * float(remove.p_masses.sum()), 0.0),
        ratio_error=remove.ratio_error + 16 * floats.UNIT_ROUNDOFF,
    )
    return dominating_pair.DirectedPairs(remove, add)


@dataclasses.dataclass(frozen=True)
class Block:
    """A chain of neighbours, from below: G′_ij = a_i a_j r^|i−j| + w 1_{i=j}.

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


def cut_into_blocks(gram: FloatArray) -> list[tuple[Block, int]]:
    """Returns blocks of neighbours that suit a Gram matrix from below.

    Bins of about one variance, from the first on, are cut into blocks that are alike,
    what is left into a few others.

    Args:
        gram: (b, b) entries, rounded down.

    Returns:
        Blocks, each with how many of them there are; of all bins together.
    """
    best = _rest(gram, _LONGEST_BLOCK)
    for share in _ALIKE:
        alike = gram.diagonal() >= gram[0, 0] * (1 - share)
        size = len(gram) if alike.all() else int(np.argmin(alike))
        table = np.array([gram[:size, :size].diagonal(d).min() for d in range(size)])
        block = _block_of_many(table)
        number = size // block.length
        left = slice(number * block.length, None)
        found = [(block, number), *_rest(gram[left, left], block.length)]
        best = max(best, found, key=_whole)
    return best


def _whole(blocks: list[tuple[Block, int]]) -> float:
    return math.fsum(count * _total(block) for block, count in blocks)


def _rest(gram: FloatArray, length: int) -> list[tuple[Block, int]]:
    """Returns blocks of bins that differ, of at most some kinds."""
    size = min(len(gram), _MOST_KINDS * _LONGEST_BLOCK)
    alone = gram.diagonal()[size:]
    found = []
    if alone.size:
        found = [(_block_of(alone[[np.argmin(alone)], np.newaxis]), alone.size)]
    if not size:
        return found
    options = []
    for each in {min(length, size), min(max(length, _LONGEST_BLOCK), size)}:
        least = math.ceil(size / each)
        for number in range(least, min(least + 2, size + 1, _MOST_KINDS + 1)):
            ends = np.linspace(0, size, number + 1).astype(int).tolist()
            parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
            options.append([(_block_of(gram[part, part]), 1) for part in parts])
    return max(options, key=_whole) + found


def _block_of_many(table: FloatArray) -> Block:
    """Returns the best block of bins that are alike, by their entries at distances."""
    best, most = Block((math.sqrt(floats.lowered(table[0])),), 0.0, 0.0), 0.0
    longest = min(table.size, _LONGEST_BLOCK)
    lengths = {int(x) for x in np.geomspace(1, longest, _LENGTHS).round()}
    lengths.add(min(int(np.flatnonzero(table)[-1]) + 1, longest))
    for length in sorted(lengths):
        places = np.arange(length)
        block = _block_of(table[abs(places[:, np.newaxis] - places)])
        moment = _total(block) / length
        if moment > most * (1 + 1e-3):
            best, most = block, moment
    return best


def _block_of(gram: FloatArray) -> Block:
    """Returns the best chain with no entry above those of a matrix.

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
    for correlation in chain_fits.CORRELATIONS[10:].tolist():
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
    """Returns Σ_ij (e^{c G′_ij} − 1) with the c that decides."""
    scales, places = np.array(block.scales), np.arange(block.length)
    powers = block.correlation ** abs(places[:, np.newaxis] - places)
    grown = np.outer(scales, scales) * powers
    grown[np.diag_indices(block.length)] += block.own
    return float(np.expm1(np.minimum(_BLOCK_ORDER * grown, _MOST_EXPONENT)).sum())


# Certified: no tail that is asked for is further out, in deviations.
_FURTHEST_NOISE = 38.0


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
    # The largest sums must fit a float.
    furthest = block.variance / 2 + math.sqrt(block.variance) * _FURTHEST_NOISE
    if block.variance > MOST_GROWTH**2 or furthest > floats.LARGEST_EXPONENT:
        return None
    chain, error = _lower_chain(block, tail_mass)
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


def _chain_above(
    chain_fit: Fit, *, tail_mass: float, coarser: float
) -> tuple[markov_sums.Chain, float]:
    """Returns the chain with its grids, and the error of its factors' masses.

    Args:
        chain_fit: The chain.
        tail_mass: Probability that may be moved to the sinks.
        coarser: As of `upper_pairs`.
    """
    variance, share = floats.raised(chain_fit.variance), chain_fit.share
    own = variance * max(1 - share, 0.0)
    # The two variances are to add up to v, and their covariances to be large enough.
    scale, noise = math.sqrt(variance * share), math.sqrt(floats.raised(own))
    length, correlation = chain_fit.length, chain_fit.correlation
    each = max(tail_mass / length / 8, 1e-280)
    reach = -float(special.ndtri(each))
    innovation = math.sqrt((1 - correlation) * (1 + correlation))
    # At its ends a state is that of more variance, less half of a times the excess.
    # The spacing keeps to the cells in which quadrature is certified.
    cell = _CELL * coarser * math.sqrt(max(length / _FEW_BINS, 1.0))
    cell = min(cell, _WIDEST_CELL)
    excess = chain_fit.excess
    reach_x = reach * math.sqrt(1 + excess) + scale * excess / 2
    count = math.ceil((scale + 2 * reach_x) / (cell * innovation)) + 1
    states = np.linspace(-reach_x, scale + reach_x, count)
    scale *= math.sqrt(1 + excess * correlation ** (2 * chain_fit.reach))
    factors, chances, lost, error = np.ones(1), np.ones(1), 0.0, 0.0
    if noise > _NO_NOISE:
        law = gaussian.dominating_pair_of(1 / noise, Bound.UPPER, tail_mass=each)
        factors, chances = _coarse(
            law, noise, _FACTOR_CELL * coarser * math.sqrt(variance)
        )
        lost = law.infinity_mass
        error = law.mass_error + law.ratio_error + 16 * floats.UNIT_ROUNDOFF
    highest = variance / 2 + math.sqrt(variance) * reach
    places = sum_places(length, variance, highest, coarser)
    return (
        markov_sums.Chain(
            states,
            correlation,
            scale,
            factors,
            chances,
            lost,
            places,
            length,
            excess,
            chain_fit.reach,
        ),
        error,
    )


def _lower_chain(block: Block, tail_mass: float) -> tuple[markov_sums.Chain, float]:
    """Returns the chain of a block with its grids, and the error of its factors."""
    variance, scale, noise = block.variance, max(block.scales), math.sqrt(block.own)
    reach = -float(special.ndtri(max(tail_mass / block.length / 8, 1e-280)))
    innovation = math.sqrt((1 - block.correlation) * (1 + block.correlation))
    count = math.ceil((scale + 2 * reach) / (_LOWER_CELL * innovation)) + 1
    states = np.linspace(-reach, scale + reach, count)
    factors, chances, error = np.ones(1), np.ones(1), 0.0
    if noise > _NO_NOISE:
        law = gaussian.dominating_pair_of(
            1 / noise, Bound.LOWER, tail_mass=max(tail_mass / block.length / 8, 1e-280)
        )
        # Cells grow beyond what is common with a record or without one.
        step = _LOWER_FACTOR_CELL * math.sqrt(variance)
        beyond = np.abs(np.log(law.ratios) - noise**2 / 2)
        core = (noise + _CORE) * noise
        numbers = np.minimum(beyond, core) / step
        growth = math.log(_WIDENING)
        numbers += np.log1p(np.maximum(beyond - core, 0.0) / step * growth) / growth
        cells = np.floor(np.copysign(numbers, law.ratios - math.exp(noise**2 / 2)))
        starts = np.flatnonzero(np.diff(cells, prepend=-np.inf))
        chances = np.add.reduceat(law.masses, starts)
        factors = np.add.reduceat(law.p_masses, starts) / chances
        error = 4 * (law.mass_error + law.ratio_error)
        error += 4 * law.masses.size * floats.UNIT_ROUNDOFF
    highest = variance / 2 + math.sqrt(variance) * reach
    logs = np.arange(math.log(_LEAST_SUM), highest, _LOWER_PLACE)
    places = np.append(0.0, block.length * np.exp(logs))
    chain = markov_sums.Chain(
        states,
        block.correlation,
        scale,
        factors,
        chances,
        0.0,
        places,
        block.length,
        smallest_mass=max(
            tail_mass / (states.size * places.size * block.length),
            markov_sums.SMALLEST_MASS,
        ),
    )
    return chain, error


def _coarse(
    law: dominating_pair.DominatingPair, noise: float, step: float
) -> tuple[FloatArray, FloatArray]:
    """Returns ratios and masses of a law whose atoms are split between fewer.

    They are a step apart, in nats, where the noise mostly is, and ever further beyond.
    """
    ends = np.log(law.ratios[[0, -1]])
    inner = np.array([-(noise**2) / 2, noise**2 * 1.5]) + _CORE * noise * np.array(
        [-1, 1]
    )
    inner = np.clip(inner, ends[0], ends[1])
    core = np.linspace(inner[0], inner[1], math.ceil((inner[1] - inner[0]) / step) + 1)
    beyond = step * np.cumsum(_WIDENING ** np.arange(1, 60))
    above = inner[1] + beyond[beyond < ends[1] - inner[1]]
    below = inner[0] - beyond[beyond < inner[0] - ends[0]]
    ratios = np.exp(np.unique(np.concatenate([ends, below, core, above])))
    count = ratios.size
    ratios[[0, -1]] = law.ratios[[0, -1]]
    low = np.searchsorted(ratios, law.ratios, side="right") - 1
    low = np.clip(low, 0, count - 2)
    share = (law.ratios - ratios[low]) / (ratios[low + 1] - ratios[low])
    share = np.clip(share, 0.0, 1.0)
    masses = sums.gather(low, law.masses * (1 - share), count)
    return ratios, masses + sums.gather(low + 1, law.masses * share, count)


def sum_places(
    length: int, variance: float, highest: float, coarser: float
) -> FloatArray:
    """Returns sums from 0 to length · e^highest: even, and then ever further apart."""
    even = math.sqrt(_PLACE_VARIANCE * coarser * math.expm1(min(variance, 40.0)))
    even = min(max(even, length / _MOST_EVEN_PLACES), length / 50)
    top = length * math.exp(min(highest, 300.0))
    growth = _COARSER * coarser
    start = max(length * 1.0, math.sqrt(even * length / growth))
    # Where a record is added a sum of 0 is a loss without bound: hardly any get there.
    least = even / 2.0 ** np.arange(1, _HALVINGS)
    low = np.append(least, np.arange(0.0, start, even))
    # Cells of growth · S² / length, until they are a share of S, which grows as well.
    relative = _COARSEST * coarser
    turn = max(relative * length / growth, start)
    count = math.ceil((1 / start - 1 / turn) * length / growth)
    middle = 1 / np.linspace(1 / start, 1 / turn, count + 2)
    number = math.log1p(math.log(max(top / turn, 2)) / relative * _WIDER) / _WIDER
    logs = relative * np.expm1(_WIDER * np.arange(1, math.ceil(number) + 1)) / _WIDER
    high = turn * np.exp(logs)
    return np.unique(np.concatenate([low, middle, high]))
