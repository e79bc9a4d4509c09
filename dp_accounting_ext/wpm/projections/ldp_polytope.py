"""The distributions q with αm ≤ q ≤ βm, and projections onto them.

Here α = e^{−ε/2} and β = e^{ε/2}. Weights and distributions may be batches; the last
axis runs over the outputs.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_TINY = float(np.finfo(float).tiny)


@dataclasses.dataclass(frozen=True)
class LdpPolytope:
    """The distributions between two bounds.

    Attributes:
        lower: (k_v,) the least mass αm_j of every output.
        upper: (k_v,) the most, βm_j.
    """

    lower: FloatArray
    upper: FloatArray

    def of(self, outputs: npt.NDArray[np.intp]) -> "LdpPolytope":
        """Returns the bounds of some outputs."""
        return LdpPolytope(self.lower[outputs], self.upper[outputs])


def from_base_measure(base_measure: FloatArray, epsilon: float) -> LdpPolytope:
    """Returns the polytope of a base measure.

    Args:
        base_measure: (k_v,) masses m_j with αΣm ≤ 1 ≤ βΣm.
        epsilon: The privacy parameter ε.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 2.2.
    """
    return LdpPolytope(
        math.exp(-epsilon / 2) * base_measure, math.exp(epsilon / 2) * base_measure
    )


def cheapest(prices: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns the distribution q of the polytope with the least g·q.

    A fractional knapsack: outputs are filled in the order of their prices.

    Args:
        prices: (k_v,) prices g.
        polytope: Where to look.
    """
    order = np.argsort(prices, kind="stable")
    room = max(1 - float(polytope.lower.sum()), 0.0)
    # Of bounds far above one, all digits of what is left would cancel.
    widths = np.minimum(polytope.upper - polytope.lower, room)[order]
    left = room - (np.cumsum(widths) - widths)
    found = polytope.lower.copy()
    found[order] += np.minimum(np.maximum(left, 0.0), widths)
    return np.minimum(found, polytope.upper)


def nearest(distributions: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns members of the polytope beside distributions that rounding put off it.

    What clipping adds or removes is taken back in proportion to the room left.
    """
    clipped = _between(distributions, polytope)
    missing = 1 - clipped.sum(axis=-1, keepdims=True)
    room = np.where(missing > 0, polytope.upper - clipped, clipped - polytope.lower)
    total = np.maximum(room.sum(axis=-1, keepdims=True), _TINY)
    return _between(clipped + room * (missing / total), polytope)


def _between(values: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns values within bounds: several times faster than NumPy's clip."""
    return np.minimum(np.maximum(values, polytope.lower), polytope.upper)


def kl_projection(log_weights: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns the distributions q of the polytope with the least KL(q | s).

    They are q_j = clip(e^θ s_j, αm_j, βm_j) with the θ that makes the sum one. The
    sum is e^θ times that over the outputs strictly between their bounds, plus a
    constant, so one step finds θ from a start with the same outputs between their
    bounds. A bracket is halved where a step leaves it, and now and then in any case.

    Args:
        log_weights: (n, k_v) finite logarithms of s, of any scale.
        polytope: The polytope; bounds count as positive.

    Returns:
        The (n, k_v) projections. NaN where the weights are.

    Source:
        https://arxiv.org/abs/2605.10015, Lemma 4.2.
    """
    floor, ceiling = _log(polytope.lower), _log(polytope.upper)
    least = (floor - log_weights).min(axis=-1, keepdims=True)
    most = (ceiling - log_weights).max(axis=-1, keepdims=True)
    theta = np.clip(0.0, least, most)
    found = np.exp(np.clip(log_weights + theta, floor, ceiling))
    for count in range(_MOST_STEPS):
        missing = 1 - found.sum(axis=-1, keepdims=True)
        least = np.where(missing > 0, theta, least)
        most = np.where(missing > 0, most, theta)
        shifted = log_weights + theta
        inside = (shifted > floor) & (shifted < ceiling)
        moved = theta + _step(found, inside, missing)
        sound = (least < moved) & (moved < most) & (count % 4 != 3)
        moved = np.where(sound, moved, (least + most) / 2)
        # What is done stays as it is, whatever the rest of the batch still needs.
        done = ~(np.abs(missing) > _SUM_ERROR) | (moved == theta)
        if done.all():
            break
        theta = np.where(done, theta, moved)
        found = np.exp(np.clip(log_weights + theta, floor, ceiling))
    return np.asarray(found)


_MOST_STEPS = 250
_SUM_ERROR = 4e-15


def _log(bounds: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(bounds, _TINY)))


def _step(
    found: FloatArray, inside: npt.NDArray[np.bool_], missing: FloatArray
) -> FloatArray:
    """Returns by how much θ moves for what is between its bounds to fill the sum."""
    filling = np.where(inside, found, 0.0).sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log1p(missing / filling))
