"""Correlated noise with Poisson samples, of all records or of groups in turn.

The group of a record is drawn in secret. A record may take part in steps that are near
each other, whose noise is correlated.
"""

from collections.abc import Mapping
import dataclasses
import math

import numpy as np
from scipy import stats

from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.runs import matrix_allocation
from dp_accounting_ext.correlated.runs import output_sums
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled


@dataclasses.dataclass(frozen=True)
class Run(output_sums.AboveSum):
    """A run with cyclic Poisson sampling, 0 < q ≤ 1. Its fields are those of the event.

    With a cycle of one step these are Poisson samples of all records. The upper bound
    reveals the group of the record, and has independent noise. The lower bound is that
    of the sum of all outputs, or of independent noise.

    Source:
        docs/matrix.md, "Steps that may be near each other".
    """

    basis_above = "independent noise over the norm of a group's columns, group revealed"

    strategy: strategies.Strategy
    noise_multiplier: float
    sampling_probability: float
    cycle_length: int
    num_steps: int

    @property
    def num_cycles(self) -> int:
        """The largest number of steps of a group."""
        return -(-self.num_steps // self.cycle_length)

    def above(self) -> Mapping[interface.Mechanism, int]:
        deviation = 1 / math.sqrt(self._precision())
        step = additive_noise.Gaussian(floats.lowered(deviation, 1e-14))
        sample = subsampled.on_poisson_sample(self.sampling_probability, step)
        return {sample: self.num_cycles}

    def below(self) -> Mapping[interface.Mechanism, int]:
        first = self._first_steps()
        independent = dataclasses.replace(
            self,
            strategy=strategies.Strategy((1.0,)),
            noise_multiplier=first.deviation,
            num_steps=first.number,
        )
        return {sample(independent): 1}

    def number_of_steps(self) -> output_sums.NumberOfSteps:
        first = self._first_steps()
        most, rest = divmod(first.number, self.cycle_length)
        probabilities = np.zeros(most + 2)
        numbers = np.arange(probabilities.size)
        for runs, groups in ((most + 1, rest), (most, self.cycle_length - rest)):
            law = stats.binom.pmf(numbers, runs, self.sampling_probability)
            probabilities += groups / self.cycle_length * law
        return output_sums.NumberOfSteps.of_binomial(probabilities, first.shift)

    def claims(self) -> interface.Claims:
        precision = self._precision() * self.num_cycles
        return interface.Claims(gaussian_precision=floats.raised(precision, 1e-14))

    def _first_steps(self) -> strategies.FirstSteps:
        return self.strategy.first_steps(self.noise_multiplier, self.num_steps)

    def _precision(self) -> float:
        """Returns the largest eigenvalue of a group's inner products over σ²."""
        return self.strategy.precision_above(
            self.noise_multiplier, self.num_steps, self.cycle_length
        )


def sample(run: Run) -> interface.Mechanism:
    """Returns the mechanism of a run, as a simpler mechanism if possible."""
    rate, length = run.sampling_probability, run.cycle_length
    if rate == 0:
        return compositions.NO_OP
    entry = run.strategy.only_entry
    if entry is None and run.noise_multiplier > 0:
        is_whole = run.num_steps % length == 0 and length <= strategies.MOST_BINS
        if rate == 1 and is_whole:
            # The record takes part in all steps of its group: balls in bins.
            return matrix_allocation.allocate(
                run.strategy, run.noise_multiplier, length, run.num_cycles
            )
        return run
    # The noise of steps is independent, so this is the allocation of one of the groups.
    if entry is None or run.noise_multiplier == 0:
        step: interface.Mechanism = known_bounds.NonPrivate()
    else:
        step = additive_noise.Gaussian(run.noise_multiplier / entry)
    sampled = subsampled.on_poisson_sample(rate, step)
    cycles, rest = divmod(run.num_steps, length)
    groups: dict[interface.Mechanism, int] = {}
    for runs, number in ((cycles + 1, rest), (cycles, length - rest)):
        if runs and number:
            # If everything is revealed, this is the same mechanism for both numbers.
            group = compositions.compose({sampled: runs})
            groups[group] = groups.get(group, 0) + number
    if length == 1:
        return next(iter(groups))
    if len(groups) == 1 and sum(groups.values()) == length:
        return allocated.allocate(next(iter(groups)), 1, length)
    return allocated.allocate_to_schedule(groups, length)
