"""Sums of functions of a Gaussian Markov chain on a circle, from above.

The circle is cut at two bins, c and d, half of it apart. Given both, the two arcs
between them are independent. c is split between a few nodes; from d an arc moves to c
as a bridge does, the last steps drawn towards it: a recursion over (x, S) for each
node, from c to d. Both arcs' sums are then added. All splits keep means, so that what
is convex in the sum only grows, as for a chain on a line (`markov_sums`).
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Ring:
    """A chain on a circle, what its bins add to the sum, and the grids of both.

    Attributes:
        chain: States, factors and places as of a chain on a line, with no excess. Its
            length is the number of bins, at least 2.
        nodes: (j,) indices of the states that c is split between, increasing.
        reach: Number of last steps of an arc that are drawn towards c.
    """

    chain: markov_sums.Chain
    nodes: npt.NDArray[np.intp]
    reach: int

    @property
    def arcs(self) -> tuple[int, int]:
        """Steps from d to c, the shorter way and the longer one."""
        half = self.chain.length // 2
        return half, self.chain.length - half


@dataclasses.dataclass(frozen=True)
class _Arcs:
    """Sums of the bins up to some steps from c, by state and by node.

    Attributes:
        masses: (j, n, l) of nodes, states there and places.
        lost_mass: (j, n) of what was lost on the way, at most.
        lost_mean: (j, n) of the sum where it was lost, at most.
    """

    masses: FloatArray
    lost_mass: FloatArray
    lost_mean: FloatArray


def bridge(correlation: float, left: int, reach: int) -> tuple[float, float, float]:
    """Returns how x moves from `left` steps from c to one less.

    Returns:
        The coefficients of x and of c in the mean, and the standard deviation.
    """
    squared = correlation**2
    if left > reach:
        return correlation, 0.0, math.sqrt((1 - correlation) * (1 + correlation))
    whole, rest = 1 - squared**left, 1 - squared ** (left - 1)
    own = (1 - correlation) * (1 + correlation)
    slope = correlation * rest / whole
    return slope, correlation ** (left - 1) * own / whole, math.sqrt(own * rest / whole)


def covariance(correlation: float, bins: int, reach: int) -> FloatArray:
    """Returns (b, b) covariances of the x_i around the circle, c the first of them."""
    half = bins // 2
    rows = np.zeros((bins, bins))
    rows[0, 0] = 1.0
    joint = _joint(correlation, bins, reach)
    rows[half] = joint * rows[0]
    rows[half, half] = math.sqrt((1 - joint) * (1 + joint))
    for steps, way in ((half, -1), (bins - half, 1)):
        place = half
        for left in range(steps, 1, -1):
            slope, pull, spread = bridge(correlation, left, reach)
            there = (place + way) % bins
            rows[there] = slope * rows[place] + pull * rows[0]
            rows[there, there] += spread
            place = there
    return np.asarray(rows @ rows.T)


def _joint(correlation: float, bins: int, reach: int) -> float:
    """Returns the correlation of c and d."""
    further = bins - bins // 2
    return correlation**further if reach >= further else 0.0


def upper_sum(ring: Ring) -> markov_sums.SumLaw:
    """Returns the law of the ring's sum, from above.

    Guarantees:
        E (S − k)₊ of the true sum is at most Σ masses · (places − k)₊ + lost_mean for
        every k: with masses raised by their error, and places by `place_error`.
    """
    chain = ring.chain
    adders, excesses = markov_sums.adders(chain), _excesses(chain)
    near, far = _both_arcs(ring, adders, excesses)
    size = chain.places.size
    both, lost_mean, lost_mass = np.zeros((size, size)), 0.0, 0.0
    chances, above = _chances(ring)
    for node, chance in enumerate(chances.tolist()):
        index = int(ring.nodes[node])
        moves = _start(ring, float(chain.states[index]))
        weights = moves.matrix[0]
        first, second = near.masses[node], far.masses[node]
        lost = weights @ _lost_in_arcs(ring, near, far, node)
        lost += weights @ (excesses * first).sum(axis=1)
        lost += excesses[index] @ (weights @ second)
        lost += chain.length * float(_ratio_above(chain, moves, index)[0])
        lost_mean += chance * float(lost)
        gone = near.lost_mass[node] + far.lost_mass[node]
        lost_mass += chance * float(weights @ gone + moves.above[0])
        with_d = np.stack(
            [adder @ row for adder, row in zip(adders, first, strict=True)]
        )
        with_c = np.ascontiguousarray((adders[index] @ second.T).T)
        both += chance * ((weights[:, np.newaxis] * with_d).T @ with_c)
    masses, beyond = _added(chain.places, both)
    most = max(int(np.diff(adder.indptr).max()) for adder in adders)
    each = (chain.states.size + most + 16) * floats.UNIT_ROUNDOFF
    each += 2 * markov_sums.QUADRATURE_ERROR
    last = (ring.nodes.size + chain.states.size + size + 64) * floats.UNIT_ROUNDOFF
    return markov_sums.SumLaw(
        masses=masses,
        lost_mean=floats.raised(lost_mean + beyond + above.mean * chain.length),
        lost_mass=floats.raised(lost_mass + above.mass),
        lifted_mass=0.0,
        mass_error=(chain.length + 4) * each + last,
    )


def _both_arcs(
    ring: Ring, adders: Sequence[sparse.csr_matrix], excesses: FloatArray
) -> tuple[_Arcs, _Arcs]:
    """Returns sums of the bins between d and c, the shorter way and the longer one.

    By state of d, which is not among the bins.
    """
    chain = ring.chain
    shape = (ring.nodes.size, chain.states.size, chain.places.size)
    arcs = _Arcs(np.zeros(shape), np.zeros(shape[:2]), np.zeros(shape[:2]))
    arcs.masses[:, :, 0] = 1.0
    shorter, longer = ring.arcs
    found = arcs
    for left in range(2, longer + 1):
        arcs = _moved(ring, left, _with_a_bin(chain, adders, excesses, arcs))
        if left == shorter:
            found = arcs
    return found, arcs


def _with_a_bin(
    chain: markov_sums.Chain,
    adders: Sequence[sparse.csr_matrix],
    excesses: FloatArray,
    arcs: _Arcs,
) -> _Arcs:
    """Returns the sums with the bin of the state they are listed by."""
    masses = np.empty_like(arcs.masses)
    for state, adder in enumerate(adders):
        masses[:, state] = (adder @ np.ascontiguousarray(arcs.masses[:, state].T)).T
    lost_mean = arcs.lost_mean + chain.ratios * arcs.lost_mass
    lost_mean += np.einsum("xs,jxs->jx", excesses, arcs.masses)
    small = masses < markov_sums.SMALLEST_MASS
    cleared = np.where(small, masses, 0.0).sum(axis=2)
    masses[small] = 0.0
    return _Arcs(
        masses, arcs.lost_mass + cleared, lost_mean + cleared * chain.places[-1]
    )


def _moved(ring: Ring, left: int, arcs: _Arcs) -> _Arcs:
    """Returns the sums by the state that is `left` steps from c, one further away."""
    chain = ring.chain
    slope, pull, spread = bridge(chain.correlation, left, ring.reach)
    means = slope * chain.states
    moves = markov_sums.moves(chain, means, spread)
    found = _Arcs(*(np.empty_like(part) for part in _parts(arcs)))
    for node, index in enumerate(ring.nodes.tolist()):
        if pull:
            c = float(chain.states[index])
            moves = markov_sums.moves(chain, means + pull * c, spread)
        np.matmul(moves.matrix, arcs.masses[node], out=found.masses[node])
        found.lost_mass[node] = moves.matrix @ arcs.lost_mass[node] + moves.above
        found.lost_mean[node] = moves.matrix @ arcs.lost_mean[node]
        found.lost_mean[node] += left * _ratio_above(chain, moves, index)
    return found


def _parts(arcs: _Arcs) -> tuple[FloatArray, FloatArray, FloatArray]:
    return arcs.masses, arcs.lost_mass, arcs.lost_mean


def _ratio_above(
    chain: markov_sums.Chain, moves: markov_sums.Moves, index: int
) -> FloatArray:
    """Bounds the mean of any ratio to come, where x moves above what is told apart.

    The mean of a bridge is at most the larger of its ends: e^{a x} + e^{a c} is above.
    """
    scale = chain.scale
    at_c = math.exp(scale * max(float(chain.states[index]), 0.0))
    raised = math.exp(scale**2 / 2) * moves.ratio_above
    return np.asarray(floats.raised(1.0) * (raised + at_c * moves.above))


def _excesses(chain: markov_sums.Chain) -> FloatArray:
    """Returns (n, l) what an addition loses of the mean, by state and place."""
    top = chain.places[-1]
    found = np.repeat(
        chain.lost_factor * chain.ratios[:, np.newaxis], chain.places.size, 1
    )
    for factor, chance in zip(chain.factors, chain.chances, strict=True):
        sums = chain.places + factor * chain.ratios[:, np.newaxis]
        found += chance * np.maximum(sums - top, 0.0)
    return found


def _lost_in_arcs(ring: Ring, near: _Arcs, far: _Arcs, node: int) -> FloatArray:
    """Returns (n,) means of the sum where either arc was lost, by state of d."""
    chain = ring.chain
    ends = chain.ratios + chain.ratios[ring.nodes[node]]
    found = np.zeros(chain.states.size)
    for arc, other in ((near, far), (far, near)):
        beside = other.masses[node] @ chain.places + other.lost_mean[node]
        found += arc.lost_mean[node] + arc.lost_mass[node] * (beside + ends)
    return found


@dataclasses.dataclass(frozen=True)
class _Above:
    """What is lost above the highest node: its mass, and the mean of a ratio there."""

    mass: float
    mean: float


def _chances(ring: Ring) -> tuple[FloatArray, _Above]:
    """Returns the nodes' probabilities, from a law on all states split once more."""
    chain = ring.chain
    moves = markov_sums.moves(chain, np.zeros(1), 1.0)
    nodes = chain.states[ring.nodes]
    low = np.searchsorted(ring.nodes, np.arange(chain.states.size), side="right") - 1
    low = np.clip(low, 0, nodes.size - 2)
    share = (chain.states - nodes[low]) / (nodes[low + 1] - nodes[low])
    mass = moves.matrix[0]
    chances = sums.gather(low, mass * (1 - share), nodes.size)
    chances = chances + sums.gather(low + 1, mass * share, nodes.size)
    ratio = math.exp(chain.scale**2 / 2) * float(moves.ratio_above[0])
    return chances, _Above(float(moves.above[0]), ratio)


def _start(ring: Ring, c: float) -> markov_sums.Moves:
    """Returns where d is, given c."""
    joint = _joint(ring.chain.correlation, ring.chain.length, ring.reach)
    spread = math.sqrt((1 - joint) * (1 + joint))
    return markov_sums.moves(ring.chain, np.array([joint * c]), spread)


def _added(places: FloatArray, both: FloatArray) -> tuple[FloatArray, float]:
    """Returns masses of sums of two places, split between places, and what is lost."""
    goals = np.add.outer(places, places).ravel()
    masses, size = both.ravel(), places.size
    beyond = float(masses @ np.maximum(goals - places[-1], 0.0))
    goals = np.minimum(goals, places[-1])
    low = np.minimum(np.searchsorted(places, goals, side="right") - 1, size - 2)
    share = np.clip((goals - places[low]) / (places[low + 1] - places[low]), 0.0, 1.0)
    found = sums.gather(low, masses * (1 - share), size)
    return found + sums.gather(low + 1, masses * share, size), beyond
