"""How close a computed law is to the law that it stands for, as a whole.

Each mass of a step may be off by a factor e^±e, and each mass of a sum of n steps by
e^±ne. But both laws sum to one, so that what is too large in one place is too small in
another, and few outcomes of n steps meet the same error n times: a law is off as a sum
of n independent variables of mean zero is, by some √n e, and by more where a chance is
small. docs/mathematics.md, "Errors of laws that sum to one", has the proof.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: of the logarithms and exponentials by which a chance is moved, which are no
# larger than 750.
_ROUNDING = 1e-12
# A law that lacks more than this claims nothing.
_MOST_LACKING = 1e-6


@dataclasses.dataclass(frozen=True)
class Closeness:
    """A bound on the Rényi divergences of a law from that which it stands for.

    Of both, divided by their sums, the divergence of any order α > 1 is at most
    α spread² / 2, in either direction; for P's law and for Q's.

    Attributes:
        spread: Infinite where nothing is claimed.
        lacking: The probability of what a lower law has left out, at most.
    """

    spread: float = math.inf
    lacking: float = 0.0

    def __post_init__(self) -> None:
        if not self.lacking <= _MOST_LACKING:
            object.__setattr__(self, "spread", math.inf)

    def rounded(self, by: float) -> "Closeness":
        """Returns that of the law after masses were rounded, each by so much."""
        return Closeness(self.spread + by, self.lacking)

    def without(self, mass: float) -> "Closeness":
        """Returns that of a lower law that leaves out so much more."""
        return Closeness(self.spread, self.lacking + 2 * mass)

    def of_sum(self, other: "Closeness", drawn: float) -> "Closeness":
        """Returns that of the sum of independent variables.

        Args:
            other: That of the other one.
            drawn: Bound on |ln| of the factor by which the odds are off with which P's
                law draws either variable; zero for losses.
        """
        spread = math.hypot(self.spread, other.spread, drawn / 2) * (1 + _ROUNDING)
        return Closeness(spread, self.lacking + other.lacking)

    def most(self, chances: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on probabilities, of which these are computed.

        None is below that of 1e-300.
        """
        if math.isinf(self.spread):
            return np.ones(chances.shape)
        logs = -np.log(np.clip(chances, floats.SMALLEST_MASS, 1.0))
        with np.errstate(over="ignore"):
            moved = np.exp(-logs + self.spread * np.sqrt(2 * logs)) * (1 + _ROUNDING)
        found: FloatArray = np.minimum(moved, 1.0)
        return found

    def least(self, chances: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on probabilities, of which these are computed."""
        if math.isinf(self.spread):
            return np.zeros(chances.shape)
        logs = -np.log(np.clip(chances, floats.SMALLEST_MASS, 1.0))
        half = self.spread / math.sqrt(2)
        moved = np.exp(-((half + np.sqrt(half**2 + logs)) ** 2)) * (1 - _ROUNDING)
        found: FloatArray = np.where(chances > floats.SMALLEST_MASS, moved, 0.0)
        return found


NONE = Closeness()
