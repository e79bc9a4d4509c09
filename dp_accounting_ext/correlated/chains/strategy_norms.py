"""Norms of a strategy matrix: bounds for records whose steps may be near each other.

Let C be the strategy and z the noise, of standard deviation σ. Let c_i be the columns
of C for the steps in which a record can take part, and G their inner products over σ².

From above: more outputs, whose means have the inner products λ I − G, reveal more. If λ
is at least the largest eigenvalue of G, all outputs together have the inner products
λ I. These are steps with independent Gaussian noise of precision λ.

From below: the sum of all outputs has one normal law of noise, and a step of the record
moves it by the sum of its column. And steps whose noise is independent, with the norms
of the columns, reveal less, as no entry of G is negative (Kahane's inequality).

Source:
    docs/matrix.md, "Steps that may be near each other".
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Tuning: the largest eigenvalue is found by iteration if an iteration has at most so
# many products; and the number of iterations.
_MOST_PRODUCTS, _ITERATIONS = 1 << 24, 24


def precision_above(
    strategy: FloatArray, noise_multiplier: float, num_steps: int, period: int = 1
) -> float:
    """Returns an upper bound on the largest eigenvalue of G.

    G has the columns 0, b, 2b, … of the strategy. Those of other groups of steps, 1,
    b + 1, … and so on, are shifted and cut earlier if the strategy is Toeplitz, so that
    their inner products are no larger.

    Args:
        strategy: (p,) the first column of a Toeplitz matrix, or the (n, n) rows of any
            matrix, for which `period` must be 1. No entry is negative.
        noise_multiplier: The noise multiplier, σ > 0.
        num_steps: The number n of steps, at least p.
        period: The number b of steps between two steps of a group.

    Returns:
        The largest eigenvalue over σ², rounded up.
    """
    if strategy.ndim == 1:
        # The largest sum of a row of G, for columns that are not cut. With r the
        # residue of the row, it is Σ_r (Σ_j c_{r + jb})².
        padded = np.zeros(-(-strategy.size // period) * period)
        padded[: strategy.size] = strategy
        largest = float((padded.reshape(-1, period).sum(axis=0) ** 2).sum())
        products = num_steps * strategy.size
    else:
        largest, products = math.inf, strategy.size
    if products <= _MOST_PRODUCTS or not math.isfinite(largest):
        largest = min(largest, _collatz_wielandt(strategy, num_steps, period))
    rounding = 16 * (num_steps + 8) * floats.UNIT_ROUNDOFF
    return largest / noise_multiplier**2 * (1 + rounding)


def precision_of_every_step(
    strategy: FloatArray, noise_multiplier: float, num_steps: int
) -> float:
    """Returns the squared norm of the sum of all columns over σ², rounded up.

    It is 1/σ² of a Gaussian mechanism that dominates every run, whatever the law of a
    record's steps, as no entry is negative.

    Args:
        strategy: As for `precision_above`.
        noise_multiplier: As for `precision_above`.
        num_steps: As for `precision_above`.
    """
    if strategy.ndim == 1:
        sums = np.cumsum(strategy)
        later = max(num_steps - strategy.size, 0)
        squared = float((sums**2).sum()) + later * float(sums[-1]) ** 2
    else:
        squared = float((strategy.sum(axis=1) ** 2).sum())
    rounding = 16 * (num_steps + 8) * floats.UNIT_ROUNDOFF
    return squared / noise_multiplier**2 * (1 + rounding)


def _collatz_wielandt(strategy: FloatArray, num_steps: int, period: int) -> float:
    """Returns max_i (G v)_i / v_i for a v > 0, which is above the largest eigenvalue.

    G is not divided by σ² here. v is found by iteration from v = 1.
    """
    part = slice(None, None, period)
    vector = np.ones(len(range(0, num_steps, period)))
    least = math.inf
    for _ in range(_ITERATIONS):
        moved = np.zeros(num_steps)
        moved[part] = vector
        if strategy.ndim == 1:
            moved = np.convolve(moved, strategy)[:num_steps]
            image = np.convolve(moved[::-1], strategy)[:num_steps][::-1][part]
        else:
            image = (strategy.T @ (strategy @ moved))[part]
        least = min(least, float((image / vector).max()))
        vector = np.maximum(image / image.max(), floats.UNIT_ROUNDOFF)
    return least


@dataclasses.dataclass(frozen=True)
class FirstSteps:
    """What the first steps of a run do to the outputs, at least.

    The last steps are left out, because the end of the run cuts their columns.

    Attributes:
        number: The number of first steps that count, at least 1.
        shift: The least amount by which one of them moves the sum of all outputs, in
            standard deviations of the sum, rounded down.
        deviation: The noise multiplier of a Gaussian mechanism for the column with the
            smallest norm among them, rounded up.
    """

    number: int
    shift: float
    deviation: float


def first_steps(
    strategy: FloatArray, noise_multiplier: float, num_steps: int
) -> FirstSteps:
    """Returns as many first steps as make their number times their shift largest.

    Args:
        strategy: As for `precision_above`.
        noise_multiplier: As for `precision_above`.
        num_steps: As for `precision_above`.
    """
    if strategy.ndim == 1:
        sums, squares = np.cumsum(strategy), np.cumsum(strategy**2)
        # The column of step i has its first n − i entries.
        kept = np.minimum(np.arange(num_steps, 0, -1), strategy.size) - 1
        sums, squares = sums[kept], squares[kept]
    else:
        sums, squares = strategy.sum(axis=0), (strategy**2).sum(axis=0)
    sums = np.minimum.accumulate(sums)
    # Of equal products the one of more steps is taken, so the order is reversed.
    products = sums * np.arange(1, num_steps + 1)
    number = num_steps - int(np.argmax(products[::-1]))
    rounding = 4 * (num_steps + 8) * floats.UNIT_ROUNDOFF
    scale = noise_multiplier * math.sqrt(num_steps)
    norm = math.sqrt(float(squares[:number].min()))
    return FirstSteps(
        number,
        float(sums[number - 1]) / scale * (1 - rounding),
        noise_multiplier / norm * (1 + rounding),
    )
