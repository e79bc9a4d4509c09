"""Correlated noise with fresh windows: one step of a window in each of many cycles."""

import dataclasses
from typing import ClassVar

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.runs import matrix_allocation
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled


def allocate(
    strategy: strategies.Strategy,
    noise_multiplier: float,
    window: int,
    num_cycles: int,
    sampling_probability: float,
) -> interface.Mechanism:
    """Returns the mechanism of validated fields, as a simpler mechanism if possible.

    Args:
        strategy: The strategy, a Toeplitz matrix.
        noise_multiplier: The noise multiplier, σ.
        window: The number of steps of a window, w.
        num_cycles: The number of cycles that are composed.
        sampling_probability: The sampling probability, q.

    Source:
        docs/matrix.md, "Fresh windows".
    """
    below, above = (
        subsampled.on_poisson_sample(
            sampling_probability,
            _in_window(strategy, noise_multiplier, window, bound),
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    one = known_bounds.between(below, above)
    return compositions.compose({one: num_cycles})


def _in_window(
    strategy: strategies.Strategy,
    noise_multiplier: float,
    window: int,
    bound: Bound,
) -> interface.Mechanism:
    """Returns a bound for a record that takes part in one step of a window."""
    if noise_multiplier == 0:
        return known_bounds.NonPrivate()
    entry = strategy.only_entry
    if entry is not None:
        # The noise of different steps is independent.
        step = additive_noise.Gaussian(noise_multiplier / entry)
        return allocated.allocate(step, 1, window)
    if window > 1:
        return Window(strategy, noise_multiplier, window, 1)
    alone = Window(strategy, noise_multiplier, 1, 1)
    return matrix_allocation.independent_bins(alone.gram(bound), bound)


@dataclasses.dataclass(frozen=True)
class Window(matrix_allocation.MatrixAllocation):
    """A run of one epoch that continues without the record until its columns end.

    `num_bins` is the window, and `num_epochs` is 1. The Gram matrix is Toeplitz, with
    entries ρ(d) = ⟨c_i, c_{i+d}⟩. The Gram matrix of a run that ends with the window
    has smaller entries, so lower bounds for that run are valid here, too.
    """

    orders: ClassVar[tuple[float, ...]] = (chain_fits.ORDER,)

    def products(self) -> tuple[FloatArray, float]:
        table, error = self.strategy.by_distance(self.num_bins)
        table /= self.noise_multiplier**2
        places = np.arange(self.num_bins)
        return table[np.abs(places[:, np.newaxis] - places)], error
