"""Gaussian and Laplace noise, around one shift or a random one."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import laplace_mixture
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import shifted_noise

Accuracy = interface.Accuracy
DominatingPair = dominating_pair.DominatingPair
Shifts = shifts.Shifts

UNSHIFTED = ((0.0, 1.0),)
# Tuning: for mixtures with more shifts, Rényi divergences are computed from pairs. This
# is as quick as quadrature.
_MOST_SHIFTS = 16


@dataclasses.dataclass(frozen=True)
class Gaussian(interface.OnePairMechanism):
    """The Gaussian mechanism of sensitivity one; runs of it are one with less noise."""

    noise_multiplier: float

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        return gaussian.dominating_pair_of(
            self.noise_multiplier, bound, tail_mass=accuracy.tail_mass
        )

    @property
    def mean(self) -> float:
        """The distance of neighboring datasets' sums, in standard deviations."""
        return 1 / self.noise_multiplier

    @property
    def gaussian_noise(self) -> float:
        return self.noise_multiplier

    def on_a_sample(self, rate: float) -> interface.Mechanism | None:
        return GaussianMixture(((self.mean, 1.0),), UNSHIFTED).on_a_sample(rate)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        return interface.Divergences(ratio_moments.gaussian_rdp(self.mean, orders))

    def claims(self) -> interface.Claims:
        return interface.Claims(
            gaussian_precision=self.noise_multiplier**-2, is_symmetric=True
        )


@dataclasses.dataclass(frozen=True)
class _ShiftMixture(interface.OnePairMechanism):
    """Noise around random shifts: one mixture, P, against another, Q.

    Shifts are divided by the noise's parameter. Those of P are at least 0, and those of
    Q are at most 0. The weights of either mixture sum to one. This accounts for any
    sampling scheme whose worst case is a pair of such mixtures.

    Attributes:
        p: (shift, weight) of each component of P, the law with the record.
        q: (shift, weight) of each component of Q.

    Raises:
        ValueError: If there are more than 4096 shifts. This is checked on construction.
    """

    p: Shifts
    q: Shifts

    def __post_init__(self) -> None:
        most = max(len(self.p), len(self.q))
        if most > shifts.MOST_SHIFTS:
            raise ValueError(
                f"A mixture may have {shifts.MOST_SHIFTS} shifts at most. Found {most}."
            )

    def _likely(
        self, bound: Bound, accuracy: Accuracy
    ) -> tuple[Shifts, Shifts, tuple[float, float]]:
        """Returns both laws without their rarest shifts, and what goes to the sinks."""
        rare = accuracy.tail_mass / 4
        p, p_lost = without_rare(self.p, rare, bound)
        q, q_lost = without_rare(self.q, rare, bound)
        return p, q, (p_lost, q_lost)

    def sampled_from(self) -> tuple[float, interface.Mechanism] | None:
        moved = [(shift, weight) for shift, weight in self.p if shift]
        if self.q != UNSHIFTED or not 0 < len(moved) < len(self.p):
            return None
        rate = math.fsum(weight for _, weight in moved)
        given = tuple((shift, weight / rate) for shift, weight in moved)
        # Ratios increase with the output, so more weight of a shift is an upper bound.
        raised = min(floats.raised(rate, 16 * floats.UNIT_ROUNDOFF), 1.0)
        return raised, dataclasses.replace(self, p=given)

    def on_a_sample(self, rate: float) -> interface.Mechanism | None:
        """Returns the mixture, with a shift of zero if the record is not sampled."""
        if self.q != UNSHIFTED:
            return None
        weights = {shift: rate * weight for shift, weight in self.p}
        weights[0.0] = weights.get(0.0, 0.0) + (1 - rate)
        # Rarer shifts have fewer digits than a bound may lose.
        if min(weights.values()) < floats.SMALLEST_MASS:
            return None
        return dataclasses.replace(self, p=tuple(sorted(weights.items())))

    def _is_symmetric(self) -> bool:
        # The laws are symmetric around the middle of two shifts, or around zero.
        if len(self.p) == len(self.q) == 1:
            return True
        return sorted(self.p) == sorted((-shift, weight) for shift, weight in self.q)


