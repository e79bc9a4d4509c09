"""The trapezoidal rule's promise."""

import math

from hypothesis import given
from hypothesis import strategies as st
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


def log_growth(heights):
    return heights**2 / 2


@given(st.floats(-60.0, -0.1), st.floats(0.0, 30.0), st.floats(0.1, 50.0))
def test_more_accuracy_needs_no_longer_step(log_error, more, width):
    """And what is analytic in a wider strip no shorter one."""
    step = trapezoid.largest_step(log_growth, width, log_error)
    assert 0 < trapezoid.largest_step(log_growth, width, log_error - more) <= step
    wider = trapezoid.largest_step(lambda d: log_growth(d) * 0, 2 * width, log_error)
    narrow = trapezoid.largest_step(lambda d: log_growth(d) * 0, width, log_error)
    assert wider >= narrow * (1 + 1e-9)


@pytest.mark.parametrize("log_error", [-3.0, -20.0, -45.0])
def test_of_a_gaussian_the_step_is_about_the_best(log_error):
    """Its error is 2 e^{−2π²/h²}, from a strip as wide as one likes."""
    step = trapezoid.largest_step(log_growth, 100.0, log_error)
    with mpmath.workdps(60):
        h = mpmath.mpf(step)
        for shift in (0, 0.25, 0.5):
            total = h * mpmath.fsum(
                mpmath.npdf(h * (n + shift)) for n in range(-80, 81)
            )
            assert abs(total - 1) <= mpmath.exp(log_error)
    assert 2 * math.exp(-2 * math.pi**2 / step**2) >= math.exp(1.2 * log_error - 2)
