"""Costs by shortest paths."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
from scipy import sparse
import wpm_oracles

from dp_accounting_ext import wpm


@pytest.mark.parametrize(
    ("edges", "lengths", "error", "message"),
    [
        ([(0.5, 1)], [1], TypeError, "edges must be pairs of integers"),
        ([0, 1], [1], ValueError, r"edges must be pairs of nodes.*Found shape \(2,\)"),
        ([(0, -1)], [1], ValueError, "edges must be pairs of nodes.*Found node -1"),
        # A matrix of so many nodes would fit no memory.
        (
            [(0, 1), (1, 10**15)],
            [1, 1],
            ValueError,
            "nodes from zero without gaps: 2 connect nodes 0 to 2 .* 1000000000000000",
        ),
        ([(0, 1), (1, 2)], [1e308, 1e308], ValueError, "lengths must be such .* inf"),
        ([(0, 1)], [1, 2], ValueError, r"each of the 1 edges. Found shape \(2,\)"),
        ([(0, 1)], [0], ValueError, "lengths must be positive and finite. Found 0.0"),
        (
            [(0, 1), (2, 3)],
            [1, 1],
            ValueError,
            "graph must be connected. Found 2 pieces",
        ),
    ],
)
def test_bad_graphs(edges, lengths, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism.on_graph(edges, lengths, 1.0)


def test_what_a_sparse_matrix_goes_without():
    on_graph = wpm.WassersteinProjectionMechanism.on_graph
    graph = sparse.csr_matrix([[0, 1.0], [1.0, 0]])
    with pytest.raises(TypeError, match=r"lengths must be left .* epsilon=1\.0"):
        on_graph(graph, 1.0)
    with pytest.raises(TypeError, match="epsilon must be a .* it is required"):
        on_graph(graph)
    assert on_graph(graph, epsilon=1.0).epsilon == 1.0


def dense_paths(matrix):
    """Floyd and Warshall."""
    size = len(matrix)
    found = np.where(matrix > 0, matrix, np.inf)
    found = np.minimum(found, found.T)
    np.fill_diagonal(found, 0)
    for middle in range(size):
        found = np.minimum(found, found[:, [middle]] + found[[middle]])
    return found


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_rows_are_shortest_paths(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(2, 12))
    matrix = np.zeros((size, size))
    for node in range(1, size):
        matrix[node, generator.integers(node)] = generator.uniform(0.1, 2)
    more = generator.random((size, size)) < 0.1
    matrix[more] = generator.uniform(0.1, 2, more.sum())
    cost = wpm.GraphCost(sparse.csr_matrix(matrix), order=2)
    np.testing.assert_allclose(cost.matrix(), dense_paths(matrix) ** 2, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "length"), [("float64", 1.5), ("int8", 100)])
def test_entries_of_a_matrix_that_are_named_twice_are_added(dtype, length):
    """As everywhere in SciPy; but narrow integers do not wrap."""
    lengths, nodes = np.full(4, length, dtype), [1, 1, 1, 2]
    for graph in (
        sparse.coo_matrix((lengths, ([0, 0, 0, 1], nodes)), shape=(3, 3)),
        sparse.csr_matrix((lengths, nodes, [0, 3, 4, 4]), shape=(3, 3)),
    ):
        cost = wpm.GraphCost(graph)
        paths = length * np.array([[0, 3, 4], [3, 0, 1], [4, 1, 0]])
        np.testing.assert_array_equal(cost.matrix(), paths)
        # The caller's is left as it was.
        np.testing.assert_array_equal(graph.data, lengths)


def test_parallel_edges_count_as_the_shortest():
    cost = wpm.GraphCost.from_edges([(0, 1), (1, 0), (1, 1)], [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(cost.matrix(), [[0, 2], [2, 0]])


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (np.eye(2), TypeError, "graph must be a scipy sparse matrix"),
        (sparse.csr_matrix((2, 3)), ValueError, r"graph must be square.*\(2, 3\)"),
        (
            sparse.csr_matrix([[0, -1.0], [0, 0]]),
            ValueError,
            "lengths must be positive",
        ),
        (sparse.csr_matrix((2, 2)), ValueError, "graph must be connected. Found 2"),
    ],
)
def test_bad_sparse_graphs(graph, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism.on_graph(graph, epsilon=1.0)
