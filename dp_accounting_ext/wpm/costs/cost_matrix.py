"""Cost matrices: powers of distances between inputs and outputs."""

from collections.abc import Callable
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import distance

from dp_accounting_ext import validation
from dp_accounting_ext.wpm import checks

FloatArray = npt.NDArray[np.float64]
Metric = str | Callable[[FloatArray, FloatArray], float]


def cost_matrix(
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    metric: Metric = "euclidean",
    order: float = 2,
) -> FloatArray:
    """Returns the costs C_ij = d(x_i, v_j)^p.

    Args:
        inputs: (k, dimensions) points x_i a distribution may have mass on, or (k,)
            on a line. Public, as is everything but the distributions.
        outputs: (k_v, dimensions) points v_j that may be released, or (k_v,).
        metric: Any metric of `scipy.spatial.distance.cdist`, or a function of two
            points.
        order: The order p ≥ 1 of the Wasserstein distance.

    Returns:
        The (k, k_v) costs.

    Raises:
        TypeError: If the points or the order are not real numbers.
        ValueError: If the points differ in dimension, a distance is negative or not
            finite, or the order is below one.
    """
    power = validation.real_number("order", order)
    if not 1 <= power < math.inf:
        raise ValueError(f"order must be at least 1 and finite. Found {order}.")
    left, right = _points("inputs", inputs), _points("outputs", outputs)
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            "inputs and outputs must be points of one dimension. "
            f"Found {left.shape[1]} and {right.shape[1]}."
        )
    # Rounding may take a cosine distance of zero below it.
    named: Any = metric
    distances = np.asarray(distance.cdist(left, right, named))
    distances[(distances < 0) & (distances > -1e-12)] = 0.0
    return checks.cost(distances**power)


def _points(name: str, value: Any) -> FloatArray:
    found = checks.array(name, value)
    if found.ndim == 1:
        found = found[:, np.newaxis]
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"{name} must be a list of points. Found {found.shape}.")
    return found
