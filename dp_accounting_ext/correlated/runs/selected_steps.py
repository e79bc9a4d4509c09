"""Correlated noise where each record takes part in k of the t steps of an epoch."""

from collections.abc import Mapping
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
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
    """A run in which each record draws k of the t steps of every epoch, 1 ≤ k < t.

    Its fields are those of the event. The upper bound is k of t steps with independent
    noise, or every step if it is known that these reveal less. The lower bound is that
    of the sum of all outputs, or of k of t steps with less noise.

    Source:
        docs/matrix.md, "Steps that may be near each other".
    """

    basis_above = (
        "k of t steps with independent noise over the strategy's norm, or all steps"
    )

    strategy: strategies.Strategy
    noise_multiplier: float
    num_selected: int
    num_steps: int
    num_epochs: int

    def above(self) -> Mapping[interface.Mechanism, int]:
        precision, every = self._precision(), self._every()
        # The sum of k of t steps with independent noise moves by at least as much as
        # that Gaussian mechanism. So they reveal no less.
        share = self.num_selected / self.num_steps
        if every <= precision * share * self.num_selected * self.num_epochs:
            deviation = 1 / math.sqrt(every)
            return {additive_noise.Gaussian(floats.lowered(deviation, 1e-14)): 1}
        deviation = 1 / math.sqrt(precision)
        step = additive_noise.Gaussian(floats.lowered(deviation, 1e-14))
        epoch = allocated.allocate(step, self.num_selected, self.num_steps)
        return {epoch: self.num_epochs}

    def below(self) -> Mapping[interface.Mechanism, int]:
        """Returns k of t steps with independent noise over the norm of a column.

        A record whose steps in the last epoch are not all among the first steps of the
        run is counted as one that takes no part in that epoch.
        """
        first = self._first_steps()
        step = additive_noise.Gaussian(first.deviation)
        epochs, rest = divmod(first.number, self.num_steps)
        counts: dict[interface.Mechanism, int] = {}
        if epochs:
            epoch = allocated.allocate(step, self.num_selected, self.num_steps)
            counts[epoch] = epochs
        if rest >= self.num_selected:
            among_first = floats.lowered(self._selected_among(rest)[-1], 1e-9)
            epoch = allocated.allocate(step, self.num_selected, rest)
            last = subsampled.on_poisson_sample(min(among_first, 1.0), epoch)
            counts[last] = counts.get(last, 0) + 1
        return counts

    def number_of_steps(self) -> output_sums.NumberOfSteps:
        first = self._first_steps()
        epochs, rest = divmod(first.number, self.num_steps)
        probabilities = np.zeros((epochs + (rest > 0)) * self.num_selected + 1)
        if rest:
            probabilities[epochs * self.num_selected :] = self._selected_among(rest)
        else:
            probabilities[-1] = 1.0
        error = 16 * (self.num_steps + 8) * floats.UNIT_ROUNDOFF
        return output_sums.NumberOfSteps(probabilities, error, first.shift)

    def claims(self) -> interface.Claims:
        steps = self.num_selected * self.num_epochs
        precision = min(steps * self._precision(), self._every())
        return interface.Claims(gaussian_precision=floats.raised(precision, 1e-14))

    def _selected_among(self, rest: int) -> FloatArray:
        """Returns the law of the number of a record's k steps among the first few.

        Args:
            rest: The number of first steps, at least 1 and below t.

        Returns:
            (k + 1,) probabilities of 0, 1, …, k steps.
        """
        selected, steps = self.num_selected, self.num_steps
        among = np.arange(selected, dtype=np.float64)
        # The ratios of the hypergeometric probabilities of i + 1 and i steps.
        with np.errstate(divide="ignore"):
            ratios = (selected - among) * np.maximum(rest - among, 0.0)
            ratios /= (among + 1) * np.maximum(steps - selected - rest + among + 1, 0.0)
        first = max(selected + rest - steps, 0)
        found = np.zeros(selected + 1)
        # The ratios are multiplied from the largest probability outwards.
        top = first + int(np.count_nonzero(ratios[first:] > 1))
        found[top] = 1.0
        found[top + 1 :] = np.cumprod(ratios[top:])
        found[first:top] = np.cumprod(1 / ratios[first:top][::-1])[::-1]
        return np.asarray(found / found.sum())

    def _first_steps(self) -> strategies.FirstSteps:
        return self.strategy.first_steps(
            self.noise_multiplier, self.num_steps * self.num_epochs
        )

    def _every(self) -> float:
        """Returns the precision if a record takes part in every step."""
        return self.strategy.precision_of_every_step(
            self.noise_multiplier, self.num_steps * self.num_epochs
        )

    def _precision(self) -> float:
        """Returns the largest eigenvalue of the columns' inner products over σ²."""
        return self.strategy.precision_above(
            self.noise_multiplier, self.num_steps * self.num_epochs
        )


def select(run: Run) -> interface.Mechanism:
    """Returns the mechanism of a run, 1 ≤ k ≤ t, as a simpler mechanism if possible."""
    if run.noise_multiplier == 0:
        return known_bounds.NonPrivate()
    selected, steps, epochs = run.num_selected, run.num_steps, run.num_epochs
    if selected == steps:
        # The record takes part in every step, as in one bin of one step.
        return matrix_allocation.allocate(
            run.strategy, run.noise_multiplier, 1, steps * epochs
        )
    entry = run.strategy.only_entry
    if entry is not None:
        step = additive_noise.Gaussian(run.noise_multiplier / entry)
        epoch = allocated.allocate(step, selected, steps)
        return compositions.compose({epoch: epochs})
    if selected == epochs == 1 and steps <= strategies.MOST_BINS:
        return matrix_allocation.allocate(
            run.strategy, run.noise_multiplier, steps, epochs
        )
    return run
