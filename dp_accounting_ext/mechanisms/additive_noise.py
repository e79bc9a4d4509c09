"""Gaussian and Laplace noise, around one shift or a random one."""

import abc
import dataclasses
import functools
from typing import ClassVar
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import laplace_mixture
from dp_accounting_ext.pairs import neyman_pearson
from dp_accounting_ext.pairs import shifts

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]
Shifts = shifts.Shifts

UNSHIFTED = ((0.0, 1.0),)


@dataclasses.dataclass(frozen=True)
class Gaussian(interface.OnePairMechanism):
    """The Gaussian mechanism of sensitivity one; runs of it are one with less noise."""

    noise_multiplier: float

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        return gaussian.dominating_pair_of(
            self.noise_multiplier, bound, tail_mass=tail_mass
        )

    def closed_form(self, bound: Bound) -> interface.ClosedForm:
        mean = 1 / self.noise_multiplier
        return interface.ClosedForm.one_by_one(
            bound,
            lambda epsilon, _: gaussian.delta(mean, epsilon, bound),
            lambda delta: gaussian.epsilon(mean, delta, bound),
        )

    def claims(self) -> interface.Claims:
        return interface.Claims(
            gaussian_precision=self.noise_multiplier**-2, is_symmetric=True
        )


class _Noise(Protocol):
    """The module of a noise: certified profiles of it, moved so far."""

    def delta(self, distance: float, epsilon: float, bound: Bound, /) -> float:
        """Returns δ at ε, in either direction."""

    def epsilon(self, distance: float, delta: float, bound: Bound, /) -> float:
        """Returns ε ≥ 0 at δ, in either direction."""


@dataclasses.dataclass(frozen=True)
class _ShiftMixture(interface.OnePairMechanism):
    """Noise around random shifts: one mixture against another.

    Shifts are over the noise's parameter, those of P at least 0, those of Q at most
    0; the weights of each sum to one. Any sampling scheme whose worst case is a pair
    of such mixtures is accounted for by naming their weights.

    Attributes:
        p: (shift, weight) pairs of P, the law with the record.
        q: (shift, weight) pairs of Q.

    Raises:
        ValueError: If there are more than 4096 shifts; checked when made.
    """

    p: Shifts
    q: Shifts
    _noise: ClassVar[_Noise]

    def __post_init__(self) -> None:
        most = max(len(self.p), len(self.q))
        if most > shifts.MOST_SHIFTS:
            raise ValueError(
                f"A mixture may have {shifts.MOST_SHIFTS} shifts at most. Found {most}."
            )

    @abc.abstractmethod
    def _mixture(self, weighted: Shifts) -> shifts.Mixture:
        """Returns the law of the noise around random shifts."""

    @abc.abstractmethod
    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> DominatingPair:
        """Returns the pair of two mixtures of the noise."""

    def pair(self, bound: Bound, tail_mass: float) -> DominatingPair:
        # What is too rare goes to the sinks.
        p, p_lost = without_rare(self.p, tail_mass / 4, bound)
        q, q_lost = without_rare(self.q, tail_mass / 4, bound)
        pair = self._pair(p, q, bound, tail_mass)
        return dataclasses.replace(
            pair,
            infinity_mass=pair.infinity_mass + p_lost,
            zero_mass=pair.zero_mass + q_lost,
        )

    def _sample(self) -> tuple[float, float]:
        """Returns the chance that P moves the noise, and how far, where Q does not.

        The chance is 0 where these are other mixtures.
        """
        if self.q != UNSHIFTED or not any(shift for shift, _ in self.p):
            return 0.0, 0.0
        if len(self.p) == 1:
            return 1.0, self.p[0][0]
        ((first, _), (shift, weight), *others) = self.p
        return (0.0, 0.0) if first or others else (weight, shift)

    def closed_form(self, bound: Bound) -> interface.ClosedForm:
        rate, distance = self._sample()
        noise = self._noise

        def moved(place: float) -> float:
            return noise.delta(distance, place, bound)

        def delta(place: float, direction: Direction) -> float:
            if rate == 1:
                return moved(place)
            return poisson_subsampling.delta(moved, rate, place, direction, bound)

        def epsilon(target: float) -> float | None:
            if rate == 1:
                return noise.epsilon(distance, target, bound)
            found = poisson_subsampling.epsilon(
                lambda share: noise.epsilon(distance, share, bound), rate, target, bound
            )
            # Where a record that is added costs more, that is not all.
            added = poisson_subsampling.delta(
                lambda place: noise.delta(distance, place, Bound.UPPER),
                rate,
                found,
                Direction.ADD,
                Bound.UPPER,
            )
            return found if added <= target else None

        if rate:
            return interface.ClosedForm.one_by_one(bound, delta, epsilon)
        return interface.ClosedForm(
            lambda epsilons, direction: self._deltas(epsilons, direction, bound),
            lambda deltas: self._epsilons(deltas, bound),
        )

    def _deltas(
        self, epsilons: FloatArray, direction: Direction, bound: Bound
    ) -> FloatArray:
        """Returns (n,) δ at (n,) ε of any two mixtures."""
        found = neyman_pearson.deltas(
            self._mixture(self.p),
            self._mixture(self.q),
            epsilons=epsilons,
            direction=direction,
            bound=bound,
        )
        elsewhere = self._elsewhere() if (epsilons == 0).any() else None
        if elsewhere is not None:
            # A product, whose relative error is small however rare a sample is.
            weight, distance = elsewhere
            total = weight * self._noise.delta(distance, 0.0, bound)
            if bound is Bound.UPPER:
                exact = np.minimum(found, floats.raised(total))
            else:
                exact = np.maximum(found, floats.lowered(total))
            found = np.where(epsilons == 0, exact, found)
        return found

    def _epsilons(self, deltas: FloatArray, bound: Bound) -> FloatArray:
        """Returns (n,) ε ≥ 0 at (n,) δ of any two mixtures, the larger direction's."""
        p, q = self._mixture(self.p), self._mixture(self.q)
        ways = [Direction.REMOVE] if self._is_symmetric() else list(Direction)
        each = [
            neyman_pearson.epsilons(p, q, asked=deltas, direction=way, bound=bound)
            for way in ways
        ]
        return np.asarray(functools.reduce(np.maximum, each))

    def _elsewhere(self) -> tuple[float, float] | None:
        """Returns the weight that has another shift in P than in Q, and how far apart.

        None where several have. Weights sum to one, so that what one law has less at
        the only shift of the other is what it has elsewhere.
        """
        p, q = dict(self.p), dict(self.q)
        if len(p) < len(self.p) or len(q) < len(self.q):
            return None
        alone = [shift for shift in p if shift not in q]
        other = [shift for shift in q if shift not in p]
        if len(alone) == len(other) == 1 and len(p) == len(q):
            same = all(p[shift] == q[shift] for shift in p if shift in q)
            if same and p[alone[0]] == q[other[0]]:
                return p[alone[0]], alone[0] - other[0]
        if len(p) == len(other) == 1 and len(q) == 2:
            return q[other[0]], next(iter(p)) - other[0]
        return None

    def _is_symmetric(self) -> bool:
        # Around the middle of two shifts, or around zero.
        if len(self.p) == len(self.q) == 1:
            return True
        return sorted(self.p) == sorted((-shift, weight) for shift, weight in self.q)


