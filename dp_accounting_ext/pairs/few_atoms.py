"""Pairs with fewer atoms: upper ones are split onto a grid, lower ones are merged."""

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

DominatingPair = dominating_pair.DominatingPair

# Tuning: chains and mixtures have the atoms of all their parts, which would be millions
# for a large group. On a grid of this many atoms the loss moves by 1e-10 times its
# range squared.
MOST_ATOMS = 1 << 16
# Certified: if cells are this wide relative to a loss, floats hold their indices
# exactly.
_NARROWEST = 2.0**-48
# Certified: the error of the share of a mass, a quotient of two exponentials, and of
# the sum of shares; such a sum is made of this many partial sums.
_SPLIT_ERROR, _CHUNKS = 64 * floats.UNIT_ROUNDOFF, 8


def reduced(pair: DominatingPair, most_atoms: int = MOST_ATOMS) -> DominatingPair:
    """Returns the pair with fewer atoms if it has too many.

    The ratios of an upper pair are split onto a grid. Atoms of a lower pair that are
    close to each other are merged into one. The merged pair is that of a mechanism that
    releases the same output for all of them, so it is dominated by the pair.
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
