"""Chains of pairs: upper bounds for two datasets from those through a third one."""

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import few_atoms

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair


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
    most_atoms: int = few_atoms.MOST_ATOMS,
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
    kept = (np.abs(losses) <= floats.LARGEST_LOSS) & (gained > floats.SMALLEST_MASS)
    kept &= spent > floats.SMALLEST_MASS
    # The rest of the mass is split between a ratio of zero and an infinite one.
    rounding = ends.size * floats.UNIT_ROUNDOFF
    slack = (~kept).sum() * floats.SMALLEST_MASS
    infinity_mass = first.infinity_mass + (gained[~kept].sum() + slack) * (
        1 + 4 * rounding
    )
    zero_mass = second.zero_mass + (spent[~kept].sum() + slack) * (1 + 4 * rounding)
    # Intervals shorter than their rounding have too large a ratio. The Q-mass that is
    # missing for this reason goes to the sink.
    gain, cost, spent = gain[kept][::-1], cost[kept][::-1], spent[kept][::-1]
    zero_mass = max(float(zero_mass), 1.0 - float(spent.sum()))
    if not spent.size:
        return dominating_pair.trivial_pair(Bound.UPPER)
    ratios, spent = _without_excess(gain / cost, spent)
    errors = first.mass_error + second.mass_error
    ratio_errors = first.ratio_error + second.ratio_error
    return few_atoms.reduced(
        DominatingPair(
            ratios,
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


def powers(
    pair: DominatingPair, number: int, *, most_atoms: int = few_atoms.MOST_ATOMS
) -> DominatingPair:
    """Returns the chain of a pair with itself, by repeated doubling.

    Args:
        pair: An upper pair.
        number: The number of pairs in the chain, at least one.
        most_atoms: As in `chain_one_way`.
    """
    found: DominatingPair | None = None
    while number:
        if number & 1:
            one = found and chain_one_way(found, pair, most_atoms=most_atoms)
            found = one or pair
        number >>= 1
        if number:
            pair = chain_one_way(pair, pair, most_atoms=most_atoms)
    assert found is not None
    return found


def _without_excess(
    ratios: FloatArray, masses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) ratios and Q-masses that sum to at most one.

    Masses are lengths of intervals. An interval that is no longer than its rounding
    error has few digits, so the masses may sum to more than one. Lowering a Q-mass and
    keeping its P-mass lowers no divergence, so the result is still an upper bound. The
    lower half of the masses is lowered by a common factor, so that a small excess
    hardly moves any ratio. If it were taken off the very lowest masses, their ratios
    would become rare large losses.

    Args:
        ratios: (n,) ratios, increasing.
        masses: (n,) Q-masses of the ratios.
    """
    excess = float(masses.sum()) - 1.0
    if excess <= 0:
        return ratios, masses
    cumulated = np.cumsum(masses)
    most = max(0.5, 2 * excess)
    lowest = slice(0, int(np.searchsorted(cumulated, most)) + 1)
    factor = 1 - excess / float(masses[lowest].sum())
    ratios, masses = ratios.copy(), masses.copy()
    ratios[lowest] /= factor
    masses[lowest] *= factor
    order = np.argsort(ratios, kind="stable")
    return ratios[order], masses[order]
