"""The privacy profile of a law: δ at every ε, and ε at every δ, certified.

With losses l_j and P's masses p_j, δ(ε) = over + Σ p_j (1 − e^{ε − l_j})₊. Between two
losses it is δ_j + C_j (1 − e^{ε − l_j}), where l_j is the next loss above ε, δ_j the
profile there and C_j the sum of p_i e^{l_j − l_i} from there on. All of it are sums of
positive terms, from the largest loss down.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sides

Bound = sides.Bound
FloatArray = npt.NDArray[np.float64]

# So many nats are summed up with one reference: the exponentials are no larger.
_SPAN = 16.0
# Certified: relative rounding of a value, beside that of sums of n terms, twice.
_ROUNDINGS = 64


@dataclasses.dataclass(frozen=True)
class Profile:
    """The profile of losses in one direction.

    Attributes:
        losses: (n,) losses, increasing.
        heights: (n,) the profile there, without the sink.
        costs: (n,) C_j.
        sink: The probability of an infinite loss.
        bound: The side.
        error: Masses are those of a bound within a factor of e^±error,
        shift: and losses within so many nats.
    """

    losses: FloatArray
    heights: FloatArray
    costs: FloatArray
    sink: float
    bound: Bound
    error: float
    shift: float

    @classmethod
    def of(
        cls,
        losses: FloatArray,
        masses: FloatArray,
        sink: float,
        bound: Bound,
        error: float,
        shift: float,
    ) -> "Profile":
        """Returns the profile of (n,) losses with (n,) masses, in any order.

        Raises:
            MassError: If its sums have not the mass that it is made of.
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
            here = losses[low:high] - top
            carried *= math.exp(top - reference) if high < losses.size else 0.0
            # Relative to the largest loss of these.
            summed = np.cumsum((masses[low:high] * np.exp(-here))[::-1])[::-1]
            costs[low:high] = (summed + carried) * np.exp(here)
            carried += float(summed[0])
            reference, high = top, low
        falls = -np.expm1(-np.diff(losses)) * costs[1:]
        heights = np.append(np.cumsum(falls[::-1])[::-1], 0.0)
        rounding = (2 * losses.size + _ROUNDINGS) * floats.UNIT_ROUNDOFF
        total = float(heights[0] + costs[0])
        conservation.check_profile(total, float(masses.sum()), rounding)
        return cls(losses, heights, costs, sink, bound, error + rounding, shift)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        sign = 1.0 if self.bound is Bound.UPPER else -1.0
        moved = epsilons - sign * (
            self.shift + 4 * floats.UNIT_ROUNDOFF * np.abs(epsilons)
        )
        next_ones = np.searchsorted(self.losses, moved, side="right")
        places = np.minimum(next_ones, self.losses.size - 1)
        with np.errstate(under="ignore"):
            found = self.heights[places] - self.costs[places] * np.expm1(
                np.minimum(moved - self.losses[places], 0.0)
            )
        found = (found + self.sink) * math.exp(sign * self.error)
        if self.bound is Bound.UPPER:
            # No two laws have less at an ε below 0.
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
        goals = deltas * math.exp(-sign * self.error) - self.sink
        is_finite = goals > 0
        goals = np.where(is_finite, goals, 0.0)
        # The first place where the profile is at the goal or below.
        places = np.searchsorted(-self.heights, -goals, side="left")
        places = np.minimum(places, self.losses.size - 1)
        lacking = (goals - self.heights[places]) / self.costs[places]
        found = self.losses[places] + np.log1p(
            -np.minimum(lacking, 1 - floats.UNIT_ROUNDOFF)
        )
        size = np.abs(self.losses[places]) + np.abs(found)
        found = found + sign * (self.shift + 8 * floats.UNIT_ROUNDOFF * size)
        # The profile is below the goal however small ε is.
        found = np.where(lacking >= 1, 0.0, found)
        found = np.where(is_finite, found, math.inf)
        conservation.check_numbers("Bounds on ε", found)
        positive: FloatArray = np.maximum(found, 0.0)
        return positive
