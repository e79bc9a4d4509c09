"""Runs with correlated noise, in which a record takes part in random steps.

A schedule says who may take part when. The sum of all outputs is a function of the
outputs, so that it reveals no more than the run. It has one normal law of noise, and
each step of the record moves it by at least a known shift: a mixture of normal laws
with the random number of steps is a lower bound. So is the same run with independent
noise, which is the larger one if there is little noise.
"""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import ClassVar

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import projected
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism
Strategy = strategies.Strategy

# Tuning: the largest number of shifts in the mixture. If there are more, they are
# rounded down to this many.
_MOST_SHIFTS = 512


@dataclasses.dataclass(frozen=True)
class Schedule(abc.ABC):
    """Who may take part when, in a run with correlated noise.

    Attributes:
        num_steps: The number of steps of the run.
    """

    num_steps: int

    @abc.abstractmethod
    def mechanism(self, strategy: Strategy, noise_multiplier: float) -> Mechanism:
        """Returns the mechanism of a run, as a simpler mechanism if possible."""


class RandomSteps(Schedule):
    """A schedule whose runs are compared with independent noise.

    Attributes:
        basis_above: The description of the composition that dominates a run.
        basis_below: The description of the lower bound.
    """

    basis_above: ClassVar[str]
    basis_below: ClassVar[str] = (
        "the best of the sum of all outputs, and independent noise"
    )

    def mechanism(self, strategy: Strategy, noise_multiplier: float) -> Mechanism:
        simpler, entry = self.simpler(strategy, noise_multiplier), strategy.only_entry
        if simpler is None and noise_multiplier == 0:
            simpler = self.independent(known_bounds.NonPrivate(), self.num_steps)
        elif simpler is None and entry is not None:
            step = additive_noise.Gaussian(noise_multiplier / entry)
            simpler = self.independent(step, self.num_steps)
        return Run(strategy, noise_multiplier, self) if simpler is None else simpler

    def simpler(self, strategy: Strategy, noise_multiplier: float) -> Mechanism | None:
        """Returns the mechanism if a record draws a bin or takes no part, else None."""
        return None

    @abc.abstractmethod
    def independent(self, step: Mechanism, first: int) -> Mechanism | None:
        """Returns a mechanism that the run dominates, with independent noise, or None.

        Args:
            step: What a step releases of a record that takes part in it: everything,
                or the record with Gaussian noise.
            first: The number of first steps that are released. If these are all steps,
                it is the mechanism of the run.
        """

    @abc.abstractmethod
    def numbers(self, first: int) -> tuple[FloatArray, float]:
        """Returns the law of the number of a record's steps among the first ones.

        Args:
            first: The number of first steps.

        Returns:
            (k,) probabilities of 0, 1, … steps, and a bound on their relative error.
        """

    @abc.abstractmethod
    def above(
        self, strategy: Strategy, noise_multiplier: float
    ) -> Mapping[Mechanism, int]:
        """Returns mechanisms with counts whose composition dominates the run."""

    @abc.abstractmethod
    def precision(self, strategy: Strategy, noise_multiplier: float) -> float:
        """Returns 1/σ² of a Gaussian mechanism that dominates the run, rounded up."""


@dataclasses.dataclass(frozen=True)
class Run(Mechanism):
    """A run with noise, whose strategy was checked."""

    strategy: Strategy
    noise_multiplier: float
    schedule: RandomSteps

    def above(self) -> Mapping[Mechanism, int]:
        """Returns mechanisms with counts whose composition dominates the run."""
        return self.schedule.above(self.strategy, self.noise_multiplier)

    def routes(self, bound: Bound) -> Sequence[Mapping[Mechanism, int]]:
        return [{self: 1}] if bound is Bound.LOWER else [self.above()]

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.UPPER:
            above = compositions.compose(self.above())
            return interface.pairs_of(above, bound, accuracy)
        first = self.strategy.first_steps(
            self.noise_multiplier, self.schedule.num_steps
        )
        probabilities, error = self.schedule.numbers(first.number)
        # Numbers of steps are rounded down to a few.
        width = -(-probabilities.size // _MOST_SHIFTS)
        starts = np.arange(0, probabilities.size, width)
        pair = projected.mixture_below(
            np.asarray(starts * first.shift, dtype=np.float64),
            np.add.reduceat(probabilities, starts),
            tail_mass=accuracy.tail_mass,
            probability_error=error,
        )
        step = additive_noise.Gaussian(first.deviation)
        independent = self.schedule.independent(step, first.number)
        if independent is None:
            return DirectedPairs.same(pair)
        other = interface.pairs_of(independent, bound, accuracy)
        return projected.largest([DirectedPairs.same(pair), other])

    def basis(self, bound: Bound) -> str:
        is_upper = bound is Bound.UPPER
        return self.schedule.basis_above if is_upper else self.schedule.basis_below

    def claims(self) -> interface.Claims:
        precision = self.schedule.precision(self.strategy, self.noise_multiplier)
        return interface.Claims(gaussian_precision=floats.raised(precision, 1e-14))
