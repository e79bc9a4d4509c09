"""Excesses over the mean, and the trapezoidal rule's promise."""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import trapezoid


@given(
    st.floats(-60.0, 200.0) | st.floats(-1e-3, 1e-3),
    st.floats(divergence.LOWEST_ORDER, 4000.0) | st.floats(1.0 + 1e-9, 1.1),
)
def test_excess_keeps_its_relative_accuracy(loss, order):
    got = divergence.log_excess(np.array([loss]), order)[0]
    with mpmath.workdps(800):
        z, a = mpmath.exp(mpmath.mpf(loss)), mpmath.mpf(order)
        truth = (z**a - 1 - a * (z - 1)) / (a - 1)
        if truth < mpmath.mpf(10) ** -290:
            return  # Squares of losses below 1e-145 are no floats; they weigh nothing.
        # Only rounding α log Z costs more than a few roundings.
        allowed = 1e-13 + 1e-15 * abs(order * loss)
        assert abs(got - mpmath.log(truth)) <= allowed


def test_excess_of_no_mass_is_one():
    assert divergence.log_excess(np.array([-np.inf, 0.0]), 3.0).tolist() == [
        0.0,
        -math.inf,
    ]


def test_log_sum():
    assert divergence.log_sum(np.array([])) == -math.inf
    assert divergence.log_sum(np.full(4, -2000.0)) == pytest.approx(
        -2000 + math.log(4), rel=1e-15
    )


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
