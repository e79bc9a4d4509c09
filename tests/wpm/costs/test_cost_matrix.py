"""Matrices of powers of distances."""

import numpy as np
import pytest

from dp_accounting_ext import wpm


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "error", "message"),
    [
        ([0, 1], [0, 1], {"order": 0.5}, ValueError, "order must be at least 1"),
        ([0, 1], [0, 1], {"order": None}, TypeError, "order must be a real number"),
        ([[0, 1]], [[1]], {}, ValueError, "of one dimension. Found 2 and 1"),
        ([], [1], {}, ValueError, "inputs must be a list of points"),
        ([[0, 0]], [[1, 1]], {"metric": "cosine"}, ValueError, "cost must be .*nan"),
        ([np.inf], [1], {}, ValueError, "inputs must be finite"),
    ],
)
def test_bad_points(inputs, outputs, options, error, message):
    with pytest.raises(error, match=message):
        wpm.cost_matrix(inputs, outputs, **options)


def test_cost_matrix_is_a_power_of_a_distance():
    cost = wpm.cost_matrix([[0, 0], [3, 4]], [[0, 0]], order=2)
    np.testing.assert_allclose(cost, [[0], [25]])
    cost = wpm.cost_matrix([0, 2], [5], order=1, metric=lambda x, y: abs(x[0] - y[0]))
    np.testing.assert_allclose(cost, [[5], [3]])
    same = np.random.default_rng(0).random((40, 9))
    assert wpm.cost_matrix(same, same, metric="cosine", order=1.5).min() >= 0
