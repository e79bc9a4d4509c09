"""Upper bounds on means of correlated Gaussian ratios, by Markov chains.

The likelihood ratio is Z = (1/b) Σ e^{g_i − G_ii/2} with g ~ N(0, G). If every entry of
G grows, Z grows in the convex order. So G is replaced by a larger matrix,
G_ij = v (A r^|i−j| + (1 − A) 1_{i=j}). For this one, g is a Markov chain plus
independent noise, and `markov_sums` computes the law of Z by a recursion over the
chain's state and the sum so far. Lower bounds are in `filtered_bins`.
"""

import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import hinges

# Tuning: the width of a cell of states, in standard deviations of the innovation, and
# that of a cell of a factor's logarithm, in standard deviations of a step's exponent.
# The relative error of ε is about half of the squares of these numbers.
CELL, _FACTOR_CELL = 0.1, 0.1
# Tuning: the states that decide ε are around a + max(a, _DECIDING). Cells are wider
# away from there, by a factor of e at the distance _SPREAD. _WIDEST_CELL is the largest
# width, in standard deviations of the innovation.
_DECIDING, _SPREAD, _WIDEST_CELL = 1.5, 4.0, 0.45
# Tuning: the widest cell of states is at most 1 + _WIDER a times as wide as the
# narrowest one, and at most _WIDEST times. In chains of up to _FEW steps all cells have
# one width.
_WIDER, _WIDEST, _FEW = 3.0, 2.5, 32
# Tuning: the square of the width of a cell of sums, relative to the variance of a
# ratio; and how fast these cells grow beyond the mean.
_PLACE_VARIANCE, _GROWTH = 0.02, 0.006
# Tuning: the variance of a cell of sums is multiplied by _PART v, but by at least 1 and
# at most _MOST_PART, where v is the variance of a step's exponent.
_PART, _MOST_PART = 4.0, 3.0
# Tuning: correlated steps give the sum a larger variance, so wider cells add relatively
# little to it. These are the largest factors by which the variance of a cell of factors
# is raised for this, and that of a cell of sums; and how many times as many steps as
# the factor the chain must have.
_MOST_FACTORS, _MOST_TOGETHER, _MANY = 1.5, 8.0, 10.0
# Tuning: to choose the best of several chains, the ε of each is computed with cells
# that are _COARSE times as wide. (Cells three times as wide chose a worse chain for two
# to four bands.) All chains are used, and none is chosen, if the length of each is at
# most _LITTLE times the variance of its innovation.
_COARSE, _LITTLE = 2.0, 300.0
# Tuning: Rényi orders at which compositions of coarse pairs are compared.
_RENYI = 1 + np.geomspace(0.05, 200.0, 60)
# Tuning: the probability beyond the last states and factors is so many times the tail
# mass. This is about a thousandth of the least δ that is asked for.
_TAILS = 1e4
# Tuning: if the independent noise has a smaller share of the variance, that share is
# added to the chain's.
_NO_NOISE = 1e-9


def of_gram(
    gram: FloatArray,
    *,
    tail_mass: float,
    delta: float,
    count: int = 1,
    probability: float = 1.0,
) -> dominating_pair.DirectedPairs:
    """Returns pairs that dominate the mean of ratios with a Gram matrix.

    Several chains are above the matrix. The one whose ε is the least with wide cells is
    used. If it takes little time, the bounds of all chains are computed, and the result
    is the smallest of them.

    Args:
        gram: (b, b) entries, rounded up, at least 0.
        tail_mass: The probability that may be moved to the sinks, divided by 10,000.
        delta: About the δ that is to be asked for.
        count: The number of runs that are composed.
        probability: The probability that a record takes part in a run.
    """
    chains = chain_fits.candidates(gram)
    if len(chains) == 1:
        return upper_pairs(chains[0], tail_mass=tail_mass)

    def epsilon(chain: chain_fits.Fit) -> float:
        tail = delta / count / 1e6
        pair = upper_pairs(chain, tail_mass=tail, coarser=_COARSE).remove
        if count == 1 and probability == 1:
            return pair.epsilon(delta, Direction.REMOVE)
        return composed_epsilon(pair, count, delta, probability=probability)

    def takes_long(chain: chain_fits.Fit) -> bool:
        # The number of states is about the inverse of the innovation's deviation.
        innovation = (1 - chain.correlation) * (1 + chain.correlation)
        return chain.length > _LITTLE * innovation

    if any(takes_long(chain) for chain in chains):
        return upper_pairs(min(chains, key=epsilon), tail_mass=tail_mass)
    return hinges.minimum([upper_pairs(chain, tail_mass=tail_mass) for chain in chains])


