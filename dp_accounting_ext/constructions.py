"""From an event's parameters to certified laws, at the accuracy a query asks for."""

import abc
from collections.abc import Sequence
import dataclasses
import functools
import math

from dp_accounting_ext import dominating_pair
from dp_accounting_ext import loss_distribution
from dp_accounting_ext.amplification import allocation_by_sum
from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.mechanisms import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
PairWithCount = tuple[dominating_pair.DominatingPair, int]


class Construction(abc.ABC):
    """Something that can be composed: hashable parameters, laws when asked."""

    @abc.abstractmethod
    def dominating(self, count: int, tail_mass: float) -> Sequence[PairWithCount]:
        """Returns upper pairs whose composition dominates `count` runs.

        Args:
            count: Number of runs.
            tail_mass: Probability that each pair may move to its sinks.
        """

    @abc.abstractmethod
    def dominated(
        self, count: int, direction: Direction, tail_mass: float
    ) -> Sequence[loss_distribution.LossDistribution]:
        """Returns lower bounds whose composition `count` runs dominate."""

    @abc.abstractmethod
    def gaussian_precision(self) -> float:
        """Returns 1/σ² of a Gaussian mechanism that dominates one run."""

    def is_gaussian(self) -> bool:
        """Tells whether a run is no more and no less than that mechanism."""
        return False


@dataclasses.dataclass(frozen=True)
class Gaussian(Construction):
    """The Gaussian mechanism; runs of it are one run with less noise."""

    noise_multiplier: float

    def dominating(self, count: int, tail_mass: float) -> Sequence[PairWithCount]:
        return [(self._pair(count, Bound.UPPER, tail_mass), 1)]

    def dominated(
        self, count: int, direction: Direction, tail_mass: float
    ) -> Sequence[loss_distribution.LossDistribution]:
        pair = self._pair(count, Bound.LOWER, tail_mass)
        return [loss_distribution.from_pair(pair, direction, 1)]

    def gaussian_precision(self) -> float:
        return self.noise_multiplier**-2

    def is_gaussian(self) -> bool:
        return True

    def _pair(
        self, count: int, bound: Bound, tail_mass: float
    ) -> dominating_pair.DominatingPair:
        noise = self.noise_multiplier / math.sqrt(count)
        return _gaussian_pair(noise, bound, tail_mass)


@dataclasses.dataclass(frozen=True)
class PoissonSampledGaussian(Construction):
    """The Gaussian mechanism on a Poisson sample."""

    sampling_probability: float
    noise_multiplier: float

    def dominating(self, count: int, tail_mass: float) -> Sequence[PairWithCount]:
        return [(self._pair(Bound.UPPER, tail_mass), count)]

    def dominated(
        self, count: int, direction: Direction, tail_mass: float
    ) -> Sequence[loss_distribution.LossDistribution]:
        pair = self._pair(Bound.LOWER, tail_mass)
        return [loss_distribution.from_pair(pair, direction, count)]

    def gaussian_precision(self) -> float:
        return self.noise_multiplier**-2

    def _pair(self, bound: Bound, tail_mass: float) -> dominating_pair.DominatingPair:
        pair = _gaussian_pair(self.noise_multiplier, bound, tail_mass)
        return poisson_subsampling.poisson_subsample(pair, self.sampling_probability)


@dataclasses.dataclass(frozen=True)
class RandomAllocation(Construction):
    """k-out-of-t random allocation of the Gaussian mechanism."""

    noise_multiplier: float
    num_selected: int
    num_steps: int

    def dominating(self, count: int, tail_mass: float) -> Sequence[PairWithCount]:
        return self.blocks(count, Bound.UPPER, tail_mass)

    def dominated(
        self, count: int, direction: Direction, tail_mass: float
    ) -> Sequence[loss_distribution.LossDistribution]:
        if self.num_selected in (1, self.num_steps):
            # One block, or nothing but blocks of one step: the reduction is exact.
            return BlockReduction(self).dominated(count, direction, tail_mass)
        law = _allocation_by_sum(self, direction, tail_mass)
        return [dataclasses.replace(law, count=count)]

    def blocks(
        self, count: int, bound: Bound, tail_mass: float
    ) -> Sequence[PairWithCount]:
        """Returns the 1-out-of-b allocations whose composition dominates `count` runs.

        The t steps are cut into k blocks of ⌊t/k⌋ and ⌈t/k⌉ steps, at random,
        and one step is drawn in each. Its ratio given the outputs, averaged over
        the cut, is that of the mechanism: a conditional expectation.

        Returns:
            Pairs with counts; lower bounds bound the composition, which is the
            mechanism only for k = 1 and k = t.

        Source:
            https://arxiv.org/abs/2602.17284, Lemma 2.8, the remainder of t / k
            kept.
        """
        size, longer = divmod(self.num_steps, self.num_selected)
        pairs = []
        for steps, number in (
            (size, (self.num_selected - longer) * count),
            (size + 1, longer * count),
        ):
            if number and steps == 1:
                noise = self.noise_multiplier / math.sqrt(number)
                pairs.append((_gaussian_pair(noise, bound, tail_mass), 1))
            elif number:
                pair = _one_of(self.noise_multiplier, steps, bound, tail_mass)
                pairs.append((pair, number))
        return pairs

    def gaussian_precision(self) -> float:
        return self.num_selected * self.noise_multiplier**-2

    def is_gaussian(self) -> bool:
        return self.num_selected == self.num_steps


@dataclasses.dataclass(frozen=True)
class BlockReduction(Construction):
    """The composition of blocks that dominates an allocation, for its own sake.

    Its lower bound tells how exactly the composition was computed. It is no
    lower bound of the allocation.
    """

    allocation: RandomAllocation

    def dominating(self, count: int, tail_mass: float) -> Sequence[PairWithCount]:
        return self.allocation.blocks(count, Bound.UPPER, tail_mass)

    def dominated(
        self, count: int, direction: Direction, tail_mass: float
    ) -> Sequence[loss_distribution.LossDistribution]:
        return [
            loss_distribution.from_pair(pair, direction, number)
            for pair, number in self.allocation.blocks(count, Bound.LOWER, tail_mass)
        ]

    def gaussian_precision(self) -> float:
        return self.allocation.gaussian_precision()


@functools.lru_cache(maxsize=32)
def _gaussian_pair(
    noise_multiplier: float, bound: Bound, tail_mass: float
) -> dominating_pair.DominatingPair:
    return gaussian.dominating_pair_of(noise_multiplier, bound, tail_mass=tail_mass)


@functools.lru_cache(maxsize=64)
def _one_of(
    noise_multiplier: float, num_steps: int, bound: Bound, tail_mass: float
) -> dominating_pair.DominatingPair:
    base_tail = max(tail_mass / num_steps / 100, gaussian.SMALLEST_TAIL_MASS)
    pair = _gaussian_pair(noise_multiplier, bound, base_tail)
    return random_allocation.random_allocation(pair, num_steps, tail_mass=tail_mass)


@functools.lru_cache(maxsize=32)
def _allocation_by_sum(
    allocation: RandomAllocation, direction: Direction, tail_mass: float
) -> loss_distribution.LossDistribution:
    steps = allocation.num_steps
    base_tail = max(tail_mass / steps / 100, gaussian.SMALLEST_TAIL_MASS)
    pair = _gaussian_pair(allocation.noise_multiplier, Bound.LOWER, base_tail)
    return allocation_by_sum.lower_loss_distribution(
        pair, allocation.num_selected, steps, direction, tail_mass=tail_mass
    )
