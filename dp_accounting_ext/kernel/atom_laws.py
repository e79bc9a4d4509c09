"""Laws with finitely many atoms: the terms of a sum, and the sum itself."""

from collections.abc import Callable
import dataclasses
import enum
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Product = Callable[[FloatArray, FloatArray], FloatArray]
# A mass of P and one of Q, or two masses of one of them.
Masses = conservation.Masses

# Certified: a sum of products lacks at most this for each product that underflows.
_UNDERFLOW = 1e-316
# Certified: merging moves no Q-mass of a lower law up by more than this many nats, and
# no mass that may be moved is larger than this, so that all of them fit a float. Masses
# that move further down are left out if they become too rare.
FURTHEST_MOVE, _LARGEST_MOVED = 40.0, 1e90
# Tuning: an atom is heavy if it has half of the largest mass. The last atom is also
# heavy if it has this share of the largest mass, and this many times the mass of the
# atom before it, as under sampling the largest loss is rarer than the smallest one.
# (For three runs of Laplace noise, sampled with probability 0.2, δ is 1.82e-8 at an ε
# 5e-6 below the largest loss. Without this rule the bound was 1.8e-6.)
_HEAVY, _OUTSTANDING = 2.0**-10, 16.0


class Axis(enum.Enum):
    """The quantity that is added up.

    LOSS: losses ln(dP/dQ), with their probabilities under P; mechanisms are composed by
    adding them. RATIO: ratios dP/dQ, with their probabilities under Q; random
    allocation averages them.
    """

    LOSS = "loss"
    RATIO = "ratio"


@dataclasses.dataclass(frozen=True)
class Law:
    """What is known of a law besides its masses: its sinks, its errors and its ledger.

    Attributes:
        axis: Whether losses or ratios are added up.
        bound: Which side of the true law this one certifies.
        infinity_mass: P's mass at an infinite ratio. For ratios it is the sum over all
            terms.
        zero_mass: Q's mass at a ratio of zero, unless there is an atom at zero.
        mass_error: Masses are within a factor of e^±mass_error of those of a bound.
        row_error: The part of `mass_error` that differs between the two rows of a lower
            law: each row is within e^±row_error of a common multiple of the exact row.
        ratio_error: Losses are within this many nats of those of a bound, and ratios
            within this relative error.
        offset: What is added to a value to give the loss; 0 for ratios.
        degrees: The degrees of a lower law's rows of ratios. Empty for the two rows
            that `Atoms` describes. Degrees 0, 1, 2, … make the law a power series: its
            first row holds Q's masses, and any mass of the other rows may be left out.
        ledger: The sums that the masses must have.

    Raises:
        MassError: If the sinks of an upper law hold less than was cut off of it.
    """

    axis: Axis
    bound: Bound
    _: dataclasses.KW_ONLY
    infinity_mass: float = 0.0
    zero_mass: float = 0.0
    mass_error: float = 0.0
    row_error: float = 0.0
    ratio_error: float = 0.0
    offset: float = 0.0
    degrees: tuple[int, ...] = ()
    ledger: conservation.Ledger = conservation.OF_Q_ALONE

    def __post_init__(self) -> None:
        if self.bound is Bound.UPPER:
            conservation.check_sinks(
                self.infinity_mass,
                self.zero_mass,
                self.ledger,
                of_losses=self.axis is Axis.LOSS,
            )

    def rounded(self, units: int) -> "Law":
        """Returns the law with `units` more units of rounding in its masses."""
        return dataclasses.replace(
            self,
            mass_error=self.mass_error + units * floats.UNIT_ROUNDOFF,
            row_error=self.row_error + units * floats.UNIT_ROUNDOFF,
        )

    def after(self, cut: Masses, underflow: Masses) -> "Law":
        """Returns the law with sinks and a ledger that hold what was lost.

        Args:
            cut: The masses of P and of Q that were cut off.
            underflow: The masses of P and of Q that may have underflowed.
        """
        ledger = self.ledger.after(cut, underflow)
        if self.bound is Bound.LOWER:
            return dataclasses.replace(self, ledger=ledger)
        zero_mass = self.zero_mass + floats.raised(cut[1] + underflow[1])
        return dataclasses.replace(
            self,
            infinity_mass=self.infinity_mass + floats.raised(cut[0] + underflow[0]),
            zero_mass=min(zero_mass, 1.0),
            ledger=ledger,
        )

    def underflown(self, cells: int, low: float, high: float) -> Masses:
        """Returns bounds on the masses of P and Q lost as products underflowed.

        Args:
            cells: The number of products that may have underflowed.
            low: A lower bound on their values.
            high: An upper bound on their values.
        """
        lost_p = _UNDERFLOW * cells
        if self.axis is Axis.RATIO:
            return lost_p * max(high, 1.0), lost_p
        if not cells:
            return 0.0, 0.0
        log_lost_q = math.log(lost_p) - min(low + self.offset, 0.0)
        return lost_p, floats.exponential(log_lost_q)

    def plus(
        self,
        other: "Law",
        rounding: float,
        masses: Callable[[], Masses],
        other_masses: Callable[[], Masses],
    ) -> "Law":
        """Returns the law of a sum of two independent variables.

        A sum of ratios is in a sink where either term is: P's sink then gets the mean
        of the other term, too.

        Args:
            other: The law of the other variable.
            rounding: The relative error of a mass of the sum, besides those of the
                terms.
            masses: Returns the sums of P's and of Q's masses of this variable.
            other_masses: Returns those of the other variable.
        """
        infinity_mass = self.infinity_mass + other.infinity_mass
        zero_mass = self.zero_mass + other.zero_mass
        offset = self.offset + other.offset
        if self.axis is Axis.LOSS:
            infinity_mass -= self.infinity_mass * other.infinity_mass
            zero_mass -= self.zero_mass * other.zero_mass
            ratio_error = self.ratio_error + other.ratio_error
            ratio_error += 2 * floats.UNIT_ROUNDOFF * abs(offset)
            ledger = conservation.of_losses(self.ledger, other.ledger)
        else:
            if zero_mass:
                # P's mass of a law of ratios is their mean.
                infinity_mass += self.zero_mass * other_masses()[0]
                infinity_mass += other.zero_mass * masses()[0]
            ratio_error = max(self.ratio_error, other.ratio_error)
            ledger = conservation.of_ratios(self.ledger, other.ledger)
        rounded = floats.raised if self.bound is Bound.UPPER else floats.lowered
        return dataclasses.replace(
            self,
            infinity_mass=rounded(infinity_mass),
            zero_mass=min(rounded(zero_mass), 1.0),
            mass_error=self.mass_error + other.mass_error + rounding,
            row_error=self.row_error + other.row_error + rounding,
            ratio_error=ratio_error,
            offset=offset,
            ledger=ledger,
        )

    def products(self, x: FloatArray, y: FloatArray, product: Product) -> FloatArray:
        """Returns the (rows, …) masses of a sum of two laws of this kind.

        Args:
            x: (rows, n) masses of one law.
            y: (rows, m) masses of the other law.
            product: The product of two rows.
        """
        if self.bound is Bound.LOWER and self.axis is Axis.RATIO:
            return sums.products(x, y, self.degrees or (0, 1), product)
        rows = [*x]
        others = rows if x is y else [*y]
        return np.array([product(*pair) for pair in zip(rows, others, strict=True)])

    @property
    def is_series(self) -> bool:
        """Whether rows are coefficients of a power series (`degrees`)."""
        return bool(self.degrees) and self.degrees == tuple(range(len(self.degrees)))

    @property
    def keeps_rests(self) -> bool:
        """Whether the second row holds the sums of mass times (ratio − value)."""
        return (
            self.axis is Axis.RATIO and self.bound is Bound.LOWER and not self.degrees
        )


