"""The Laplace transform of the likelihood ratio, against quadrature to 35 digits."""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import pytest

from dp_accounting_ext.renyi import lognormal


@pytest.mark.parametrize("noise", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("log_y", [-20.0, -1.0, 2.0, 4.9, 5.1, 60.0])
def test_laplace_transform_of_the_ratio(noise, log_y):
    decay, gap = lognormal.log_transform(log_y, noise)
    with mpmath.workdps(35):
        y, s = mpmath.exp(mpmath.mpf(log_y)), mpmath.mpf(noise)
        # Steepest around g* with g* = −y X(g*)/σ, where −log is curved by 1 − g*/σ.
        argument = mpmath.mpf(log_y) - 1 / (2 * s**2) - 2 * mpmath.log(s)
        mode = -s * mpmath.lambertw(mpmath.exp(argument)).real
        width = 1 / mpmath.sqrt(1 - mode / s)

        def integrand(g):
            x = mpmath.exp(g / s - 1 / (2 * s**2))
            return mpmath.npdf(g) * mpmath.exp(-y * x)

        ends = [mode + width * k for k in range(-12, 13)]
        ends = [*[ends[0] + k for k in range(-14, 0)], *ends]
        if log_y < 9:
            ends += [ends[-1] + k for k in range(1, int(20 + 2 / noise))]
        truth = -mpmath.log(mpmath.quad(integrand, ends))
        assert abs(decay - truth) <= 1e-14 * abs(truth)
        if log_y < 9:
            assert abs(gap - (y - truth)) <= 1e-12 * (y - truth)


log_ys = st.floats(-60.0, 200.0)


@given(log_ys, st.floats(0.15, 50.0))
def test_both_are_within_jensens_inequality(log_y, noise):
    """0 < −log E e^{−yX} ≤ y, and the gap between them is what is left."""
    decay, gap = lognormal.log_transform(log_y, noise)
    y = math.exp(log_y)
    assert 0 < decay <= y * (1 + 1e-14)
    assert 0 <= gap <= y
    assert decay + gap == pytest.approx(y, rel=1e-13)


def test_beyond_floats():
    """y fits no float; of decay there is a number."""
    decay, gap = lognormal.log_transform(1000.0, 1.0)
    assert 0 < decay < math.inf
    assert gap == math.inf
