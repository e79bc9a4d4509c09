"""From dominating pairs to the laws of sums, and back: compositions.

A sum of few atoms is computed atom by atom, here; any other one on a lattice
(`lattice_sums`).
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import sums

Accuracy = accuracy.Accuracy
Atoms = atom_laws.Atoms
Axis = atom_laws.Axis
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
LossPair = profile.LossPair
Law = atom_laws.Law
LatticeLaw = lattice_law.LatticeLaw
# Functions that make pairs when these are needed, with the number of runs of each.
Parts = Sequence[tuple[Callable[[], DirectedPairs], int]]


# Tuning, all of these constants.
# A sum is computed atom by atom if it has at most this many atoms, and is made of at
# most this many products.
_MOST_ATOMS = 1 << 12
_MOST_PRODUCTS = 1 << 17
# The law of REMOVE is also used for ADD only if P's and Q's medians are near each
# other, and if at most this many times `tail_mass` of Q was cut off.
_GIVEN = 100.0

# Certified: sums of a great many ratios up to this one fit a float.
_LARGEST_RATIO = 1e280
# Certified: values that differ by no more than this, relatively, are merged.
_SAME = 64 * floats.UNIT_ROUNDOFF


def of_pair(given: DominatingPair, axis: Axis) -> Atoms:
    """Returns the law of a pair's losses under P, or of its ratios under Q."""
    ratios, q = given.ratios, given.masses
    p = given.p_masses
    losses = np.log(ratios)
    # 1 / (1 − e) is more than e^e.
    mass_error = (
        1.01 * (given.mass_error + given.ratio_error) + 4 * floats.UNIT_ROUNDOFF
    )
    fits = (p if axis is Axis.LOSS else q) >= floats.TINY
    if axis is Axis.RATIO:
        fits &= ratios <= _LARGEST_RATIO
    infinity_mass, zero_mass = given.infinity_mass, given.zero_mass
    sides = [
        conservation.Side(float(masses.sum()) + sink, float(masses[~fits].sum()) + sink)
        for masses, sink in ((p, infinity_mass), (q, zero_mass))
    ]
    ledger = conservation.Ledger(1, *sides)
    if given.bound is Bound.UPPER and not fits.all():
        infinity_mass += float(p[~fits].sum()) * (1 + 1e-9)
        zero_mass += float(q[~fits].sum()) * (1 + 1e-9)
    ratios, p, q, losses = ratios[fits], p[fits], q[fits], losses[fits]
    if axis is Axis.LOSS:
        ratio_error = given.ratio_error + 2 * floats.UNIT_ROUNDOFF * float(
            np.abs(losses).max(initial=0.0)
        )
        values, rows = losses, np.array([p, p])
    else:
        if zero_mass:
            ledger = ledger.after((0.0, -zero_mass))
            ratios, q, zero_mass = np.append(0.0, ratios), np.append(zero_mass, q), 0.0
        ratio_error, values, rows = given.ratio_error, ratios, np.array([q, 0 * q])
    if given.bound is Bound.UPPER:
        rows = rows[:1]
    law = Law(
        axis,
        given.bound,
        infinity_mass=infinity_mass,
        zero_mass=zero_mass,
        mass_error=mass_error,
        ratio_error=ratio_error,
        ledger=ledger,
    )
    return Atoms(law, values, rows)


def sum_of(
    parts: Sequence[tuple[Callable[[], Atoms], int]],
    bound: Bound,
    accuracy: Accuracy,
) -> Atoms:
    """Returns the law of a sum of independent variables, with multiplicities.

    Sums of few atoms are computed atom by atom, so that they are exact. A law on a
    lattice is added, as soon as it is made, to one with cells of the same width: so its
    masses are rounded as often as that width doubles, and few laws are kept.

    Args:
        parts: Functions that make the laws of the variables, with multiplicities. All
            laws have one axis and one side; each is made when it is its turn.
        bound: The side of the laws.
        accuracy: The resolution of the lattice, and the probability that may be cut
            off in all.
    """
    copies = sum(count for _, count in parts)
    total = _sum_of(parts, copies, bound, accuracy)
    conservation.check_total("terms of a law", total.law.ledger.terms, copies, 0.0)
    return total