@dataclasses.dataclass(frozen=True)
class GaussianMixture(_ShiftMixture):
    """Gaussian noise around random shifts, over its standard deviation."""

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        p, q, rest = self._likely(bound, accuracy)
        return gaussian_mixture.dominating_pair_of(
            gaussian_mixture.Mixture(p),
            gaussian_mixture.Mixture(q),
            bound,
            tail_mass=accuracy.tail_mass,
            rest=rest,
            cells=accuracy.resolution.cells,
        )

    def gaussian_steps(self) -> interface.Allocation | None:
        """Returns the step of a Poisson-sampled Gaussian, which is drawn or not."""
        moved = [(shift, weight) for shift, weight in self.p if shift]
        if self.q != UNSHIFTED or len(moved) != 1:
            return None
        ((shift, weight),) = moved
        null_probability = math.fsum(weight for other, weight in self.p if not other)
        step = replaced_allocation.Steps(shift, weight, 1)
        return interface.Allocation((step,), null_probability, infinity_mass=0.0)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns Rényi divergences by quadrature, or None if there are many shifts."""
        if max(len(self.p), len(self.q)) > _MOST_SHIFTS:
            return None
        p = shifted_noise.mixture(self.p)
        q = shifted_noise.mixture(tuple((-shift, weight) for shift, weight in self.q))
        errors = [shifts.Mixture(law).weight_error() for law in (self.p, self.q)]
        values = np.maximum(
            shifted_noise.rdp(orders, shifted_noise.Pair(p, q)),
            shifted_noise.rdp(orders, shifted_noise.Pair(q, p)),
        )
        # An error of the weights is a factor of Z, so that it also changes Z^α.
        finite = np.minimum(np.array(orders), ratio_moments.HIGHEST_ORDER)
        return interface.Divergences(values * (1 + 2 * finite * sum(errors)))

    def claims(self) -> interface.Claims:
        # Divergences of mixtures are at most those of their furthest components.
        furthest = max(s for s, _ in self.p) - min(s for s, _ in self.q)
        return interface.Claims(
            gaussian_precision=furthest**2, is_symmetric=self._is_symmetric()
        )


@dataclasses.dataclass(frozen=True)
class LaplaceMixture(_ShiftMixture):
    """Laplace noise around random shifts, over its parameter."""

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        p, q, rest = self._likely(bound, accuracy)
        return laplace_mixture.dominating_pair_of(
            laplace_mixture.Mixture(p), laplace_mixture.Mixture(q), bound, rest=rest
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        if len(self.p) > 1 or self.q != UNSHIFTED:
            return None
        ((shift, _),) = self.p
        return interface.Divergences(pure_mechanisms.laplace_rdp(orders, shift))

    def claims(self) -> interface.Claims:
        largest = laplace_mixture.largest_loss(
            laplace_mixture.Mixture(self.p), laplace_mixture.Mixture(self.q)
        )
        return interface.Claims(
            largest * interface.LOSS_ROUNDED_UP, is_symmetric=self._is_symmetric()
        )


def without_rare(
    weighted: Shifts, tail_mass: float, bound: Bound
) -> tuple[Shifts, float]:
    """Returns shifts without the furthest ones, and the probability of these.

    An upper bound must move this probability to a sink. For a lower bound the
    probability returned is zero: it is moved to the last shift that is kept, as a
    smaller shift has a smaller loss.
    """
    ordered = sorted(weighted, key=lambda shift: abs(shift[0]))
    lost = 0.0
    # Three are kept, as two weights must be more accurate than each of many is.
    fewest = 3 if len(ordered) > 2 else 1
    while len(ordered) > fewest and lost + ordered[-1][1] <= tail_mass:
        lost += ordered.pop()[1]
    if bound is Bound.LOWER:
        shift, weight = ordered[-1]
        return (*ordered[:-1], (shift, weight + lost)), 0.0
    return tuple(ordered), floats.raised(lost)


def laplace(noise_multiplier: float) -> interface.Mechanism:
    """Returns the Laplace mechanism of sensitivity one."""
    return LaplaceMixture(((1 / noise_multiplier, 1.0),), UNSHIFTED)
