"""Checks of public arguments: what is found is said."""

import math

import numpy as np
import pytest

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5e-324, "epsilon must be at least 1e-12. Found 5e-324"),
        (0.0, "epsilon must be positive and finite. Found 0.0"),
        (math.inf, "epsilon must be positive and finite. Found inf"),
        (161.0, "epsilon must be at most 160. Found 161.0"),
    ],
)
def test_bad_epsilons(value, message):
    with pytest.raises(ValueError, match=message):
        checks.epsilon(value)


def test_integers_stay_integers():
    assert fields.number_array("x", [1, 2]).dtype.kind == "i"
    assert checks.array("x", [1, 2]).dtype == np.float64


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_lengths_are_positive(value):
    with pytest.raises(ValueError, match="lengths must be positive and finite"):
        checks.lengths([1.0, value])


def test_a_sum_that_rounding_put_outside_is_brought_back():
    mass = math.exp(0.5) * (1 + 1e-12)
    found = checks.base_measure([mass], 1, 1.0)
    assert found[0] == pytest.approx(math.exp(0.5), rel=1e-15)
    assert found[0] <= math.exp(0.5)
