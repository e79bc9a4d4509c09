"""The cost of a private draw for the worst input, which is a single point.

Measures are scaled here to y = βm, the most mass of each output. Then 1 ≤ Σy ≤ e^ε, no
entry need exceed one, and all numbers have the size of the costs, whatever ε is. If
there are too many pairs of inputs and outputs, only some inputs, the landmarks, are
examined.
"""

import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import ldp_polytope

# Tuning: the largest number of pairs of inputs and outputs for which all inputs are
# examined, which takes about a second for points; and the fewest and the most
# landmarks.
MOST_PAIRS = 10**7
_FEWEST, _MOST = 16, 256


def choose_landmarks(cost: costs.TransportCost) -> tuple[IndexArray, float]:
    """Returns all inputs if they are few; otherwise landmarks that are far apart.

    The second value returned is the largest distance of an input from its nearest
    landmark.
    """
    inputs, outputs = cost.shape
    count = min(max(MOST_PAIRS // outputs, _FEWEST), inputs)
    if count == inputs:
        return np.arange(inputs), 0.0
    count = min(count, _MOST)
    if cost.metric_order is None:
        return np.linspace(0, inputs - 1, count).astype(np.intp), math.inf
    # The input that is furthest from any given one is at the rim.
    place = int(cost.between_inputs(0).argmax())
    places, nearest = [], np.full(inputs, np.inf)
    for _ in range(count):
        places.append(place)
        nearest = np.minimum(nearest, cost.between_inputs(place))
        place = int(nearest.argmax())
    return np.unique(places), float(nearest.max())


def bound_nearby(worst: float, radius: float, cost: costs.TransportCost) -> float:
    """Returns an upper bound on φ within a radius of inputs, from their largest φ.

    The p-th root of φ is a distance from the polytope, so that it changes from one
    input to another by at most their distance.
    """
    order = cost.metric_order or 1.0
    return float((worst ** (1 / order) + radius) ** order) if radius else worst


def point_costs(
    upper: FloatArray, cost: costs.TransportCost, epsilon: float, inputs: IndexArray
) -> FloatArray:
    """Returns the costs φ_i of some inputs, for (k_v,) most masses y = βm.

    Every output holds its least mass e^{−ε} y_j. The remaining mass fills the
    nearest outputs up to y_j, one after the other.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 3.5.
    """
    allowed = ldp_polytope.LdpPolytope(math.exp(-epsilon) * upper, upper)
    step, blocks = max(1, costs.TOGETHER // upper.size), []
    for begin in range(0, inputs.size, step):
        rows = cost.rows(inputs[begin : begin + step])
        blocks.append((rows * ldp_polytope.cheapest(rows, allowed)).sum(axis=1))
    return np.concatenate(blocks)


def tangents(
    prices: FloatArray, upper: FloatArray, epsilon: float
) -> tuple[FloatArray, FloatArray]:
    """Returns τ and slopes of tangents of the least g·q, for (…, k_v) prices g.

    The least g·q of the laws q with e^{−ε}y ≤ q ≤ y is at least
    τ + Σ_j [e^{−ε}(g_j − τ)₊ − (τ − g_j)₊] y_j for any τ, which is linear in y. It is
    equal where τ is the price of the last output that holds more than its least mass.
    If the prices are the costs of an input i, the least g·q is φ_i.
    """
    ratio = math.exp(-epsilon)
    allowed = ldp_polytope.LdpPolytope(ratio * upper, upper)
    held = ldp_polytope.cheapest(prices, allowed)
    thresholds = ldp_polytope.level(prices, held, allowed)
    excess = prices - thresholds[..., np.newaxis]
    return thresholds, np.where(excess > 0, ratio * excess, excess)


def worst_case_cost(
    base_measure: FloatArray, cost: costs.TransportCost, epsilon: float
) -> float:
    """Returns the largest cost of a projection onto the measure's polytope.

    If there are too many pairs of inputs and outputs, it is computed for landmarks. For
    a metric, the result is then an upper bound that holds for the other inputs, too.
    It is W_p to the power p. The worst input is a single point, as the projection of
    a mixture costs at most the mixture of its points' projections.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition B.2.
    """
    inputs, radius = choose_landmarks(cost)
    if math.isinf(radius):
        inputs, radius = np.arange(cost.shape[0]), 0.0
    upper = math.exp(epsilon / 2) * base_measure
    worst = float(point_costs(upper, cost, epsilon, inputs).max())
    return bound_nearby(worst, radius, cost)
