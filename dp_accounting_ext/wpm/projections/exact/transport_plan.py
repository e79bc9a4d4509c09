"""Plans that move exactly what there is."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


def feasible(
    masses: FloatArray,
    cost: FloatArray,
    inputs: IndexArray,
    outputs: IndexArray,
    amounts: FloatArray,
) -> tuple[float, FloatArray]:
    """Returns the cost of a plan with its rows made exact, and its columns.

    Args:
        masses: (s,) positive masses of the inputs.
        cost: (s, n) costs.
        inputs: (arcs,) where arcs begin.
        outputs: (arcs,) where they end.
        amounts: (arcs,) what they move, up to a solver's tolerance.
    """
    sums = np.bincount(inputs, amounts, minlength=masses.size)
    empty = np.flatnonzero(sums <= 0)
    factors = np.divide(masses, sums, out=np.zeros_like(masses), where=sums > 0)
    scaled = amounts * factors[inputs]
    value = float(scaled @ cost[inputs, outputs])
    columns = np.bincount(outputs, scaled, minlength=cost.shape[1]).astype(float)
    # Masses below a solver's tolerance may not have been moved at all.
    nearest = cost[empty].argmin(axis=1)
    np.add.at(columns, nearest, masses[empty])
    return value + float(masses[empty] @ cost[empty, nearest]), columns