def composed_epsilon(
    pair: dominating_pair.DominatingPair,
    count: int,
    delta: float,
    *,
    probability: float = 1.0,
) -> float:
    """Returns an estimate of the ε of a composition, by its Rényi divergences.

    Args:
        pair: The pair of one part, if a record that takes part in it is removed.
        count: The number of parts.
        delta: δ.
        probability: The probability that a record takes part in a part.
    """
    kept = np.minimum(pair.ratios, pair.masses) > 0
    if not kept.any():
        return math.inf
    ratios = 1 - probability + probability * pair.ratios[kept]
    logs = np.log(ratios)[:, np.newaxis] * _RENYI
    powers = special.logsumexp(logs + np.log(pair.masses[kept, np.newaxis]), axis=0)
    return float(((powers * count - math.log(delta)) / (_RENYI - 1)).min())


def upper_pairs(
    chain_fit: chain_fits.Fit, *, tail_mass: float, coarser: float = 1.0
) -> dominating_pair.DirectedPairs:
    """Returns pairs that dominate the mean of a window's ratios.

    Args:
        chain_fit: The chain.
        tail_mass: The probability that may be moved to the sinks, divided by 10,000.
        coarser: The factor by which cells of states and factors are wider than usual,
            and by which the variance of a cell of sums is larger.

    Guarantees:
        Each pair dominates in its direction. Splitting a state between grid points
        raises the mean of Z. In the direction REMOVE a larger Z is on the safe side. In
        the direction ADD, Z is divided by the largest factor by which the splits may
        raise it, whichever path the chain takes.
    """
    found = _chain_above(chain_fit, tail_mass=tail_mass, coarser=coarser)
    if found is None:
        return dominating_pair.DirectedPairs.same(
            dominating_pair.trivial_pair(Bound.UPPER)
        )
    chain, factor_error = found
    law = markov_sums.upper_sum(chain)
    if chain_fit.shared:
        each = tail_of_step(_TAILS * tail_mass, 1)
        of_all = chain_fit.shared, chain_fit.shared, each
        values, probabilities, missing, error = factors(*of_all, coarser=coarser)
        law = markov_sums.times(chain, law, values, probabilities, missing)
        factor_error += error
    mass_error = law.mass_error + chain.length * factor_error
    rounding = floats.raised(1 + mass_error)
    kept = law.masses > floats.SMALLEST_MASS
    kept[0] = False
    lost = (law.lost_mass + float(law.masses[~kept].sum())) * rounding
    # Splitting raises the mean, so P's mass, which is the mean, is above one.
    raised = hinges.Hinges(
        law.places[kept] / chain.length,
        law.masses[kept],
        infinity_mass=min(law.lost_mean * rounding / chain.length, 1.0),
        mass_error=mass_error,
        ratio_error=markov_chain.place_error(chain) + factor_error,
    )
    shrink = math.exp(-markov_chain.drift(chain))
    ratios = _of_mean_one(raised.ratios * shrink, raised.masses)
    add = dominating_pair.DominatingPair(
        ratios,
        raised.masses,
        infinity_mass=max(1 - float((ratios * raised.masses).sum()), 0.0),
        zero_mass=min(lost + floats.raised(law.lifted_mass * (1 + mass_error)), 1.0),
        bound=Bound.UPPER,
        mass_error=mass_error,
        ratio_error=raised.ratio_error + 16 * floats.UNIT_ROUNDOFF,
    )
    return dominating_pair.DirectedPairs(hinges.least([raised]), add)


