"""The Wasserstein Projection Mechanism."""

from collections.abc import Callable
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm.base_measures import minimax_measure
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.base_measures import worst_case
from dp_accounting_ext.wpm.costs import cost_matrix
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import graph_projection
from dp_accounting_ext.wpm.projections.exact import line_projection

FloatArray = npt.NDArray[np.float64]
# What the regularisation itself costs is far more.
_RELATIVE_GAP = 1e-3

Solver = Callable[[FloatArray, ldp_polytope.LdpPolytope], solution.Solution]


class WassersteinProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law that is cheapest to reach from the input.

    Args:
        cost: (k, k_v) costs d(x_i, v_j)^p, as `cost_matrix` makes them. Public, and so
            must be any embedding that they come from.
        epsilon: The privacy parameter ε of one draw, at most 160.
        base_measure: "uniform" for the best uniform one, "minimax" for the least
            worst case, or (k_v,) masses m. Public: never made from the distributions
            to be protected.
        regularization: None for the exact projection; λ > 0 for the entropic one,
            which is faster for batches,
            up to a certified regularised gap of 1e-3 of the cost. Public.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 3.1.
    """

    def __init__(
        self,
        cost: npt.ArrayLike,
        epsilon: float,
        base_measure: str | npt.ArrayLike = "uniform",
        regularization: float | None = None,
    ) -> None:
        matrix, privacy = checks.cost(cost), checks.epsilon(epsilon)
        super().__init__(
            matrix, privacy, resolve_base_measure(base_measure, matrix, privacy)
        )
        self._regularization = (
            None if regularization is None else checks.regularization(regularization)
        )
        self._solver: Solver = functools.partial(_solve_exactly, cost=matrix)

    @classmethod
    def on_line(
        cls,
        inputs: npt.ArrayLike,
        outputs: npt.ArrayLike,
        epsilon: float,
        base_measure: str | npt.ArrayLike = "uniform",
    ) -> "WassersteinProjectionMechanism":
        """Returns the mechanism for distances on a line, p = 1, many times faster.

        Args:
            inputs: (k,) places of the inputs.
            outputs: (k_v,) places of the outputs.
            epsilon: As for the class.
            base_measure: As for the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range.
        """
        left, right = checks.places("inputs", inputs), checks.places("outputs", outputs)
        made = cls(cost_matrix.cost_matrix(left, right, order=1), epsilon, base_measure)
        line = line_projection.make_line(left, right)
        made._solver = functools.partial(_solve_on_line, line=line)
        return made

    @classmethod
    def on_graph(
        cls,
        edges: npt.ArrayLike,
        lengths: npt.ArrayLike,
        epsilon: float,
        base_measure: str | npt.ArrayLike = "uniform",
    ) -> "WassersteinProjectionMechanism":
        """Returns the mechanism for shortest paths between nodes, p = 1.

        Every node is both input and output; a base measure with zeros leaves out
        outputs.

        Args:
            edges: (e, 2) pairs of nodes, numbered from zero, passable both ways.
            lengths: (e,) positive lengths.
            epsilon: As for the class.
            base_measure: As for the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range, or the graph is not connected.
        """
        graph = graph_projection.make_graph(edges, lengths)
        made = cls(graph_projection.distances(graph), epsilon, base_measure)
        made._solver = functools.partial(_solve_on_graph, graph=graph)
        return made

    @functools.cached_property
    def worst_case_cost(self) -> float:
        """The largest cost of any input: W_p to the power p."""
        return worst_case.worst_case_cost(self._base_measure, self._cost, self._epsilon)

    def _together(self) -> bool:
        return self._regularization is not None and entropic_projection.in_one_batch(
            self._cost, self._polytope, self._regularization
        )

    def _propose(self, users: FloatArray) -> FloatArray:
        if self._regularization is not None:
            return entropic_projection.solve(
                users,
                self._cost,
                self._polytope,
                self._regularization,
                relative_gap=_RELATIVE_GAP,
            ).distributions
        found = [self._solver(user, self._polytope).distributions for user in users]
        return np.concatenate(found)


def resolve_base_measure(
    value: str | npt.ArrayLike, cost: FloatArray, epsilon: float
) -> FloatArray:
    """Returns the base measure that a user named or gave.

    Raises:
        TypeError: If it is neither a name nor an array of numbers.
        ValueError: If the name is unknown, or an array is out of range.
    """
    if not isinstance(value, str):
        return checks.base_measure(value, cost.shape[1], epsilon)
    named: dict[str, Any] = {
        "uniform": uniform_measure.uniform_base_measure,
        "minimax": minimax_measure.minimax_base_measure,
    }
    if value not in named:
        raise ValueError(
            f'base_measure must be "uniform", "minimax" or an array. Found {value!r}.'
        )
    return np.asarray(named[value](cost, epsilon).base_measure)


def _solve_exactly(
    masses: FloatArray, polytope: ldp_polytope.LdpPolytope, *, cost: FloatArray
) -> solution.Solution:
    return column_generation.solve(masses, cost, polytope)


def _solve_on_line(
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    *,
    line: line_projection.Line,
) -> solution.Solution:
    return line_projection.solve(masses, line, polytope)


def _solve_on_graph(
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    *,
    graph: graph_projection.Graph,
) -> solution.Solution:
    return graph_projection.solve(masses, graph, polytope)
