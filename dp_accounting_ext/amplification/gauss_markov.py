"""Means of correlated Gaussian ratios: one exponential for all correlations.

Z = (1/b) Σ e^{g_i − G_ii/2} with g ~ N(0, G). A larger G, entry by entry, gives a
larger Z in the convex order, and of G_ij = v (A r^|i−j| + (1 − A) 1_{i=j}) the law of Z
is a recursion with two states. From below, blocks of bins are chains with less
covariance than they have, and independent of each other.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import markov_sums
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

FloatArray = npt.NDArray[np.float64]
Bound = dominating_pair.Bound

# Tuning.
_CELL = 0.14  # Of states, over the innovation's standard deviation.
_WIDEST_CELL, _FEW_BINS = 0.28, 256  # It grows as the root of more bins than so many.
_FACTOR_CELL = 0.155  # Of the factors' logarithms, over the root of the variance.
_PLACE_VARIANCE = 0.03  # Of a cell of sums squared, over the variance of a ratio.
_COARSER = 1e-3  # Cells of sums, over their square, where they are above the bulk.
_COARSEST = 0.02  # Cells of sums, relatively.
_MOST_PLACES = 1000.0  # Of sums far above the bulk.
_MOST_EVEN_PLACES = 4000.0  # Of sums up to the bulk; few only for tiny variances.
_CORRELATIONS = np.concatenate(
    [np.linspace(0.0, 0.9, 91), np.linspace(0.905, 0.98, 16)]
)
_MOST_GROWTH = 30.0
# From below: cells of states and factors as above, cells of sums relatively.
_LOWER_CELL, _LOWER_FACTOR_CELL, _LOWER_PLACE = 0.15, 0.25, 0.03
_LEAST_SUM = 1e-4
_LONGEST_BLOCK = 24
_LEAST_LOST = 1e-3  # Certified: of mass and mean: a difference keeps its digits.
_NO_NOISE = 1e-6


@dataclasses.dataclass(frozen=True)
class Fit:
    """A chain whose covariance is nowhere less than that of any window of bins.

    Or, from below, nowhere more than that of any block.

    Attributes:
        variance: v.
        share: A, in [0, 1].
        correlation: r.
        length: Number of bins in a window.
    """

    variance: float
    share: float
    correlation: float
    length: int


def fit(gram: FloatArray) -> Fit:
    """Returns the chain that suits a Gram matrix.

    The mean over all b bins is the mean over all windows of l neighbours, on a circle,
    of the window's mean: by Jensen's inequality the worst window dominates it.

    Args:
        gram: (b, b) entries, rounded up, at least 0.
    """
    bins = len(gram)
    variance = float(gram.diagonal().max())
    around = _largest_by_distance(gram, circle=True) / variance
    along = _largest_by_distance(gram, circle=False) / variance
    cuts = {int(cut) for cut in np.geomspace(1, bins, 24)}
    beyond = np.flatnonzero(around[1 : bins // 2 + 1] > 0)
    cuts.add(int(beyond[-1]) + 2 if beyond.size else 1)
    # A window of one bin is always one: what is known without amplification.
    best, least = Fit(variance, 0.0, 0.0, 1), math.inf
    for cut in sorted(cuts):
        table = along if cut == 1 else around[: bins - cut + 1]
        for correlation in _CORRELATIONS:
            share = _share(table, float(correlation))
            if share > 1:
                continue
            found = Fit(variance, share, float(correlation), table.size)
            cost = _second_moment(found)
            if cost < least:
                best, least = found, cost
    return best


def upper_pairs(chain_fit: Fit, *, tail_mass: float) -> dominating_pair.DirectedPairs:
    """Returns pairs that dominate the mean of a window's ratios.

    Args:
        chain_fit: The chain.
        tail_mass: Probability that may be moved to the sinks.

    Guarantees:
        Each pair dominates in its direction. Splitting states raises the mean of Z, in
        the direction REMOVE on the safe side; in the direction ADD Z is divided by the
        most by which it may grow, whatever the path.
    """
    if chain_fit.variance > _MOST_GROWTH**2:
        return dominating_pair.DirectedPairs.same(
            dominating_pair.trivial_pair(Bound.UPPER)
        )
    chain, factor_error = _chain(chain_fit, tail_mass)
    law = markov_sums.upper_sum(chain)
    shrink = math.exp(-markov_sums.drift(chain))
    ratios = chain.places / chain_fit.length
    mass_error = law.mass_error + chain_fit.length * factor_error
    rounding = floats.raised(1 + mass_error)
    kept = law.masses > floats.SMALLEST_MASS
    kept[0] = False
    lost = (law.lost_mass + float(law.masses[~kept].sum())) * rounding
    remove = dominating_pair.DominatingPair(
        ratios[kept],
        law.masses[kept],
        infinity_mass=min(law.lost_mean * rounding / chain_fit.length, 1.0),
        zero_mass=min(lost, 1.0),
        bound=Bound.UPPER,
        mass_error=mass_error,
        ratio_error=markov_sums.place_error(chain) + factor_error,
    )
    add = dataclasses.replace(
        remove,
        ratios=remove.ratios * shrink,
        zero_mass=min(lost + law.lifted_mass * rounding, 1.0),
        infinity_mass=max(1 - shrink * float(remove.p_masses.sum()), 0.0),
        ratio_error=remove.ratio_error + 16 * floats.UNIT_ROUNDOFF,
    )
    return dominating_pair.DirectedPairs(remove, add)


def fit_blocks(gram: FloatArray) -> Fit:
    """Returns the chain that suits blocks of neighbours, from below.

    Args:
        gram: (b, b) entries of bins with about one variance, rounded down.
    """
    bins = len(gram)
    variance = float(gram.diagonal().min())
    least = [float(gram.diagonal(d).min()) for d in range(min(bins, _LONGEST_BLOCK))]
    table = np.array(least) / variance
    best, most = Fit(variance, 0.0, 0.0, 1), 0.0
    for length in range(1, table.size + 1):
        for correlation in _CORRELATIONS[10:]:
            powers = correlation ** np.arange(1, length)
            share = float((table[1:length] / powers).min(initial=1.0))
            found = Fit(variance, floats.lowered(share), float(correlation), length)
            moment = _second_moment(found) * length
            if moment > most * (1 + 1e-3):
                best, most = found, moment
    return best


def lower_pair(
    block: Fit, *, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the mean of a block's ratios, or None.

    The recursion is below in the increasing convex order, and a profile is no less than
    1 − κ: low sums, and what is missing, may be raised to one number until the mean of
    all is one.

    Args:
        block: The chain.
        tail_mass: Probability that may be left out.
    """
    if block.variance > _MOST_GROWTH**2:
        return None
    chain, error = _lower_chain(block, tail_mass)
    totals, masses, sum_error = markov_sums.lower_sum(chain)
    ratios = totals / block.length
    error = sum_error + block.length * error + markov_sums.place_error(chain)
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


