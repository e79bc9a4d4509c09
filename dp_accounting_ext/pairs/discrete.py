"""Mechanisms with a discrete likelihood ratio, whose atoms are the pair itself."""

from collections.abc import Sequence
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import output_pairs

# Certified (docs/rounding.md, "a few outcomes"): the relative error of a probability
# made of three operations, a sum of a few terms, an exponential and a quotient.
FEW_ERROR = 32 * floats.UNIT_ROUNDOFF

# A limit of time and memory: there are as many atoms as this.
LARGEST_SENSITIVITY = 1_000_000


def _exact(
    losses: Sequence[float] | FloatArray, masses: Sequence[float] | FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Returns ratios, masses and a bound on the relative error of both."""
    exponents = np.asarray(losses, dtype=np.float64)
    # docs/rounding.md, "discrete Laplace and Gaussian noise".
    error = 64 * floats.UNIT_ROUNDOFF * (1 + float(np.abs(exponents).max()))
    return np.exp(exponents), np.asarray(masses, dtype=np.float64), error


def privacy_parameters(
    epsilon: float, delta: float, bound: Bound
) -> dominating_pair.DominatingPair:
    """Returns the pair of a mechanism of which only (ε, δ) is known.

    Args:
        epsilon: ε ≥ 0, in nats.
        delta: δ in [0, 1].
        bound: The side; the lower pair of such a mechanism is trivial.

    Source:
        Kairouz et al. 2015, https://arxiv.org/abs/1311.0776, Theorem 3.4 (the
        randomized response that every such mechanism is a post-processing of).
    """
    if bound is Bound.LOWER or epsilon > floats.LARGEST_EXPONENT or delta >= 1:
        return dominating_pair.trivial_pair(bound)
    likely = (1 - delta) * float(special.expit(epsilon))
    rare = (1 - delta) * float(special.expit(-epsilon))
    ratios, masses, error = _exact([-epsilon, epsilon], [likely, rare])
    return dominating_pair.DominatingPair(
        ratios, masses, delta, delta, bound, error, error
    )


def randomized_response(
    noise_parameter: float, num_buckets: int, *, replace_one: bool, bound: Bound
) -> dominating_pair.DominatingPair:
    """Returns the pair of randomized response over k buckets.

    With probability p the answer is uniform, otherwise it is the true one.

    Args:
        noise_parameter: The probability p, in (0, 1).
        num_buckets: The number of buckets k, at least 2.
        replace_one: Whether the record is replaced by another one. Otherwise it is
            replaced by a special record, whose answer is uniform.
        bound: The side. The atoms are exact, so that it changes no number.

    Source:
        Kairouz et al. 2016, https://arxiv.org/abs/1602.07387, section 4.
    """
    other = noise_parameter / num_buckets
    truth = 1 - noise_parameter + other
    # Answers with one ratio are merged.
    if replace_one:
        rest = [(num_buckets - 2) * other] if num_buckets > 2 else []
        p, q = [truth, other, *rest], [other, truth, *rest]
    else:
        others = num_buckets - 1
        p, q = [truth, others * other], [1 / num_buckets, others / num_buckets]
    return output_pairs.of_probabilities(p, q, bound, error=FEW_ERROR)


def discrete_laplace(
    parameter: float, sensitivity: int, bound: Bound
) -> dominating_pair.DominatingPair:
    """Returns the pair of the discrete Laplace mechanism. All losses are finite.

    Args:
        parameter: a > 0: the noise is x with probability in proportion to e^{−a|x|}.
        sensitivity: The sensitivity s, from 1 to 1,000,000.
        bound: The side. The atoms are exact, so that it changes no number.

    Source:
        Ghosh et al. 2009, https://arxiv.org/abs/0811.2841, for the mechanism.
    """
    if parameter * sensitivity > floats.LARGEST_EXPONENT:
        return dominating_pair.trivial_pair(bound)
    outputs = np.arange(0, sensitivity + 1, dtype=np.float64)
    probabilities = math.tanh(parameter / 2) * np.exp(-parameter * outputs)
    # The first and the last atom also hold all outputs beyond them.
    probabilities[0] /= -math.expm1(-parameter)
    probabilities[-1] /= -math.expm1(-parameter)
    ratios, masses, error = _exact(
        parameter * (2 * outputs - sensitivity), probabilities
    )
    return dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, bound, error, error)


def is_discrete_gaussian(sigma: float, sensitivity: int) -> bool:
    """Returns whether `discrete_gaussian` supports the parameters.

    The square of a smaller σ may underflow, and a larger σ needs too many atoms.
    """
    return 1e-100 <= sigma <= 1e5 and 1 <= sensitivity <= LARGEST_SENSITIVITY


def discrete_gaussian(
    sigma: float, sensitivity: int, bound: Bound, *, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of the discrete Gaussian mechanism.

    Args:
        sigma: The parameter σ, from 1e-100 to 100,000: the noise is x with probability
            in proportion to e^{−x²/(2σ²)}.
        sensitivity: The sensitivity s, from 1 to 1,000,000.
        bound: The side. An upper pair sends the tails to the sinks, a lower one drops
            them.
        tail_mass: The approximate probability of each tail.

    Raises:
        ValueError: If σ or s is outside of its range.

    Source:
        Canonne et al. 2020, https://arxiv.org/abs/2004.00010, for the mechanism.
    """
    if not is_discrete_gaussian(sigma, sensitivity):
        raise ValueError(
            "sigma must be between 1e-100 and 100000, and sensitivity between 1 and "
            f"{LARGEST_SENSITIVITY}. Found {sigma} and {sensitivity}."
        )
    reach = math.ceil(sigma * math.sqrt(-2 * math.log(tail_mass))) + 2
    # Outputs are cut off where their mass under the other dataset, and so their loss,
    # would not fit a float.
    widest = math.floor(sigma * math.sqrt(2 * floats.LARGEST_LOSS)) - sensitivity
    if widest < 0:
        return dominating_pair.trivial_pair(bound)
    low = -min(reach, widest)
    high = sensitivity - low
    outputs = np.arange(low, high + 1, dtype=np.float64)
    exponents = outputs**2 / (2 * sigma**2)
    total = _normalization(sigma)
    losses = sensitivity * (2 * outputs - sensitivity) / (2 * sigma**2)
    ratios, masses, error = _exact(losses, np.exp(-exponents) / total)
    rounding = outputs.size + 8 * float(exponents.max())
    error += rounding * floats.UNIT_ROUNDOFF
    sink = 0.0
    if bound is Bound.UPPER:
        # The larger tail is P's at one end and Q's at the other. They are equal.
        sink = 2 * _gaussian_tail(sigma, -low + 1) / total
    return dominating_pair.DominatingPair(
        ratios, masses, sink, sink, bound, error, error
    )


def _normalization(sigma: float) -> float:
    """Returns Σ e^{−x²/(2σ²)} over all integers, for large σ by Poisson's formula."""
    if sigma > 1:
        return (
            sigma
            * math.sqrt(2 * math.pi)
            * (1 + 2 * math.exp(-2 * math.pi**2 * sigma**2))
        )
    return 1 + 2 * sum(math.exp(-(x**2) / (2 * sigma**2)) for x in range(1, 41))


def _gaussian_tail(sigma: float, start: int) -> float:
    """Returns a bound on Σ e^{−x²/(2σ²)} over x ≥ start ≥ 1, a geometric series."""
    first = math.exp(-(start**2) / (2 * sigma**2))
    ratio = math.exp(-(2 * start + 1) / (2 * sigma**2))
    return floats.raised(first / (1 - ratio))
