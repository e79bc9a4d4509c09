"""A few inputs in the place of all, where there are too many pairs to look at."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tuning: pairs of inputs and outputs that are looked at one by one, a second or two of
# points and five of a graph; and those of landmarks.
MOST_PAIRS = 3 * 10**7
_LANDMARK_PAIRS = 2 * 10**7
_FEWEST, _MOST = 16, 256


@dataclasses.dataclass(frozen=True)
class Landmarks:
    """Inputs that are near all others.

    Attributes:
        inputs: (n,) the inputs.
        radius: No input is further from all of them; infinite if that is unknown.
    """

    inputs: IndexArray
    radius: float


def few_enough(cost: transport_cost.TransportCost) -> bool:
    """Tells whether all pairs of inputs and outputs can be looked at."""
    return cost.shape[0] * cost.shape[1] <= MOST_PAIRS


def choose(cost: transport_cost.TransportCost) -> Landmarks:
    """Returns landmarks: of a metric, each as far as can be from those before."""
    inputs, outputs = cost.shape
    count = min(max(_LANDMARK_PAIRS // outputs, _FEWEST), _MOST, inputs)
    if cost.metric_order is None:
        return Landmarks(np.linspace(0, inputs - 1, count).astype(np.intp), math.inf)
    # The input furthest from any one is at the rim.
    place = int(cost.between_inputs(0).argmax())
    found, nearest = [], np.full(inputs, np.inf)
    for _ in range(count):
        found.append(place)
        nearest = np.minimum(nearest, cost.between_inputs(place))
        place = int(nearest.argmax())
    return Landmarks(np.unique(found), float(nearest.max()))


def bound_everywhere(worst: float, landmarks: Landmarks, order: float) -> float:
    """Returns an upper bound of φ everywhere from the largest at landmarks.

    The p-th root of φ is a distance from the polytope, so that it changes from one
    input to another by at most their distance.
    """
    return float((worst ** (1 / order) + landmarks.radius) ** order)