def _largest_by_distance(gram: FloatArray, *, circle: bool) -> FloatArray:
    """Returns (b,) largest entries at each distance between two bins."""
    bins = len(gram)
    largest = np.zeros(bins)
    rows = np.arange(bins)
    for distance in range(bins):
        columns = (rows + distance) % bins
        values = gram[rows, columns]
        largest[distance] = (values if circle else values[: bins - distance]).max()
    return largest


def _share(table: FloatArray, correlation: float) -> float:
    """Returns the least A with A r^d ≥ ρ_d at all distances d ≥ 1, raised."""
    occupied = np.flatnonzero(table[1:] > 0) + 1
    if not occupied.size:
        return 0.0
    if correlation == 0:
        return math.inf
    logs = np.log(table[occupied]) - occupied * math.log(correlation)
    return floats.raised(floats.exponential(float(logs.max())))


def _second_moment(chain_fit: Fit) -> float:
    distances = np.arange(1, chain_fit.length)
    covariances = chain_fit.share * chain_fit.correlation**distances
    cross = np.expm1(np.minimum(chain_fit.variance * covariances, 600.0))
    own = math.expm1(min(chain_fit.variance, 600.0))
    total = own + 2 * float(((1 - distances / chain_fit.length) * cross).sum())
    return total / chain_fit.length


