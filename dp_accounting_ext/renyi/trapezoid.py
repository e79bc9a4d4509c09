"""The trapezoidal rule on the whole line, with a bound on its error."""

from collections.abc import Callable

import numpy as np

from dp_accounting_ext.common_types import FloatArray

_CANDIDATES = np.geomspace(1e-4, 0.999, 500)


def largest_step(
    log_growth: Callable[[FloatArray], FloatArray], width: float, log_error: float
) -> float:
    """Returns a step at which the rule's relative error is at most e^log_error.

    Args:
        log_growth: A function from an array of heights d in (0, width) to logarithms of
            M(d), where ∫ |f(x ± i b)| dx ≤ M(d) ∫ f(x) dx for every b ≤ d.
        width: The width of the strip |Im x| < width in which f is analytic.
        log_error: The logarithm of the allowed relative error.

    Guarantees:
        |h Σ_n f(n h) − ∫ f| ≤ e^log_error ∫ f for the step h and any smaller one.

    Source:
        Trefethen and Weideman 2014, https://doi.org/10.1137/130932132, section 5: the
        error is at most 2 M(d) ∫ f / (e^{2πd/h} − 1). This is solved for h, for the
        best of a few hundred d.
    """
    heights = width * _CANDIDATES
    periods = np.logaddexp(0.0, np.log(2.0) + log_growth(heights) - log_error)
    return float(np.max(2 * np.pi * heights / periods))
