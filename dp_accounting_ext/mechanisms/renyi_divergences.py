"""Rényi divergences of mechanisms, but for an event that may tell everything."""

from collections.abc import Mapping
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.pairs import renyi_profile

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
RenyiBounded = renyi_bounded.RenyiBounded

_UNIT = dominating_pair.UNIT_ROUNDOFF
_ORDERS = np.array(renyi_profile.ORDERS)
# Tuning: tails tell everything, so rarely that no δ asked for is as small.
_TAIL_MASS = 1e-280


def of_mechanism(mechanism: interface.Mechanism) -> RenyiBounded:
    """Returns what bounds a mechanism, by its Rényi divergences in either direction."""
    if isinstance(mechanism, RenyiBounded):
        return mechanism
    if isinstance(mechanism, additive_noise.Gaussian):
        return _of_a_gaussian(mechanism)
    parts = compositions.flatten({mechanism: 1}, Bound.UPPER, other=True)
    if parts == {mechanism: 1}:
        return _of_its_pairs(mechanism)
    return composition(parts)


def composition(counts: Mapping[interface.Mechanism, int]) -> RenyiBounded:
    """Returns what bounds a composition."""
    bounds: dict[RenyiBounded, int] = {}
    for part, count in counts.items():
        bound = of_mechanism(part)
        bounds[bound] = bounds.get(bound, 0) + count
    return renyi_bounded.composition(bounds)


def _of_a_gaussian(mechanism: interface.Mechanism) -> RenyiBounded:
    """Returns the bound of the Gaussian that dominates a mechanism, if any does."""
    precision = mechanism.claims().gaussian_precision
    return RenyiBounded.of(_ORDERS * (precision / 2 * (1 + 8 * _UNIT)))


def _of_its_pairs(mechanism: interface.Mechanism) -> RenyiBounded:
    """Returns the bound of a mechanism that is no composition.

    Where one pair serves both directions the mechanism is a function of what has the
    pair's laws, and what tells everything is one event of both. Two pairs have to be
    without such events.
    """
    pairs = interface.pairs_of(mechanism, Bound.UPPER, _TAIL_MASS)
    each = [pairs.remove, dominating_pair.dual(pairs.add)]
    told = max(max(pair.infinity_mass, pair.zero_mass) for pair in each)
    told = min(told * (1 + max(pair.mass_error for pair in each) + 4 * _UNIT), 1.0)
    if told and not pairs.is_one:
        return _of_a_gaussian(mechanism)
    if told == 1:
        return RenyiBounded.of(np.zeros(_ORDERS.size), told)
    found = np.maximum(*(_of_a_pair(pair) for pair in each))
    if not told:
        found = np.minimum(found, mechanism.claims().largest_loss)
    return RenyiBounded.of(found, told)


def _of_a_pair(pair: dominating_pair.DominatingPair) -> FloatArray:
    """Returns the divergences of P from Q, of both what has finite losses."""
    with np.errstate(divide="ignore"):
        log_masses, losses = np.log(pair.p_masses), np.log(pair.ratios)
    found = np.empty(_ORDERS.size)
    for place, order in enumerate(_ORDERS):
        exponents = log_masses + (order - 1) * losses
        most = float(exponents.max())
        found[place] = most + math.log(float(np.exp(exponents - most).sum()))
    found -= _ORDERS * math.log(float(pair.p_masses.sum()))
    found /= _ORDERS - 1
    found += math.log(float(pair.masses.sum()))
    largest = float(np.abs(losses).max())
    error = pair.mass_error + (losses.size + 16) * _UNIT
    slack = 2 * error * _ORDERS / (_ORDERS - 1)
    slack += pair.ratio_error + 16 * (1 + largest) * _UNIT
    raised: FloatArray = np.maximum(found, 0.0) + 2 * slack
    return raised