def _sum_of(
    parts: Sequence[tuple[Callable[[], Atoms], int]],
    copies: int,
    bound: Bound,
    accuracy: Accuracy,
) -> Atoms:
    """Returns what `sum_of` does; `copies` is the sum of all multiplicities."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]()
    # A sum of ratios is small only if all terms are: if each is so with probability
    # `lowest`, the sum is so with probability `tail_mass`.
    lowest = accuracy.tail_mass ** (1 / max(copies, 1))
    # One half for the sums of copies, and one half for the sums of these.
    tail_mass = accuracy.tail_mass / (2 * max(len(parts), 1))
    exact, summed = None, 0
    waiting: dict[float, LatticeLaw] = {}
    for make, count in parts:
        atoms = make()
        if not atoms.values.size:
            # No loss of this part is finite, and so none of the sum is.
            return _without_values(atoms, copies)
        few = _power(atoms, count)
        joined = few if few is None or exact is None else _plus(exact, few)
        if joined is not None:
            exact, summed = joined, summed + count
            continue
        if few is None:
            law = lattice_sums.on_lattice(atoms, accuracy, lowest)
            law = lattice_sums.times(law, count, tail_mass)
        else:
            law = lattice_sums.on_lattice(few, accuracy, lowest**count)
        while law.step in waiting:
            law = waiting.pop(law.step).plus(law)
            law = lattice_sums.settled(law, tail_mass)
        waiting[law.step] = law
    if exact is not None and not exact.values.size:
        return _without_values(exact, copies)
    if exact is not None and not waiting:
        return exact
    laws = list(waiting.values())
    if exact is not None:
        laws.append(lattice_sums.on_lattice(exact, accuracy, lowest**summed))
    if not laws:
        return _nothing(bound)
    return lattice_sums.sum_of(laws, tail_mass).atoms()


def _nothing(bound: Bound) -> Atoms:
    """Returns the law of the loss of a mechanism that releases nothing."""
    rows = 1 if bound is Bound.UPPER else 2
    masses = np.ones((rows, 1))
    ledger = conservation.Ledger(terms=0)
    return Atoms(Law(Axis.LOSS, bound, ledger=ledger), np.zeros(1), masses)


def _without_values(atoms: Atoms, terms: int) -> Atoms:
    """Returns the law of a sum one term of which has no finite value."""
    sink = 1.0 if atoms.law.bound is Bound.UPPER else 0.0
    ledger = atoms.law.ledger._replace(terms=terms)
    law = dataclasses.replace(
        atoms.law, infinity_mass=sink, zero_mass=sink, ledger=ledger
    )
    return dataclasses.replace(atoms, law=law)


def _power(atoms: Atoms, count: int) -> Atoms | None:
    """Returns the exact sum of independent copies, or None if it has many atoms."""
    total = atoms if atoms.values.size <= _MOST_ATOMS else None
    for digit in bin(count)[3:]:
        for term in (total, atoms) if digit == "1" else (total,):
            if total is None or term is None:
                return None
            total = _plus(total, term)
    return total


def _plus(one: Atoms, other: Atoms) -> Atoms | None:
    """Returns the exact sum of two laws, or None if it has many atoms."""
    totals = one.p_and_q_mass, other.p_and_q_mass
    if not (one.values.size and other.values.size):
        none = other if one.values.size else one
        law = one.law.plus(other.law, 0.0, *totals)
        return dataclasses.replace(none, law=law)
    summed = _sum_of_spaced(one, other) or _sum_of_products(one, other)
    if summed is None:
        return None
    values, masses, moved, rounding = summed
    rounding += (4 + len(masses)) * floats.UNIT_ROUNDOFF
    law = one.law.plus(other.law, rounding, *totals)
    law = dataclasses.replace(law, ratio_error=law.ratio_error + moved)
    total = Atoms(law, values, masses)
    return total.without(total.is_rare())


def _sum_of_spaced(
    one: Atoms, other: Atoms
) -> tuple[FloatArray, FloatArray, float, float] | None:
    """Returns the sum of two laws on one grid of values, by adding indices.

    Returns:
        The (n,) values, the (rows, n) masses, and bounds on the errors of the values
        and of the masses. None if there is no such grid, or if n is large.
    """
    last = one.values.size + other.values.size - 2
    if not 1 <= last < _MOST_ATOMS:
        return None
    if one.law.axis is Axis.RATIO and min(one.values[0], other.values[0]) < 0:
        return None  # Sums of both signs may be small, and errors are relative.
    longer = max(one.values, other.values, key=len)
    width = (float(longer[-1]) - float(longer[0])) / (longer.size - 1)
    size = sum(float(np.abs(each.values).max()) for each in (one, other))
    moved = 8 * floats.UNIT_ROUNDOFF * (size if one.law.axis is Axis.LOSS else 1.0)
    for each in (one.values, other.values):
        off = np.abs(each[0] + width * np.arange(each.size) - each)
        # The distance from the grid: absolute for losses, relative for ratios.
        if one.law.axis is Axis.LOSS:
            allowed = _SAME * float(np.abs(each).max())
        else:
            allowed = _SAME
            with np.errstate(over="ignore"):
                off = off / np.maximum(each, floats.TINY)
        if (off > allowed).any():
            return None
        moved += float(off.max())
    values = float(one.values[0]) + float(other.values[0]) + width * np.arange(last + 1)
    masses = one.law.products(one.masses, other.masses, sums.convolve)
    rounding = sums.convolution_error(min(one.values.size, other.values.size))
    return np.asarray(values, dtype=np.float64), masses, moved, rounding


def _sum_of_products(
    one: Atoms, other: Atoms
) -> tuple[FloatArray, FloatArray, float, float] | None:
    """Returns what `_sum_of_spaced` does, by sorting the sums of all pairs of values.

    It is None if there are many of them.
    """
    if one.values.size * other.values.size > _MOST_PRODUCTS:
        return None
    values = np.add.outer(one.values, other.values).ravel()
    rows = one.law.products(one.masses, other.masses, np.multiply.outer)
    rows = rows.reshape(len(rows), -1)
    order = np.argsort(values, kind="stable")
    values, rows = values[order], rows[:, order]
    is_loss = one.law.axis is Axis.LOSS
    largest = max(abs(float(values[0])), abs(float(values[-1])))
    same = np.diff(values) <= _SAME * (largest if is_loss else values[:-1])
    (starts,) = np.nonzero(np.append(True, ~same))
    if starts.size > _MOST_ATOMS:
        return None
    rows = np.add.reduceat(rows, starts, axis=1)
    merged = int(np.diff(np.append(starts, values.size)).max())
    # Merged values span at most this many steps between adjacent ones; each sum was
    # rounded, too.
    moved = (_SAME * merged + 2 * floats.UNIT_ROUNDOFF) * (largest if is_loss else 1.0)
    return values[starts], rows, moved, merged * floats.UNIT_ROUNDOFF


def read(atoms: Atoms, count: int = 1) -> LossPair:
    """Returns the laws of the loss under P and under Q.

    Args:
        atoms: A law of losses; or the law of the sum of `count` steps' ratios.
        count: The number of steps whose ratios were added up; 1 for losses.
    """
    law = atoms.law
    values, first, last = atoms.values, atoms.masses[0], atoms.masses[-1]
    p, q = atoms.p_and_q
    infinity_mass, zero_mass = law.infinity_mass, law.zero_mass
    ratio_error, ledger = law.ratio_error, law.ledger
    if law.axis is Axis.LOSS:
        losses = values + law.offset
        if law.bound is Bound.LOWER:
            losses = losses - np.log(last / first)
            ratio_error += 2 * law.row_error
        else:
            # The bound on what underflowed of Q may be far larger than all of Q's mass
            # that has no atom. Q's masses are computed from P's and from the losses.
            present = float(q.sum()) * (1 - 4 * (law.mass_error + law.ratio_error))
            missing = floats.raised(ledger.q.whole) - floats.lowered(present)
            zero_mass = min(zero_mass, max(missing, 0.0))
    else:
        # Ratios are not computed from P's masses, which may underflow at tiny ratios.
        above = last / first if law.bound is Bound.LOWER else np.zeros(values.size)
        ratios = values + above
        zero = ratios <= 0
        ledger = ledger.after((0.0, float(q[zero].sum())))
        ledger = ledger.with_ratios_times(1 / count)
        zero_mass += float(q[zero].sum()) * (
            1 + 1e-9 if law.bound is Bound.UPPER else 1 - 1e-9
        )
        p, q, ratios = p[~zero] / count, q[~zero], ratios[~zero]
        infinity_mass /= count
        losses = np.log(ratios) - math.log(count)
        share = float((above[~zero] / ratios).max(initial=0.0))
        # The part of a cell's mean above its node has an error of its own. It is at
        # most this where errors are below 0.01; pairs with larger errors are trivial.
        ratio_error += 2.1 * law.row_error * share
    largest = float(np.abs(losses).max(initial=0.0)) + math.log(count)
    ratio_error += 4 * floats.UNIT_ROUNDOFF * (1 + largest)
    # One law's masses follow from the other's and the loss, which has an error.
    mass_error = law.mass_error + ratio_error
    return LossPair(
        losses,
        p,
        q,
        infinity_mass,
        zero_mass,
        law.bound,
        mass_error,
        ratio_error,
        ledger,
    )


def pair_of(pair: LossPair) -> DominatingPair:
    """Returns the pair of ratios of a pair of losses, as far as ratios fit a float."""
    order = np.argsort(pair.losses, kind="stable")
    losses = pair.losses[order]
    p_masses, q_masses = pair.p_masses[order], pair.q_masses[order]
    fits = (np.abs(losses) <= floats.LARGEST_LOSS) & (p_masses >= floats.RARE)
    fits &= q_masses >= floats.RARE
    infinity_mass, zero_mass = pair.infinity_mass, pair.zero_mass
    if not fits.any():
        return dominating_pair.trivial_pair(pair.bound)
    mass_error = pair.mass_error
    if pair.bound is Bound.UPPER:
        infinity_mass += float((p_masses[~fits] + floats.RARE).sum()) * (1 + 1e-9)
        zero_mass += float((q_masses[~fits] + floats.RARE).sum()) * (1 + 1e-9)
        # Profiles are raised a little, and so the masses of many runs sum to more than
        # one. A pair has no ledger that says so.
        total = max(float(p_masses[fits].sum()), float(q_masses[fits].sum()), 1.0)
        mass_error = max(mass_error, math.log(total))
    return DominatingPair(
        np.exp(losses[fits]),
        q_masses[fits],
        min(infinity_mass, 1.0),
        min(zero_mass, 1.0),
        pair.bound,
        mass_error,
        pair.ratio_error + 4 * floats.UNIT_ROUNDOFF,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class ComposedLosses:
    """The pairs of losses of a composition, each accurate in the tail of its direction.

    Attributes:
        parts: Functions that make pairs on the given side, with the runs of each.
        bound: The side of the bound.
        accuracy: The resolution of the lattice, and the probability, in all, that may
            go to the sinks (of an upper bound) or be dropped (of a lower one).

    Guarantees:
        Upper (lower) pairs give an upper (lower) bound, in both directions.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """

    parts: Parts
    bound: Bound
    accuracy: Accuracy

    def losses(self, direction: Direction) -> LossPair:
        """Returns the pair that is accurate in a direction, with the record in P."""
        removed, serves_both = self._removed
        return removed if direction is Direction.REMOVE or serves_both else self._added

    def pairs(self) -> DirectedPairs:
        """Returns the pairs by their ratios, for a composition that is subsampled."""
        removed, serves_both = self._removed
        remove = pair_of(removed)
        if serves_both:
            return DirectedPairs.same(remove)
        return DirectedPairs(remove, pair_of(self._added))

    @functools.cached_property
    def _removed(self) -> tuple[LossPair, bool]:
        """The pair for REMOVE, and whether it also serves ADD.

        Far from P's median cells are wide, and Q's masses may have been cut off.
        """
        sinks: list[tuple[float, int]] = []
        are_one = []

        def law_of(make: Callable[[], DirectedPairs], count: int) -> Atoms:
            pairs = make()
            are_one.append(pairs.is_one)
            sinks.append((pairs.remove.zero_mass, count))
            return of_pair(pairs.remove, Axis.LOSS)

        losses = self._sum(law_of)
        # Outputs were cut off, or underflowed, that are rare under P, but perhaps not
        # under Q.
        cut = max(losses.zero_mass, losses.ledger.q.cut)
        cut -= sums.probability_of_any(sinks)
        serves_both = (
            all(are_one)
            and cut <= _GIVEN * self.accuracy.tail_mass
            and losses.distance() <= lattice_sums.FURTHEST
        )
        return losses, serves_both

    @functools.cached_property
    def _added(self) -> LossPair:
        """The pair for ADD, from the sum with P and Q exchanged."""

        def law_of(make: Callable[[], DirectedPairs], count: int) -> Atoms:
            return of_pair(dominating_pair.dual(make().add), Axis.LOSS)

        return self._sum(law_of).swapped()

    def _sum(
        self, law_of: Callable[[Callable[[], DirectedPairs], int], Atoms]
    ) -> LossPair:
        """Returns the sum of the losses of all parts."""
        parts = [
            (functools.partial(law_of, make, count), count)
            for make, count in self.parts
        ]
        return read(sum_of(parts, self.bound, self.accuracy))
