"""How close a computed law is, as a whole, to the law that it stands for.

Each mass of a step may be off by a factor e^±e, and each mass of a sum of n steps by
e^±ne. But both laws sum to one: if masses are too large in one place they are too small
in another, and few outcomes of n steps meet the same error n times. The error of a sum
is like a sum of n independent variables of mean zero, about √n e, and more for outcomes
of small probability. docs/mathematics.md, "Errors of laws that sum to one", has the
proof.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: the relative error of the logarithms and exponentials that move a
# probability, whose arguments are at most 750.
_ROUNDING = 1e-12
# A law that lacks more than this probability claims nothing.
_MOST_LACKING = 1e-6


@dataclasses.dataclass(frozen=True)
class Closeness:
    """A bound on the Rényi divergences between a law and the one that it stands for.

    With both laws divided by their sums, the divergence of any order α > 1 is at most
    α spread² / 2, in either direction. This holds for P's law and for Q's.

    Attributes:
        spread: The spread; infinite if nothing is claimed.
        lacking: An upper bound on the probability that a lower law has left out.
    """

    spread: float = math.inf
    lacking: float = 0.0

    def __post_init__(self) -> None:
        if not self.lacking <= _MOST_LACKING:
            object.__setattr__(self, "spread", math.inf)

    def rounded(self, by: float) -> "Closeness":
        """Returns the closeness after each mass was rounded by a relative error."""
        return Closeness(self.spread + by, self.lacking)

    def without(self, mass: float) -> "Closeness":
        """Returns the closeness of a lower law after more mass is left out."""
        return Closeness(self.spread, self.lacking + 2 * mass)

    def of_sum(self, other: "Closeness", drawn: float) -> "Closeness":
        """Returns the closeness of the sum of two independent variables.

        Args:
            other: The closeness of the other variable.
            drawn: For ratios, where P's law draws one of the two variables: a bound on
                the absolute logarithm of the error of the odds. Zero for losses.
        """
        spread = math.hypot(self.spread, other.spread, drawn / 2) * (1 + _ROUNDING)
        return Closeness(spread, self.lacking + other.lacking)

    def most(self, probabilities: FloatArray) -> FloatArray:
        """Returns upper bounds on (n,) probabilities from the computed ones.

        Computed probabilities below 1e-300 count as 1e-300.
        """
        if math.isinf(self.spread):
            return np.ones(probabilities.shape)
        logs = -np.log(np.clip(probabilities, floats.SMALLEST_MASS, 1.0))
        with np.errstate(over="ignore"):
            moved = np.exp(-logs + self.spread * np.sqrt(2 * logs)) * (1 + _ROUNDING)
        found: FloatArray = np.minimum(moved, 1.0)
        return found

    def least(self, probabilities: FloatArray) -> FloatArray:
        """Returns lower bounds on (n,) probabilities from the computed ones."""
        if math.isinf(self.spread):
            return np.zeros(probabilities.shape)
        logs = -np.log(np.clip(probabilities, floats.SMALLEST_MASS, 1.0))
        half = self.spread / math.sqrt(2)
        moved = np.exp(-((half + np.sqrt(half**2 + logs)) ** 2)) * (1 - _ROUNDING)
        found: FloatArray = np.where(probabilities > floats.SMALLEST_MASS, moved, 0.0)
        return found


NONE = Closeness()
