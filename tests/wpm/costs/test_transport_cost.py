"""What all costs have in common: rows, equality, words."""

import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.costs import dense_cost

POINTS = np.random.default_rng(0).random((7, 2))
EDGES = np.column_stack([np.arange(6), np.arange(1, 7)])
KINDS = {
    "dense": lambda order=1: dense_cost.DenseCost(POINTS @ POINTS.T + order),
    "points": lambda order=1: wpm.PointCost(POINTS, order=order),
    "line": lambda order=1: wpm.LineCost(POINTS[:, 0], order=order),
    "graph": lambda order=1: wpm.GraphCost.from_edges(EDGES, np.ones(6), order=order),
}


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_those_of_the_matrix(name):
    cost = KINDS[name]()
    some = np.array([3, 0, 3])
    np.testing.assert_array_equal(cost.rows(some), cost.matrix()[some])
    assert cost.shape == (7, 7)
    assert sorted(cost.near_order()) == list(range(7))


@pytest.mark.parametrize("name", KINDS)
def test_equality_and_words(name):
    make = KINDS[name]
    assert make() == make() and hash(make()) == hash(make())
    assert make() != make(2) and make() != 3
    assert repr(make()).endswith("(7 inputs, 7 outputs)")


@pytest.mark.parametrize("name", ["points", "line", "graph"])
@pytest.mark.parametrize("order", [1, 2.5])
def test_a_metric_gives_distances_between_inputs(name, order):
    cost = KINDS[name](order)
    assert cost.metric_order == order
    distances = cost.matrix() ** (1 / order)
    np.testing.assert_allclose(cost.between_inputs(4), distances[4], atol=1e-12)


def test_a_matrix_is_no_metric():
    cost = KINDS["dense"]()
    assert cost.metric_order is None
    with pytest.raises(ValueError, match="cost must be of a metric.*Found a DenseCost"):
        cost.between_inputs(0)
