"""Rényi divergences on samples, from those of the mechanism at integer orders."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import ratio_moments

Curve = Callable[[Sequence[float]], FloatArray]


def poisson_rdp(
    orders: Sequence[float], curve: Curve, sampling_probability: float
) -> FloatArray:
    """Returns the RDP of a mechanism on a Poisson sample.

    Let P and Q be the laws of the mechanism with and without the record, Z = dP/dQ, and
    M = (1 − q) Q + q P. At integer orders α ≥ 2 the result is
    log Σ_i C(α, i) q^i (1 − q)^{α−i} e^{(i−1) ε(i)} / (α − 1), and between them it is
    computed from the chord of log Ψ_α.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        curve: The mechanism's RDP ε(α) at orders, of both P‖Q and Q‖P.
        sampling_probability: The inclusion probability q in [0, 1] of each record.

    Guarantees:
        No entry is below the divergence of M from Q, nor that of Q from M.

    Source:
        The first direction at integer orders: Zhu and Wang 2019, Poisson subsampled
        Rényi differential privacy. The other one: docs/mathematics.md, "Rényi
        divergences" (ours).
    """
    rate = sampling_probability

    def log_terms(order: int, inner: FloatArray) -> FloatArray:
        counts = np.arange(2.0, order + 1)
        weights = _log_choices(order) + counts * math.log(rate)
        weights += (order - counts) * math.log1p(-rate)
        # The weights of all i, including i = 0 and i = 1, sum to one. So the terms of
        # Ψ − 1 are those of Ψ with e^x − 1 in the place of e^x.
        with np.errstate(divide="ignore"):
            gains: FloatArray = np.log(-np.expm1(-inner))
        return weights + inner + gains + _slack(order, weights, inner)

    if rate in (0.0, 1.0):
        return np.zeros(len(orders)) if rate == 0 else curve(orders)
    largest = float(curve([math.inf])[0])
    pure = largest
    if largest < floats.LARGEST_EXPONENT:
        pure = ratio_moments.rounded_up(math.log1p(rate * math.expm1(largest)))
    return np.minimum(_from_integer_orders(orders, curve, log_terms), pure)


def without_replacement_rdp(
    orders: Sequence[float], curve: Curve, sampling_fraction: float
) -> FloatArray:
    """Returns the RDP of a mechanism on a batch of fixed size, if a record is replaced.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        curve: The mechanism's RDP ε(α) at orders, of batches that differ in a record.
        sampling_fraction: The batch size over the dataset size, γ.

    Guarantees:
        No entry is below the truth.

    Source:
        docs/mathematics.md, "Rényi divergences" (ours);
        https://arxiv.org/abs/1807.01647, Theorem 2 (advanced joint convexity).
    """
    fraction = sampling_fraction
    if fraction in (0.0, 1.0):
        return np.zeros(len(orders)) if fraction == 0 else curve(orders)
    first = 2 * float(curve([ratio_moments.LOWEST_ORDER])[0])

    def log_terms(order: int, inner: FloatArray) -> FloatArray:
        counts = np.arange(2.0, order + 1)
        weights = _log_choices(order) + counts * math.log(fraction)
        unsampled = weights + (order - counts) * math.log1p(-fraction)
        least = min(1.0, (order + 1) * fraction)
        # Where e^{ε(2)} − 1 may overflow, it is the larger one.
        squares = math.expm1(min(float(inner[0]), 1.0 + math.log1p(first / least)))
        second = min(squares, first / least) + (1 - fraction) * first
        with np.errstate(divide="ignore"):
            gains = inner + np.log(-np.expm1(-inner))
            integrals = np.append(np.log(first), gains[:-1])
            reverse = weights[0] + np.log(second)
        integrals[1:] += np.log(counts[1:] / (counts[1:] - 2))
        return _slack(order, unsampled, weights, inner) + np.concatenate(
            [
                unsampled + gains,
                unsampled + integrals + math.log1p(-fraction),
                [min(reverse, math.log((order - 1) * fraction))],
            ]
        )

    return _from_integer_orders(orders, curve, log_terms)


def _from_integer_orders(
    orders: Sequence[float],
    curve: Curve,
    log_terms: Callable[[int, FloatArray], FloatArray],
) -> FloatArray:
    """Returns RDP from terms whose sum is Ψ − 1 at integer orders.

    The result is the RDP without amplification if that is smaller, or if the order is
    above `ratio_moments.HIGHEST_ORDER`.
    """

    def moments(needed: set[int]) -> dict[int, float]:
        integers = np.arange(2, max(needed, default=1) + 1)
        # These are the values of (i − 1) ε(i) for i = 2, 3, ….
        inner = (integers - 1) * curve([float(order) for order in integers])
        log_moments = dict.fromkeys(needed, math.inf)
        for order in needed:
            exponents = inner[: order - 1]
            if np.isfinite(exponents).all():
                total = ratio_moments.log_sum(log_terms(order, exponents))
                log_moments[order] = float(np.logaddexp(0.0, total))
        return log_moments

    return ratio_moments.by_chords(orders, curve(orders), moments)


def _slack(order: int, *logs: FloatArray) -> float:
    """Returns a bound on the rounding error of a sum of `logs` and log C(α, i).

    It covers a few roundings of each term, and those of adding at most 4096 terms.
    """
    largest = sum(float(np.abs(row).max()) for row in logs)
    sizes = 1 + float(_log_factorials()[order]) + largest
    return 24 * floats.UNIT_ROUNDOFF * sizes


@functools.lru_cache(maxsize=512)
def _log_choices(order: int) -> FloatArray:
    """Returns log C(α, i) for i = 2, …, α."""
    counts = np.arange(2, order + 1)
    logs = _log_factorials()
    choices: FloatArray = logs[order] - logs[counts] - logs[order - counts]
    return choices


@functools.lru_cache(maxsize=1)
def _log_factorials() -> FloatArray:
    """Returns log n! for n = 0, 1, …, computed from exact factorials."""
    logs, product = [0.0], 1
    for number in range(1, int(ratio_moments.HIGHEST_ORDER) + 2):
        product *= number
        logs.append(math.log(product))
    return np.array(logs)
