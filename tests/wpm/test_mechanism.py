"""The Wasserstein mechanism: bad parameters."""

import math

import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import checks

COST = np.ones((2, 3))
BAD_CALLS = [
    (([[1, -1.0]], 1.0), ValueError, "cost must be non-negative.*Found -1.0 in row 0"),
    (([1.0, 2.0], 1.0), ValueError, r"cost must be a matrix.*Found shape \(2,\)"),
    (([["a"]], 1.0), TypeError, "cost must be an array of real numbers"),
    (([[1], [1, 2]], 1.0), TypeError, "cost must be .* unequal lengths"),
    ((COST, 0.0), ValueError, "epsilon must be positive and finite. Found 0.0"),
    ((COST, 161.0), ValueError, "epsilon must be from 1e-12 to 160. Found 161.0"),
    ((COST, "1"), TypeError, "epsilon must be a real number. Found '1'"),
    ((COST, 1.0, "best"), ValueError, "base_measure must be .*Found 'best'"),
    ((COST, 1.0, [1, 1]), ValueError, r"each of the 3 outputs. Found shape \(2,\)"),
    ((COST, 1.0, [1, 1, -1]), ValueError, "non-negative and finite. Found -1.0 at"),
    ((COST, 1.0, [0.1] * 3), ValueError, "have a sum in .* Found 0.3; scale it"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CALLS)
def test_bad_parameters(arguments, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism(*arguments)


@pytest.mark.parametrize("gap", [-1, 0, 1, 2.0])
def test_bad_gaps(gap):
    with pytest.raises(ValueError, match=r"relative_gap must be in \(0, 1\). Found"):
        wpm.WassersteinProjectionMechanism(COST, 1.0, relative_gap=gap)
    with pytest.raises(ValueError, match=r"relative_gap must be in \(0, 1\). Found"):
        wpm.project([0.5, 0.5], COST, np.full(3, 1 / 3), 1.0, relative_gap=gap)


def test_a_sum_that_rounding_put_outside_is_brought_back():
    mass = math.exp(0.5) * (1 + 1e-12)
    found = checks.base_measure([mass], 1, 1.0)
    assert found[0] == pytest.approx(math.exp(0.5), rel=1e-15)
    assert found[0] <= math.exp(0.5)
