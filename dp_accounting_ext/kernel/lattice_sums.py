"""Sums of laws on a lattice: of copies and of different laws, and trimmed tails."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_pieces
from dp_accounting_ext.kernel import lattice_shape

LatticeLaw = lattice_law.LatticeLaw
Atoms = atom_laws.Atoms
Axis = atom_laws.Axis
Resolution = accuracy.Resolution
Piece = lattice_pieces.Piece


def trimmed(law: LatticeLaw, tail_mass: float) -> tuple[LatticeLaw, Atoms]:
    """Returns a law without tails and tiny masses, and its atoms.

    Args:
        law: The law.
        tail_mass: The largest mass of P in the upper tail, and of either law in the
            lower one.
    """
    atoms, places = law._atoms_and_places()
    gone = atoms.in_tails(tail_mass) | atoms.is_rare()
    cells = sum(masses.shape[1] for _, masses in law.pieces.values())
    there = np.zeros(cells, np.bool_)
    there[places[~gone]] = True
    kept_of_rows = None
    if law.is_series:
        kept_of_rows = np.zeros((len(atoms.masses), cells), np.bool_)
        kept_of_rows[:, places] = ~atoms.in_tails_of_rows(tail_mass)
    pieces, end = {}, 0
    for level, (start, masses) in law.pieces.items():
        begin, end = end, end + masses.shape[1]
        (kept,) = np.nonzero(there[begin:end])
        if kept.size:
            some = slice(int(kept[0]), int(kept[-1]) + 1)
            part = np.where(there[begin:end][some], masses[:, some], 0.0)
            if kept_of_rows is not None:
                part *= kept_of_rows[:, begin:end][:, some]
            pieces[level] = start + some.start, part
    atoms = atoms.without(gone)
    law = dataclasses.replace(
        law,
        pieces=pieces,
        infinity_mass=atoms.infinity_mass,
        zero_mass=atoms.zero_mass,
        ledger=atoms.ledger,
        closeness=atoms.closeness,
    )
    return law, atoms


def settled(law: LatticeLaw, tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns a law without tails, on cells as wide as its scale allows."""
    if not law.pieces:
        return law
    law, atoms = trimmed(law.levelled(), tail_mass)
    if not law.pieces:
        # All finite masses underflowed. The sinks hold them.
        return law
    shape = lattice_shape.shape_of(atoms, law.lowest, both=both)
    widest = 2 * law.resolution.cells
    while shape.scale > widest * law.step or law.step < shape.narrowest():
        law = law.doubled()
    return dataclasses.replace(
        law,
        centre=round(shape.centre / law.step),
        reach=shape.reach(law.step, law.resolution),
    )


def times(law: LatticeLaw, count: int, tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns the law of a sum of independent copies, by repeated doubling.

    Args:
        law: The law of one copy.
        count: The number of copies, at least 1.
        tail_mass: The probability that may be cut off in all.
        both: Whether the law of losses is also read from Q's side.
    """
    total, number, share = law, 1, tail_mass / (4 * count.bit_length())
    for digit in bin(count)[3:]:
        total, number = total.plus(total), 2 * number
        if digit == "1":
            while law.step < total.step:
                law = law.doubled()
            total, number = total.plus(law), number + 1
        total = settled(total, share * number / count, both=both)
    return total


def sum_of(laws: Sequence[LatticeLaw], tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns the law of the sum of independent variables, narrow ones first.

    Args:
        laws: The laws of the terms.
        tail_mass: The probability that each addition may cut off.
        both: Whether the law of losses is also read from Q's side.
    """
    laws = sorted(laws, key=lambda law: law.step)
    total = laws[0]
    for law in laws[1:]:
        while total.step < law.step:
            total = total.doubled()
        while law.step < total.step:
            law = law.doubled()
        total = settled(total.plus(law), tail_mass, both=both)
    return total
