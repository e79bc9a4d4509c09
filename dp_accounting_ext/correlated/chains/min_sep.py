"""Upper pairs for one block of b-min-sep sampling.

A record that becomes ready at step u of a block's b steps takes part in step a ≥ u with
probability p (1 − p)^{a − u}, and in no step of the block with probability
(1 − p)^{b − u}. Let X_a be the likelihood ratio of taking part in step a. The ratios of
different steps are correlated. The likelihood ratio of the block is

    A_u = (1 − p)^{b − u} + p S_u,    S_u = X_u + (1 − p) S_{u + 1},    S_b = 0.

A Markov chain has the same law backwards in time. So one recursion, from the last step
to the first, computes the laws of S_u for all u. The pair that is returned has a
profile of at least that of every A_u.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import block_chains
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import state_moves
from dp_accounting_ext.correlated.chains import sum_additions
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import hinges
from dp_accounting_ext.pairs import profile_pairs

DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the orders of the moments by which chains are chosen.
_ORDERS = (1.0, 2.0)
_CELL = 0.1  # Tuning: the width of a cell of states, in standard deviations of a move.
# Tuning: cells are this many times as wide when chains are compared.
_COARSE = 3.0
# Tuning: for longer blocks, only the first order is used, and cells grow with the root
# of the length, up to this factor, at which the quadrature is still certified. With 128
# steps ε is 1 % higher, in a quarter of the time.
_LONG, _COARSEST = 32, 3.0
# Tuning: for blocks of up to so many steps, no matrices of additions are made.
_FEW = 3


@dataclasses.dataclass(frozen=True)
class _Chain(markov_chain.Chain):
    """A chain whose states have larger variances near both ends of the block.

    Attributes:
        heights: (length,) variances of x, symmetric about the middle. The least is 1.
    """

    heights: tuple[float, ...] = ()

    def variances(self) -> FloatArray:
        return np.array(self.heights)


class _Laws(NamedTuple):
    """Upper laws of S_u for all u. Index k of an array is for u = b − 1 − k.

    Attributes:
        masses: (b, l) masses of the chain's l places.
        lost_mean: (b,) bounds on the part of the mean of S that was moved to infinity.
        lost_mass: (b,) bounds on the probability that was moved to infinity.
        lifted_mass: (b,) bounds on the probability that was moved up to the lowest
            state.
        mass_error: A bound on the relative error of any mass.
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
    """Returns the chain above a block with the smallest ε of the run.

    Chains are compared by rough bounds.

    Args:
        products: (m,) inner products of columns by distance over σ², rounded up.
        length: The number b ≥ m of steps of a block.
        probability: The probability p, in (0, 1).
        count: The number of blocks of the run.
        delta: The approximate δ of later queries.
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
    """Returns the factor by which cells are wider for a block of some length."""
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
        probability: The probability p, in (0, 1).
        tail_mass: The probability that may be moved to the sinks.
        coarser: As in `gauss_markov.upper_pairs`.

    Guarantees:
        The profile of each pair, in its direction, is at least that of A_u for every
        u. In the direction REMOVE, rounding states to the grid only raises the profile.
        In the direction ADD, the sums are divided by a bound on the factor by which
        this rounding raises the mean of any X_a.

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
    ratio_error = markov_chain.place_error(chain) + factor_error
    ratio_error += 8 * (chain.length + 2) * floats.UNIT_ROUNDOFF
    rounding = floats.raised(1 + mass_error)
    absent = np.power(1 - probability, np.arange(1, chain.length + 1))
    shrink = math.exp(-markov_chain.drift(chain))
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
    """Returns a pair with H(P‖Q) of at least the largest of several bounds.

    The bounds are compared at the atoms of the last one, which is nearly the largest
    everywhere. Between two atoms, a convex function is below the line through its
    values there.
    """
    places = each[-1].ratios
    values = np.max([hinges.values(places) for hinges in each], axis=0)
    return profile_pairs.pair_above(places, np.maximum(values, profile_pairs.SMALLEST))


def _chain_of(
    chain_fit: block_chains.BlockFit, *, tail_mass: float, coarser: float
) -> tuple[_Chain, float] | None:
    """Returns the chain with its grids, and the error of its factors' probabilities.

    The result is None if sums do not fit a float.
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
        own, variance, each, coarser=coarser
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
    return (chain, error) if markov_chain.fits(chain) else None


