"""Correlated noise on Poisson samples: a record's steps may be near each other."""

from collections.abc import Mapping
import dataclasses

import numpy as np
from scipy import stats

from dp_accounting_ext.amplification.matrix import poisson_tilts
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import output_sums
from dp_accounting_ext.mechanisms import subsampled

DirectedPairs = dominating_pair.DirectedPairs


@dataclasses.dataclass(frozen=True)
class Run(output_sums.AboveSum):
    """A run with Poisson samples, 0 < q ≤ 1. Its fields are those of the event.

    The upper bound has independent noise, whose standard deviation is the smallest one
    of the correlated noise in any direction. The lower bound is that of the sum of all
    outputs.

    Source:
        docs/matrix.md, "Poisson samples".
    """

    basis_above = "Poisson samples with independent noise, over the strategy's norm"

    column: tuple[float, ...]
    noise_multiplier: float
    sampling_probability: float
    num_steps: int

    def above(self) -> Mapping[interface.Mechanism, int]:
        step = additive_noise.Gaussian(1 / self._mean())
        sample = subsampled.on_poisson_sample(self.sampling_probability, step)
        return {sample: self.num_steps}

    def number_of_steps(self) -> output_sums.NumberOfSteps:
        shift, last = output_sums.shift_of_sum(
            self.column, self.noise_multiplier, self.num_steps
        )
        numbers = np.arange(last + 1)
        probabilities = stats.binom.pmf(numbers, last, self.sampling_probability)
        return output_sums.NumberOfSteps.of_binomial(probabilities, shift)

    def claims(self) -> interface.Claims:
        return interface.Claims(
            gaussian_precision=floats.raised(self.num_steps * self._mean() ** 2)
        )

    def _mean(self) -> float:
        """Returns the norm of C over σ, rounded up: a column's sum is no less."""
        rounding = 4 * (len(self.column) + 8) * floats.UNIT_ROUNDOFF
        return sum(self.column) / self.noise_multiplier * (1 + rounding)


def sample(run: Run) -> interface.Mechanism:
    """Returns the mechanism of a run, as a simpler mechanism if possible."""
    if run.sampling_probability == 0:
        return compositions.NO_OP
    if len(run.column) > 1 and run.noise_multiplier > 0:
        return run
    if run.noise_multiplier == 0:
        step: interface.Mechanism = known_bounds.NonPrivate()
    else:
        step = additive_noise.Gaussian(run.noise_multiplier / run.column[0])
    sampled = subsampled.on_poisson_sample(run.sampling_probability, step)
    return compositions.compose({sampled: run.num_steps})


def draws(run: Run) -> poisson_tilts.Draws:
    """Returns what samples of a run are drawn from, 0 < q < 1 and σ > 0."""
    bands = len(run.column)
    columns = np.tile(np.array(run.column) / run.noise_multiplier, (run.num_steps, 1))
    for left in range(1, bands):
        columns[run.num_steps - left, left:] = 0.0
    return poisson_tilts.Draws(columns, run.sampling_probability)
