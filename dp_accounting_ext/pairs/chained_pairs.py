"""Pairs chained through a third dataset: neighbors of neighbors."""

import dataclasses

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import law_sums

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Tuning: a chain has the atoms of both its pairs, so that those of a large group would
# have millions; on a grid of this many the loss moves by 1e-10 of its range squared.
_MOST_ATOMS = 1 << 16
# Certified: cells so wide beside a loss have numbers that are integers in floats.
_NARROWEST = 2.0**-48
# Certified: of a share of a mass, a quotient of two exponentials; and of their sum, in
# which so many partial sums meet.
_SPLIT_ERROR, _CHUNKS = 64 * floats.UNIT_ROUNDOFF, 8


def chain(first: DirectedPairs, second: DirectedPairs) -> DirectedPairs:
    """Returns upper pairs of two datasets that a third one lies between.

    Args:
        first: Upper pairs of a mechanism's laws (M₁, M₂), M₁ in the place of P.
        second: Upper pairs of (M₂, M₃).

    Returns:
        Upper pairs of (M₁, M₃). Each direction is chained on its own, so that its far
        tail is accurate.

    Raises:
        ValueError: If a pair is a lower bound: a chain of these bounds nothing.

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
    under M₂. An event of probability x under M₃ has at most f₂₃(x) under M₂, and so at
    most f₁₂(f₂₃(x)) under M₁. That is what a pair attains whose ratio is the product of
    the two, both sorted by size under M₂: large meets large.

    Args:
        first: An upper pair, n atoms; H(M₁‖M₂) is what it bounds.
        second: An upper pair, m atoms.
        most_atoms: How many atoms are not put on a grid.

    Returns:
        At most n + m atoms, on a grid if these are too many. Masses are relatively
        accurate where losses are large: `chain` takes each direction on its own.

    Guarantees:
        H(M₁‖M₃) at any κ₁κ₂ is at most H_κ₁(M₁‖M₂) + κ₁ H_κ₂(M₂‖M₃), and so is the
        pair's, whose value is the least of these; no pair that is made of these two
        alone is smaller.

    Source:
        https://arxiv.org/abs/1905.02383, Theorem 2.14, for two different pairs.
    """
    if Bound.LOWER in (first.bound, second.bound):
        raise ValueError("Pairs that are chained must be upper bounds. Found a lower.")
    # Under M₂, from the largest ratios on, both rows of masses lie side by side.
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
    # All others are split between a ratio of zero and an infinite one.
    rounding = ends.size * floats.UNIT_ROUNDOFF
    slack = (~kept).sum() * floats.SMALLEST_MASS
    infinity_mass = first.infinity_mass + (gained[~kept].sum() + slack) * (
        1 + 4 * rounding
    )
    zero_mass = second.zero_mass + (spent[~kept].sum() + slack) * (1 + 4 * rounding)
    # Lengths too short to be told apart have a large ratio there: what Q lacks by it.
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
            # Ends are relatively as exact as masses, and so are tests between them.
            mass_error=2 * (errors + ratio_errors) + 4 * rounding,
            ratio_error=ratio_errors + 4 * floats.UNIT_ROUNDOFF,
        ),
        most_atoms,
    )


def powers(
    pair: DominatingPair, number: int, *, most_atoms: int = _MOST_ATOMS
) -> DominatingPair:
    """Returns the chain of a pair with itself, so many times, by doubling.

    Args:
        pair: An upper pair.
        number: How often, at least once.
        most_atoms: As for `chain_one_way`.
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
    """Returns (n,) ratios and Q-masses, which are no more than one together.

    Lengths that are no more than a rounding have few digits, and their masses may be
    too large where ratios are small. To lower a Q-mass and keep P's brings no event
    nearer to Q: the bound stays one.

    Args:
        ratios: (n,) ratios, increasing.
        masses: (n,) their Q-masses.
    """
    excess = float(masses.sum()) - 1.0
    if excess <= 0:
        return ratios, masses
    cumulated = np.cumsum(masses)
    lowest = slice(0, int(np.searchsorted(cumulated, 2 * excess)) + 1)
    factor = 1 - excess / float(masses[lowest].sum())
    ratios, masses = ratios.copy(), masses.copy()
    ratios[lowest] /= factor
    masses[lowest] *= factor
    order = np.argsort(ratios, kind="stable")
    return ratios[order], masses[order]


def on_few_atoms(pair: DominatingPair, most_atoms: int = _MOST_ATOMS) -> DominatingPair:
    """Returns the pair, its ratios split onto a grid if they are more than that."""
    if pair.ratios.size <= most_atoms:
        return pair
    law = law_sums.of_pair(pair, atom_laws.Axis.LOSS)
    # Losses may be equal, all zero, or so near that numbers of cells are no integers.
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
    return dominating_pair.of_losses(law_sums.read(law.without_tiny(q_mass)))


def _placed_in_turn(law: atom_laws.Atoms, width: float) -> tuple[int, FloatArray]:
    """Returns what `atom_laws.placed` does, in an eighth of its memory.

    A node's mass is a sum of at most eight that are summed as there.
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
