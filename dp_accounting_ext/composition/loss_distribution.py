"""The privacy loss in one direction: what is summed when mechanisms are composed."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
Stretches = Sequence[tuple[slice, float]]

# Tuning: so many cells an atom are worth leaving out the empty ones.
_SPARSE = 4


@dataclasses.dataclass(frozen=True)
class LossDistribution:
    """The privacy loss in one direction, `count` times.

    Attributes:
        losses: (n,) losses, in nats, increasing.
        masses: (n,) probabilities of the losses.
        infinity_mass: Probability of an infinite loss.
        count: How often the mechanism is run.
        bound: Whether it bounds the mechanism from above or below.
        mass_error: Bound on the relative rounding error of any mass.
        ratio_error: Bound on the absolute rounding error of any loss.
    """

    losses: FloatArray
    masses: FloatArray
    infinity_mass: float
    count: int
    bound: Bound
    mass_error: float = 0.0
    ratio_error: float = 0.0


def from_pair(
    pair: dominating_pair.DominatingPair, direction: Direction, count: int
) -> LossDistribution:
    """Returns the privacy loss of a pair in one direction."""
    if direction is Direction.ADD:
        pair = dominating_pair.dual(pair)
    losses = np.log(pair.ratios)
    rounding = float(np.abs(losses).max(initial=1.0)) * floats.UNIT_ROUNDOFF
    return LossDistribution(
        losses=losses,
        masses=pair.p_masses,
        infinity_mass=pair.infinity_mass,
        count=count,
        bound=pair.bound,
        mass_error=pair.mass_error + pair.ratio_error + floats.UNIT_ROUNDOFF,
        ratio_error=pair.ratio_error + 4 * rounding,
    )


def infinity_mass(laws: Sequence[LossDistribution]) -> float:
    """Returns the probability that any loss of a composition is infinite."""
    return sums.probability_of_any((law.infinity_mass, law.count) for law in laws)


def most_mass(laws: Sequence[LossDistribution]) -> float:
    """Returns a bound on any mass of a composition: 1, or more of laws with more."""
    exponent = math.fsum(
        law.count * math.log(max(float(law.masses.sum()), 1.0)) for law in laws
    )
    return floats.raised(math.exp(min(exponent, floats.LARGEST_EXPONENT)))


def on_lattice(
    law: LossDistribution,
    interval: float,
    *,
    gather: Callable[..., FloatArray] = sums.gather,
    with_gaps: bool = False,
) -> tuple[lattice.Factor, lattice.Factor | None]:
    """Returns a law on the loss lattice: split (upper) or grouped (lower).

    Args:
        law: n losses.
        interval: The lattice's step, in nats.
        gather: How the masses of a cell are added up; `sums.gather_quickly` is for
            one run whose n roundings the caller counts.
        with_gaps: Whether many empty cells are left out.

    A split keeps both masses, and its Q-masses follow from its P-masses. A
    group has Q-masses of its own; they are relative to e^{−loss} at its index.
    """
    positions = law.losses / interval
    if law.bound is Bound.UPPER:
        floors = np.floor(positions)
        cells = floors.astype(np.int64)
        # Losses that are equal but for rounding need not be in order.
        start = int(cells.min())
        cells -= start
        stretches = [(slice(None), interval)]
        lowered, raised = split(law.masses, positions, floors, stretches)
        size = int(cells.max()) + 2
        gaps = None
        if with_gaps and size > _SPARSE * cells.size:
            gaps, numbers = _numbered(cells, size)
            cells, above, size = numbers[cells], numbers[cells + 1], gaps.size
            masses = gather(cells, lowered, size)
            masses += gather(above, raised, size)
        else:
            masses = gather(cells, lowered, size)
            masses[1:] += gather(cells, raised)
        return lattice.Factor(start, masses, law.count, gaps=gaps), None
    nearest = np.rint(positions)
    cells = nearest.astype(np.int64)
    start = int(cells.min())
    cells -= start
    others = grouped(law.masses, positions, nearest, [(slice(None), interval)])
    size = int(cells.max()) + 1
    gaps = None
    if with_gaps and size > _SPARSE * cells.size:
        gaps, numbers = _numbered(cells, size)
        cells, size = numbers[cells], gaps.size
    return (
        lattice.Factor(start, gather(cells, law.masses, size), law.count, gaps=gaps),
        lattice.Factor(start, gather(cells, others, size), law.count, gaps=gaps),
    )


def split(
    masses: FloatArray, positions: FloatArray, floors: FloatArray, stretches: Stretches
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) masses that go to the lower ends of cells, and to the upper ones.

    Args:
        masses: (n,) masses.
        positions: (n,) places of the losses, in cells; overwritten.
        floors: (n,) the lower ends of the cells they are in; overwritten.
        stretches: Which of them are in cells of a length, and that, in nats.
    """
    # In place: fresh memory costs more than the arithmetic.
    share = _moved(positions, floors, stretches)
    np.expm1(share, out=share)
    for part, length in stretches:
        share[part] /= math.expm1(-length)
    raised = np.clip(share, 0.0, 1.0, out=share)
    raised *= masses
    return np.subtract(masses, raised, out=floors), raised


def grouped(
    masses: FloatArray, positions: FloatArray, nearest: FloatArray, stretches: Stretches
) -> FloatArray:
    """Returns (n,) Q-masses, over e^{−loss} at the nearest ends of cells.

    Args:
        masses: (n,) P-masses.
        positions: (n,) places of the losses, in cells; overwritten.
        nearest: (n,) the ends nearest to them.
        stretches: As for `split`.
    """
    moved = _moved(positions, nearest, stretches)
    others = np.exp(moved, out=moved)
    others *= masses
    return others


def _moved(positions: FloatArray, ends: FloatArray, stretches: Stretches) -> FloatArray:
    """Returns how far losses are moved, in nats."""
    moved = np.subtract(ends, positions, out=positions)
    for part, length in stretches:
        moved[part] *= length
    return moved


def _numbered(cells: IndexArray, size: int) -> tuple[IndexArray, IndexArray]:
    """Returns which of so many cells, or cells after these, there are.

    Returns:
        (m,) these cells, increasing; and (size,) the number of each among them.
    """
    there = np.zeros(size, dtype=np.bool_)
    there[cells] = True
    there[np.minimum(cells + 1, size - 1)] = True
    found = np.flatnonzero(there)
    numbers = np.empty(size, dtype=np.int64)
    numbers[found] = np.arange(found.size)
    return found, numbers
