"""Limits of floats, and rounding in the two directions of a bound.

All of it is certified for IEEE 754 double precision, rounding to nearest, with
subnormal numbers.
"""

import math
import sys
from typing import Any

# The relative rounding error of one operation.
UNIT_ROUNDOFF = 2.0**-53

# e^700 is 1e304: its products with masses, and sums of thousands of them, fit a float.
LARGEST_EXPONENT = 700.0

# Masses below this go to the sinks. Floats below 2e-308 have fewer digits.
SMALLEST_MASS = 1e-300

# Outputs of a mechanism that are less likely than this go to the sinks (of an upper
# bound) or are left out (of a lower one). The ratios of all others fit a float.
RARE = 1e-290
# The same for the atoms of sums: e^{700} times a larger mass has all its digits.
TINY = 1e-280

# Largest loss of pairs that are computed from others: the inverse of its ratio is above
# SMALLEST_MASS, and the ratio times a count or a small mass still fits a float.
LARGEST_LOSS = 690.0

# The logarithm of every positive float is above minus this.
LARGEST_LOG = 745.0

# Covers some millions of roundings, for bounds that need not be tight.
_SAFETY = 1e-9


def raised(bound: float, by: float = _SAFETY) -> float:
    """Returns an upper bound ≥ 0, raised by a relative allowance for rounding."""
    return bound * (1 + by)


def lowered(bound: float, by: float = _SAFETY) -> float:
    """Returns a lower bound ≥ 0, lowered by a relative allowance for rounding."""
    return bound / (1 + by)


def exponential(x: float) -> float:
    """Returns e^x, or the largest float if e^x is larger."""
    try:
        return math.exp(x)
    except OverflowError:
        return sys.float_info.max


def normal_tail_error(argument: Any) -> Any:
    """Returns a bound on the relative error of scipy.special.ndtr at ±`argument`.

    It is an assumption that a test checks (docs/rounding.md, "Assumptions").

    Args:
        argument: A number, or an array, of standard deviations, at most 37.
    """
    return (32 + 4 * argument**2) * UNIT_ROUNDOFF
