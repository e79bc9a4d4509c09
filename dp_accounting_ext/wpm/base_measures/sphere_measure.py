"""The best base measure on the sphere, a multiple of the uniform probability."""

import math

from scipy import optimize
from scipy import special

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks


def sphere_scale(dimension: int, epsilon: float, order: float) -> float:
    """Returns the scale of the optimal base measure on the unit sphere.

    Args:
        dimension: Of the sphere S^d, which lies in d + 1 coordinates.
        epsilon: The privacy parameter ε.
        order: The order p ≥ 1 of the Wasserstein distance, with Euclidean distances.

    Returns:
        α* such that α* times the uniform probability is optimal. It falls as p grows.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition H.1.
    """
    privacy = checks.epsilon(epsilon)
    place = _threshold(dimension, privacy, order)
    cap = float(special.betainc(dimension / 2, dimension / 2, place))
    least = math.exp(-privacy / 2)
    return 1 / (least + 2 * math.sinh(privacy / 2) * cap)


def sphere_worst_case(dimension: int, epsilon: float, order: float) -> float:
    """Returns W_p to the power p of the optimal mechanism on the unit sphere.

    The optimality condition says that it is the cost at the rim of the cap that has
    the upper density, (2 − 2t*)^{p/2}.

    Args:
        dimension: As for `sphere_scale`.
        epsilon: As for `sphere_scale`.
        order: As for `sphere_scale`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    place = _threshold(dimension, checks.epsilon(epsilon), order)
    return float((4 * place) ** (order / 2))


def _threshold(dimension: int, epsilon: float, order: float) -> float:
    """Returns x* = (1 − t*) / 2, where the optimality condition changes its sign.

    In x, caps are regularised incomplete beta functions: S = I_x(d/2, d/2) and
    U = H I_x((d + p)/2, d/2). Divided by 4^{p/2} e^{−ε/2}, the condition is
    (e^ε − 1)(x^{p/2} S − U') = h − x^{p/2}, with h = H / 4^{p/2} and U' = U / 4^{p/2}.
    The root is sought in log x, as it may be tiny.
    """
    half = fields.positive_integer("dimension", dimension) / 2
    power = fields.real_number("order", order) / 2
    if not 0.5 <= power < math.inf:
        raise ValueError(f"order must be at least 1 and finite. Found {order}.")
    whole = math.exp(special.betaln(half + power, half) - special.betaln(half, half))
    excess = math.expm1(epsilon)

    def condition(log_place: float) -> float:
        place = math.exp(log_place)
        cost = place**power
        cap = special.betainc(half, half, place)
        inside = whole * special.betainc(half + power, half, place)
        return float(excess * (cost * cap - inside) - (whole - cost))

    least = -1.0
    while condition(least) > 0:
        least *= 2
    return math.exp(optimize.brentq(condition, least, 0.0, xtol=1e-16, rtol=1e-15))
