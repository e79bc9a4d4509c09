"""Noise around random shifts: what mixtures of any noise have in common."""

import abc
import dataclasses
import functools

from dp_accounting_ext.kernels import floats

Shifts = tuple[tuple[float, float], ...]

# A limit of time and memory.
MOST_SHIFTS = 4096

# Certified: at 1e9 standard deviations a normal law has no mass.
_FURTHEST = 1e9
# Certified (docs/guarantees.md, "Neyman–Pearson"): relative errors of weights. Two are
# a probability and the rest; more come from logarithms, with an error at the mode and
# one for each step from it.
_TWO_WEIGHTS = 4 * floats.UNIT_ROUNDOFF
_WEIGHTS = 4e-13
_WEIGHTS_STEP = 1e-15


@dataclasses.dataclass(frozen=True)
class Mixture(abc.ABC):
    """Symmetric noise around a random shift: (shift, weight); weights sum to one."""

    shifts: Shifts

    @staticmethod
    @abc.abstractmethod
    def noise_below(point: float) -> tuple[float, float]:
        """Returns the noise's distribution function, and its relative error at most."""

    @abc.abstractmethod
    def log_density(self, point: float) -> float:
        """Returns the logarithm of the density at a point, up to a term that all
        mixtures of the noise share.
        """

    @staticmethod
    @abc.abstractmethod
    def log_ratio_error(point: float, furthest: float, terms: int) -> float:
        """Bounds the rounding error of a difference of two `log_density`.

        Args:
            point: Where they are evaluated.
            furthest: The largest size of any shift.
            terms: How many shifts there are in both.
        """

    def log_ratio(self, other: "Mixture", point: float) -> tuple[float, float]:
        """Returns ln of this density over another at a point, and its error at most.

        The ratio must increase, so that outside its thresholds it is constant, or
        nothing lies there.
        """
        point = min(max(point, other.lowest_threshold()), self.highest_threshold())
        value = self.log_density(point) - other.log_density(point)
        furthest = max(self._furthest, other._furthest)
        terms = len(self.shifts) + len(other.shifts)
        error = self.log_ratio_error(point, furthest, terms)
        return value, error + self.weight_error() + other.weight_error()

    @functools.cached_property
    def _furthest(self) -> float:
        """The largest size of any shift."""
        return max(abs(shift) for shift, _ in self.shifts)

    def lowest_threshold(self) -> float:
        """Returns where thresholds begin for the ratio of a higher law to this one."""
        return -_FURTHEST

    def highest_threshold(self) -> float:
        """Returns where thresholds end for the ratio of this law to a lower one."""
        return _FURTHEST

    def reflected(self) -> "Mixture":
        """Returns the mixture of the opposite shifts."""
        opposite = tuple((-shift, weight) for shift, weight in self.shifts)
        return dataclasses.replace(self, shifts=opposite)

    def lowest(self) -> float:
        """Returns the lowest shift."""
        return min(shift for shift, _ in self.shifts)

    def highest(self) -> float:
        """Returns the highest shift."""
        return max(shift for shift, _ in self.shifts)

    def weight_error(self) -> float:
        """Returns a bound on the relative error of any weight."""
        number = len(self.shifts)
        if number == 1:
            return 0.0
        return _TWO_WEIGHTS if number == 2 else _WEIGHTS + number * _WEIGHTS_STEP


def check_order(p: Mixture, q: Mixture) -> None:
    """Checks that no shift of P is below a shift of Q, zero in between.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.
    """
    if p.lowest() < 0 or q.highest() > 0:
        raise ValueError(
            "Shifts of P must be at least 0, those of Q at most 0. "
            f"Found {p.lowest()} and {q.highest()}."
        )
