"""Laws of atoms: the terms of a sum, and what is read of one."""

import abc
import dataclasses
import enum
import functools
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import whole_laws

# Certified: what a sum of products may have lost where these are less than a float.
_UNDERFLOW = 1e-316
# Certified: no Q-mass of a lower law moves by more nats, beside which masses fit.
FURTHEST_MOVE, _LARGEST_MOVED = 40.0, 1e90
# Tuning: more than this is counted anew, as what the sum of Q's masses lacks.
MUCH = 1e-25
# Tuning: an atom is heavy if it has half of the heaviest's mass. So is the last one if
# it has this share of it, and so many times what the atom before it has: on a sample
# the largest loss is rarer than the least one. (δ of three Laplace losses at a rate of
# 0.2, 5e-6 below their largest: 1.8e-6 without this, and 1.82e-8 with it.)
_HEAVY, _OUTSTANDING = 2.0**-10, 16.0


class Axis(enum.Enum):
    """What adds up.

    Losses ln(dP/dQ), with P's probabilities, where mechanisms are composed; ratios
    dP/dQ, with Q's, where one step of many is drawn.
    """

    LOSS = "loss"
    RATIO = "ratio"


@dataclasses.dataclass(frozen=True)
class Law(abc.ABC):
    """What the law of a term or of a sum has, on a lattice or not.

    Attributes:
        axis: What is summed.
        bound: Which side it is on.
        infinity_mass: P's mass at an infinite ratio; for RATIO the sum of all steps'.
        zero_mass: Q's mass at a ratio of zero, but for an atom there.
        mass_error: Masses are those of a bound within a factor of e^±error,
        row_error: in which both rows of a lower law agree but for e^±rounding each.
        ratio_error: And values within so much: nats (LOSS), or relatively (RATIO).
        offset: Losses are values and this together; 0 for ratios.
        degrees: Of the rows of a lower law of ratios, if they are others than `Atoms`
            says. If they are 0, 1, 2 and so on, the law is a power series: its first
            row has Q's masses, and any mass of the others may be left out.
        ledger: What its masses must sum to.
        closeness: How close it is to the law that it stands for.

    Raises:
        MassError: If an upper law's sinks hold less than was cut off of it.
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
    closeness: whole_laws.Closeness = whole_laws.NONE

    def __post_init__(self) -> None:
        if self.bound is Bound.UPPER:
            conservation.check_sinks(self.infinity_mass, self.zero_mass, self.ledger)

    @abc.abstractmethod
    def mean(self) -> float:
        """Returns the sum of masses times positive values."""

    @abc.abstractmethod
    def totals(self) -> tuple[float, float, int]:
        """Returns what ratios are on the whole under P and under Q, and of how many."""

    @property
    def common(self) -> dict[str, Any]:
        """These fields by their names, for another law of the same."""
        fields = dataclasses.fields(Law)
        return {field.name: getattr(self, field.name) for field in fields}

    @property
    def row_degrees(self) -> tuple[int, ...]:
        """The degrees of the rows of a lower law."""
        return self.degrees or (0, 1)

    @property
    def is_series(self) -> bool:
        """Whether rows are coefficients of a power series (`degrees`)."""
        return bool(self.degrees) and self.degrees == tuple(range(len(self.degrees)))

    @property
    def keeps_rests(self) -> bool:
        """Whether the second row is of what ratios have above their values."""
        return (
            self.axis is Axis.RATIO and self.bound is Bound.LOWER and not self.degrees
        )


@dataclasses.dataclass(frozen=True)
class Atoms(Law):
    """A law of atoms: where they are, and the masses of one law or of both.

    Upper laws have one row of masses: P's (LOSS) or Q's (RATIO). The other law's follow
    from the value: p e^{−loss}, or q · ratio. Lower ones have a second row, which keeps
    the mean of what was merged: Q's masses times e^{value} (LOSS: so they are no more
    than a cell away from P's, however large the loss is), or the sums of q · (ratio −
    value) (RATIO: none is negative, and its rounding is relative to no more than it).
    Lower laws of ratios may have other rows, each of a degree: of a sum the row of
    degree d is the sum of products of rows whose degrees add up to d, as for the
    coefficients of power series. Then values say no more than which outputs are merged.

    Values of ratios are differences of such, where they may be negative; then P's mass
    is what the positive ones have, which bounds what a sum's positive part may lose.

    Attributes:
        values: (n,) values, increasing.
        masses: (rows, n) masses, positive.
    """

    values: FloatArray
    masses: FloatArray

    def p_and_q(self) -> tuple[FloatArray, FloatArray]:
        """Returns the (n,) masses of P and of Q, where they fit a float."""
        return self._p_and_q

    @functools.cached_property
    def _p_and_q(self) -> tuple[FloatArray, FloatArray]:
        first, last = self.masses[0], self.masses[-1]
        if self.axis is Axis.LOSS:
            with np.errstate(over="ignore", under="ignore"):
                exponents = -(self.values + self.offset)
                fit = np.minimum(exponents, floats.LARGEST_EXPONENT)
                # A second factor, where a tiny mass of P's has such a loss.
                beyond = np.minimum(exponents - fit, floats.LARGEST_EXPONENT)
                return first, last * np.exp(fit) * np.exp(beyond)
        if self.degrees:
            return last, first
        p = first * np.maximum(self.values, 0.0)
        return (p + last if self.keeps_rests else p), first

    def centred(self) -> "Atoms":
        """Returns losses with an offset, by which the last heavy atom is at zero."""
        masses = self.masses[0]
        heavy = masses >= masses.max() / 2
        least = max(_HEAVY * masses.max(), _OUTSTANDING * masses[-2:][0])
        heavy[-1] |= masses[-1] >= least
        middle = float(self.values[heavy][-1])
        rounding = 4 * floats.UNIT_ROUNDOFF * float(np.abs(self.values[[0, -1]]).max())
        return dataclasses.replace(
            self,
            values=self.values - middle,
            offset=self.offset + middle,
            ratio_error=self.ratio_error + rounding,
            closeness=self.closeness.rounded(rounding),
        )

    def is_rare(self) -> BoolArray:
        """Returns which of n atoms have a mass that sums cannot hold.

        It is below `floats.TINY`, or too large to be moved. Of a power series only the
        masses of Q, its first row, must not be below that.
        """
        first, *others = self.p_and_q() if self.keeps_rests else self.masses
        rare = first < floats.TINY
        for row in others:
            rare |= row > _LARGEST_MOVED
            if not self.is_series:
                rare |= row < floats.TINY
        return np.asarray(rare)

    def mean(self) -> float:
        return sums.dot(self.masses[0], np.maximum(self.values, 0.0))

    def totals(self) -> tuple[float, float, int]:
        p = self.mean() + (float(self.masses[1].sum()) if self.keeps_rests else 0.0)
        return p, float(self.masses[0].sum()), self.values.size

    def in_tails(self, tail_mass: float) -> BoolArray:
        """Returns which (n,) atoms are tails.

        Of these P has no more than the tail mass above, and both laws below; of ratios
        none is below. Of a power series all rows together have no more above.
        """
        p, q = self.p_and_q()
        if self.is_series:
            p = self.masses.sum(axis=0)
        above = np.cumsum(p[::-1])[::-1] <= tail_mass
        if self.axis is Axis.RATIO:
            return np.asarray(above & (self.values > 0))
        below = np.cumsum(np.maximum(p, np.minimum(q, 1.0))) <= tail_mass
        return np.asarray(above | below)

    def in_tails_of_rows(self, tail_mass: float) -> BoolArray:
        """Returns which (rows, n) masses of a power series are tails, or tiny.

        No row has more than the tail mass on either side; of Q's none is one.
        """
        masses = self.masses
        gone = np.cumsum(masses, axis=1) <= tail_mass
        gone |= np.cumsum(masses[:, ::-1], axis=1)[:, ::-1] <= tail_mass
        gone |= masses < floats.TINY
        gone[0] = False
        return gone

    def without_tiny(self, q_mass: float) -> "Atoms":
        """Returns the law of a sum without tiny masses."""
        return self.without(self.is_rare(), q_mass)

    def without(self, gone: BoolArray, q_mass: float | None = None) -> "Atoms":
        """Returns the law of a sum without some atoms, which go to the sinks.

        With them goes what is less than any float: a sum has that where it has others
        that are as small, nearly, or no smallest mass at all.

        Args:
            gone: (n,) which.
            q_mass: What Q has of finite losses, as far as none of it was lost; if that
                is not what is here.
        """
        p, q = self.p_and_q()
        cut_p, cut_q = float(p[gone].sum()), float(np.minimum(q[gone], 1.0).sum())
        ends = (float(self.values[0]), float(self.values[-1])) if q.size else (0.0, 0.0)
        underflow = underflown(self, q.size, *ends)
        kept = dataclasses.replace(
            self,
            values=self.values[~gone],
            masses=self.masses[:, ~gone],
            ledger=self.ledger.with_underflow(*underflow),
        )
        if self.bound is Bound.LOWER:
            ledger = kept.ledger.with_cut(cut_p, cut_q)
            less = share_of(ledger, cut_p + underflow[0], cut_q + underflow[1])
            return dataclasses.replace(
                kept, ledger=ledger, closeness=self.closeness.without(less)
            )
        lost_p = floats.raised(cut_p + underflow[0])
        lost_q = floats.raised(cut_q + underflow[1])
        if lost_q > MUCH and self.axis is Axis.LOSS:
            q_mass = self.q_mass() if q_mass is None else q_mass
            lost_q = min(lost_q, missing(q_mass, kept.q_mass(), self.mass_error))
        return dataclasses.replace(
            kept,
            infinity_mass=self.infinity_mass + lost_p,
            zero_mass=min(self.zero_mass + lost_q, 1.0),
            ledger=kept.ledger.with_cut(cut_p, min(cut_q, lost_q)),
        )

    def q_mass(self) -> float:
        """Returns the sum of Q's masses."""
        return float(self.p_and_q()[1].sum())


