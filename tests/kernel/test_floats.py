"""What is said about floats, asked of the machine; and the two directions."""

from fractions import Fraction
import math
import sys

from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.kernel import floats

POSITIVE = st.floats(min_value=1e-300, max_value=1e300)


def test_the_unit_is_that_of_rounding_to_nearest():
    assert 1.0 + floats.UNIT_ROUNDOFF == 1.0
    assert 1.0 + floats.UNIT_ROUNDOFF * (1 + 2.0**-52) > 1.0
    assert sys.float_info.epsilon == floats.UNIT_ROUNDOFF * 2


def test_exponents_fit_with_room():
    assert math.isfinite(1e4 * math.exp(floats.LARGEST_EXPONENT))
    assert math.exp(-floats.LARGEST_EXPONENT) * 1e-3 > sys.float_info.min
    assert math.exp(-floats.LARGEST_LOSS) > floats.SMALLEST_MASS > sys.float_info.min
    assert -math.log(math.ulp(0.0)) <= floats.LARGEST_LOG


@given(POSITIVE, st.sampled_from([1e-15, 1e-12, 1e-9]))
def test_bounds_move_outward(bound, by):
    raised, lowered = floats.raised(bound, by), floats.lowered(bound, by)
    assert lowered < bound < raised
    exact, share = Fraction(bound), Fraction(by)
    # What is left after the two roundings covers most of what was asked for.
    assert Fraction(raised) - exact > exact * share / 2
    assert exact - Fraction(lowered) > exact * share / 2
    assert raised < bound * (1 + 2 * by)
    assert lowered > bound * (1 - 2 * by)


@pytest.mark.parametrize("x", [-800.0, -1.0, 0.0, 700.0, 709.7])
def test_exponentials_that_fit(x):
    assert floats.exponential(x) == math.exp(x)


@pytest.mark.parametrize("x", [709.8, 1e9, math.inf])
def test_exponentials_that_do_not_fit(x):
    assert floats.exponential(x) in (sys.float_info.max, math.inf)
