"""The exact projection for distances in a graph, as a flow along its edges.

A ring, a tree or a road network has far fewer edges than there are pairs of inputs
and outputs, and a flow along them is all that the shortest paths are made of.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

_MASS_SCALE = 1e5


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph with lengths, whose nodes are the inputs and the outputs.

    Attributes:
        edges: (e, 2) pairs of nodes, numbered from zero; both ways.
        lengths: (e,) positive lengths.
        num_nodes: The number of nodes.
    """

    edges: IndexArray
    lengths: FloatArray
    num_nodes: int


def make_graph(edges: Any, lengths: Any) -> Graph:
    """Returns a graph.

    Args:
        edges: (e, 2) pairs of nodes, numbered from zero.
        lengths: (e,) positive lengths.

    Raises:
        TypeError: If the nodes are not integers or the lengths not real numbers.
        ValueError: If shapes do not match, or values are out of range.
    """
    pairs = np.asarray(edges)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers. Found dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs) or pairs.min() < 0:
        raise ValueError(
            "edges must be pairs of nodes, numbered from zero. "
            f"Found shape {pairs.shape}."
        )
    found = checks.array("lengths", lengths)
    if found.shape != (len(pairs),):
        raise ValueError(
            f"lengths must have an entry for each of the {len(pairs)} edges. "
            f"Found shape {found.shape}."
        )
    if not ((found > 0) & np.isfinite(found)).all():
        wrong = found[~((found > 0) & np.isfinite(found))][0]
        raise ValueError(f"lengths must be positive and finite. Found {wrong}.")
    return Graph(pairs.astype(np.intp), found, int(pairs.max()) + 1)


def distances(graph: Graph) -> FloatArray:
    """Returns the (nodes, nodes) lengths of shortest paths, infinite where none is."""
    # Sparse matrices add up parallel edges: only the shortest may stay.
    ends = np.sort(graph.edges, axis=1)
    order = np.lexsort((graph.lengths, ends[:, 1], ends[:, 0]))
    _, first = np.unique(ends[order], axis=0, return_index=True)
    kept = order[first]
    matrix = sparse.csr_array(
        (graph.lengths[kept], (ends[kept, 0], ends[kept, 1])),
        shape=(graph.num_nodes, graph.num_nodes),
    )
    return np.asarray(csgraph.dijkstra(matrix, directed=False))


def solve(
    masses: FloatArray, graph: Graph, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """Returns the exact projection of one user, for p = 1.

    Args:
        masses: (nodes,) distribution.
        graph: The graph.
        polytope: The allowed distributions of the nodes.

    Returns:
        A solution of one row.

    Raises:
        SolverError: If the linear program fails.
    """
    nodes, edges = graph.num_nodes, len(graph.edges)
    matrix = _balance(graph)
    bounds = np.zeros((2 * edges + nodes, 2))
    bounds[: 2 * edges, 1] = np.inf
    bounds[2 * edges :, 0] = _MASS_SCALE * polytope.lower
    bounds[2 * edges :, 1] = _MASS_SCALE * polytope.upper
    longest = float(graph.lengths.max())
    lengths = np.concatenate([graph.lengths, graph.lengths, np.zeros(nodes)]) / longest
    found = linear_program.solve(
        lengths, matrix, -_MASS_SCALE * masses, bounds, equal=True
    )
    amounts = found.variables / _MASS_SCALE
    return solution.Solution(
        ldp_polytope.nearest(amounts[2 * edges :], polytope)[np.newaxis],
        (longest * found.duals)[np.newaxis],
        np.array([longest * float(lengths @ amounts)]),
        np.zeros(1),
        np.ones(1, dtype=np.int64),
        np.ones(1, dtype=np.bool_),
    )


def _balance(graph: Graph) -> sparse.csc_array:
    """Rows: what flows into a node, less what flows out, less what it holds."""
    nodes, edges = graph.num_nodes, len(graph.edges)
    starts, ends = graph.edges[:, 0], graph.edges[:, 1]
    ways, held = np.arange(edges), np.arange(nodes)
    ones = np.ones(edges)
    rows = np.concatenate([ends, starts, starts, ends, held])
    columns = np.concatenate([ways, ways, edges + ways, edges + ways, 2 * edges + held])
    signs = np.concatenate([ones, -ones, ones, -ones, -np.ones(nodes)])
    # An edge from a node to itself cancels.
    return sparse.csc_array((signs, (rows, columns)), shape=(nodes, 2 * edges + nodes))
