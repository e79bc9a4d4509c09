"""Chains of pairs: upper bounds for two datasets from those through a third one."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: chains and mixtures have the atoms of all their parts, which would be millions
# for a large group. With this many atoms the loss moves by 1e-10 times its range
# squared.
MOST_ATOMS = 1 << 16


def chain(first: DirectedPairs, second: DirectedPairs) -> DirectedPairs:
    """Returns upper pairs of two datasets, from those of each and a dataset in between.

    Args:
        first: Upper pairs of the laws (M₁, M₂) of a mechanism, with M₁ as P.
        second: Upper pairs of (M₂, M₃).

    Returns:
        Upper pairs of (M₁, M₃). Each direction is chained separately, so that its own
        tail is accurate.

    Raises:
        ValueError: If a pair is a lower bound, whose chain bounds nothing.

    Source:
        https://arxiv.org/abs/1905.02383, Theorem 2.14 (group privacy).
    """
    add = chain_one_way(
        dominating_pair.dual(second.add), dominating_pair.dual(first.add)
    )
    return DirectedPairs(
        chain_one_way(first.remove, second.remove), dominating_pair.dual(add)
    )


def chain_one_way(
    first: DominatingPair,
    second: DominatingPair,
    *,
    most_atoms: int = MOST_ATOMS,
) -> DominatingPair:
    """Returns an upper pair of (M₁, M₃) from those of (M₁, M₂) and (M₂, M₃).

    Let f₁₂(x) be the largest probability under M₁ of an event that has probability x
    under M₂. An event of probability x under M₃ has probability at most f₂₃(x) under
    M₂, and so at most f₁₂(f₂₃(x)) under M₁. The pair that attains this has as its ratio
    the product of both ratios, each sorted by size under M₂, so that large ones meet.

    Args:
        first: An upper pair with n atoms, which bounds H(M₁‖M₂).
        second: An upper pair with m atoms, which bounds H(M₂‖M₃).
        most_atoms: The largest number of atoms that are not moved to a grid.

    Returns:
        A pair with at most n + m atoms, on a grid if these are too many. Masses at
        large losses are accurate relatively, those at small losses are not: `chain`
        computes each direction separately.

    Guarantees:
        H(M₁‖M₃) at κ₁κ₂ is at most H_κ₁(M₁‖M₂) + κ₁ H_κ₂(M₂‖M₃). The divergence of the
        pair is the smallest of these; no pair computed from these two alone is smaller.

    Source:
        https://arxiv.org/abs/1905.02383, Theorem 2.14, for two different pairs.
    """
    if Bound.LOWER in (first.bound, second.bound):
        raise ValueError("Pairs that are chained must be upper bounds. Found a lower.")
    # The masses under M₂ of both pairs lie side by side, from the largest ratios on.
    gains = np.append(first.ratios[::-1], [0.0, 0.0])
    gain_ends = np.cumsum(np.append(first.masses[::-1], first.zero_mass))
    costs = np.append(0.0, 1 / second.ratios[::-1])
    cost_ends = np.cumsum(np.append(second.infinity_mass, second.p_masses[::-1]))
    ends = np.union1d(gain_ends, cost_ends)
    ends = ends[ends <= cost_ends[-1]]
    lengths = np.diff(ends, prepend=0.0)
    gain = gains[np.searchsorted(gain_ends, ends)]
    cost = costs[np.searchsorted(cost_ends, ends)]
    gained, spent = lengths * gain, lengths * cost
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(gain) - np.log(cost)
    fits = (np.abs(losses) <= floats.LARGEST_LOSS) & (gained > floats.SMALLEST_MASS)
    fits &= spent > floats.SMALLEST_MASS
    # The rest of the mass is split between a ratio of zero and an infinite one.
    rounding = ends.size * floats.UNIT_ROUNDOFF
    slack = (~fits).sum() * floats.SMALLEST_MASS
    infinity_mass = first.infinity_mass + (gained[~fits].sum() + slack) * (
        1 + 4 * rounding
    )
    zero_mass = second.zero_mass + (spent[~fits].sum() + slack) * (1 + 4 * rounding)
    gain, cost, spent = gain[fits][::-1], cost[fits][::-1], spent[fits][::-1]
    if not spent.size:
        return dominating_pair.trivial_pair(Bound.UPPER)
    # Intervals shorter than their rounding have too large a ratio, or too large a mass.
    # The Q-mass that is missing for this reason goes to the sink. Masses that sum to
    # more than one have that error.
    total = float(spent.sum())
    zero_mass = max(float(zero_mass), 1.0 - total)
    errors = first.mass_error + second.mass_error + max(math.log(total), 0.0)
    ratio_errors = first.ratio_error + second.ratio_error
    return reduced(
        DominatingPair(
            gain / cost,
            spent,
            infinity_mass=min(float(infinity_mass), 1.0),
            zero_mass=min(float(zero_mass), 1.0),
            bound=Bound.UPPER,
            # The ends of the intervals have the relative error of masses. So have the
            # true positive rates of the tests that they stand for.
            mass_error=2 * (errors + ratio_errors) + 4 * rounding,
            ratio_error=ratio_errors + 4 * floats.UNIT_ROUNDOFF,
        ),
        most_atoms,
    )


def reduced(pair: DominatingPair, most_atoms: int = MOST_ATOMS) -> DominatingPair:
    """Returns the pair with fewer atoms if it has too many.

    Losses are sorted into cells of equal width. Each ratio of an upper pair is split
    between the first ratios of its cell and of the next one. The ratios of a lower pair
    that share a cell are merged into one. The merged pair is that of a mechanism that
    releases the same output for all of them, so it is dominated by the pair.
    """
    if pair.ratios.size <= most_atoms:
        return pair
    # Which atoms share a cell is tuning: rounding decides nothing else.
    losses = np.log(pair.ratios) - np.log(pair.ratios[0])
    width = max(float(losses[-1]), floats.TINY) / (most_atoms - 1)
    starts = np.flatnonzero(np.diff(np.floor(losses / width), prepend=-1.0))
    counts = np.diff(starts, append=losses.size)
    rounding = (8 + int(counts.max())) * floats.UNIT_ROUNDOFF
    if pair.bound is Bound.LOWER:
        masses = np.add.reduceat(pair.masses, starts)
        p_masses = np.add.reduceat(pair.p_masses, starts)
        has_mass = np.minimum(masses, p_masses) > 0
        return dataclasses.replace(
            pair,
            ratios=p_masses[has_mass] / masses[has_mass],
            masses=masses[has_mass],
            mass_error=pair.mass_error + rounding,
            ratio_error=pair.ratio_error + 2 * rounding,
        )
    nodes = np.append(pair.ratios[starts], pair.ratios[-1])
    low, high = np.repeat(nodes[:-1], counts), np.repeat(nodes[1:], counts)
    with np.errstate(invalid="ignore", divide="ignore"):
        to_high = np.where(high > low, (pair.ratios - low) / (high - low), 0.0)
        to_low = np.where(high > low, (high - pair.ratios) / (high - low), 1.0)
    masses = np.append(np.add.reduceat(to_low * pair.masses, starts), 0.0)
    masses[1:] += np.add.reduceat(to_high * pair.masses, starts)
    return dataclasses.replace(
        pair, ratios=nodes, masses=masses, mass_error=pair.mass_error + rounding
    )
