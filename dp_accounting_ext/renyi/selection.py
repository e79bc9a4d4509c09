"""Rényi divergences of the best of a random number of runs."""

from collections.abc import Callable
from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import conversion
from dp_accounting_ext.renyi import ratio_moments

Curve = Callable[[Sequence[float]], FloatArray]

# The δ of one run that are told apart.
_DELTAS = np.geomspace(1.0, 1e-40, conversion.POINTS)


def selection_rdp(
    orders: Sequence[float], curve: Curve, mean: float, shape: float
) -> FloatArray:
    """Returns the RDP of running a mechanism K times and releasing the best output.

    K has a Poisson law if the shape is inf, and otherwise a truncated negative binomial
    law: shape 1 is the geometric law, and shape 0 the logarithmic one.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        curve: The function from orders to the RDP of one run.
        mean: The mean of K, at least 1.
        shape: The shape η ≥ 0 of the law of K.

    Guarantees:
        No entry is below the truth. If the bound for an order is above the bound for a
        larger order, the latter is used, as divergences increase in the order.

    Source:
        https://arxiv.org/abs/2110.03620, Theorems 2 and 6.
    """
    tried = sorted({*orders, *ratio_moments.SOME_ORDERS, math.inf} - {1.0})
    single = curve(tried)
    slopes = np.array(tried) - 1
    # This is log(E K) / (α − 1).
    several = math.log(mean) / slopes
    if math.isinf(shape):
        bounds = single + mean * _deltas(np.array(tried), single) + several
    else:
        halting = _log_halting(mean, shape)
        inverses = 1 / np.array(tried)
        # The bound log(1/γ) is that of order one.
        smallest = min(halting, np.min((1 - inverses) * single + halting * inverses))
        bounds = single + (1 + shape) * smallest + several
    # Divergences increase with the order, so a bound at a larger order is one here.
    # Each bound is a sum of three products.
    above = np.minimum.accumulate(bounds[::-1])[::-1]
    rounded = 1 + 16 * floats.UNIT_ROUNDOFF
    raised: FloatArray = above[np.searchsorted(tried, orders)] * rounded
    return raised


def _deltas(tried: FloatArray, single: FloatArray) -> FloatArray:
    """Returns δ of one run at ε̂ = log(1 + 1/(α − 1)) for each order, rounded up."""
    epsilons = conversion.epsilons(tried, single, _DELTAS[:, np.newaxis]).min(axis=1)
    targets = np.log1p(1 / (tried - 1))
    epsilons = np.maximum.accumulate(epsilons)
    deltas: FloatArray = _DELTAS[np.searchsorted(epsilons, targets, side="right") - 1]
    return deltas


def _log_halting(mean: float, shape: float) -> float:
    """Returns log(1/γ) for the law of K with the given mean, rounded up.

    With x = log(1/γ), the mean of K is (e^x − 1)/x · ηx/(1 − e^{−ηx}). It increases in
    x, and is at least e^{x/2}.
    """

    def mean_at(value: float) -> float:
        tail = shape * value
        spread = tail / -math.expm1(-tail) if tail else 1.0
        return math.expm1(value) / value * spread

    low, high = 0.0, 2 * math.log(mean) * (1 + 2.0**-40) + 2.0**-40
    for _ in range(100):
        middle = (low + high) / 2
        # The margin covers the rounding of the mean, so that the result is rounded up.
        if mean_at(middle) < mean * (1 + 2.0**-40):
            low = middle
        else:
            high = middle
    return high
