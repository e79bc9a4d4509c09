"""The base measure of a given private mechanism."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks

# Laws are floating point numbers, whose ratios are off by their rounding.
_RATIO_ERROR = 1e-9


def covering_base_measure(
    laws: npt.ArrayLike, epsilon: float
) -> npt.NDArray[np.float64]:
    """Returns a base measure whose polytope holds all laws of a private mechanism.

    So the Wasserstein projection with this measure costs at most as much as the
    mechanism, for every input at once.

    Args:
        laws: (n, k_v) the mechanism's output distributions, a row for each input.
        epsilon: The privacy parameter ε of the mechanism.

    Returns:
        (k_v,) the geometric means of the least and the greatest probabilities.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the rows are no distributions, or not ε-private.

    Source:
        https://arxiv.org/abs/2605.10015, Lemma B.1 and Proposition 3.3.
    """
    privacy = checks.epsilon(epsilon)
    shape = np.shape(laws)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"laws must be a matrix of rows. Found shape {shape}.")
    rows = checks.distributions("laws", laws, shape[1])
    least, most = rows.min(axis=0), rows.max(axis=0)
    worst = float((most - math.exp(privacy) * (1 + _RATIO_ERROR) * least).max())
    if worst > 0:
        raise ValueError(
            f"laws must differ by a factor of at most exp({epsilon}) in each output. "
            "Found a greater one."
        )
    return np.asarray(np.sqrt(least * most))
