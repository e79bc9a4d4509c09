"""Gaussian and Laplace noise, around one shift or a random one."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy as accuracies
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import shifted_noise

Accuracy = interface.Accuracy
DominatingPair = dominating_pair.DominatingPair
Shifts = shifts.Shifts

UNSHIFTED = shifts.UNSHIFTED
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

    def as_mixture(self) -> "GaussianMixture":
        """Returns the same noise, around one shift."""
        return GaussianMixture(((self.mean, 1.0),), UNSHIFTED)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        return interface.Divergences(ratio_moments.gaussian_rdp(self.mean, orders))

    def claims(self) -> interface.Claims:
        return interface.Claims(
            gaussian_precision=self.noise_multiplier**-2, is_symmetric=True
        )


@dataclasses.dataclass(frozen=True)
class ShiftMixture(interface.OnePairMechanism):
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
        size = max(len(self.p), len(self.q))
        if size > shifts.MOST_SHIFTS:
            raise ValueError(
                f"A mixture may have {shifts.MOST_SHIFTS} shifts at most. Found {size}."
            )

    def _likely(
        self, bound: Bound, accuracy: Accuracy
    ) -> tuple[Shifts, Shifts, tuple[float, float]]:
        """Returns both laws without their rarest shifts, and what goes to the sinks."""
        rare = accuracy.tail_mass / 4
        p, p_lost = without_rare(self.p, rare, bound)
        q, q_lost = without_rare(self.q, rare, bound)
        return p, q, (p_lost, q_lost)

    def draws(self) -> interface.Draws | None:
        """Returns the mixture of the shifts other than zero, as on a Poisson sample."""
        shifted = [(shift, weight) for shift, weight in self.p if shift]
        if self.q != UNSHIFTED or not 0 < len(shifted) < len(self.p):
            return None
        rate = math.fsum(weight for _, weight in shifted)
        if_drawn = tuple((shift, weight / rate) for shift, weight in shifted)
        null_probability = math.fsum(weight for shift, weight in self.p if not shift)
        part = dataclasses.replace(self, p=if_drawn)
        return interface.Draws(((part, rate, 1),), null_probability)

    def on_a_sample(self, rate: float) -> interface.Mechanism | None:
        """Returns the mixture, with a shift of zero if the record is not sampled.

        None if a shift would be too rare for floats, or if Q has shifts.

        Args:
            rate: Inclusion probability of each record, in (0, 1).
        """
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
class GaussianMixture(ShiftMixture):
    """Gaussian noise around random shifts, over its standard deviation."""

    @property
    def is_certain(self) -> bool:
        """Whether the record moves the noise by one shift, which is not random."""
        return len(self.p) == 1 and self.p[0][0] > 0 and self.q == UNSHIFTED

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        p, q, rest = self._likely(bound, accuracy)
        return gaussian.of_mixtures(
            p,
            q,
            bound,
            tail_mass=accuracy.tail_mass,
            rest=rest,
            cells=accuracy.cells,
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns Rényi divergences by quadrature, or None if there are many shifts."""
        if max(len(self.p), len(self.q)) > _MOST_SHIFTS:
            return None
        p = shifted_noise.mixture(self.p)
        q = shifted_noise.mixture(tuple((-shift, weight) for shift, weight in self.q))
        error = shifts.weight_error(self.p) + shifts.weight_error(self.q)
        values = np.maximum(
            shifted_noise.rdp(orders, p, q), shifted_noise.rdp(orders, q, p)
        )
        # An error of the weights is a factor of Z, so that it also changes Z^α.
        finite = np.minimum(np.array(orders), ratio_moments.HIGHEST_ORDER)
        return interface.Divergences(values * (1 + 2 * finite * error))

    def claims(self) -> interface.Claims:
        # Divergences of mixtures are at most those of their furthest components.
        furthest = max(s for s, _ in self.p) - min(s for s, _ in self.q)
        return interface.Claims(
            gaussian_precision=furthest**2, is_symmetric=self._is_symmetric()
        )