def _laws(chain: _Chain, decay: float) -> _Laws:
    """Returns the laws of S after 1, 2, … steps, each of which adds a ratio.

    A step multiplies S by `decay` before it adds its ratio. The guarantees of
    `markov_sums.upper_sum` hold for each law, for the same reason: a convex increasing
    function of the final sum is convex and increasing in the sum so far, and convex in
    the state.
    """
    states, places = chain.states, chain.places
    add_ratio, most_terms = _adding(chain, decay)
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
        after, lost = add_ratio(before)
        lost_mean += lost
        small = after < markov_chain.SMALLEST_MASS
        cleared = float(after[small].sum())
        after[small] = 0.0
        lost_mean, lost_mass = lost_mean + cleared * top, lost_mass + cleared
        laws.append(after.sum(axis=0))
        sums.append((lost_mean, lost_mass, lifted))
    operations = states.size + most_terms + 16
    error = operations * floats.UNIT_ROUNDOFF + 2 * state_moves.QUADRATURE_ERROR
    means, losses, lifts = floats.raised(1.0) * np.array(sums).T
    return _Laws(np.array(laws), means, losses, lifts, chain.length * error)


def _times_shared(
    laws: _Laws, chain: _Chain, shared: float, tail_mass: float, coarser: float
) -> tuple[_Laws, float]:
    """Returns the laws of S times the factor that all steps share.

    The factor is e^{g − B/2} with g ~ N(0, B). The second result is the error of the
    probabilities of its values.

    Args:
        laws: The laws of S.
        chain: The chain.
        shared: The variance B of g.
        tail_mass: The probability that may be moved to the sinks.
        coarser: As in `gauss_markov.upper_pairs`.
    """
    each = gauss_markov.tail_of_step(tail_mass, 1)
    factors, probabilities, lost, error = gauss_markov.factors(
        shared, shared, each, coarser=coarser
    )
    places = chain.places
    moved, above = sum_additions.split(
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
) -> state_moves.Moves:
    """Returns the probabilities with which a step moves each state to each other.

    Args:
        chain: The chain.
        slope: The factor of the state in the mean of the next one. It is 0 for the
            first step.
        before: The variance of the state before the step.
        variance: The variance of the state after the step.
    """
    shifts = chain.scale * (before - 1) / 2, chain.scale * (variance - 1) / 2
    means = slope * (chain.states + shifts[0]) - shifts[1]
    return state_moves.moves(chain, means, math.sqrt(variance - slope**2 * before))


def _adding(
    chain: _Chain, decay: float
) -> tuple[Callable[[FloatArray], tuple[FloatArray, float]], int]:
    """Returns the function that adds a ratio to decay · S, and its number of terms.

    The function takes the (n, l) masses of states and places. It returns those after
    the addition, and the part of the mean that is lost. A mass is a sum of at most so
    many terms.
    """
    if chain.length <= _FEW:
        all_states = slice(0, chain.states.size)

        def directly(before: FloatArray) -> tuple[FloatArray, float]:
            after, lost = sum_additions.added_once(
                chain, before, all_states, decay=decay
            )
            return after, float(lost.sum())

        return directly, 2 * (chain.factors.size + 1) * chain.places.size
    adders, lost_by_adding = _adders(chain, decay)

    def by_matrices(before: FloatArray) -> tuple[FloatArray, float]:
        after = [adder @ row for adder, row in zip(adders, before, strict=True)]
        return np.stack(after), float((before * lost_by_adding).sum())

    return by_matrices, _most_terms(adders)


def _adders(
    chain: _Chain, decay: float
) -> tuple[Sequence[sparse.csr_matrix], FloatArray]:
    """Returns the map from S to decay · S + ratio · W in each state, on the places.

    W is the random factor of a ratio.

    Returns:
        For each of n states an (l, l) matrix that is applied to the masses of the
        places; and (n, l) bounds on the mean that is lost, because it is above the
        highest place or because values of W are left out.
    """
    factors, before = _with_zero(chain.factors), decay * chain.places[:, np.newaxis]
    found, lost = [], np.empty((chain.states.size, chain.places.size))
    for index, ratio in enumerate(chain.ratios.tolist()):
        sums = before + ratio * factors
        moved, above = sum_additions.split(chain.places, sums, chain.probabilities)
        lost[index] = above + chain.lost_factor * ratio
        found.append(moved)
    return found, lost


def _most_terms(added: Sequence[sparse.csr_matrix]) -> int:
    """Returns the largest number of products that are added up to one mass."""
    return max(int(np.diff(adder.indptr).max()) for adder in added)


def _with_zero(factors: FloatArray) -> FloatArray:
    """Returns the factors and 0, which stands for all values that are left out."""
    return np.append(factors, 0.0)
