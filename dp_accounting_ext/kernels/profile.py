"""The privacy profile of atoms: from ε to δ and back."""

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def log_kappa(gain: FloatArray, cost: FloatArray, sink: float, delta: float) -> float:
    """Returns ln κ at which sink + Σ (gain − κ · cost)_+ falls to delta.

    The divergence is the largest of the lines "sink + the sum over the first k
    atoms", so its inverse is the largest of their inverses. Each line alone is a
    lower bound, whatever the order.

    Args:
        gain: (n,) masses that count, from the most extreme ratio inwards.
        cost: (n,) masses under the other distribution.
        sink: The mass of an infinite loss.
        delta: The target.

    Returns:
        inf where the sink exceeds delta, −inf where no κ > 0 is needed.
    """
    if sink > delta:
        return math.inf
    excess = np.cumsum(gain) - (delta - sink)
    slopes = np.cumsum(cost)
    if ((excess > 0) & (slopes == 0)).any():
        return math.inf
    counted = excess > 0
    if not counted.any():
        return -math.inf
    return float((np.log(excess[counted]) - np.log(slopes[counted])).max())
