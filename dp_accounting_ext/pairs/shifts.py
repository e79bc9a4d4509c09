"""Noise around random shifts: what mixtures of any noise have in common."""

import abc
import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]
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
    def noise_below(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the noise's distribution function, and its relative error at most."""

    @abc.abstractmethod
    def log_densities(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) logarithms of the density at points, and how fast they grow.

        Both but for terms that all mixtures of the noise share.
        """

    @staticmethod
    @abc.abstractmethod
    def log_ratio_error(points: FloatArray, furthest: float, terms: int) -> FloatArray:
        """Bounds the rounding errors of differences of two `log_densities`.

        Args:
            points: (n,) places where they are evaluated.
            furthest: The largest size of any shift.
            terms: How many shifts there are in both.
        """

    def log_ratios(
        self, other: "Mixture", points: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns (n,) ln of this density over another, slopes, and errors at most.

        The ratio must increase, so that outside its thresholds it is constant, or
        nothing lies there.
        """
        points = np.maximum(points, other.lowest_threshold())
        points = np.minimum(points, self.highest_threshold())
        values, slopes = self.log_densities(points)
        less, fewer = other.log_densities(points)
        furthest = max(self._furthest, other._furthest)
        terms = len(self.shifts) + len(other.shifts)
        errors = self.log_ratio_error(points, furthest, terms)
        errors = errors + (self.weight_error() + other.weight_error())
        return values - less, slopes - fewer, errors

    @functools.cached_property
    def columns(self) -> tuple[FloatArray, FloatArray]:
        """The (s,) shifts, and their weights."""
        shifts, weights = np.array(self.shifts).T
        return shifts, weights

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
