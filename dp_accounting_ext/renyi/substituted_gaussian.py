"""Rényi divergences of Gaussian noise on a batch of fixed size, a record replaced."""

import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.renyi import divergence

FloatArray = divergence.FloatArray

# Tuning: cells of an order, and how far beyond its mean they reach.
_CELLS = 2048
_REACH = 16.0
# Beyond so many σ, times the order, sampling is not counted.
_FURTHEST = 200.0
# Certified: relative rounding of the mean of a cell, and of its mass: differences of
# logarithms of normal tails.
_CELL_ROUNDING = 1e-10
_SERIES_REACH = 0.25
_SERIES_TERMS = 16


@functools.lru_cache(maxsize=64)
def batch_rdp(
    orders: tuple[float, ...], distance: float, sampling_fraction: float
) -> FloatArray:
    """Returns the RDP of a Gaussian on a batch drawn without replacement.

    One record of the dataset is replaced, and so is one of the batch with probability
    w. With Z = dP/dQ for P = N(d, 1), Q = N(0, 1), and z = 1 + w (Z − 1), both
    directions have profiles of at most E_Q (z − κ)₊ at κ ≥ 1, and so moments Ψ_α − 1 of
    at most E_Q h(z) over z > 1, where h(z) = z^α + z^{1−α} − 1 − z, whose second
    derivative α (α − 1)(z^{α−2} + z^{−α−1}) weighs the profiles of both.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        distance: d, how far a replaced record moves the sum, in σ.
        sampling_fraction: w, the batch over the dataset.

    Returns:
        A read-only array.

    Guarantees:
        No entry is below the truth: on each cell the convex h is below its chord, and
        beyond the last one E_Q z^α is counted.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 11 (subset sampling, replacement).
    """
    result = np.array([divergence.gaussian_rdp(distance, order) for order in orders])
    if sampling_fraction == 0 or distance == 0:
        result = np.zeros(len(orders))
    elif sampling_fraction < 1:
        for place, given in enumerate(orders):
            if given * distance <= _FURTHEST and given <= divergence.HIGHEST_ORDER:
                order = max(given, divergence.LOWEST_ORDER)
                excess = _log_excess_above_one(order, distance, sampling_fraction)
                moment = divergence.log_moment_from_excess(excess, order)
                amplified = divergence.rdp_from_moment(moment, order)
                result[place] = min(result[place], amplified)
    result.setflags(write=False)
    return result


def _log_excess_above_one(order: float, distance: float, fraction: float) -> float:
    """Returns log E_Q h(z) / (α − 1) over z > 1, rounded up."""
    end = distance / 2 + order * distance + _REACH
    points = np.linspace(distance / 2, end, _CELLS + 1)
    logs = distance * (points - distance / 2)
    losses = _log_ratio(logs, fraction)
    heights = np.logaddexp(
        divergence.log_excess(losses, order), _log_reflected_excess(losses, order)
    )
    log_masses = _log_normal_masses(points)
    # The mean of Z over a cell, above its left end; a cell's share of its right end.
    means = _log_normal_masses(points - distance) - log_masses - logs[:-1]
    shares = np.expm1(np.maximum(means + _CELL_ROUNDING, 0.0)) / np.expm1(np.diff(logs))
    with np.errstate(divide="ignore"):
        shares = np.clip(shares, 0.0, 1.0)
        cells = np.logaddexp(
            heights[:-1] + np.log1p(-shares), heights[1:] + np.log(shares)
        )
    inner = divergence.log_sum(cells + log_masses) + _CELL_ROUNDING
    return float(np.logaddexp(inner, _log_tail(order, distance, fraction, end)))


def _log_ratio(logs: FloatArray, fraction: float) -> FloatArray:
    """Returns log(1 + w (Z − 1)) of log Z ≥ 0."""
    with np.errstate(over="ignore"):
        small = np.log1p(fraction * np.expm1(logs))
    large = logs + math.log(fraction)
    ratio: FloatArray = np.where(
        logs < 600, small, np.logaddexp(large, math.log1p(-fraction))
    )
    return ratio


def _log_reflected_excess(losses: FloatArray, order: float) -> FloatArray:
    """Returns log (z^{1−α} − 1 + (α − 1)(z − 1)) / (α − 1), z = e^loss ≥ 1."""
    slope = order - 1
    clipped = np.clip(losses, 0.0, _SERIES_REACH / order)
    series, factorial = np.zeros_like(losses), 1.0
    for n in range(2, _SERIES_TERMS):
        factorial *= n
        series += (1 - (-slope) ** (n - 1)) / factorial * clipped**n
    with np.errstate(over="ignore", divide="ignore"):
        near = np.log(series)
        # Divided by z, which may be too large for a float.
        gained = (
            -np.expm1(-losses) + np.exp(-losses) * np.expm1(-slope * losses) / slope
        )
        far = losses + np.log(np.maximum(gained, 0.0))
    return np.where(losses * order <= _SERIES_REACH, near, far)


def _log_normal_masses(points: FloatArray) -> FloatArray:
    """Returns the logarithms of a standard normal's masses between points."""
    upper = special.log_ndtr(-points)
    lower = special.log_ndtr(points)
    with np.errstate(divide="ignore", invalid="ignore"):
        right = upper[:-1] + np.log(-np.expm1(np.diff(upper)))
        left = lower[1:] + np.log(-np.expm1(-np.diff(lower)))
    return np.where(points[:-1] > 0, right, left)


def _log_tail(order: float, distance: float, fraction: float, end: float) -> float:
    """Returns log of E_Q z^α over (α − 1) beyond a point, where z ≤ c Z."""
    at_end = math.exp(-distance * (end - distance / 2))
    log_share = math.log(fraction + (1 - fraction) * at_end)
    moment = order * (order - 1) * distance**2 / 2
    tail = float(special.log_ndtr(order * distance - end))
    return moment + tail + order * log_share - math.log(order - 1) + 1e-9