@dataclasses.dataclass(frozen=True)
class Atoms:
    """A law of finitely many atoms: their values, and one or more rows of masses.

    An upper law has one row of masses: P's for losses, Q's for ratios. The other law's
    masses follow from the value: q = p e^{−loss}, or p = q · ratio.

    A lower law has a second row, which keeps the mean of the outputs that were merged.
    For losses it holds Q's masses times e^{value}: these are within a cell of P's,
    however large the loss. For ratios it holds the sums of q · (ratio − value): no term
    is negative, so that rounding is relative to the sum.

    A lower law of ratios may have other rows, each with a degree. Degrees add up as
    those of power series do: row d of a sum is the sum of the products of rows whose
    degrees add up to d. The values then only say which outputs are merged.

    Values of ratios may be differences of ratios, and so negative. P's mass then counts
    the positive values alone: it bounds what the positive part of a sum may lose.

    Attributes:
        law: The side and the axis of the law, its sinks and its errors.
        values: (n,) values, increasing.
        masses: (rows, n) masses, positive.
    """

    law: Law
    values: FloatArray
    masses: FloatArray

    @functools.cached_property
    def p_and_q(self) -> tuple[FloatArray, FloatArray]:
        """The (n,) masses of P and of Q, as far as they fit a float."""
        first, last = self.masses[0], self.masses[-1]
        if self.law.axis is Axis.LOSS:
            with np.errstate(over="ignore", under="ignore"):
                exponents = -(self.values + self.law.offset)
                fit = np.minimum(exponents, floats.LARGEST_EXPONENT)
                # A second factor, for a tiny P-mass at a loss below −700 nats.
                beyond = np.minimum(exponents - fit, floats.LARGEST_EXPONENT)
                return first, last * np.exp(fit) * np.exp(beyond)
        if self.law.degrees:
            return last, first
        p = first * np.maximum(self.values, 0.0)
        return (p + last if self.law.keeps_rests else p), first

    def centred(self) -> "Atoms":
        """Returns the same losses, with the last heavy atom's value moved to `offset`.

        That atom, and so its multiples in sums, is then exactly on a node of a lattice.
        """
        masses = self.masses[0]
        heavy = masses >= masses.max() / 2
        threshold = max(_HEAVY * masses.max(), _OUTSTANDING * masses[-2:][0])
        heavy[-1] |= masses[-1] >= threshold
        last_heavy = float(self.values[heavy][-1])
        rounding = 4 * floats.UNIT_ROUNDOFF * float(np.abs(self.values[[0, -1]]).max())
        law = dataclasses.replace(
            self.law,
            offset=self.law.offset + last_heavy,
            ratio_error=self.law.ratio_error + rounding,
        )
        return Atoms(law, self.values - last_heavy, self.masses)

    def is_rare(self) -> BoolArray:
        """Returns which of the n atoms have a mass that sums cannot hold.

        These are below `floats.TINY`, or too large to be moved. Of a power series only
        the first row, Q's masses, has to be above `floats.TINY`.
        """
        first, *others = self.p_and_q if self.law.keeps_rests else self.masses
        rare = first < floats.TINY
        for row in others:
            rare |= row > _LARGEST_MOVED
            if not self.law.is_series:
                rare |= row < floats.TINY
        return np.asarray(rare)

    def in_tails(self, tail_mass: float) -> BoolArray:
        """Returns which of the n atoms are in a tail.

        Above, P has at most `tail_mass` in the tail; below, P and Q both have. Laws of
        ratios have no lower tail. Of a power series, the sum of all rows has at most
        `tail_mass` above.
        """
        p, q = self.p_and_q
        if self.law.is_series:
            p = self.masses.sum(axis=0)
        above = np.cumsum(p[::-1])[::-1] <= tail_mass
        if self.law.axis is Axis.RATIO:
            return np.asarray(above & (self.values > 0))
        below = np.cumsum(np.maximum(p, np.minimum(q, 1.0))) <= tail_mass
        return np.asarray(above | below)

    def without(self, gone: BoolArray) -> "Atoms":
        """Returns the law of a sum without some atoms, whose masses go to the sinks.

        The sinks also get a bound on the products of masses that underflowed to zero,
        as these products have no atom.

        Args:
            gone: (n,) which atoms are left out.
        """
        p, q = self.p_and_q[0], np.minimum(self.p_and_q[1], 1.0)
        # A product below the smallest mass has lost digits. The other law's mass, which
        # may be large, is computed from it. Both count as underflow.
        source = self.masses[-1 if self.law.axis is Axis.LOSS else 0]
        vague = gone & (source < floats.SMALLEST_MASS)
        cut = gone & ~vague
        ends = tuple(self.values[[0, -1]].tolist()) if q.size else (0.0, 0.0)
        no_atom = self.law.underflown(q.size, *ends)
        law = self.law.after(
            (float(p[cut].sum()), float(q[cut].sum())),
            (float(p[vague].sum()) + no_atom[0], float(q[vague].sum()) + no_atom[1]),
        )
        return Atoms(law, self.values[~gone], self.masses[:, ~gone])

    def p_and_q_mass(self) -> Masses:
        """Returns the sums of P's and of Q's masses."""
        p, q = self.p_and_q
        return float(p.sum()), float(q.sum())


