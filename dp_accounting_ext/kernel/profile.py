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

# Exponentials relative to one reference loss are summed up over this many nats.
_SPAN = 16.0
# Certified: the number of roundings of a value, besides two for each of its n terms.
_ROUNDINGS = 64
# A value above every profile, whatever the errors of its masses.
_HIGHEST = 1e100


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
    """

    losses: FloatArray
    heights: FloatArray
    costs: FloatArray
    infinity_mass: float
    bound: Bound
    mass_error: float
    ratio_error: float

    @classmethod
    def of(
        cls,
        losses: FloatArray,
        masses: FloatArray,
        infinity_mass: float,
        bound: Bound,
        mass_error: float,
        ratio_error: float,
    ) -> "Profile":
        """Returns the profile of (n,) losses with (n,) masses, in any order.

        Raises:
            MassError: If the sums do not have the mass that they are made of.
        """
        if not losses.size:
            losses, masses = np.zeros(1), np.full(1, floats.SMALLEST_MASS)
        order = np.argsort(losses, kind="stable")
        losses, masses = losses[order], masses[order]
        costs = np.empty(losses.size)
        carried, reference, high = 0.0, 0.0, losses.size
        while high:
            top = float(losses[high - 1])
            low = int(np.searchsorted(losses[:high], top - _SPAN))
            below_top = losses[low:high] - top
            carried *= math.exp(top - reference) if high < losses.size else 0.0
            # Relative to the largest loss of this span.
            summed = np.cumsum((masses[low:high] * np.exp(-below_top))[::-1])[::-1]
            costs[low:high] = (summed + carried) * np.exp(below_top)
            carried += float(summed[0])
            reference, high = top, low
        falls = -np.expm1(-np.diff(losses)) * costs[1:]
        heights = np.append(np.cumsum(falls[::-1])[::-1], 0.0)
        rounding = (2 * losses.size + _ROUNDINGS) * floats.UNIT_ROUNDOFF
        total = float(heights[0] + costs[0])
        conservation.check_total(
            "masses of a profile",
            total,
            float(masses.sum()),
            (rounding + conservation.SUM_ERROR) * float(masses.sum()),
        )
        return cls(
            losses,
            heights,
            costs,
            infinity_mass,
            bound,
            mass_error + rounding,
            ratio_error,
        )

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        sign = 1.0 if self.bound is Bound.UPPER else -1.0
        shifted = epsilons - sign * (
            self.ratio_error + 4 * floats.UNIT_ROUNDOFF * np.abs(epsilons)
        )
        next_ones = np.searchsorted(self.losses, shifted, side="right")
        places = np.minimum(next_ones, self.losses.size - 1)
        with np.errstate(under="ignore"):
            finite = self.heights[places] - self.costs[places] * np.expm1(
                np.minimum(shifted - self.losses[places], 0.0)
            )
        summed = finite + self.infinity_mass
        if self.mass_error > floats.LARGEST_EXPONENT:
            # Masses with so large an error give no bound.
            bounds = np.full(summed.shape, 1.0 if self.bound is Bound.UPPER else 0.0)
        else:
            bounds = summed * math.exp(sign * self.mass_error)
        if self.bound is Bound.UPPER:
            # At ε < 0, no two laws have a smaller δ than this.
            smallest = -np.expm1(np.minimum(epsilons, 0.0)) * (
                1 + 8 * floats.UNIT_ROUNDOFF
            )
            bounds = np.maximum(bounds, smallest)
        conservation.check_numbers("Bounds on δ", bounds)
        clipped: FloatArray = np.clip(bounds, 0.0, 1.0)
        return clipped

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) certified ε ≥ 0 at (n,) δ in (0, 1), in nats."""
        sign = 1.0 if self.bound is Bound.UPPER else -1.0
        goals = (
            deltas * floats.exponential(-sign * self.mass_error) - self.infinity_mass
        )
        is_finite = goals > 0
        goals = np.where(is_finite, goals, 0.0)
        # Any larger goal is above every profile, and this one fits a float.
        goals = np.minimum(goals, _HIGHEST)
        # The first loss at which the profile is at the goal or below it.
        places = np.searchsorted(-self.heights, -goals, side="left")
        places = np.minimum(places, self.losses.size - 1)
        lacking = (goals - self.heights[places]) / self.costs[places]
        bounds = self.losses[places] + np.log1p(
            -np.minimum(lacking, 1 - floats.UNIT_ROUNDOFF)
        )
        size = np.abs(self.losses[places]) + np.abs(bounds)
        bounds = bounds + sign * (self.ratio_error + 8 * floats.UNIT_ROUNDOFF * size)
        # Here the profile is below the goal at every ε.
        bounds = np.where(lacking >= 1, 0.0, bounds)
        bounds = np.where(is_finite, bounds, math.inf)
        conservation.check_numbers("Bounds on ε", bounds)
        positive: FloatArray = np.maximum(bounds, 0.0)
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

    def __post_init__(self) -> None:
        conservation.check_law(
            self.losses,
            (self.p_masses, self.q_masses),
            (self.infinity_mass, self.zero_mass) if self.bound is Bound.UPPER else None,
            self.ledger,
            self.mass_error,
        )

    def profile(self, direction: Direction) -> Profile:
        """Returns the privacy profile in one direction."""
        pair = self if direction is Direction.REMOVE else self.swapped()
        infinity_mass = pair.infinity_mass
        has_mass = pair.p_masses > 0
        if self.bound is Bound.UPPER and not has_mass.all():
            infinity_mass += pair.p_masses.size * floats.RARE
        return Profile.of(
            pair.losses[has_mass],
            pair.p_masses[has_mass],
            infinity_mass,
            self.bound,
            self.mass_error,
            self.ratio_error,
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
            ledger=self.ledger._replace(p=self.ledger.q, q=self.ledger.p),
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
