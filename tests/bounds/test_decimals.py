"""Printed numbers are rounded outwards."""

import decimal
import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.bounds import decimals

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS)
def test_seven_digits_are_rounded_outwards(value):
    low, high = decimals.rounded_down(value), decimals.rounded_up(value)
    assert decimal.Decimal(low) <= decimal.Decimal(value) <= decimal.Decimal(high)
    for printed in (low, high):
        assert len(decimal.Decimal(printed).as_tuple().digits) <= 7
    gap = decimal.Decimal(high) - decimal.Decimal(low)
    assert gap <= abs(decimal.Decimal(value)) * decimal.Decimal("1.0001e-6")


@pytest.mark.parametrize("rounded", [decimals.rounded_down, decimals.rounded_up])
def test_what_is_no_finite_number(rounded):
    assert rounded(math.inf) == "inf"
