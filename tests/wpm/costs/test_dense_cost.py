"""Costs that are given as a matrix."""

import numpy as np
import pytest

from dp_accounting_ext.wpm.costs import dense_cost


def test_a_matrix_comes_back():
    matrix = np.random.default_rng(0).random((3, 4))
    cost = dense_cost.as_cost(matrix)
    assert dense_cost.as_cost(cost) is cost
    np.testing.assert_array_equal(np.asarray(cost), matrix)
    np.testing.assert_array_equal(cost.rows([2]), matrix[2:])


@pytest.mark.parametrize("value", [[[1, -1]], [[np.nan]], [1, 2]])
def test_bad_matrices(value):
    with pytest.raises(ValueError, match="cost must be"):
        dense_cost.as_cost(value)
