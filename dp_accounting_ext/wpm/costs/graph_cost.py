"""Costs by shortest paths in a graph, a search for each row."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class GraphCost(transport_cost.TransportCost):
    """Represents powers of the lengths of shortest paths between nodes.

    Every node is both input and output; a base measure with zeros leaves out outputs.

    Args:
        graph: (k, k) scipy sparse matrix of positive lengths, passable both ways.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If it is no sparse matrix of real numbers.
        ValueError: If it is not square, a length is not positive and finite, or the
            graph is not connected, or powers of distances are too large to be summed.
    """

    def __init__(self, graph: Any, *, order: float = 1) -> None:
        is_sparse: bool = sparse.issparse(graph)
        if not is_sparse:
            raise TypeError(
                f"graph must be a scipy sparse matrix. Found a {type(graph).__name__}."
            )
        self.order = self.metric_order = checks.order(order)
        given = graph.tocoo()
        if given.shape[0] != given.shape[1] or not given.shape[0]:
            raise ValueError(f"graph must be square. Found shape {given.shape}.")
        # Those that are named twice are added, as numbers that do not wrap.
        entries = checks.array("lengths", given.data)
        table = sparse.csr_matrix((entries, (given.row, given.col)), shape=given.shape)
        lengths = checks.lengths(table.data)
        size = int(table.shape[0])
        self._graph = sparse.csr_matrix(
            (lengths, table.indices, table.indptr), shape=table.shape
        )
        pieces, _ = csgraph.connected_components(self._graph, directed=False)
        if pieces > 1:
            raise ValueError(f"graph must be connected. Found {pieces} pieces.")
        self.shape = (size, size)
        # No two nodes are further apart than by way of the first.
        furthest = 2 * float(self.between_inputs(0).max())
        checks.largest_distance("lengths", furthest, self.order)

    @classmethod
    def from_edges(
        cls, edges: npt.ArrayLike, lengths: npt.ArrayLike, *, order: float = 1
    ) -> "GraphCost":
        """Returns the cost of a list of edges.

        Args:
            edges: (e, 2) pairs of nodes, numbered from zero, passable both ways; of
                parallel ones the shortest counts.
            lengths: (e,) positive lengths.
            order: As for the class.

        Raises:
            TypeError: If the nodes are not integers or the lengths not real numbers.
            ValueError: If shapes do not match, or values are out of range.
        """
        pairs = _pairs(edges)
        found = checks.lengths(lengths)
        if found.shape != (len(pairs),):
            raise ValueError(
                f"lengths must have an entry for each of the {len(pairs)} edges. "
                f"Found shape {found.shape}."
            )
        # Sparse matrices add up parallel edges: only the shortest may stay.
        ends = np.sort(pairs, axis=1)
        order_of = np.lexsort((found, ends[:, 1], ends[:, 0]))
        _, first = np.unique(ends[order_of], axis=0, return_index=True)
        kept = order_of[first]
        size = int(pairs.max()) + 1
        return cls(
            sparse.csr_matrix(
                (found[kept], (ends[kept, 0], ends[kept, 1])), shape=(size, size)
            ),
            order=order,
        )

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = np.asarray(inputs, dtype=np.intp)
        found = np.atleast_2d(self._paths(chosen))
        return found if self.order == 1 else np.asarray(found**self.order)

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(self._paths(np.array([place]))[0])

    def near_order(self) -> IndexArray:
        table = (self._graph + self._graph.T).tocsr()
        found = csgraph.breadth_first_order(table, 0, return_predecessors=False)
        return np.asarray(found, dtype=np.intp)

    def _paths(self, starts: IndexArray) -> FloatArray:
        return np.asarray(csgraph.dijkstra(self._graph, directed=False, indices=starts))

    def _identity(self) -> tuple[Any, ...]:
        table = self._graph
        return table.data, table.indices, table.indptr, self.order


def _pairs(edges: Any) -> IndexArray:
    pairs = np.asarray(edges)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers. Found dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(
            "edges must be pairs of nodes, numbered from zero. "
            f"Found shape {pairs.shape}."
        )
    if pairs.min() < 0:
        raise ValueError(
            "edges must be pairs of nodes, numbered from zero. "
            f"Found node {pairs.min()}."
        )
    # A number far beyond it, mistyped or an identifier, would take all memory.
    most = len(pairs)
    if pairs.max() > 2 * most:
        raise ValueError(
            f"edges must number nodes from zero without gaps: {most} connect nodes 0 "
            f"to {most} at most. Found node {pairs.max()}."
        )
    return pairs.astype(np.intp)