@dataclasses.dataclass(frozen=True)
class GaussianMixture(_ShiftMixture):
    """Gaussian noise around random shifts, over its standard deviation."""

    _noise: ClassVar[_Noise] = gaussian

    def _mixture(self, weighted: Shifts) -> gaussian_mixture.Mixture:
        return gaussian_mixture.Mixture(weighted)

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> DominatingPair:
        return gaussian_mixture.dominating_pair_of(
            self._mixture(p), self._mixture(q), bound, tail_mass=tail_mass
        )

    def claims(self) -> interface.Claims:
        # Mixtures are no further apart than their furthest components.
        furthest = max(s for s, _ in self.p) - min(s for s, _ in self.q)
        return interface.Claims(
            gaussian_precision=furthest**2, is_symmetric=self._is_symmetric()
        )


@dataclasses.dataclass(frozen=True)
class LaplaceMixture(_ShiftMixture):
    """Laplace noise around random shifts, over its parameter."""

    _noise: ClassVar[_Noise] = laplace_mixture

    def _mixture(self, weighted: Shifts) -> laplace_mixture.Mixture:
        return laplace_mixture.Mixture(weighted)

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> DominatingPair:
        return laplace_mixture.dominating_pair_of(
            self._mixture(p), self._mixture(q), bound
        )

    def claims(self) -> interface.Claims:
        largest = laplace_mixture.largest_loss(
            self._mixture(self.p), self._mixture(self.q)
        )
        return interface.Claims(
            largest * interface.LOSS_ROUNDED_UP, is_symmetric=self._is_symmetric()
        )


def without_rare(
    weighted: Shifts, tail_mass: float, bound: Bound
) -> tuple[Shifts, float]:
    """Returns shifts without the furthest ones, and the probability these had.

    An upper bound sends it to a sink. In a lower one the last shift that is kept
    has it: less shift is less loss.
    """
    ordered = sorted(weighted, key=lambda shift: abs(shift[0]))
    lost = 0.0
    # Of many weights each errs by more than two weights may: three are kept.
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
