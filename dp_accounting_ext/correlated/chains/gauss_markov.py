"""Upper bounds on means of correlated Gaussian ratios, by Markov chains.

The likelihood ratio is Z = q + w Σ e^{g_i − G_ii/2} with g ~ N(0, G): for b bins, q = 0
and w = 1/b. If every entry of G grows, Z grows in the convex order. So G is replaced by
the larger matrix of a Gaussian Markov chain (`chain_fits`), and `markov_sums` computes
the law of Z by a recursion over the chain's state and the sum so far. Lower bounds are
in `filtered_bins` and `projected`.

For one block of b-min-sep sampling, a record that becomes ready at step u of b steps
takes part in step a ≥ u with probability p (1 − p)^{a − u}, and in no step of the block
with probability (1 − p)^{b − u}. The likelihood ratio of the block is

    A_u = (1 − p)^{b − u} + p S_u,    S_u = X_u + (1 − p) S_{u + 1},    S_b = 0.

A Markov chain has the same law backwards in time. So one recursion, from the last step
to the first, computes the laws of S_u for all u.
"""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums
from dp_accounting_ext.kernel import accuracy as accuracies
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import profile_pairs

Accuracy = accuracies.Accuracy
DirectedPairs = dominating_pair.DirectedPairs

_TRIVIAL = DirectedPairs.same(dominating_pair.trivial_pair(Bound.UPPER))


def of_bins(
    chain: chain_fits.Chain, accuracy: Accuracy, *, wider: float = 1.0
) -> DirectedPairs:
    """Returns pairs that dominate the mean of the ratios of all steps of a chain.

    Args:
        chain: The chain above the mean of the ratios of bins.
        accuracy: The probability that may be moved to the sinks, divided by 10,000, and
            the resolution of sums of independent blocks.
        wider: The factor by which cells of the recursion are wider than usual.

    Guarantees:
        Each pair dominates in its direction. Splitting a state between grid points
        raises the mean of Z. In the direction REMOVE a larger Z is on the safe side. In
        the direction ADD, Z is divided by the largest factor by which the splits may
        raise it, whichever path the chain takes.
    """
    chain, copies = chain_fits.cut(chain)
    steps = (chain.length + 1) // 2
    tail_mass = accuracy.tail_mass / copies
    grids = markov_chain.Grids.of(chain, steps, tail_mass=tail_mass, wider=wider)
    if grids is None:
        return _TRIVIAL
    laws = [markov_sums.upper_sum(grids)]
    block = _above(grids, laws, [(0.0, 1 / chain.length)], tail_mass)
    return block.map(
        lambda pair: random_allocation.random_allocation(pair, copies, accuracy)
    )


def of_block(
    chain: chain_fits.Chain, probability: float, *, tail_mass: float
) -> DirectedPairs:
    """Returns pairs that dominate a block of b-min-sep sampling from every state.

    Args:
        chain: The chain above the block's ratios.
        probability: The probability p, in (0, 1).
        tail_mass: The probability that may be moved to the sinks, divided by 10,000.

    Guarantees:
        The profile of each pair, in its direction, is at least that of A_u for every
        u. Directions are as in `of_bins`.

    Source:
        docs/matrix.md, "A record that stays out for b steps".
    """
    grids = markov_chain.Grids.of(chain, chain.length, tail_mass=tail_mass)
    if grids is None:
        return _TRIVIAL
    laws = markov_sums.upper_sums(grids, 1 - probability)
    absent = np.power(1 - probability, np.arange(1, chain.length + 1)).tolist()
    return _above(grids, laws, [(never, probability) for never in absent], tail_mass)


def _above(
    grids: markov_chain.Grids,
    laws: Sequence[markov_sums.SumLaw],
    affine: Sequence[tuple[float, float]],
    tail_mass: float,
) -> DirectedPairs:
    """Returns pairs whose profiles are at least those of several ratios.

    Args:
        grids: The chain with its grids.
        laws: Laws of sums, which have the same places.
        affine: For each law, q and w: the ratio is q + w S, times the factor that all
            steps share.
        tail_mass: As in `of_bins`.
    """
    chain, factor_error = grids.chain, grids.factor_error
    if chain.shared:
        tail = markov_chain.tail_of_step(tail_mass, 1)
        laws, error = markov_sums.times(grids, laws, chain.shared, tail_mass=tail)
        factor_error += error
    mass_error = max(law.mass_error for law in laws) + chain.length * factor_error
    ratio_error = grids.place_error + factor_error
    ratio_error += 8 * (chain.length + 2) * floats.UNIT_ROUNDOFF
    rounding = floats.raised(1 + mass_error)
    shrink = math.exp(-grids.drift)
    removed, added = [], []
    for law, (never, weight) in zip(laws, affine, strict=True):
        ratios = never + weight * law.places
        occupied = (law.masses > floats.SMALLEST_MASS) & (ratios > 0)
        masses = law.masses[occupied]
        lost = law.lost_mass + float(law.masses[~occupied].sum())
        mean = law.lost_mean + floats.SMALLEST_MASS * float(law.places.sum())
        sink = floats.raised((weight * mean + never * lost) * rounding)
        errors = mass_error, ratio_error
        removed.append(
            profile_pairs.Hinges(ratios[occupied], masses, min(sink, 1.0), *errors)
        )
        lowered = never + weight * shrink * law.places
        # Where a product underflows, the mass counts as that of an infinite loss.
        occupied = lowered * law.masses > floats.SMALLEST_MASS
        out = law.lost_mass + law.lifted_mass + float(law.masses[~occupied].sum())
        out = floats.raised(out * rounding)
        lowered = lowered[occupied][::-1]
        masses = lowered * law.masses[occupied][::-1]
        errors = mass_error + ratio_error, ratio_error + 32 * floats.UNIT_ROUNDOFF
        added.append(profile_pairs.Hinges(1 / lowered, masses, min(out, 1.0), *errors))
    return DirectedPairs(_largest(removed), dominating_pair.dual(_largest(added)))


def _largest(bounds: Sequence[profile_pairs.Hinges]) -> dominating_pair.DominatingPair:
    """Returns a pair with H(P‖Q) of at least the largest of several bounds.

    The bounds are compared at the atoms of the last one, which is nearly the largest
    everywhere. Between two atoms, a convex function is below the line through its
    values there.
    """
    places = bounds[-1].ratios
    values = np.max([bound.values(places) for bound in bounds], axis=0)
    values = np.clip(values, profile_pairs.SMALLEST, 1.0)
    return profile_pairs.pair_above(places, values)
