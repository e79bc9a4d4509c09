"""Gaussian and Laplace noise, around one shift or a random one."""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
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

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        return gaussian.delta(1 / self.noise_multiplier, epsilon, bound)

    def closed_form_epsilon(self, delta: float, bound: Bound) -> float | None:
        return gaussian.epsilon(1 / self.noise_multiplier, delta, bound)

    def largest_loss(self) -> float:
        return math.inf

    def gaussian_precision(self) -> float:
        return self.noise_multiplier**-2

    def is_symmetric(self) -> bool:
        return True


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
        return self._without_rare(
            bound, tail_mass, lambda p, q: self._pair(p, q, bound, tail_mass)
        )

    def _without_rare(
        self,
        bound: Bound,
        tail_mass: float,
        pair_of: Callable[[Shifts, Shifts], DominatingPair],
    ) -> DominatingPair:
        """Returns a pair of the shifts that are not too rare; the others are sinks."""
        p, p_lost = without_rare(self.p, tail_mass / 4, bound)
        q, q_lost = without_rare(self.q, tail_mass / 4, bound)
        pair = pair_of(p, q)
        return dataclasses.replace(
            pair,
            infinity_mass=pair.infinity_mass + p_lost,
            zero_mass=pair.zero_mass + q_lost,
        )

    @abc.abstractmethod
    def _moved_delta(self, distance: float, epsilon: float, bound: Bound) -> float:
        """Returns δ at ε of the noise moved so far, in either direction."""

    @abc.abstractmethod
    def _moved_epsilon(self, distance: float, delta: float, bound: Bound) -> float:
        """Returns ε ≥ 0 at δ of the noise moved so far, in either direction."""

    def _sample(self) -> tuple[float, float]:
        """Returns the chance that P moves the noise, and how far, where Q does not.

        The chance is 0 where these are other mixtures.
        """
        if self.q != UNSHIFTED:
            return 0.0, 0.0
        if len(self.p) == 1:
            return 1.0, self.p[0][0]
        ((first, _), (shift, weight), *others) = self.p
        return (0.0, 0.0) if first or others else (weight, shift)

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        rate, distance = self._sample()

        def moved(place: float) -> float:
            return self._moved_delta(distance, place, bound)

        if rate == 1:
            return moved(epsilon)
        if rate:
            return poisson_subsampling.delta(moved, rate, epsilon, direction, bound)
        found = self.closed_form_deltas(np.array([epsilon]), direction, bound)
        return None if found is None else float(found[0])

    def closed_form_deltas(
        self, epsilons: FloatArray, direction: Direction, bound: Bound
    ) -> FloatArray | None:
        if self._sample()[0]:
            return super().closed_form_deltas(epsilons, direction, bound)
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
            total = weight * self._moved_delta(distance, 0.0, bound)
            if bound is Bound.UPPER:
                exact = np.minimum(found, floats.raised(total))
            else:
                exact = np.maximum(found, floats.lowered(total))
            found = np.where(epsilons == 0, exact, found)
        return found

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

    def closed_form_epsilon(self, delta: float, bound: Bound) -> float | None:
        rate, distance = self._sample()

        def moved(share: float) -> float:
            return self._moved_epsilon(distance, share, bound)

        if rate == 1:
            return moved(delta)
        if not rate:
            many = self.closed_form_epsilons(np.array([delta]), bound)
            return None if many is None else float(many[0])
        found = poisson_subsampling.epsilon(moved, rate, delta, bound)
        added = self.closed_form_delta(found, Direction.ADD, Bound.UPPER)
        # Where a record that is added costs more, that is not all.
        return found if added is not None and added <= delta else None

    def closed_form_epsilons(
        self, deltas: FloatArray, bound: Bound
    ) -> FloatArray | None:
        if self._sample()[0]:
            return None
        p, q = self._mixture(self.p), self._mixture(self.q)
        ways = [Direction.REMOVE] if self.is_symmetric() else list(Direction)
        each = [
            neyman_pearson.epsilons(p, q, asked=deltas, direction=way, bound=bound)
            for way in ways
        ]
        return np.asarray(functools.reduce(np.maximum, each))

    def is_symmetric(self) -> bool:
        # Around the middle of two shifts, or around zero.
        if len(self.p) == len(self.q) == 1:
            return True
        return sorted(self.p) == sorted((-shift, weight) for shift, weight in self.q)


@dataclasses.dataclass(frozen=True)
class GaussianMixture(_ShiftMixture):
    """Gaussian noise around random shifts, over its standard deviation."""

    def _mixture(self, weighted: Shifts) -> gaussian_mixture.Mixture:
        return gaussian_mixture.Mixture(weighted)

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> DominatingPair:
        return self._pair_on(p, q, bound, tail_mass, None)

    def _pair_on(
        self,
        p: Shifts,
        q: Shifts,
        bound: Bound,
        tail_mass: float,
        points: int | None,
    ) -> DominatingPair:
        return gaussian_mixture.dominating_pair_of(
            self._mixture(p),
            self._mixture(q),
            bound,
            tail_mass=tail_mass,
            points=points,
        )

    def _moved_delta(self, distance: float, epsilon: float, bound: Bound) -> float:
        return gaussian.delta(distance, epsilon, bound)

    def _moved_epsilon(self, distance: float, delta: float, bound: Bound) -> float:
        return gaussian.epsilon(distance, delta, bound)

    def rough_pairs(
        self, tail_mass: float, points: int
    ) -> dominating_pair.DirectedPairs:
        pair = self._without_rare(
            Bound.UPPER,
            tail_mass,
            lambda p, q: self._pair_on(p, q, Bound.UPPER, tail_mass, points),
        )
        return dominating_pair.DirectedPairs.same(pair)

    def largest_loss(self) -> float:
        return math.inf

    def gaussian_precision(self) -> float:
        # Mixtures are no further apart than their furthest components.
        return (max(s for s, _ in self.p) - min(s for s, _ in self.q)) ** 2


@dataclasses.dataclass(frozen=True)
class LaplaceMixture(_ShiftMixture):
    """Laplace noise around random shifts, over its parameter."""

    def _mixture(self, weighted: Shifts) -> laplace_mixture.Mixture:
        return laplace_mixture.Mixture(weighted)

    def _pair(
        self, p: Shifts, q: Shifts, bound: Bound, tail_mass: float
    ) -> DominatingPair:
        return laplace_mixture.dominating_pair_of(
            self._mixture(p), self._mixture(q), bound
        )

    def _moved_delta(self, distance: float, epsilon: float, bound: Bound) -> float:
        return laplace_mixture.delta(distance, epsilon, bound)

    def _moved_epsilon(self, distance: float, delta: float, bound: Bound) -> float:
        return laplace_mixture.epsilon(distance, delta, bound)

    def largest_loss(self) -> float:
        largest = laplace_mixture.largest_loss(
            self._mixture(self.p), self._mixture(self.q)
        )
        return largest * interface.LOSS_ROUNDED_UP


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