def missing(before: float, after: float, mass_error: float) -> float:
    """Returns an upper bound on what a law has lost of Q's mass."""
    most, least = floats.raised(before), floats.lowered(after)
    return max(most * (1 + 4 * mass_error) - least * (1 - 4 * mass_error), 0.0)


def underflown(law: Law, cells: int, low: float, high: float) -> tuple[float, float]:
    """Returns what P's and Q's mass may lack where masses were less than a float.

    Args:
        law: What they are of.
        cells: How many of its masses were.
        low: No value of them is smaller,
        high: and none is larger.
    """
    lost = _UNDERFLOW * cells
    if law.axis is Axis.RATIO:
        return lost * max(high, 1.0), lost
    most = math.log(lost) - min(low + law.offset, 0.0) if cells else -math.inf
    return lost, floats.exponential(most)


def share_of(ledger: conservation.Ledger, p: float, q: float) -> float:
    """Returns the larger share that masses of P and of Q have of their wholes."""
    return max(p / max(ledger.p_whole, 0.5), q / max(ledger.q_whole, 0.5))


class Sinks(NamedTuple):
    """What a sum has in its sinks and its ledger, and how far values may be off."""

    infinity_mass: float
    zero_mass: float
    ratio_error: float
    ledger: conservation.Ledger