def placed(atoms: Atoms, width: float) -> tuple[int, FloatArray]:
    """Returns a law on nodes at multiples of a width: split (upper) or merged (lower).

    Returns:
        The index of the first node, and (rows, n) masses.
    """
    cells, masses = on_nodes(atoms, np.full(atoms.values.size, width))
    start = int(cells.min())
    return start, np.array([sums.gather(cells - start, row) for row in masses])


def on_nodes(atoms: Atoms, widths: FloatArray) -> tuple[IntArray, FloatArray]:
    """Returns (m,) indices of nodes, and the (rows, m) masses that go to them.

    Args:
        atoms: The law of n atoms.
        widths: (n,) distances between the nodes around each atom.
    """
    places, masses = atoms.values / widths, atoms.masses
    floors = np.floor(places)
    above = places - floors
    if atoms.law.bound is Bound.UPPER:
        lower, upper = 1 - above, above
        if atoms.law.axis is Axis.LOSS:
            # The shares keep the mean of e^{−value}, whose change over a cell is this.
            # Both are products of exact differences, so that they have all digits.
            change = np.expm1(-widths)
            lower = np.exp(-widths * above) * np.expm1(-widths * lower) / change
            upper = np.expm1(-widths * above) / change
        cells = np.concatenate([floors, floors + 1]).astype(np.int64)
        return cells, np.concatenate([lower * masses, upper * masses], axis=1)
    if atoms.law.keeps_rests:
        masses = np.array([masses[0], masses[1] + above * widths * masses[0]])
        return floors.astype(np.int64), masses
    nearest = np.rint(places)
    if atoms.law.axis is Axis.LOSS:
        # No mass moves up so far that it would not fit a float.
        nearest = np.where(widths > FURTHEST_MOVE, floors, nearest)
        moved = masses[1] * np.exp((nearest - places) * widths)
        # What becomes too rare for a float is left out, in both rows.
        fits = (widths <= FURTHEST_MOVE) | (moved >= floats.TINY)
        masses = np.where(fits, np.array([masses[0], moved]), 0.0)
    return nearest.astype(np.int64), masses
