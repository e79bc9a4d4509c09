"""Rényi divergences of mechanisms, and of the best of a random number of runs."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import renyi_profile

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]

_UNIT = dominating_pair.UNIT_ROUNDOFF
_ORDERS = np.array(renyi_profile.ORDERS)
_TAIL_MASS = 1e-30
_BISECTIONS = 2000


def divergences(mechanism: interface.Mechanism) -> FloatArray:
    """Returns upper bounds on a mechanism's Rényi divergences, in either direction.

    Returns:
        (k,) one for each of `renyi_profile.ORDERS`; inf where none is known.
    """
    if isinstance(mechanism, renyi_bounded.RenyiBounded):
        return np.array(mechanism.values)
    if isinstance(mechanism, compositions.Composed):
        total: FloatArray = np.zeros(_ORDERS.size)
        for part, count in mechanism.items:
            total += count * divergences(part)
        total *= 1 + 4 * (len(mechanism.items) + 1) * _UNIT
        return total
    best = np.full(_ORDERS.size, mechanism.largest_loss())
    precision = mechanism.gaussian_precision()
    if math.isfinite(precision):
        best = np.minimum(best, _ORDERS * (precision / 2 * (1 + 8 * _UNIT)))
    pairs = interface.pairs_of(mechanism, Bound.UPPER, _TAIL_MASS)
    both = [pairs.remove, dominating_pair.dual(pairs.add)]
    larger: FloatArray = np.maximum(*(_of_pair(pair) for pair in both))
    return np.asarray(np.minimum(best, larger))


def _of_pair(pair: dominating_pair.DominatingPair) -> FloatArray:
    """Returns the divergences of P from Q, infinite if any loss is."""
    if pair.infinity_mass > 0:
        return np.full(_ORDERS.size, math.inf)
    with np.errstate(divide="ignore"):
        log_masses, losses = np.log(pair.p_masses), np.log(pair.ratios)
    found = np.empty(_ORDERS.size)
    for place, order in enumerate(_ORDERS):
        exponents = log_masses + (order - 1) * losses
        most = float(exponents.max())
        found[place] = most + math.log(float(np.exp(exponents - most).sum()))
    found /= _ORDERS - 1
    largest = float(np.abs(losses).max())
    error = pair.mass_error + (losses.size + 16) * _UNIT
    slack = error / (_ORDERS - 1) + pair.ratio_error + 16 * (1 + largest) * _UNIT
    raised: FloatArray = np.maximum(found, 0.0) + 2 * slack
    return raised


def repeat_and_select(inner: FloatArray, mean: float, shape: float) -> FloatArray:
    """Returns the divergences of the best of a random number of runs.

    Args:
        inner: (k,) those of one run, at `renyi_profile.ORDERS`.
        mean: The mean number of runs, at least 1.
        shape: Of its law: a truncated negative binomial, 1 the geometric, 0 the
            logarithmic law, inf Poisson's.

    Source:
        https://arxiv.org/abs/2110.03620, Theorems 2 and 6.
    """
    repeated = inner + math.log(mean) / (_ORDERS - 1)
    if math.isinf(shape):
        levels = np.log1p(1 / (_ORDERS - 1)) * (1 - 8 * _UNIT)
        chances = np.exp(renyi_profile.log_delta(renyi_profile.ORDERS, inner, levels))
        repeated += mean * chances
    else:
        parameter = _smallest_parameter(shape, mean)
        terms = (1 - 1 / _ORDERS) * inner - math.log(parameter) / _ORDERS
        repeated += (1 + shape) * float(terms.min())
    # Divergences increase with the order.
    least = np.minimum.accumulate(repeated[::-1])[::-1]
    raised: FloatArray = least * (1 + 64 * _UNIT)
    return raised


def _smallest_parameter(shape: float, mean: float) -> float:
    """Returns γ of the truncated negative binomial law, or a little less.

    Its mean, η (1 − γ) / (γ (1 − γ^η)), falls as γ grows.
    """

    def mean_of(log_parameter: float) -> float:
        odds = math.expm1(-log_parameter)
        if shape == 0:
            return odds / -log_parameter
        return shape * odds / -math.expm1(shape * log_parameter)

    low = -1.0
    while mean_of(low) < mean * (1 + 1e-12):
        low *= 2
    high = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if mean_of(middle) >= mean * (1 + 1e-12):
            low = middle
        else:
            high = middle
    return math.exp(low)
