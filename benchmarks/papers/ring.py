"""The figure of paper 3 whose data is public: private draws on a ring.

Source: https://arxiv.org/abs/2605.10015.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import itertools

import numpy as np
from scipy import special

from dp_accounting_ext import wpm
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.wpm.projections import ldp_polytope
from papers import picture

SIZE = 30
CONCENTRATION = 0.1
_SEED = 14
PASSES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
REGULARIZATIONS = (0.01, 0.002, 0.0005)
_STYLES = (
    {"color": picture.SKY},
    {"color": picture.ORANGE, "ls": "--"},
    {"color": picture.GREEN, "ls": "-."},
)
_LEAST_EPSILON = 1e-9  # With it, a projection has nowhere to go but its base measure.


def ring_cost(size: int = SIZE, order: int = 2) -> FloatArray:
    """Returns (size, size) powers of the distances of places on a ring."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.asarray(np.minimum(apart, size - apart).astype(float) ** order)


def reaching_cost(masses: FloatArray, cost: FloatArray, law: FloatArray) -> float:
    """Returns the least cost of moving one distribution to another."""
    columns = np.flatnonzero(law)
    part = np.ascontiguousarray(cost[:, columns])
    return float(wpm.project(masses, part, law[columns], _LEAST_EPSILON).value)


def iterates(
    masses: FloatArray,
    cost: FloatArray,
    base_measure: FloatArray,
    epsilon: float,
    regularization: float,
) -> Iterator[FloatArray]:
    """Yields (k_v,) laws after one pass of Algorithm 1, two, and so on.

    A pass is u = μ / (K v), s = Kᵀ u, q = Π(s), v = q / s with the kernel
    K = e^{−C/λ}, in logarithms; Π is the projection in KL divergence onto the laws
    between e^{−ε/2} and e^{ε/2} times the base measure.

    Source: https://arxiv.org/abs/2605.10015, Algorithm 1.
    """
    rows = masses > 0
    kernel, logs = -cost[rows] / regularization, np.log(masses[rows])
    polytope = ldp_polytope.from_base_measure(base_measure, epsilon)
    prices = np.zeros(cost.shape[1])
    while True:
        scaled = logs - special.logsumexp(kernel + prices, axis=1)
        reached = special.logsumexp(kernel + scaled[:, np.newaxis], axis=0)
        weights = np.maximum(np.exp(reached - reached.max()), 1e-300)
        laws, _ = ldp_polytope.kl_projection(
            weights[np.newaxis], np.ones(1), polytope, steps=300
        )
        law = laws[0]
        yield law
        prices = np.log(law) - reached


def convergence(
    mechanism: wpm.WassersteinProjectionMechanism,
    masses: FloatArray,
    cost: FloatArray,
    regularization: float,
    passes: Sequence[int],
) -> list[float]:
    """Returns W_2 from the input after numbers of passes of the paper's Algorithm 1."""
    measure, epsilon = mechanism.base_measure, mechanism.epsilon
    laws = iterates(masses, cost, measure, epsilon, regularization)
    return [
        reaching_cost(masses, cost, law) ** 0.5
        for count, law in enumerate(itertools.islice(laws, max(passes)), 1)
        if count in passes
    ]


def figure_1(
    epsilon: float = 5.0,
    *,
    passes: Sequence[int] = PASSES,
    regularizations: Sequence[float] = REGULARIZATIONS,
) -> picture.Picture:
    """Returns laws of a draw on the ring, and how fast Algorithm 1 converges.

    Source: https://arxiv.org/abs/2605.10015, section 5.1 and Figure 1.
    """
    cost = ring_cost()
    masses = np.random.default_rng(_SEED).dirichlet(np.full(SIZE, CONCENTRATION))
    mechanism = wpm.WassersteinProjectionMechanism(cost, epsilon)
    projection = np.asarray(mechanism.project(masses))
    divergence = np.asarray(wpm.KLProjectionMechanism(cost, epsilon).project(masses))
    exact = reaching_cost(masses, cost, projection) ** 0.5
    places = range(SIZE)
    grey = {"color": picture.GREY, "bars": True}
    red = {**picture.POISSON, "drawstyle": "steps-mid"}
    blue = {**picture.ALLOCATION, "drawstyle": "steps-mid"}
    curve = picture.Curve
    laws = [
        curve("private distribution", places, masses.tolist(), style=grey),
        curve("KL projection", places, divergence.tolist(), style=red),
        curve("Wasserstein projection", places, projection.tolist(), style=blue),
    ]
    paths = []
    for share, style in zip(regularizations, _STYLES, strict=False):
        path = convergence(mechanism, masses, cost, share * float(cost.max()), passes)
        paths.append(curve(f"λ = {share:g} max C", passes, path, style=style))
    ends = [passes[0], passes[-1]]
    paths.append(curve("exact projection", ends, [exact] * 2, style=picture.PLAIN))
    return picture.Picture(
        f"Ring of {SIZE} places, ε = {epsilon:g}, p = 2",
        [
            picture.Panel("laws of one draw", "place on the ring", "probability", laws),
            picture.Panel(
                "entropic projection",
                "passes of Algorithm 1",
                "W₂ from the input",
                paths,
                "x",
                (0.0, None),
            ),
        ],
        f"Input: Dirichlet of concentration {CONCENTRATION:g}; the best uniform base "
        "measure.",
    )
