"""Certified privacy profiles: δ at every ε, and ε at every δ, of a pair of losses.

With losses l_j and P's masses p_j, δ(ε) = infinity_mass + Σ p_j (1 − e^{ε − l_j})₊.
Between two losses it is δ_j + C_j (1 − e^{ε − l_j}), where l_j is the next loss above
ε, δ_j is the profile at l_j, and C_j is the sum of p_i e^{l_j − l_i} over all i ≥ j.
All of these are sums of positive terms, added up from the largest loss down.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import whole_laws

# Exponentials relative to one reference loss are summed up over this many nats.
_SPAN = 16.0
# Certified: the number of roundings of a value, besides two for each of its n terms.
_ROUNDINGS = 64
# Certified: the number of roundings of a value on a chord between two losses: a mean of
# two heights, with a weight that is a quotient of two exponentials.
CHORD = 32
# Tuning: where masses have a smaller error than this, bounds on whole laws are no
# better.
_SMALL_ERROR = 1e-7
# A value above every profile, whatever the errors of its masses.
_HIGHEST = 1e100


@dataclasses.dataclass(frozen=True)
class Laws:
    """What bounds on whole laws need besides the losses and masses of a profile.

    Attributes:
        q: (n,) Q's masses of the losses.
        closeness: How close P's and Q's laws are to those of the bound.
    """

    q: FloatArray
    closeness: whole_laws.Closeness


@dataclasses.dataclass(frozen=True)
class Powers:
    """The tests {loss ≥ l_j} of a lower bound.

    Attributes:
        least: (n,) lower bounds on their probabilities under P.
        most: (n,) upper bounds on their probabilities under Q.
    """

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(
        cls,
        p: FloatArray,
        laws: Laws,
        q: FloatArray,
        infinity_mass: float,
        rounding: float,
    ) -> "Powers":
        """Returns the tests of (n,) masses, in the order of increasing losses."""
        # A mass that underflowed is at most this.
        q = np.maximum(q, floats.SMALLEST_MASS)
        sums = [np.cumsum(law[::-1])[::-1] for law in (p, q)]
        whole = (float(sums[0][0]) + infinity_mass) * (1 + 2 * laws.closeness.lacking)
        least = laws.closeness.least(
            (sums[0] + infinity_mass) / whole * (1 - 4 * rounding)
        )
        most = laws.closeness.most(sums[1] / float(sums[1][0]) * (1 + 4 * rounding))
        return cls(least, most)

    def epsilon(self, delta: float) -> float:
        """Returns the largest ε at which some test proves more than a given δ."""
        gained = self.least - delta
        says = gained > 0
        if not says.any():
            return 0.0
        ratios = gained[says] / self.most[says]
        return math.log(float(ratios.max())) - 8 * floats.UNIT_ROUNDOFF * (
            1 + abs(math.log(float(ratios.max())))
        )


@dataclasses.dataclass(frozen=True)
class Profile:
    """The privacy profile of a law of losses, in one direction.

    Attributes:
        losses: (n,) losses, increasing.
        heights: (n,) values of the profile at the losses, without `infinity_mass`.
        costs: (n,) values C_j.
        infinity_mass: The probability of an infinite loss.
        bound: The side of the bound.
        mass_error: Masses are within a factor of e^±mass_error of those of a bound.
        ratio_error: Losses are within this many nats of those of a bound.
        sum_error: The part of `mass_error` that comes from the sums made here.
        closeness: How close P's law is, as a whole, to that of the bound.
        powers: The tests of a lower bound, if its laws are close on the whole.
    """

    losses: FloatArray
    heights: FloatArray
    costs: FloatArray
    infinity_mass: float
    bound: Bound
    mass_error: float
    ratio_error: float
    sum_error: float = 0.0
    closeness: whole_laws.Closeness = whole_laws.NONE
    powers: Powers | None = None

    @classmethod
    def of(
        cls,
        losses: FloatArray,
        masses: FloatArray,
        infinity_mass: float,
        bound: Bound,
        mass_error: float,
        ratio_error: float,
        laws: Laws | None = None,
    ) -> "Profile":
        """Returns the profile of (n,) losses with (n,) masses, in any order.

        Raises:
            MassError: If the sums do not have the mass that they are made of.
        """
        if not losses.size:
            losses, masses = np.zeros(1), np.full(1, floats.SMALLEST_MASS)
            laws = None
        if laws and not (
            laws.closeness.spread < mass_error and mass_error > _SMALL_ERROR
        ):
            laws = None
        order = np.argsort(losses, kind="stable")
        losses, masses = losses[order], masses[order]
        costs = np.empty(losses.size)
        carried, reference, high = 0.0, 0.0, losses.size
        while high:
            top = float(losses[high - 1])
            low = int(np.searchsorted(losses[:high], top - _SPAN))
            here = losses[low:high] - top
            carried *= math.exp(top - reference) if high < losses.size else 0.0
            # Relative to the largest loss of this span.
            summed = np.cumsum((masses[low:high] * np.exp(-here))[::-1])[::-1]
            costs[low:high] = (summed + carried) * np.exp(here)
            carried += float(summed[0])
            reference, high = top, low
        falls = -np.expm1(-np.diff(losses)) * costs[1:]
        heights = np.append(np.cumsum(falls[::-1])[::-1], 0.0)
        rounding = (2 * losses.size + _ROUNDINGS) * floats.UNIT_ROUNDOFF
        total = float(heights[0] + costs[0])
        conservation.check_profile(total, float(masses.sum()), rounding)
        found = cls(
            losses,
            heights,
            costs,
            infinity_mass,
            bound,
            mass_error + rounding,
            ratio_error,
        )
        if laws is None:
            return found
        if bound is Bound.LOWER:
            powers = Powers.of(masses, laws, laws.q[order], infinity_mass, rounding)
            return dataclasses.replace(found, powers=powers)
        return dataclasses.replace(found, sum_error=rounding, closeness=laws.closeness)

    def with_losses(self, most: int) -> "Profile":
        """Returns an upper profile with at most some number of losses.

        δ is a convex function of e^ε, so that its chords between some of the losses are
        above it.
        """
        kept = np.linspace(0, self.losses.size - 1, most).astype(np.int64)
        losses, heights = self.losses[kept], self.heights[kept]
        if self.losses.size <= most or np.diff(losses).min() < floats.SMALLEST_MASS:
            return self
        slopes = np.diff(heights) / np.expm1(-np.diff(losses))
        rounding = CHORD * floats.UNIT_ROUNDOFF
        return dataclasses.replace(
            self,
            losses=losses,
            heights=heights,
            costs=np.append(self.costs[0], slopes),
            mass_error=self.mass_error + rounding,
            sum_error=self.sum_error + rounding,
        )

    @property
    def _scales(self) -> tuple[float, float]:
        """The factors that turn the masses, and the sink, into shares of one.

        Masses of n runs may have n errors of one sign. Their sum then has the same
        relative error, which is thus known. The error of the masses that were cut off
        is no larger.
        """
        masses = float(self.heights[0] + self.costs[0])
        scale = max(1 - self.infinity_mass, floats.SMALLEST_MASS) / masses
        return scale, max(scale, 1.0)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        sign = 1.0 if self.bound is Bound.UPPER else -1.0
        moved = epsilons - sign * (
            self.ratio_error + 4 * floats.UNIT_ROUNDOFF * np.abs(epsilons)
        )
        next_ones = np.searchsorted(self.losses, moved, side="right")
        places = np.minimum(next_ones, self.losses.size - 1)
        with np.errstate(under="ignore"):
            finite = self.heights[places] - self.costs[places] * np.expm1(
                np.minimum(moved - self.losses[places], 0.0)
            )
        summed = finite + self.infinity_mass
        if self.mass_error > floats.LARGEST_EXPONENT:
            # Masses with so large an error give no bound.
            found = np.full(summed.shape, 1.0 if self.bound is Bound.UPPER else 0.0)
        else:
            found = summed * math.exp(sign * self.mass_error)
        if self.closeness.spread < math.inf:
            scale, of_sink = self._scales
            shares = finite * scale + self.infinity_mass * of_sink
            shares *= 1 + 4 * self.sum_error
            found = np.minimum(found, self.closeness.most(shares))
        if self.powers is not None:
            with np.errstate(over="ignore"):
                lost = np.exp(epsilons) * self.powers.most[places]
            found = np.maximum(found, (self.powers.least[places] - lost) * (1 - 1e-15))
        if self.bound is Bound.UPPER:
            # At ε < 0, no two laws have a smaller δ than this.
            least = -np.expm1(np.minimum(epsilons, 0.0)) * (
                1 + 8 * floats.UNIT_ROUNDOFF
            )
            found = np.maximum(found, least)
        conservation.check_numbers("Bounds on δ", found)
        clipped: FloatArray = np.clip(found, 0.0, 1.0)
        return clipped

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) certified ε ≥ 0 at (n,) δ in (0, 1), in nats."""
        sign = 1.0 if self.bound is Bound.UPPER else -1.0
        goals = (
            deltas * floats.exponential(-sign * self.mass_error) - self.infinity_mass
        )
        if self.closeness.spread < math.inf:
            shares = self.closeness.least(deltas) * (1 - 4 * self.sum_error)
            scale, of_sink = self._scales
            goals = np.maximum(goals, (shares - self.infinity_mass * of_sink) / scale)
        is_finite = goals > 0
        goals = np.where(is_finite, goals, 0.0)
        # Any larger goal is above every profile, and this one fits a float.
        goals = np.minimum(goals, _HIGHEST)
        # The first loss at which the profile is at the goal or below it.
        places = np.searchsorted(-self.heights, -goals, side="left")
        places = np.minimum(places, self.losses.size - 1)
        lacking = (goals - self.heights[places]) / self.costs[places]
        found = self.losses[places] + np.log1p(
            -np.minimum(lacking, 1 - floats.UNIT_ROUNDOFF)
        )
        size = np.abs(self.losses[places]) + np.abs(found)
        found = found + sign * (self.ratio_error + 8 * floats.UNIT_ROUNDOFF * size)
        # Here the profile is below the goal at every ε.
        found = np.where(lacking >= 1, 0.0, found)
        found = np.where(is_finite, found, math.inf)
        if self.powers is not None:
            tested = [self.powers.epsilon(delta) for delta in deltas.tolist()]
            found = np.maximum(found, tested)
        conservation.check_numbers("Bounds on ε", found)
        positive: FloatArray = np.maximum(found, 0.0)
        return positive