def _chain(chain_fit: Fit, tail_mass: float) -> tuple[markov_sums.Chain, float]:
    """Returns the chain with its grids, and the error of its factors' masses."""
    variance, share = floats.raised(chain_fit.variance), chain_fit.share
    own = variance * max(1 - share, 0.0)
    # The two variances are to add up to v, and their covariances to be large enough.
    scale, noise = math.sqrt(variance * share), math.sqrt(floats.raised(own))
    length, correlation = chain_fit.length, chain_fit.correlation
    each = max(tail_mass / length / 8, 1e-280)
    reach = -float(special.ndtri(each))
    innovation = math.sqrt((1 - correlation) * (1 + correlation))
    # The spacing keeps to the cells in which quadrature is certified.
    cell = min(_CELL * math.sqrt(max(length / _FEW_BINS, 1.0)), _WIDEST_CELL)
    count = math.ceil((scale + 2 * reach) / (cell * innovation)) + 1
    states = np.linspace(-reach, scale + reach, count)
    factors, chances, lost, error = np.ones(1), np.ones(1), 0.0, 0.0
    if noise > _NO_NOISE:
        law = gaussian.dominating_pair_of(1 / noise, Bound.UPPER, tail_mass=each)
        factors, chances = _coarse(law, _FACTOR_CELL * math.sqrt(variance))
        lost = law.infinity_mass
        error = law.mass_error + law.ratio_error + 16 * floats.UNIT_ROUNDOFF
    highest = variance / 2 + math.sqrt(variance) * reach
    places = _places(length, variance, highest)
    return (
        markov_sums.Chain(
            states, correlation, scale, factors, chances, lost, places, length
        ),
        error,
    )


def _lower_chain(block: Fit, tail_mass: float) -> tuple[markov_sums.Chain, float]:
    """Returns the chain of a block with its grids, and the error of its factors."""
    variance = floats.lowered(block.variance)
    scale = math.sqrt(variance * block.share)
    noise = math.sqrt(variance * (1 - block.share))
    reach = -float(special.ndtri(max(tail_mass / block.length / 8, 1e-280)))
    innovation = math.sqrt((1 - block.correlation) * (1 + block.correlation))
    count = math.ceil((scale + 2 * reach) / (_LOWER_CELL * innovation)) + 1
    states = np.linspace(-reach, scale + reach, count)
    factors, chances, error = np.ones(1), np.ones(1), 0.0
    if noise > _NO_NOISE:
        law = gaussian.dominating_pair_of(
            1 / noise, Bound.LOWER, tail_mass=max(tail_mass / block.length / 8, 1e-280)
        )
        step = _LOWER_FACTOR_CELL * math.sqrt(variance)
        cells = np.floor(np.log(law.ratios / law.ratios[0]) / step)
        starts = np.flatnonzero(np.diff(cells, prepend=-1.0))
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
    )
    return chain, error


def _coarse(
    law: dominating_pair.DominatingPair, step: float
) -> tuple[FloatArray, FloatArray]:
    """Returns ratios so far apart, in nats, and masses: each atom is split."""
    count = max(math.ceil(law.loss_range() / step), 1) + 1
    ends = np.log(law.ratios[[0, -1]])
    ratios = np.exp(np.linspace(ends[0], ends[1], count))
    ratios[[0, -1]] = law.ratios[[0, -1]]
    low = np.searchsorted(ratios, law.ratios, side="right") - 1
    low = np.clip(low, 0, count - 2)
    share = (law.ratios - ratios[low]) / (ratios[low + 1] - ratios[low])
    share = np.clip(share, 0.0, 1.0)
    masses = sums.gather(low, law.masses * (1 - share), count)
    return ratios, masses + sums.gather(low + 1, law.masses * share, count)


def _places(length: int, variance: float, highest: float) -> FloatArray:
    """Returns sums from 0 to length · e^highest: even, and then ever further apart."""
    even = math.sqrt(_PLACE_VARIANCE * math.expm1(min(variance, 40.0)))
    even = min(max(even, length / _MOST_EVEN_PLACES), length / 50)
    top = length * math.exp(min(highest, 300.0))
    start = max(length * 1.0, math.sqrt(even * length / _COARSER))
    low = np.arange(0.0, start, even)
    # Cells of _COARSER · S² / length, until they are a share of S.
    relative = max(_COARSEST, highest / _MOST_PLACES)
    turn = max(relative * length / _COARSER, start)
    count = math.ceil((1 / start - 1 / turn) * length / _COARSER)
    middle = 1 / np.linspace(1 / start, 1 / turn, count + 2)
    high = turn * np.exp(
        relative * np.arange(1, math.ceil(math.log(max(top / turn, 2)) / relative) + 1)
    )
    return np.unique(np.concatenate([low, middle, high]))
