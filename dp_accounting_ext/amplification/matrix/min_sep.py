"""One block of b-min-sep sampling: pairs above what it reveals, from any state.

From a start at u of a block's b steps, a record that is ready takes part in step a ≥ u
with probability p (1 − p)^{a − u}, and in none with (1 − p)^{b − u}:

    A_u = (1 − p)^{b − u} + p S_u,    S_u = X_u + (1 − p) S_{u + 1},    S_b = 0,

with X_a the correlated ratios of the steps. Backwards in time, which a chain does not
tell from forwards, that is one recursion for all u. The pair has a profile that is at
least that of every A_u.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dp_accounting_ext.amplification.matrix import block_chains
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import hinges
from dp_accounting_ext.pairs import profile_pairs

DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the orders of the moments by which chains are chosen, and how coarse chains
# are compared: with cells so many times as wide.
_ORDERS = (1.0, 2.0)
_CELL = 0.1  # Tuning: of states, over the innovation's standard deviation.
_COARSE = 3.0
# Tuning: of longer blocks cells grow with the root of the length, up to the coarsest
# that the quadrature takes, and the first order decides. (128 steps: ε 1 % higher, in
# a quarter of the time.)
_LONG, _COARSEST = 32, 3.0


@dataclasses.dataclass(frozen=True)
class _Chain(markov_sums.Chain):
    """A chain with the variances of a block's ends, symmetric about its middle.

    Attributes:
        heights: (length,) variances of x, the least of them 1.
    """

    heights: tuple[float, ...] = ()

    def variances(self) -> FloatArray:
        return np.array(self.heights)


class _Laws(NamedTuple):
    """Laws of S_u for all u, larger than the true ones, by the steps from u on.

    Attributes:
        masses: (b, l) of the chain's places; row k is of k + 1 steps.
        lost_mean: (b,) bounds on what of the mean of S is at infinity.
        lost_mass: (b,) bounds on the probability that was lost above,
        lifted_mass: (b,) and on that which was lifted from below the lowest state.
        mass_error: Bound on the relative error of any mass.
    """

    masses: FloatArray
    lost_mean: FloatArray
    lost_mass: FloatArray
    lifted_mass: FloatArray
    mass_error: float


def fit(
    products: FloatArray,
    length: int,
    probability: float,
    count: int,
    *,
    delta: float,
) -> block_chains.BlockFit:
    """Returns the chain above a block that suits a composition best, by coarse bounds.

    Args:
        products: (p,) inner products of columns by distance over σ², rounded up.
        length: b ≥ p.
        probability: p, in (0, 1).
        count: Of how many blocks the run is.
        delta: About the δ that is to be asked for.
    """
    found = block_chains.fits(products, length, _ORDERS, is_alone=count == 1)
    if len(found) == 1 or length > _LONG:
        return found[0]

    def epsilon(chain: block_chains.BlockFit) -> float:
        tail = delta / count / 100
        pair = upper_pairs(chain, probability, tail_mass=tail, coarser=_COARSE).remove
        return gauss_markov.composed_epsilon(pair, count, delta)

    return min(found, key=epsilon)


def coarseness(length: int) -> float:
    """Returns how many times as wide cells are for a block of so many steps."""
    return min(max(math.sqrt(length / _LONG), 1.0), _COARSEST)


def upper_pairs(
    chain_fit: block_chains.BlockFit,
    probability: float,
    *,
    tail_mass: float,
    coarser: float = 1.0,
) -> DirectedPairs:
    """Returns pairs that dominate a block of a run from every state.

    Args:
        chain_fit: The chain above the block's ratios.
        probability: p, in (0, 1).
        tail_mass: Probability that may be moved to the sinks.
        coarser: As of `gauss_markov.upper_pairs`.

    Guarantees:
        The profile of each pair, in its direction, is at least that of A_u for every
        u. In the direction REMOVE splits of states raise it; in the direction ADD the
        X_a are divided by the most by which their means may grow, whatever the path.

    Source:
        docs/matrix.md, "A record that stays out for b steps".
    """
    made = _chain_of(chain_fit, tail_mass=tail_mass, coarser=coarser)
    if made is None:
        return DirectedPairs.same(dominating_pair.trivial_pair(Bound.UPPER))
    chain, factor_error = made
    laws = _laws(chain, 1 - probability)
    if chain_fit.shared:
        laws, error = _times_shared(laws, chain, chain_fit.shared, tail_mass, coarser)
        factor_error += error
    mass_error = laws.mass_error + chain.length * factor_error
    ratio_error = markov_sums.place_error(chain) + factor_error
    ratio_error += 8 * (chain.length + 2) * floats.UNIT_ROUNDOFF
    rounding = floats.raised(1 + mass_error)
    absent = np.power(1 - probability, np.arange(1, chain.length + 1))
    shrink = math.exp(-markov_sums.drift(chain))
    removed, added = [], []
    for number, masses in enumerate(laws.masses):
        kept = masses > floats.SMALLEST_MASS
        gone = float(masses[~kept].sum())
        lost = float(laws.lost_mass[number]) + gone
        mean = float(laws.lost_mean[number]) + gone * float(chain.places[-1])
        never = float(absent[number])
        ratios = never + probability * chain.places[kept]
        sink = floats.raised((probability * mean + never * lost) * rounding)
        removed.append(
            hinges.Hinges(ratios, masses[kept], min(sink, 1.0), mass_error, ratio_error)
        )
        lowered = never + probability * shrink * chain.places[kept]
        out = floats.raised((lost + float(laws.lifted_mass[number])) * rounding)
        added.append(
            hinges.Hinges(
                1 / lowered[::-1],
                (lowered * masses[kept])[::-1],
                min(out, 1.0),
                mass_error + ratio_error,
                ratio_error + 32 * floats.UNIT_ROUNDOFF,
            )
        )
    return DirectedPairs(_largest(removed), dominating_pair.dual(_largest(added)))


def _largest(each: Sequence[hinges.Hinges]) -> dominating_pair.DominatingPair:
    """Returns a pair whose profile is at least all of several, of a removed record.

    It is looked at where the last of them, which is the largest but for little, has
    atoms. A convex function is below the lines between its values there.
    """
    places = each[-1].ratios
    values = np.max([hinges.values(places) for hinges in each], axis=0)
    return profile_pairs.pair_above(places, np.maximum(values, profile_pairs.SMALLEST))


def _chain_of(
    chain_fit: block_chains.BlockFit, *, tail_mass: float, coarser: float
) -> tuple[_Chain, float] | None:
    """Returns the chain with its grids, and the error of its factors' masses.

    None where its sums do not fit a float.
    """
    heights = np.array(chain_fit.variances)
    excess = float(heights.max()) - 1
    own, common = floats.raised(chain_fit.own), floats.raised(chain_fit.common)
    variance = own + common * (1 + excess)
    whole = variance + floats.raised(chain_fit.shared)
    if whole > floats.LARGEST_EXPONENT:
        return None
    each = gauss_markov.tail_of_step(tail_mass, chain_fit.length)
    factors, probabilities, lost, error = gauss_markov.factors(
        own, variance, Bound.UPPER, each, coarser=coarser
    )
    scale, correlation = math.sqrt(common), chain_fit.correlation
    chain = _Chain(
        states=gauss_markov.states(
            scale,
            correlation,
            each,
            cell=_CELL * coarser,
            excess=excess,
        ),
        correlation=correlation,
        scale=scale,
        factors=factors,
        probabilities=probabilities,
        lost_factor=lost,
        places=gauss_markov.sum_places(chain_fit.length, whole, each, coarser=coarser),
        length=chain_fit.length,
        excess=excess,
        heights=chain_fit.variances,
    )
    return (chain, error) if markov_sums.fits(chain) else None


def _laws(chain: _Chain, decay: float) -> _Laws:
    """Returns the laws of S after 1, 2, … steps, S → decay · S + ratio.

    As in `markov_sums.upper_sum`, whose guarantees hold for each of them: a value is
    convex and increasing in the sum, and convex in the state.
    """
    states, places = chain.states, chain.places
    added, lost_by_adding = _adders(chain, decay)
    after = np.zeros((states.size, places.size))
    after[0, 0] = 1.0
    top = float(places[-1] + chain.length * chain.ratios[-1])
    lost_mean, lost_mass, lifted = 0.0, 0.0, 0.0
    laws, sums = [], []
    known: tuple[float, ...] = ()
    for step in chain.steps():
        if step != known:
            known, moves = step, _moves_of(chain, *step)
        masses, totals = after.sum(axis=1), after @ places
        lost_mean += float(
            totals @ moves.above + chain.length * (masses @ moves.ratio_above)
        )
        lost_mass += float(masses @ moves.above)
        lifted += float(masses @ moves.below)
        before = moves.matrix.T @ after
        lost_mean += float((before * lost_by_adding).sum())
        after = np.stack(
            [adder @ row for adder, row in zip(added, before, strict=True)]
        )
        small = after < markov_sums.SMALLEST_MASS
        cleared = float(after[small].sum())
        after[small] = 0.0
        lost_mean, lost_mass = lost_mean + cleared * top, lost_mass + cleared
        laws.append(after.sum(axis=0))
        sums.append((lost_mean, lost_mass, lifted))
    operations = states.size + _most_terms(added) + 16
    error = operations * floats.UNIT_ROUNDOFF + 2 * markov_sums.QUADRATURE_ERROR
    means, losses, lifts = floats.raised(1.0) * np.array(sums).T
    return _Laws(np.array(laws), means, losses, lifts, chain.length * error)


def _times_shared(
    laws: _Laws, chain: _Chain, shared: float, tail_mass: float, coarser: float
) -> tuple[_Laws, float]:
    """Returns the laws of S times what all steps share, and the error of its masses.

    Args:
        laws: Of S, of the chain's places.
        chain: The chain.
        shared: B: the factor is e^{g − B/2}, g ~ N(0, B).
        tail_mass: Probability that may be moved to the sinks.
        coarser: As of `gauss_markov.upper_pairs`.
    """
    each = gauss_markov.tail_of_step(tail_mass, 1)
    factors, probabilities, lost, error = gauss_markov.factors(
        shared, shared, Bound.UPPER, each, coarser=coarser
    )
    places = chain.places
    moved, above = markov_sums.split(
        places, np.outer(places, _with_zero(factors)), probabilities
    )
    found = laws._replace(
        masses=np.array([moved @ row for row in laws.masses]),
        lost_mean=laws.lost_mean
        + floats.raised(1.0) * (laws.masses @ (above + lost * places)),
        mass_error=laws.mass_error + (_most_terms([moved]) + 16) * floats.UNIT_ROUNDOFF,
    )
    return found, error


def _moves_of(
    chain: _Chain, slope: float, before: float, variance: float
) -> markov_sums.Moves:
    """Returns the moves of a step. The first one has the slope 0, from any state."""
    shifts = chain.scale * (before - 1) / 2, chain.scale * (variance - 1) / 2
    means = slope * (chain.states + shifts[0]) - shifts[1]
    return markov_sums.moves(chain, means, math.sqrt(variance - slope**2 * before))


def _adders(
    chain: _Chain, decay: float
) -> tuple[Sequence[sparse.csr_matrix], FloatArray]:
    """Returns what each state adds to a sum that decays.

    Returns:
        For each of n states the (l, l) matrix from sums to decay · sum + ratio · W;
        and (n, l) means of what is added above the highest place, or is missing in W.
    """
    factors, before = _with_zero(chain.factors), decay * chain.places[:, np.newaxis]
    found, lost = [], np.empty((chain.states.size, chain.places.size))
    for index, ratio in enumerate(chain.ratios.tolist()):
        sums = before + ratio * factors
        moved, above = markov_sums.split(chain.places, sums, chain.probabilities)
        lost[index] = above + chain.lost_factor * ratio
        found.append(moved)
    return found, lost


def _most_terms(added: Sequence[sparse.csr_matrix]) -> int:
    """Returns of how many products a mass after an addition is the sum, at most."""
    return max(int(np.diff(adder.indptr).max()) for adder in added)


def _with_zero(factors: FloatArray) -> FloatArray:
    """Returns factors and 0, which has the rest of their probabilities."""
    return np.append(factors, 0.0)
