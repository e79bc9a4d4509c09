"""The trapezoidal rule's promise."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import trapezoid


@pytest.mark.parametrize("log_error", [-1.0, -3.0, -8.0, -20.0])
def test_the_rule_is_as_accurate_as_promised(log_error):
    """f = e^{−x²/2} / (1 + e^x), analytic where |Im x| < π, not symmetric."""

    def log_growth(heights):
        # |1 + e^{x + id}| ≥ cos(d/2) (1 + e^x).
        return heights**2 / 2 - np.log(np.cos(heights / 2))

    step = trapezoid.largest_step(log_growth, math.pi, log_error)
    with mpmath.workdps(40):

        def f(x):
            return mpmath.exp(-(x**2) / 2) / (1 + mpmath.exp(x))

        truth = mpmath.quad(f, np.linspace(-14, 14, 29).tolist())
        errors = []
        for shift in (0.0, 0.25, 0.5):
            lattice = [step * (n + shift) for n in range(-400, 401)]
            total = step * mpmath.fsum(f(x) for x in lattice)
            errors.append(abs(total / truth - 1))
        assert max(errors) <= mpmath.exp(log_error)
        # The step is not needlessly small either.
        assert max(errors) >= mpmath.exp(1.5 * log_error - 3)
