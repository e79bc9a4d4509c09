"""Errors of masses and ratios, traded for a little less, or more, of spread.

Errors of masses multiply: those of a mean of t ratios are t times one's, and of n
runs n times. But the law of Z has mass one and mean one, whatever rounding did to
what is stored. So a law whose masses may be too large by a share e of each is above
the one that is drawn together about its mean by as much, and one whose masses may be
too small is below the one drawn apart,

    Z → μ + (1 ∓ c) (Z − μ),    c ≥ e,

which has mass one and mean one again, and no error. Its spread is off by c, and so is
ε, relatively, however often it is composed. The proof is in docs/mathematics.md.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]

# Certified: sums, a quotient and the new ratios, in units of rounding.
_ROUNDING = 16 * floats.UNIT_ROUNDOFF
# Certified: what rounding may add to the means beyond the middle, relatively.
_SAFETY = 1.01
# Tuning: of spread no more is traded,
_LARGEST_CHANGE = 1e-4
# and the least ratio moves by no more, relatively: losses of the other direction.
_LARGEST_MOVE = 1e-6


def settled(pair: dominating_pair.DominatingPair) -> dominating_pair.DominatingPair:
    """Returns a pair whose masses and ratios are exact but for their last digits.

    Args:
        pair: n atoms, that bound a mechanism's: a law of mass one and mean one. Lower
            ones with mass in sinks are returned as they are; so are pairs whose spread
            is small beside their errors, and those that are no bounds of such a law.

    Guarantees:
        Upper (lower) bounds give an upper (lower) one of the same mechanism.
    """
    sign = 1 if pair.bound is Bound.UPPER else -1
    mass_error = pair.mass_error + _ROUNDING
    ratio_error = pair.ratio_error + _ROUNDING
    sinks = np.array([pair.infinity_mass, pair.zero_mass])
    if not pair.ratios.size or (sign < 0 and sinks.any()) or (sinks >= 0.5).any():
        return pair
    sinks = sinks * (1 + mass_error)
    # What is left for the atoms, and how much more of it they have.
    p_goal, q_goal = 1 - sinks
    p_excess = sums.total(pair.p_masses) / p_goal
    q_excess = sums.total(pair.masses) / q_goal
    middle = p_goal / q_goal
    ratios = pair.ratios * (q_excess / p_excess)
    masses = pair.masses / q_excess
    change = _change(
        ratios / middle - 1,
        masses,
        p_excess=p_excess,
        q_excess=q_excess,
        mass_error=sign * mass_error,
        ratio_error=sign * ratio_error,
    )
    if change > _LARGEST_CHANGE:
        return pair
    # Not so of a least ratio too small for a float, which is stored as 0.
    if change * (middle - ratios[0]) >= _LARGEST_MOVE * ratios[0]:
        return pair
    return dataclasses.replace(
        pair,
        # Small ratios keep their digits.
        ratios=ratios + sign * change * (ratios - middle),
        masses=masses,
        infinity_mass=float(sinks[0]),
        zero_mass=float(sinks[1]),
        mass_error=_ROUNDING,
        ratio_error=_ROUNDING,
    )


def _change(
    apart: FloatArray,
    masses: FloatArray,
    *,
    p_excess: float,
    q_excess: float,
    mass_error: float,
    ratio_error: float,
) -> float:
    """Returns c of the module's docstring; inf where there is no spread to trade.

    Args:
        apart: (n,) distances from the middle, relatively.
        masses: (n,) masses.
        p_excess: The atoms' P-mass over what it is,
        q_excess: and their Q-mass.
        mass_error: Bound on the relative error of a mass; minus it for a lower bound,
        ratio_error: and the same of a ratio.
    """
    sign = math.copysign(1.0, mass_error)
    q_error = sign * ((1 + mass_error) * q_excess - 1)
    most = sign * ((1 + mass_error) * p_excess * (1 + ratio_error) - 1)
    if min(q_error, most) < 0:
        return math.inf
    fuzzy = 2 * (abs(ratio_error) + abs(p_excess / q_excess - 1))
    changes = []
    for side in (1, -1):
        p_error = sign * ((1 + mass_error) * p_excess * (1 + side * ratio_error) - 1)
        beyond = side * apart > -fuzzy
        if not beyond.any():
            return math.inf
        mean = side * sums.dot(
            apart[beyond], masses[beyond] / float(masses[beyond].sum())
        )
        lacking = max(side * (p_error - q_error), 0.0)
        if mean <= 0:
            return math.inf
        changes.append(max(p_error, 0.0) + _SAFETY * lacking / mean)
    return max(changes)
