"""Costs on a line."""

import numpy as np
import pytest

from dp_accounting_ext import wpm


def test_powers_of_distances():
    cost = wpm.LineCost([0.0, 2.0], [5.0, -1.0], order=2)
    np.testing.assert_array_equal(cost.matrix(), [[25, 1], [9, 9]])
    assert list(wpm.LineCost([3.0, 1.0, 2.0]).near_order()) == [1, 2, 0]


@pytest.mark.parametrize(
    ("inputs", "order", "error", "message"),
    [
        ([np.inf], 1, ValueError, "inputs must be a list of finite places"),
        ([[1.0]], 1, ValueError, "inputs must be a list of finite places"),
        ([0.0, np.nan], 1, ValueError, "finite places. Found nan at index 1"),
        ([1e308, -1e308], 1, ValueError, "order 1 are at most 1e.200. Found.* inf"),
        ([0.0, 61.0], 1000, ValueError, "order 1000 are .* of up to 61; take"),
        (["a"], 1, TypeError, "inputs must be an array of real numbers"),
        ([1.0], 0.5, ValueError, "order must be at least 1"),
    ],
)
def test_bad_lines(inputs, order, error, message):
    with pytest.raises(error, match=message):
        wpm.LineCost(inputs, order=order)
