"""Rational bounds of the exponential against mpmath."""

from fractions import Fraction

import mpmath
import pytest

from dp_accounting_ext.wpm.exact_draw import rational_exponential


@pytest.mark.parametrize("exponent", [1e-300, 1e-9, 0.01, 0.1, 1.0, 2.5, 40.0, 160.0])
def test_rational_bounds_enclose_the_exponential(exponent):
    low, high = rational_exponential.bounds(Fraction(exponent))
    with mpmath.workprec(1500):
        truth = mpmath.exp(mpmath.mpf(exponent))
        assert mpmath.mpf(low.numerator) / low.denominator <= truth
        assert mpmath.mpf(high.numerator) / high.denominator >= truth
    assert high - low <= Fraction(1, 2**240) * high
