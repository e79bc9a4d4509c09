"""The Laplace transform of the Gaussian mechanism's likelihood ratio."""

import math

import numpy as np
from scipy import special

from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import trapezoid

FloatArray = divergence.FloatArray

# Normal tails beyond so many standard deviations are below 1e-56.
_REACH = 16.0
# No step is best at heights of more standard deviations.
_HIGHEST = 100.0
# Relative error of a quadrature, e^-45.
_LOG_ERROR = -45.0
# Up to this log y, e^{−y (X − 1)} has a logarithm of at most e^5.
_LARGEST_GAP_LOG = 5.0


def log_transform(log_y: float, noise: float) -> tuple[float, float]:
    """Returns Λ = −log E e^{−yX} and y − Λ for X = e^{G/σ − 1/2σ²}, G standard normal.

    X is dP/dQ under Q of the Gaussian mechanism. Λ ≤ y by Jensen's inequality. Both
    keep their relative accuracy: the smaller is never the difference of y and the
    other, for E e^{−yX} is 1 − E (1 − e^{−yX}), and y − Λ is log (1 + E ψ(−y(X − 1)))
    with ψ(a) = e^a − 1 − a, means of positive values.

    Args:
        log_y: log y; y may be too large for a float.
        noise: σ.
    """
    if log_y > _LARGEST_GAP_LOG:
        decay = _decay(log_y, noise)
        y = math.exp(log_y) if log_y < floats.LARGEST_EXPONENT else math.inf
        return decay, max(y - decay, 0.0)
    y = math.exp(log_y)
    gap = math.log1p(_excess(y, noise)) if y else 0.0
    if gap > y / 2:
        return _decay(log_y, noise), gap
    return y - gap, gap


def _mode(log_y: float, noise: float) -> float:
    """Returns m = y X where the density of G tilted by e^{−yX} is largest, G = −m/σ.

    m + σ² log m = σ² log y − 1/2, solved by Wright's function.
    """
    variance = noise**2
    argument = log_y - 1 / (2 * variance) - math.log(variance)
    return variance * float(special.wrightomega(argument))


def _step(log_y: float, noise: float, log_error: float) -> float:
    """Returns the step for E e^{−yX} of so small a relative error.

    At height d, |e^{−yX}| is e^{−ycX} with c = cos(d/σ), and −log E e^{−e^w X} is
    convex in w (Prékopa: a convolution of log-concave functions), so that
    E e^{−ycX} ≤ c^{−m} E e^{−yX} with m the slope at log y, the tilted mean of yX.
    It is at most y (tilting lowers X), and by Stein's identity −σ times the tilted
    mean of G, which is within 1 of the mode (the tilted density is strongly
    log-concave).
    """
    mean = _mode(log_y, noise) + noise
    if log_y < floats.LARGEST_EXPONENT:
        mean = min(mean, math.exp(log_y))

    def log_growth(heights: FloatArray) -> FloatArray:
        bent: FloatArray = mean * np.log(np.cos(heights / noise))
        return heights**2 / 2 - bent

    width = min(math.pi * noise / 2, _HIGHEST)
    return trapezoid.largest_step(log_growth, width, log_error)


def _lattice(low: float, high: float, step: float) -> tuple[FloatArray, FloatArray]:
    """Returns points and the logarithms of their standard normal masses."""
    places = np.arange(math.floor(low / step), math.ceil(high / step) + 1)
    points: FloatArray = places.astype(np.float64) * step
    return points, -(points**2) / 2 + math.log(step / math.sqrt(2 * math.pi))


def _decay(log_y: float, noise: float) -> float:
    """Returns −log E e^{−yX}."""
    mode = -_mode(log_y, noise) / noise
    step = _step(log_y, noise, _LOG_ERROR + min(log_y, 0.0))
    # Where the mode is far below zero next to nothing is left of E e^{−yX}.
    little_lost = mode > -_REACH / 2
    high = _REACH + (max(mode, 1 / noise) if little_lost else mode)
    points, log_masses = _lattice(mode - _REACH, high, step)
    exponents = log_y + points / noise - 1 / (2 * noise**2)
    decays = np.exp(np.minimum(exponents, floats.LARGEST_EXPONENT))
    if little_lost:
        lost = float(np.sum(-np.expm1(-decays) * np.exp(log_masses)))
        if lost < 0.5:
            return -math.log1p(-lost)
    return -divergence.log_sum(log_masses - decays)


def _excess(y: float, noise: float) -> float:
    """Returns E ψ(−y (X − 1)), about y² (e^{1/σ²} − 1) / 2 for small y.

    Its values at large X weigh most around G = 2/σ. The rule is applied to e^{−yX},
    X and 1, and the error allowed is relative to the mean of ψ, at least about
    y² min(1, 1/σ²) for small y.
    """
    log_y, variance = math.log(y), noise**2
    log_error = _LOG_ERROR + 2 * min(log_y, 0.0) - max(math.log(variance), 0.0)
    low = -_mode(log_y, noise) / noise - _REACH
    points, log_masses = _lattice(
        low, 2 / noise + _REACH, _step(log_y, noise, log_error)
    )
    logs = points / noise - 1 / (2 * variance)
    ratios = np.expm1(np.minimum(logs, floats.LARGEST_EXPONENT))
    values = log_masses + _log_excess_of_exponential(-y * ratios)
    return math.exp(divergence.log_sum(values))


def _log_excess_of_exponential(exponents: FloatArray) -> FloatArray:
    """Returns log ψ(a), ψ(a) = e^a − 1 − a."""
    small = np.abs(exponents) <= 0.1
    series, term = np.zeros_like(exponents), np.where(small, exponents, 0.0) ** 2 / 2
    for n in range(3, 14):
        series += term
        term = term * np.where(small, exponents, 0.0) / n
    large = np.where(small, 1.0, exponents)
    values = np.where(small, series, np.expm1(large) - large)
    with np.errstate(divide="ignore"):
        return np.log(values)