def sinks_of_sum(one: Law, other: Law) -> Sinks:
    """Returns the sinks and the shift of the sum of two laws.

    RATIO: where either is lost, so is the sum, with what the other has of P's mass.
    """
    rounded = floats.raised if one.bound is Bound.UPPER else floats.lowered
    if one.axis is Axis.LOSS:
        infinity_mass = (
            one.infinity_mass
            + other.infinity_mass
            - one.infinity_mass * other.infinity_mass
        )
        zero_mass = one.zero_mass + other.zero_mass - one.zero_mass * other.zero_mass
        moved = 2 * floats.UNIT_ROUNDOFF * abs(one.offset + other.offset)
        ratio_error = one.ratio_error + other.ratio_error + moved
        ledger = conservation.of_losses(one.ledger, other.ledger)
    else:
        infinity_mass = one.infinity_mass + other.infinity_mass
        zero_mass = one.zero_mass + other.zero_mass
        if zero_mass:
            infinity_mass += one.zero_mass * other.mean() + other.zero_mass * one.mean()
        ratio_error = max(one.ratio_error, other.ratio_error)
        ledger = conservation.of_ratios(one.ledger, other.ledger)
    return Sinks(
        rounded(infinity_mass), min(rounded(zero_mass), 1.0), ratio_error, ledger
    )


