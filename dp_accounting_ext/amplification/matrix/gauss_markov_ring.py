"""Bins on a circle from above, where a record is removed: a chain that is closed.

A chain on a line leaves out a band of bins where the circle is cut. Closed, it leaves
out none: where bands are many for the bins this is most of what a bracket was wide.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.amplification.matrix import ring_sums
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Tuning.
# A bridge is drawn to its end as far as r^{2t} is above this.
_SMALLEST_PULL = 2e-4
# Cells of states and sums, and of factors, over those of a chain on a line.
_COARSER, _COARSER_FACTORS = 1.8, 0.7
_NODE, _FAR_NODE = 0.5, 1.0  # Between nodes where losses are, and elsewhere.
_MOST_BINS, _MOST_WORK = 256, 2e11  # Products: about 10 s.
_DENSITIES = 2000.0  # Products that take as long as a move's share by quadrature.
_LEAST_GAIN = 0.98  # Of the moment, over that of a chain on a line.
_ORDER = 2.0  # Of that moment, as in `chain_fits`.


def remove_pair(
    gram: FloatArray, line: chain_fits.Fit, *, delta: float, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that dominates the run where a record is removed.

    Args:
        gram: (b, b) entries, rounded up, at least 0.
        line: The chain on a line that a closed one has to be better than.
        delta: About the δ that is to be asked for.
        tail_mass: Probability that may be moved to the sinks.

    Returns:
        The pair; or None where a chain on a line does as well, or time would be long.

    Guarantees:
        E (Z − κ)₊ of the pair is at least that of the run, for all κ.
    """
    bins, variance = len(gram), float(gram.diagonal().max())
    if not 4 <= bins <= _MOST_BINS or line.length == bins:
        return None
    fitted = fit(gram)
    if fitted is None:
        return None
    chain_fit, reach, least = fitted
    gain = _moment(chain_fit) / chain_fits.moment(line, _ORDER)
    if gain > _LEAST_GAIN or variance > gauss_markov.MOST_GROWTH**2:
        return None
    chain, factor_error = gauss_markov.chain_above(
        chain_fit,
        tail_mass=tail_mass,
        coarser=_COARSER,
        coarser_factors=_COARSER_FACTORS,
    )
    ring = ring_sums.Ring(chain, _nodes(chain.states, delta), reach)
    if _products(ring) > _MOST_WORK or not markov_sums.fits(chain):
        return None
    # Where an x_i varies by less than one, its ratio is above what the chain adds.
    grown = math.exp(floats.raised(chain.scale**2 * (1 - least) / 2))
    law = ring_sums.upper_sum(ring)
    return gauss_markov.removed(chain, law, factor_error, grown=max(grown, 1.0))


def _products(ring: ring_sums.Ring) -> float:
    """Returns the number of products: of moves, additions, and both arcs' sums."""
    states, places = ring.chain.states.size, ring.chain.places.size
    steps = ring.chain.length // 2 + 1
    added = ring.chain.factors.size * (4.0 * ring.chain.length + ring.nodes.size)
    moved = states * (steps * places + min(steps, ring.reach) * _DENSITIES)
    return (moved + (added + places) * places) * states * ring.nodes.size


def fit(gram: FloatArray) -> tuple[chain_fits.Fit, int, float] | None:
    """Returns the best closed chain that is above a Gram matrix, if there is one.

    Returns:
        The chain, of as many bins as the matrix; the number of steps that are drawn to
        where it is closed; and the least variance of its states.
    """
    around = chain_fits.largest_by_distance(gram, circle=True)
    if not around[1:].any():
        return None
    coarse = _best(around, chain_fits.CORRELATIONS[1:])
    if coarse is None:
        return None
    near = coarse[0].correlation + chain_fits.FINER
    return _best(around, near[(near > 0) & (near < 1)])


def _best(
    around: FloatArray, correlations: FloatArray
) -> tuple[chain_fits.Fit, int, float] | None:
    """Returns the best closed chain of these r, as `fit` does."""
    best, least = None, math.inf
    for correlation in correlations.tolist():
        reach = math.ceil(math.log(_SMALLEST_PULL) / 2 / math.log(correlation))
        found = _above(around, correlation, reach)
        cost = math.inf if found is None else _moment(found[0])
        if found is not None and cost < least:
            best, least = (found[0], reach, found[1]), cost
    return best


def _above(
    around: FloatArray, correlation: float, reach: int
) -> tuple[chain_fits.Fit, float] | None:
    """Returns the chain with this r, and the least variance of its states.

    Args:
        around: (b,) largest entries at each distance, on the circle.
        correlation: r.
        reach: Number of steps that are drawn to where it is closed.
    """
    bins, variance = around.size, float(around[0])
    places = np.arange(bins)
    occupied = np.flatnonzero(around[1:]) + 1
    nearest = np.minimum(occupied, bins - occupied)
    if (around[occupied] > variance * correlation**nearest * (1 + 1e-3)).any():
        return None
    covariance = ring_sums.covariance(correlation, bins, reach)
    needed = around[abs(places[:, np.newaxis] - places)] / variance
    needed[np.diag_indices(bins)] = 0.0
    apart = needed > 0
    if not covariance[apart].all():
        return None
    share = floats.raised(float((needed[apart] / covariance[apart]).max()), 1e-12)
    if share > 1:
        return None
    # What the chain lacks of the variance its noise has.
    least = floats.lowered(float(covariance.diagonal().min()), 1e-12)
    own = max(1 - share * least, 0.0)
    whole = floats.raised(variance * (share + own), 1e-14)
    fitted = chain_fits.Fit(whole, share / (share + own), correlation, bins)
    return fitted, least


def _moment(chain: chain_fits.Fit) -> float:
    """Returns the second moment of a closed chain, as `chain_fits.moment` does."""
    power, bins = _ORDER * chain.variance, chain.length
    distances = np.minimum(np.arange(1, bins), bins - np.arange(1, bins))
    cross = np.expm1(
        np.minimum(power * chain.share * chain.correlation**distances, 600)
    )
    return (math.expm1(min(power, 600.0)) + float(cross.sum())) / bins


def _nodes(states: FloatArray, delta: float) -> npt.NDArray[np.intp]:
    """Returns which states c is split between: more where losses of about δ are."""
    furthest = max(-float(special.ndtri(min(delta, 0.1))) + 1, 2.0)
    near = np.arange(0.0, furthest, _NODE)
    far = np.concatenate(
        [
            np.arange(-1.0, states[0], -2 * _FAR_NODE),
            np.arange(furthest, states[-1], _FAR_NODE),
        ]
    )
    inner = np.searchsorted(states, np.concatenate([near, far]))
    ends = [0, states.size - 1]
    return np.unique(np.append(np.clip(inner, 0, ends[1]), ends))
