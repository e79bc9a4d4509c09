"""Cost matrices: powers of distances between inputs and outputs."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.costs import point_cost

FloatArray = npt.NDArray[np.float64]


def cost_matrix(
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    metric: point_cost.Metric = "euclidean",
    order: float = 2,
) -> FloatArray:
    """Returns the costs C_ij = d(x_i, v_j)^p.

    Args:
        inputs: (k, dimensions) points x_i a distribution may have mass on, or (k,)
            on a line. Public, as is everything but the distributions.
        outputs: (k_v, dimensions) points v_j that may be released, or (k_v,).
        metric: As for `PointCost`, which does without the matrix.
        order: The order p ≥ 1 of the Wasserstein distance.

    Returns:
        The (k, k_v) costs.

    Raises:
        TypeError: If the points or the order are not real numbers.
        ValueError: If the points differ in dimension, a distance is negative or not
            finite, or the order is below one.
    """
    left, right = checks.points("inputs", inputs), checks.points("outputs", outputs)
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            "inputs and outputs must be of one dimension. "
            f"Found {left.shape[1]} and {right.shape[1]}."
        )
    cost = point_cost.PointCost(left, right, metric=metric, order=order)
    return checks.cost(cost.matrix())