@dataclasses.dataclass(frozen=True)
class LaplaceMixture(ShiftMixture):
    """Laplace noise around random shifts, over its parameter.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem M.2.
    """

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        """Returns the pair, or the trivial one if shifts are more than 700 apart.

        The likelihood ratio is constant below all shifts and above all of them, and
        increases in between. All losses are finite.
        """
        p, q, rest = self._likely(bound, accuracy)
        shifts.check_order(p, q)
        low, high = min(q)[0], max(p)[0]
        if high - low > floats.LARGEST_EXPONENT:
            return dominating_pair.trivial_pair(bound)
        # Each cell is at most a hundredth of a nat wide.
        number = math.ceil(max(accuracies.OUTPUT_CELLS, 100 * (high - low)))
        kinks = [shift for shift, _ in p + q]
        places = np.union1d(np.linspace(low, high, number + 1), kinks)
        (p_densities, p_masses), (q_densities, q_masses) = (
            _densities_and_masses(law, places) for law in (p, q)
        )
        edges = p_densities / q_densities
        # docs/rounding.md, "Laplace noise, cells".
        error = 64 * floats.UNIT_ROUNDOFF * (1 + high - low + len(kinks))
        error += shifts.weight_error(p) + shifts.weight_error(q)
        if bound is Bound.LOWER:
            # Outside of all shifts the density falls as e^{−distance} from an end.
            ratios = np.concatenate([edges[:1], p_masses / q_masses, edges[-1:]])
            masses = np.concatenate([q_densities[:1], q_masses, q_densities[-1:]])
            return shifts.lower_pair(ratios, masses, error, 4 * error)
        edges = np.maximum.accumulate(edges)
        excess = p_masses / q_masses - edges[:-1]
        masses = shifts.split(q_masses, excess, np.diff(edges))
        # In two statements: if all shifts are equal there is one atom for both ends.
        masses[0] += q_densities[0]
        masses[-1] += q_densities[-1]
        return DominatingPair(edges, masses, *rest, bound, 4 * error, 4 * error)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences | None:
        """Returns the divergences of one shift, or None.

        Source:
            https://arxiv.org/abs/1702.07476, Proposition 6.
        """
        if len(self.p) > 1 or self.q != UNSHIFTED:
            return None
        ((loss, _),) = self.p
        if loss > floats.LARGEST_EXPONENT:
            return interface.Divergences(np.full(len(orders), loss))
        alpha = np.array(orders, dtype=np.float64)
        finite = np.minimum(alpha, ratio_moments.LARGEST_ORDER)
        shrunk = np.expm1((1 - 2 * finite) * loss) / (2 * finite - 1)
        slopes = np.maximum(finite - 1, floats.SMALLEST_MASS)
        values = np.log1p(slopes * shrunk) / slopes
        values += loss * (1 + 16 * floats.UNIT_ROUNDOFF)
        values = np.where(alpha > ratio_moments.LARGEST_ORDER, loss, values)
        squared = finite * ratio_moments.rounded_up(loss**2 / 2)
        return interface.Divergences(np.minimum(np.minimum(values, squared), loss))

    def claims(self) -> interface.Claims:
        # The largest loss in either direction is that of an end. Its relative error is
        # below 1e-12, however rare or close the shifts are.
        largest = max(
            _log_mean(self.p, 1.0) - _log_mean(self.q, 1.0),
            _log_mean(self.q, -1.0) - _log_mean(self.p, -1.0),
        )
        error = 2 * (shifts.weight_error(self.p) + shifts.weight_error(self.q))
        return interface.Claims(
            largest * (1 + error) * interface.LOSS_ROUNDED_UP,
            is_symmetric=self._is_symmetric(),
        )


def _densities_and_masses(
    law: Shifts, places: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) densities at places, and (n − 1,) probabilities between them.

    Args:
        law: The law of the shift of Laplace noise of parameter one.
        places: (n,) places, increasing, which include all shifts.
    """
    # On an interval that begins at x₀ the density is a e^{x − x₀} + b e^{x₀ − x}.
    rising, falling = np.zeros(places.size), np.zeros(places.size)
    for shift, weight in law:
        is_ahead = shift > places
        terms = weight / 2 * np.exp(-np.abs(shift - places))
        rising += np.where(is_ahead, terms, 0.0)
        falling += np.where(is_ahead, 0.0, terms)
    widths = np.diff(places)
    masses = rising[:-1] * np.expm1(widths) - falling[:-1] * np.expm1(-widths)
    return rising + falling, masses


def _log_mean(law: Shifts, sign: float) -> float:
    """Returns ln E e^{±shift} for shifts on one side of zero, without cancellation."""
    signed = [(sign * shift, weight) for shift, weight in law]
    furthest = max(shift for shift, _ in signed)
    if furthest <= floats.LARGEST_EXPONENT:
        growth = math.fsum(w * math.expm1(s) for s, w in signed)
        # The logarithm of a mean so close to one would have few digits.
        if abs(growth) < 0.5:
            return math.log1p(growth)
    return furthest + math.log(math.fsum(w * math.exp(s - furthest) for s, w in signed))


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
