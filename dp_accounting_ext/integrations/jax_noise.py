"""Checks that the noise of a jax_privacy plan is that of a strategy matrix.

The noise of all steps is C⁻¹ Z for a strategy matrix C and independent Gaussian Z. So
the plan's transform runs on zeros, and C times what it returns must look like Z.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import signal

FloatArray = npt.NDArray[np.float64]

# Tuning: the number of values of noise that are drawn, in two seconds.
_VALUES = 2**22
# Tuning: the most steps that are run, and the largest distance of two steps whose
# correlation is measured.
_STEPS, _DISTANCE = 4096, 64
# Tuning: in standard deviations, how far the measures of right noise may be from their
# means. One of 5,000 is further with a probability of 1e-8.
_DEVIATIONS = 7.0


def refuse_other_noise(
    transform: Any, column: Sequence[float], deviation: float, iterations: int
) -> None:
    """Refuses a transform whose noise is not that of a strategy matrix.

    Other standard deviations are seen from 0.25 % on, and in one of 1000 steps alone
    from 8 %. Only the first 4096 steps are looked at. The `column` has the Toeplitz
    coefficients of C, and `deviation` is the standard deviation of Z.
    """
    steps = min(iterations, _STEPS)
    noise = _on_zeros(transform, steps)
    coefficients = np.asarray(column[:steps], np.float64)[:, np.newaxis]
    multiplied = signal.oaconvolve(noise, coefficients, axes=0)[:steps]
    variances = np.square(multiplied).mean(axis=1)
    variance = variances.mean()
    for distance in range(1, min(steps, _DISTANCE + 1)):
        products = multiplied[distance:] * multiplied[:-distance]
        correlation = products.mean() / variance if variance else 0.0
        if abs(correlation) > _DEVIATIONS / np.sqrt(products.size):
            _refuse(
                f"{np.sqrt(variance):.4g}, and a correlation of {correlation:.3f} "
                f"between steps at a distance of {distance}",
                deviation,
            )
    allowed = _DEVIATIONS * deviation**2 * np.sqrt(2 / multiplied.size)
    if abs(variance - deviation**2) > allowed:
        _refuse(f"{np.sqrt(variance):.4g}", deviation)
    away = np.abs(variances - deviation**2)
    if away.max() > allowed * np.sqrt(steps):
        step = int(away.argmax())
        _refuse(f"{np.sqrt(variances[step]):.4g} in step {step + 1}", deviation)


def _on_zeros(transform: Any, steps: int) -> FloatArray:
    """Returns the noise of each step, shape (steps, values)."""
    zeros = jnp.zeros(_VALUES // steps, jnp.float32)

    def step(state: Any, _: None) -> tuple[Any, Any]:
        noise, state = transform.update(zeros, state)
        return state, noise

    _, noise = jax.lax.scan(step, transform.init(zeros), length=steps)
    return np.asarray(noise, np.float64)


def _refuse(measured: str, deviation: float) -> None:
    raise RuntimeError(
        f"The plan's noise, times the strategy matrix, must be independent and have a "
        f"standard deviation of {deviation:.4g}. Found {measured}: take the noise "
        f"multiplier and the matrix of the plan, StrategyAccountant(…, matrix=…), or "
        f"certified.from_plan(config)."
    )
