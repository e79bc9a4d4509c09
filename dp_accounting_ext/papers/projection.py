"""The figure of paper 3 whose data is public: private draws on a ring.

Source: https://arxiv.org/abs/2605.10015.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import wpm
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import regularized_problem
from dp_accounting_ext.wpm.projections.exact import column_generation

Curve = drawing.Curve
FloatArray = npt.NDArray[np.float64]

SIZE = 30
CONCENTRATION = 0.1
_SEED = 14
_PASSES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_REGULARIZATIONS = (0.01, 0.002, 0.0005)
_LOOKS = (
    drawing.Look(drawing.Colour.SKY),
    drawing.Look(drawing.Colour.ORANGE, drawing.Dashes.DASHED),
    drawing.Look(drawing.Colour.GREEN, drawing.Dashes.DASH_DOT),
)


def ring_cost(size: int = SIZE, order: int = 2) -> FloatArray:
    """Returns (size, size) powers of the distances of places on a ring."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.asarray(np.minimum(apart, size - apart).astype(float) ** order)


def reaching_cost(masses: FloatArray, cost: FloatArray, law: FloatArray) -> float:
    """Returns the least cost of moving one distribution to another."""
    rows, columns = np.flatnonzero(masses), np.flatnonzero(law)
    fixed = ldp_polytope.LdpPolytope(law[columns], law[columns])
    part = np.ascontiguousarray(cost[np.ix_(rows, columns)])
    return float(column_generation.solve(masses[rows], part, fixed).values[0])


def convergence(
    mechanism: wpm.WassersteinProjectionMechanism,
    masses: FloatArray,
    cost: FloatArray,
    regularization: float,
    passes: Iterable[int],
) -> list[float]:
    """Returns W_2 from the input after numbers of passes of the paper's Algorithm 1."""
    rows = masses > 0
    problem = regularized_problem.Problem(
        masses[rows],
        cost[rows] / regularization,
        ldp_polytope.from_base_measure(mechanism.base_measure, mechanism.epsilon),
    )
    counts = list(passes)
    iterates = itertools.islice(alternating_projections.iterates(problem), max(counts))
    laws = [
        regularized_problem.prove(problem, weights).distribution
        for count, weights in enumerate(iterates, 1)
        if count in counts
    ]
    return [reaching_cost(masses, cost, law / law.sum()) ** 0.5 for law in laws]


@dataclasses.dataclass(frozen=True)
class Ring:
    """One private distribution on the ring, and what becomes of it.

    Attributes:
        masses: (k,) private distribution.
        projection: (k,) law of a draw of the Wasserstein projection mechanism.
        divergence: (k,) law of a draw of the KL projection mechanism.
        exact: W_2 of the projection from the input.
        passes: (m,) numbers of passes of Algorithm 1.
        curves: From λ over the largest cost to (m,) W_2 from the input.
    """

    masses: FloatArray
    projection: FloatArray
    divergence: FloatArray
    exact: float
    passes: Sequence[int]
    curves: Mapping[float, Sequence[float]]


def ring(
    epsilon: float = 5.0,
    *,
    passes: Sequence[int] = _PASSES,
    regularizations: Sequence[float] = _REGULARIZATIONS,
) -> Ring:
    """Returns the projections of one Dirichlet distribution.

    Source: https://arxiv.org/abs/2605.10015, section 5.1.
    """
    cost = ring_cost()
    masses = np.random.default_rng(_SEED).dirichlet(np.full(SIZE, CONCENTRATION))
    mechanism = wpm.WassersteinProjectionMechanism(cost, epsilon)
    projection = np.asarray(mechanism.project(masses))
    largest = float(cost.max())
    return Ring(
        masses,
        projection,
        np.asarray(wpm.KLProjectionMechanism(cost, epsilon).project(masses)),
        reaching_cost(masses, cost, projection) ** 0.5,
        passes,
        {
            share: convergence(mechanism, masses, cost, share * largest, passes)
            for share in regularizations
        },
    )


def figure_1(epsilon: float = 5.0, *, data: Ring | None = None) -> drawing.Picture:
    """Returns laws of a draw on the ring, and how fast Algorithm 1 converges.

    Args:
        epsilon: ε.
        data: `ring(epsilon)`, if it is known.

    Source: https://arxiv.org/abs/2605.10015, Figure 1.
    """
    data = ring(epsilon) if data is None else data
    places = range(data.masses.size)
    grey = drawing.Look(drawing.Colour.GREY, kind=drawing.Kind.BARS)
    blue = drawing.Look(drawing.Colour.BLUE, kind=drawing.Kind.STEPS)
    red = drawing.Look(
        drawing.Colour.VERMILLION, drawing.Dashes.DASHED, drawing.Kind.STEPS
    )
    laws = [
        Curve("private distribution", places, data.masses.tolist(), look=grey),
        Curve("KL projection", places, data.divergence.tolist(), look=red),
        Curve("Wasserstein projection", places, data.projection.tolist(), look=blue),
    ]
    paths = [
        Curve(f"λ = {share:g} max C", data.passes, path, look=look)
        for (share, path), look in zip(data.curves.items(), _LOOKS, strict=False)
    ]
    ends = [data.passes[0], data.passes[-1]]
    exact = Curve("exact projection", ends, [data.exact] * 2, look=drawing.PLAIN)
    return drawing.Picture(
        f"Ring of {data.masses.size} places, ε = {epsilon:g}, p = 2",
        [
            drawing.Panel("laws of one draw", "place on the ring", "probability", laws),
            drawing.Panel(
                "entropic projection",
                "passes of Algorithm 1",
                "W₂ from the input",
                [*paths, exact],
                log_x=True,
                y_limits=(0.0, None),
            ),
        ],
        f"Input: Dirichlet of concentration {CONCENTRATION:g}; the best uniform base "
        "measure.",
    )