def closeness_of_sum(one: Law, other: Law) -> whole_laws.Closeness:
    """Returns that of the sum of two independent variables, of the same kind."""
    drawn = 0.0
    claimed = max(one.closeness.spread, other.closeness.spread)
    if one.axis is Axis.RATIO and one is not other and claimed < math.inf:
        # P's law draws one of the terms. Each has a mean ratio of one.
        sizes = []
        for law in (one, other):
            p, q, number = law.totals()
            if not (p > 0 and q > 0):
                return whole_laws.NONE
            gone = share_of(law.ledger, law.ledger.p_gone, law.ledger.q_gone)
            drawn += 4 * (gone + law.closeness.lacking)
            drawn += 8 * (number + 16) * floats.UNIT_ROUNDOFF
            sizes.append(math.log(p / (q * law.ledger.terms)))
        drawn += abs(sizes[0] - sizes[1])
    return one.closeness.of_sum(other.closeness, drawn)


def placed(atoms: Atoms, width: float) -> tuple[int, FloatArray]:
    """Returns atoms on nodes so far apart: the first one's index, and (rows, n) masses.

    They are split (upper), or merged (lower).
    """
    cells, masses = on_nodes(atoms, np.full(atoms.values.size, width))
    start = int(cells.min())
    return start, np.array([sums.gather(cells - start, row) for row in masses])


def on_nodes(atoms: Atoms, widths: FloatArray) -> tuple[IntArray, FloatArray]:
    """Returns the (m,) indices of nodes, and (rows, m) masses to go there.

    Args:
        atoms: n atoms.
        widths: (n,) distances between the nodes around each of them.
    """
    places, masses = atoms.values / widths, atoms.masses
    floors = np.floor(places)
    above = places - floors
    if atoms.bound is Bound.UPPER:
        lower, upper = 1 - above, above
        if atoms.axis is Axis.LOSS:
            # Both from exact differences, so that either share has all its digits.
            whole = np.expm1(-widths)
            lower = np.exp(-widths * above) * np.expm1(-widths * lower) / whole
            upper = np.expm1(-widths * above) / whole
        cells = np.concatenate([floors, floors + 1]).astype(np.int64)
        return cells, np.concatenate([lower * masses, upper * masses], axis=1)
    if atoms.keeps_rests:
        masses = np.array([masses[0], masses[1] + above * widths * masses[0]])
        return floors.astype(np.int64), masses
    nearest = np.rint(places)
    if atoms.axis is Axis.LOSS:
        exponents = (nearest - places) * widths
        fits = np.abs(exponents) <= FURTHEST_MOVE
        moved = masses[1] * np.exp(np.where(fits, exponents, 0.0))
        # What moves further is left out: a row would not fit a float.
        masses = np.where(fits, np.array([masses[0], moved]), 0.0)
    return nearest.astype(np.int64), masses
