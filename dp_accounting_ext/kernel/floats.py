"""What floats can hold, and the two directions in which a bound is rounded.

All of it is certified: IEEE 754 double precision, rounding to nearest, with denormals.
"""

import math
import sys

# The relative error of one operation.
UNIT_ROUNDOFF = 2.0**-53

# e^700 is 1e304: products with masses and sums of thousands still fit.
LARGEST_EXPONENT = 700.0

# Below it floats have fewer digits (from 2e-308), and masses go to the sinks.
SMALLEST_MASS = 1e-300

# Outputs of a mechanism that are less likely go to the sinks (of an upper bound) or are
# left out (of a lower one): the ratios of the others fit a float;
RARE = 1e-290
# and so do atoms of sums: no factor of e^700 meets a float with fewer digits.
TINY = 1e-280

# Ratios of pairs that are computed from others: their inverses are above
# SMALLEST_MASS, and a ratio times a count or a small mass still fits.
LARGEST_LOSS = 690.0

# No positive float has a logarithm as far below zero.
LARGEST_LOG = 745.0

# Covers some millions of roundings: for bounds that are not tight anyway.
_SAFETY = 1e-9


def raised(bound: float, by: float = _SAFETY) -> float:
    """Returns a bound ≥ 0 raised by so much, relatively: an upper one stays above."""
    return bound * (1 + by)


def lowered(bound: float, by: float = _SAFETY) -> float:
    """Returns a bound ≥ 0 lowered by so much, relatively: a lower one stays below."""
    return bound / (1 + by)


def exponential(x: float) -> float:
    """Returns e^x, or the largest float where that is larger."""
    try:
        return math.exp(x)
    except OverflowError:
        return sys.float_info.max
