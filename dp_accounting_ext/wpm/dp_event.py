"""The event of one private draw, and the pair that dominates it."""

from fractions import Fraction
import math

import attr
from dp_accounting import dp_event
import numpy as np
import numpy.typing as npt

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.exact_draw import rational_exponential

# Certified: allowance for a total mass that was rounded to a float, and for sums of a
# million masses and a few operations with them.
_MASS_ERROR = Fraction(1, 2**50)
_REACH_ERROR = 1e-9
# Tuning: outputs whose sums are told apart, 2^12 of them.
_LARGEST_OUTPUTS = 12


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivateSamplingEvent(dp_event.DpEvent):
    """Represents one draw whose law lies between two bounds, whatever the input.

    For every input, output j has a probability in [e^{−ε/2} m_j, e^{ε/2} m_j], with a
    public base measure m. A record is the whole input of a user, replaced by any
    other.

    With α = e^{−ε/2}, β = e^{ε/2}, M = Σm and A the smaller of (1 − αM) / (β − α) and
    M − (1 − αM) / (β − α), the hockey-stick divergence of two such laws at e^{ε'} is
    at most A (β − e^{ε'} α) for 0 ≤ ε' ≤ ε: A is how much of m can be at the upper
    bound under one law and at the lower one under the other. The dominating pair, which
    attains the bound, is a binary randomized response with parameter ε that runs with
    probability p = (α + β) A ≤ 1 and else releases nothing:

        output           P                      Q
        truth            p e^ε / (1 + e^ε)      p / (1 + e^ε)
        lie              p / (1 + e^ε)          p e^ε / (1 + e^ε)
        nothing          1 − p                  1 − p

    Its privacy loss is ε, −ε and 0. It is symmetric: the same for both directions,
    and for orders below one as above. `dominating_probabilities` returns the masses
    of P at ε and at −ε, rounded towards less privacy.

    Attributes:
        epsilon: The privacy parameter ε > 0 of one draw.
        total_mass: M, in [e^{−ε/2}, e^{ε/2}], rounded to a float; or, of a measure
            whose outputs are too coarse to reach A, the mass of a fine one that
            reaches as much, as `equivalent_mass` gives it.
    """

    epsilon: float
    total_mass: float


def dominating_probabilities(epsilon: float, total_mass: float) -> tuple[float, float]:
    """Returns the probabilities of losses ε and −ε under the dominating pair's P.

    What they leave to one is the probability of a loss of zero.

    Args:
        epsilon: The privacy parameter ε.
        total_mass: Sum M of the base measure.

    Returns:
        p e^ε / (1 + e^ε) and p / (1 + e^ε).

    Raises:
        TypeError: If an argument is not a real number.
        ValueError: If ε is not positive and finite, or M leaves no distribution.

    Guarantees:
        With p = coth(ε/2) min(1 − αM, βM − 1) rounded up in rational arithmetic, with
        an allowance for M, the first is rounded up and the second down: the loss is
        at least as large as that of a pair that dominates.
    """
    privacy = checks.epsilon(epsilon)
    total = fields.real_number("total_mass", total_mass)
    mass = float(checks.base_measure([total], 1, privacy)[0])
    response = response_probability(privacy, mass)
    _, high = rational_exponential.bounds(Fraction(privacy))
    truth = min(1.0, _round_up(response * high / (1 + high)))
    return truth, max(0.0, -_round_up(-response / (1 + high)))


def attained_probabilities(epsilon: float, total_mass: float) -> tuple[float, float]:
    """Returns the probabilities of losses ε and −ε under a pair that is attained.

    Two laws within the bounds of a fine base measure, such as the projections of two
    distributions of many points, fill it from opposite ends: their divergences are
    those of the pair. For an accountant's lower bound.

    Args:
        epsilon: The privacy parameter ε.
        total_mass: Sum M of the base measure.

    Returns:
        p e^ε / (1 + e^ε) and p / (1 + e^ε).

    Raises:
        TypeError: If an argument is not a real number.
        ValueError: If ε is not positive and finite, or M leaves no distribution.

    Guarantees:
        The first is rounded down and the second up, in rational arithmetic with an
        allowance for M: the loss is at most that of the pair that dominates.
    """
    privacy = checks.epsilon(epsilon)
    total = fields.real_number("total_mass", total_mass)
    mass = Fraction(float(checks.base_measure([total], 1, privacy)[0]))
    low, high = rational_exponential.bounds(Fraction(privacy))
    half_low, _ = rational_exponential.bounds(Fraction(privacy) / 2)
    unused = 1 - mass * (1 + _MASS_ERROR) / half_low
    reachable = mass * (1 - _MASS_ERROR) * half_low - 1
    least = max(min(unused, reachable), Fraction(0))
    response = least * (high + 1) / (high - 1)
    truth = -_round_up(-response * low / (1 + low))
    return max(0.0, truth), max(0.0, _round_up(response / (1 + low)))


def equivalent_mass(epsilon: float, base_measure: npt.NDArray[np.float64]) -> float:
    """Returns the mass of a fine base measure that reaches as much as a given one.

    Of any two laws, one is at the upper and the other at the lower bound on a set of
    outputs. If the sums of m over sets jump over A = min(a, M − a), with
    a = (1 − αM) / (β − α), less is reached than A. The sums are those of the largest
    outputs, one by one, with any part of what the others have together.

    Args:
        epsilon: The privacy parameter ε.
        base_measure: (k_v,) masses m.

    Returns:
        M' with the total variation (1 − e^{−ε/2} M') that any two laws have at most.
        For orders above one the divergence falls at least as fast as that of the
        pair: it is a maximum of lines that vanish at e^ε or before.
    """
    least, most = math.exp(-epsilon / 2), math.exp(epsilon / 2)
    total = math.fsum(base_measure)
    unused = (1 - least * total) / (most - least)
    largest = min(unused, total - unused)
    ordered = np.sort(base_measure)[::-1]
    sums = np.zeros(1)
    for mass in ordered[:_LARGEST_OUTPUTS]:
        sums = np.append(sums, sums + mass)
    slack = _REACH_ERROR * total
    ends = sums + float(ordered[_LARGEST_OUTPUTS:].sum()) + slack
    starts = sums - slack
    if largest <= 0 or ((starts <= largest) & (ends >= largest)).any():
        return total
    below = float(ends[ends < largest].max())
    above = float(starts[starts > largest].min())
    one = min(most * above, 1 - least * total + least * above)
    other = max(least * above, 1 - most * total + most * above)
    variation = max((most - least) * below, one - other, 0.0) * (1 + _REACH_ERROR)
    return min(max((1 - variation) * most, total), most)


def response_probability(epsilon: float, total_mass: float) -> Fraction:
    """Returns an upper bound of the probability p that the response runs.

    Args:
        epsilon: The privacy parameter ε.
        total_mass: Sum M of the base measure.
    """
    low, _ = rational_exponential.bounds(Fraction(epsilon))
    _, half_high = rational_exponential.bounds(Fraction(epsilon) / 2)
    mass = Fraction(total_mass)
    unused = 1 - mass * (1 - _MASS_ERROR) / half_high
    reachable = mass * (1 + _MASS_ERROR) * half_high - 1
    least = max(min(unused, reachable), Fraction(0))
    # coth(ε/2) = (e^ε + 1) / (e^ε − 1) falls as ε grows.
    return min(least * (low + 1), low - 1) / (low - 1) if low > 1 else Fraction(1)


def _round_up(number: Fraction) -> float:
    """Returns the least float not below a rational number."""
    found = float(number)
    return found if Fraction(found) >= number else math.nextafter(found, math.inf)