@dataclasses.dataclass(frozen=True)
class LossPair:
    """A pair of laws, represented by the loss ln(p / q) of every output.

    Attributes:
        losses: (n,) losses, in nats, in any order.
        p_masses: (n,) masses with the record.
        q_masses: (n,) masses without it. At large losses they may be less than any
            float; no answer for P's side needs these.
        infinity_mass: P's mass of an infinite loss.
        zero_mass: Q's mass of a loss of minus infinity.
        bound: Which side the pair certifies.
        mass_error: Both masses are within a factor of e^±mass_error of those of a
            bound.
        ratio_error: Losses are within this many nats of those of a bound.
        ledger: The sums that the masses must have.
        closeness: How close both laws are, as a whole, to those of the bound.

    Raises:
        MassError: If the masses do not sum to what they must, within the errors.
    """

    losses: FloatArray
    p_masses: FloatArray
    q_masses: FloatArray
    infinity_mass: float
    zero_mass: float
    bound: Bound
    mass_error: float
    ratio_error: float
    ledger: conservation.Ledger
    closeness: whole_laws.Closeness = whole_laws.NONE

    def __post_init__(self) -> None:
        is_upper = self.bound is Bound.UPPER
        sinks = (self.infinity_mass, self.zero_mass) if is_upper else None
        if is_upper:
            conservation.check_sinks(self.infinity_mass, self.zero_mass, self.ledger)
        conservation.check_law(
            self.losses,
            (self.p_masses, self.q_masses),
            sinks,
            self.ledger,
            self.mass_error,
        )

    def profile(self, direction: Direction) -> Profile:
        """Returns the privacy profile in one direction."""
        each = self if direction is Direction.REMOVE else self.swapped()
        infinity_mass = each.infinity_mass
        kept = each.p_masses > 0
        if self.bound is Bound.UPPER and not kept.all():
            infinity_mass += each.p_masses.size * floats.RARE
        return Profile.of(
            each.losses[kept],
            each.p_masses[kept],
            infinity_mass,
            self.bound,
            self.mass_error,
            self.ratio_error,
            Laws(each.q_masses[kept], self.closeness),
        )

    def swapped(self) -> "LossPair":
        """Returns the pair with P and Q exchanged."""
        return dataclasses.replace(
            self,
            losses=-self.losses,
            p_masses=self.q_masses,
            q_masses=self.p_masses,
            infinity_mass=self.zero_mass,
            zero_mass=self.infinity_mass,
            ledger=self.ledger.swapped(),
        )

    def distance(self) -> float:
        """Returns the distance of the medians under P and Q, in scales of P's law."""
        if not self.losses.size:
            return 0.0
        order = np.argsort(self.losses, kind="stable")
        losses = self.losses[order]
        low, middle, high = sums.quantiles(losses, self.p_masses[order])
        _, other, _ = sums.quantiles(losses, self.q_masses[order])
        apart, width = abs(middle - other), (high - low) / 2
        return apart / width if width else math.inf if apart else 0.0
