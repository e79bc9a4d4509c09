"""Chains of pairs: upper bounds for two datasets from those through a third one."""

import dataclasses

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.kernel import sums

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: a chain has the atoms of both pairs, which for a large group would be
# millions. On a grid of this many atoms the loss moves by 1e-10 times its range
# squared.
_MOST_ATOMS = 1 << 16
# Certified: if cells are this wide relative to a loss, floats hold their indices
# exactly.
_NARROWEST = 2.0**-48
# Certified: the error of the share of a mass, a quotient of two exponentials, and of
# the sum of shares; such a sum is made of this many partial sums.
_SPLIT_ERROR, _CHUNKS = 64 * floats.UNIT_ROUNDOFF, 8


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
    first: DominatingPair, second: DominatingPair, *, most_atoms: int = _MOST_ATOMS
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
    return on_few_atoms(
        DominatingPair(
            ratios,
            spent,
            infinity_mass=min(float(infinity_mass), 1.0),
            zero_mass=min(float(zero_mass), 1.0),
            bound=Bound.UPPER,
            # Interval ends have the relative error of masses, and so have tests there.
            mass_error=2 * (errors + ratio_errors) + 4 * rounding,
            ratio_error=ratio_errors + 4 * floats.UNIT_ROUNDOFF,
        ),
        most_atoms,
    )


def powers(
    pair: DominatingPair, number: int, *, most_atoms: int = _MOST_ATOMS
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

    Intervals that are no longer than their rounding have few digits, and at small
    ratios their masses may be too large. Lowering a Q-mass, with P's kept, lowers no
    divergence: the bound stays one. The lowest half is lowered, so that a small excess
    hardly moves a ratio: halved, the lowest masses would become rare large losses.

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


def on_few_atoms(pair: DominatingPair, most_atoms: int = _MOST_ATOMS) -> DominatingPair:
    """Returns the pair with fewer atoms if it has too many.

    The ratios of an upper pair are split onto a grid. The atoms of a lower pair that
    are close to each other become one, which is what a mechanism does that does not
    release which of their outputs it had.
    """
    if pair.ratios.size <= most_atoms:
        return pair
    if pair.bound is Bound.LOWER:
        return _merged(pair, most_atoms)
    law = law_sums.of_pair(pair, atom_laws.Axis.LOSS)
    # Losses may all be zero, or so close that floats cannot number the cells.
    largest = float(np.abs(law.values).max(initial=0.0))
    width = max(pair.loss_range() / most_atoms, _NARROWEST * largest) or 1.0
    q_mass = law.q_mass()
    start, masses = _placed_in_turn(law, width)
    kept = masses[0] > 0
    places = np.arange(masses.shape[1])[kept]
    nodes = width * (start + places)
    rounding = 4 * floats.UNIT_ROUNDOFF * float(np.abs(nodes).max())
    law = dataclasses.replace(
        law,
        values=nodes,
        masses=masses[:, kept],
        mass_error=law.mass_error + _SPLIT_ERROR,
        ratio_error=law.ratio_error + rounding,
    )
    return output_pairs.of_losses(law_sums.read(law.without_tiny(q_mass)))


def _merged(pair: DominatingPair, cells: int) -> DominatingPair:
    """Returns a lower pair with one atom for all ratios in a cell of losses."""
    losses = np.log(pair.ratios)
    losses -= losses[0]
    # Which atoms share a cell is tuning: rounding decides nothing else.
    places = (losses * ((cells - 1) / max(losses[-1], floats.TINY))).astype(np.int64)
    masses = sums.gather(places, pair.masses)
    p_masses = sums.gather(places, pair.p_masses)
    kept = np.minimum(masses, p_masses) > 0
    rounding = 8 * floats.UNIT_ROUNDOFF
    return dataclasses.replace(
        pair,
        ratios=p_masses[kept] / masses[kept],
        masses=masses[kept],
        mass_error=pair.mass_error + rounding,
        ratio_error=pair.ratio_error + rounding,
    )


def _placed_in_turn(law: atom_laws.Atoms, width: float) -> tuple[int, FloatArray]:
    """Returns what `atom_laws.placed` does, with an eighth of the memory.

    The mass of a node is a sum of at most eight partial sums.
    """
    chunks = [
        atom_laws.placed(dataclasses.replace(law, values=values, masses=masses), width)
        for values, masses in zip(
            np.array_split(law.values, _CHUNKS),
            np.array_split(law.masses, _CHUNKS, axis=1),
            strict=True,
        )
    ]
    start = min(begin for begin, _ in chunks)
    size = max(begin + masses.shape[1] for begin, masses in chunks) - start
    placed = np.zeros((len(law.masses), size))
    for begin, masses in chunks:
        placed[:, begin - start : begin - start + masses.shape[1]] += masses
    return start, placed