def _of_mean_one(ratios: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns min(z, c) for ratios z, with c such that P's mass is at most one.

    States below the grid are lifted to its lowest state. This may raise the mean by
    more than `drift` bounds. In the direction ADD smaller ratios give an upper bound,
    as (1 − κ z)₊ decreases in z.

    Args:
        ratios: (n,) ratios, increasing.
        masses: (n,) Q's masses.
    """
    p_below = np.append(0.0, np.cumsum(ratios * masses)[:-1])
    largest = (1 - p_below) / np.cumsum(masses[::-1])[::-1]
    beyond = np.flatnonzero(ratios > largest)
    if not beyond.size:
        return ratios
    capped: FloatArray = np.minimum(ratios, largest[beyond[0]])
    return capped


def _chain_above(
    chain_fit: chain_fits.Fit, *, tail_mass: float, coarser: float
) -> tuple[markov_chain.Chain, float] | None:
    """Returns the chain with its grids, and the error of its factors' masses.

    Args:
        chain_fit: The chain.
        tail_mass: The same as in `upper_pairs`.
        coarser: The same as in `upper_pairs`.

    Returns:
        Both, or None if the largest sums do not fit a float.
    """
    variance, share = floats.raised(chain_fit.variance), chain_fit.share
    whole = variance + chain_fit.shared
    if whole > floats.LARGEST_EXPONENT:
        return None
    if 1 - share < _NO_NOISE:
        share = 1.0
    # The variances of the noise and of the chain must add up to at least v, and the
    # chain's covariances must not be too small.
    own = floats.raised(variance * (1 - share))
    scale, excess = math.sqrt(variance * share), chain_fit.excess
    each = tail_of_step(_TAILS * tail_mass, chain_fit.length)
    times = together(chain_fit)
    values, probabilities, lost, error = factors(
        own,
        variance,
        each,
        coarser=coarser * math.sqrt(min(times, _MOST_FACTORS)),
    )
    correlation = chain_fit.correlation
    grid = states(
        scale,
        correlation,
        each,
        cell=CELL * coarser,
        excess=excess,
        # If there are few bins or the ratios vary little, the direction ADD has about
        # as large a bound, and that bound depends on the widest cell.
        widest=min(1 + _WIDER * scale, _WIDEST) if chain_fit.length > _FEW else 1.0,
    )
    places = sum_places(
        (chain_fit.length + 1) // 2,
        whole,
        each,
        coarser=coarser,
        together=times * min(max(_PART * variance, 1.0), _MOST_PART),
    )
    chain = markov_chain.Chain(
        states=grid,
        correlation=correlation,
        scale=scale,
        factors=values,
        probabilities=probabilities,
        lost_factor=lost,
        places=places,
        length=chain_fit.length,
        excess=excess,
        factor_gap=1.0 if times > 1 else 0.0,
        # All masses of a step that are dropped sum to at most the tail of a step.
        smallest_mass=max(each / (grid.size * places.size), markov_chain.SMALLEST_MASS),
    )
    return (chain, error) if markov_chain.fits(chain) else None


def together(chain_fit: chain_fits.Fit) -> float:
    """Returns about the sum's variance over that of a sum of independent steps."""
    powers = np.power(chain_fit.correlation, np.arange(1.0, chain_fit.length))
    variance = min(chain_fit.variance, 40.0)
    added = chain_fits.grown(variance * chain_fit.share * powers)
    times = 1 + 2 * float(added.sum()) / math.expm1(variance)
    # For few bins that are nearly independent, low sums matter in the direction ADD,
    # and need narrow cells.
    return min(times, _MOST_TOGETHER) if chain_fit.length >= _MANY * times else 1.0


def tail_of_step(tail_mass: float, length: int) -> float:
    """Returns the probability that may be lost in one tail of a state or a factor."""
    return max(tail_mass / length / 8, 1e-280)


def _reach(each: float) -> float:
    """Returns the number of standard deviations beyond which a tail has this mass."""
    return -float(special.ndtri(each))


def highest_log(variance: float, each: float) -> float:
    """Returns the logarithm of the ratio beyond which P has the given tail mass."""
    return variance / 2 + math.sqrt(variance) * _reach(each)


def states(
    scale: float,
    correlation: float,
    each: float,
    *,
    cell: float,
    excess: float = 0.0,
    widest: float = 1.0,
) -> FloatArray:
    """Returns the grid of states.

    It reaches from the lower tail of x under Q to the upper tail under P, which moves x
    by up to a. The cells are narrowest where x is if the sum is large.

    Args:
        scale: a.
        correlation: r.
        each: The probability that may be beyond the grid on either side.
        cell: The narrowest width of a cell, in standard deviations of the innovation.
        excess: The largest e by which the variance of x exceeds one, near both ends of
            the chain. The states there are x − a e / 2.
        widest: The largest ratio of a cell's width to the narrowest one.
    """
    reach = _reach(each) * math.sqrt(1 + excess) + scale * excess / 2
    innovation = math.sqrt((1 - correlation) * (1 + correlation))
    ends = np.linspace(-reach, scale + reach, 1 << 12)
    middles = (ends[1:] + ends[:-1]) / 2
    away = (middles - scale - max(scale, _DECIDING)) / _SPREAD
    wider = np.minimum(np.exp(away**2), max(min(widest, _WIDEST_CELL / cell), 1.0))
    counts = np.append(0.0, np.cumsum(np.diff(ends) / (cell * innovation * wider)))
    numbers = np.linspace(0.0, counts[-1], math.ceil(counts[-1]) + 1)
    return np.asarray(np.interp(numbers, counts, ends))


def factors(
    own: float, variance: float, each: float, *, coarser: float = 1.0
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns a law with few atoms that is above that of e^{g − w/2} for g ~ N(0, w).

    Every value is split between the ends of its cell.

    Args:
        own: w, the variance of the independent noise of a step.
        variance: The variance of a step's whole exponent. The cells' widths are in
            proportion to its root.
        each: The probability that may be lost on either side.
        coarser: The factor by which cells are wider than usual.

    Returns:
        (m,) the atoms; (m,) their masses; the amount by which their mean is below one;
        and a bound on the relative error of any of these.
    """
    if own <= _NO_NOISE * variance:
        return np.ones(1), np.ones(1), 0.0, 0.0
    noise = math.sqrt(own)
    law = gaussian.dominating_pair_of(1 / noise, Bound.UPPER, tail_mass=each)
    # Cells have one width in the bulk of the noise under P and Q. Further out, their
    # width is in proportion to the distance.
    step, even = _FACTOR_CELL * coarser * math.sqrt(variance), (noise + 1.5) * noise
    numbers = np.arcsinh((np.log(law.ratios) - own / 2) / even) * even / step
    error = 4 * (law.mass_error + law.ratio_error)
    error += 4 * (law.masses.size + 4) * floats.UNIT_ROUNDOFF
    whole = np.arange(math.floor(numbers[0]) + 1, math.ceil(numbers[-1]))
    inner = np.exp(own / 2 + even * np.sinh(whole * step / even))
    lowest, highest = law.ratios[[0, -1]]
    inner = inner[(inner > lowest) & (inner < highest)]
    factors = np.concatenate([[lowest], inner, [highest]])
    low = np.searchsorted(factors, law.ratios, side="right") - 1
    low = np.clip(low, 0, factors.size - 2)
    share = (law.ratios - factors[low]) / (factors[low + 1] - factors[low])
    share = np.clip(share, 0.0, 1.0)
    probabilities = sums.gather(low, law.masses * (1 - share), factors.size)
    probabilities += sums.gather(low + 1, law.masses * share, factors.size)
    return factors, probabilities, law.infinity_mass, error


def sum_places(
    length: int,
    variance: float,
    each: float,
    *,
    coarser: float = 1.0,
    together: float = 1.0,
) -> FloatArray:
    """Returns a grid of sums from 0 on, with wider cells beyond the mean.

    Args:
        length: The number of ratios in the sum, which is also its mean.
        variance: The variance of a ratio's exponent.
        each: The probability that may be lost beyond the highest point.
        coarser: The factor by which the variance of a cell is larger than usual.
        together: The ratio of the sum's variance to that of independent ratios.
    """
    part = _PLACE_VARIANCE * coarser * max(together / 2.5, 1.0)
    even = math.sqrt(part * math.expm1(min(variance, 40.0)))
    # There are 50 to 4000 cells below the mean.
    even = min(max(even, length / 4000), length / 50)
    highest = min(highest_log(variance, each), 300.0)
    logs = np.linspace(0.0, highest, 1 << 14)
    sums = length * np.exp(logs)
    # `counts` is the number of cells up to each of these sums.
    widths = even + _GROWTH * coarser * sums * logs
    counts = np.cumsum(np.diff(sums) / widths[1:])
    numbers = np.arange(0.0, math.ceil(counts[-1]) + 1)
    high = np.interp(numbers, np.append(0.0, counts), sums)
    # In the direction ADD the loss is infinite at the sum 0. These points close to 0
    # keep the mass there tiny.
    least = even / 2.0 ** np.arange(1, 24)
    return np.unique(
        np.concatenate([[0.0], least, np.arange(even, length, even), high])
    )
