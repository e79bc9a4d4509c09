"""2-out-of-t random allocation by vectors of two means: half of what blocks cost.

Cut the steps at random into m groups, draw two of these, and a step in each: two steps
at random. So the ratio of 2 out of t is a conditional expectation of
E = Σ_{i<j} B_i B_j / C(m, 2), B_i the mean of the ratios of a group. With H the mean of
the B_i, two parts of the groups put together have

    E = a E₁ + b E₂ + c H₁ H₂,

linear in the vector (H₁, E₁) of one given that of the other. So a vector may be split
into others with the same mean, and the result grows in the convex order.
"""

from collections.abc import Iterator
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Certified, in units of rounding: what a step of the sum may move a vector by,
# relatively, and its shares.
_PLACE_ERROR = 64.0
_SHARE_ERROR = 32.0
# Certified: products of two such ratios, and sums of these, fit a float.
_LARGEST_RATIO = 1e140

# Tuning, with ε of 2 of 391 steps at σ = 0.55 and δ = 1e-5, and CPU seconds, for half
# of it and for twice (4.135, 0.5).
_NODES = 256  # Of H. (4.158 and 0.3, 4.128 and 1.5.)
_FINAL_NODES = 4096
# Logarithms of E / H² at a node, over its mean there. (For half of them 4.156 and 0.3.)
_EXPONENTS = np.array([5.0, 3.0, 2.2, 1.7, 1.35, 1.1, 0.9, 0.7, 0.5, 0.25])
_GROUPS, _MOST_GROUPS = 4, 8  # Of many steps, and of few.
_FEW_STEPS = 24
_SAMPLE = 130  # Atoms that stand for a law where nodes are chosen.
_LARGEST_EXPONENT, _BETWEEN = 25.0, 3.0  # −ln δ where the answer is to be tight.
_LEAST_LOGARITHM = 1e-9


def two_out_of_t(
    pair: DominatingPair, num_steps: int, *, tail_mass: float
) -> DominatingPair:
    """Returns a pair that dominates 2-out-of-t allocation, in both directions.

    Args:
        pair: An upper bound of one step, n atoms.
        num_steps: Number of steps, t ≥ 3.
        tail_mass: Probability that may be moved to the sinks.

    Guarantees:
        Dominates the allocation; trivially where ratios have no squares in floats.

    Source:
        docs/mathematics.md, "k out of t, in twos".
    """
    if not pair.p_masses.any() or pair.ratios.max() > _LARGEST_RATIO:
        return dominating_pair.trivial_pair(pair.bound)
    groups = num_groups(num_steps)
    sizes = [(num_steps + index) // groups for index in range(groups)]
    means = {
        size: random_allocation.random_allocation(
            pair, size, tail_mass=tail_mass / groups
        )
        for size in set(sizes)
    }
    laws: dict[tuple[int, ...], _Law] = {
        (size,): _of_one_group(mean) for size, mean in means.items()
    }
    first, second = (_law(tuple(half), laws) for half in (sizes[::2], sizes[1::2]))
    sinks = max(mean.infinity_mass for mean in means.values())
    infinity_mass = floats.raised(sums.probability_of_any([(sinks, 2)]))
    return _pair_of(_Sum(first, second), min(infinity_mass, 1.0))


def num_groups(num_steps: int) -> int:
    """Returns how many groups to make of so many steps.

    Of few steps groups of unequal sizes cost more than there are groups to gain by.
    """
    if num_steps > _FEW_STEPS:
        return _GROUPS
    most = min(num_steps, _MOST_GROUPS)
    even = [count for count in range(_GROUPS, most + 1) if num_steps % count == 0]
    return max(even, default=min(num_steps, _GROUPS))


@dataclasses.dataclass(frozen=True)
class _Law:
    """Groups of steps: the law of (H, E) without the record.

    Attributes:
        means: (n,) values of H, not negative, increasing.
        shares: (n, g) values of E / H² in each row, increasing.
        masses: (n, g) probabilities.
        groups: Number of groups; one has no E.
        mass_error: Bound on the relative error of a mass.
        place_error: Bound on the relative error of H, and of E.
    """

    means: FloatArray
    shares: FloatArray
    masses: FloatArray
    groups: int
    mass_error: float
    place_error: float

    @functools.cached_property
    def products(self) -> FloatArray:
        """(n, g) values of E."""
        return self.shares * self.means[:, np.newaxis] ** 2

    @functools.cached_property
    def sample(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """H, the mean of E there, and masses, for some parts of the rows."""
        rows = self.masses.sum(axis=1)
        density = _density(self.means, rows) + 0.2 / rows.size
        places = np.cumsum(density) / density.sum()
        starts = np.searchsorted(places, np.linspace(0.0, 1.0, _SAMPLE))
        starts = np.unique(np.minimum(starts, rows.size - 1))
        starts[0] = 0
        masses = np.add.reduceat(rows, starts)
        means = np.add.reduceat(rows * self.means, starts)
        products = (self.products * self.masses).sum(axis=1)
        products = np.add.reduceat(products, starts)
        kept = masses > floats.SMALLEST_MASS
        masses = masses[kept]
        return means[kept] / masses, products[kept] / masses, masses


def _of_one_group(mean: DominatingPair) -> _Law:
    """Returns the law of a group's mean, split to nodes."""
    nodes = _nodes(mean.ratios, mean.masses, _NODES, float(mean.ratios[-1]))
    cells, lower, upper = _split(nodes, mean.ratios)
    masses = sums.gather(cells, mean.masses * lower, nodes.size)
    masses += sums.gather(cells + 1, mean.masses * upper, nodes.size)
    masses[0] += mean.zero_mass
    kept = masses > 0
    return _Law(
        nodes[kept],
        np.zeros((int(kept.sum()), 1)),
        masses[kept, np.newaxis],
        1,
        mean.mass_error + _SHARE_ERROR * floats.UNIT_ROUNDOFF,
        mean.ratio_error + _PLACE_ERROR * floats.UNIT_ROUNDOFF,
    )


def _law(sizes: tuple[int, ...], known: dict[tuple[int, ...], _Law]) -> _Law:
    """Returns the law of groups of such sizes, each made once."""
    if sizes not in known:
        halves = _law(sizes[::2], known), _law(sizes[1::2], known)
        known[sizes] = _split_sum(_Sum(*halves))
    return known[sizes]


class _Sum:
    """Two independent laws put together.

    Attributes:
        groups: Number of groups in both.
    """

    def __init__(self, first: _Law, second: _Law) -> None:
        self._laws = first, second
        self.groups = first.groups + second.groups
        self._of_means = first.groups / self.groups, second.groups / self.groups
        pairs = math.comb(self.groups, 2)
        self._of_products = (
            math.comb(first.groups, 2) / pairs,
            math.comb(second.groups, 2) / pairs,
            first.groups * second.groups / pairs,
        )

    def mean(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Returns H of both."""
        return self._of_means[0] * first + self._of_means[1] * second

    def product(
        self,
        means: tuple[FloatArray, FloatArray],
        products: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Returns E of both, of H and E of each."""
        one, other, cross = self._of_products
        found: FloatArray = one * products[0] + other * products[1]
        return found + cross * means[0] * means[1]

    def rows(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Returns H (m,), E and masses (m, cells) of both, by rows of the first.

        Where both are one law a pair of rows is met once, with twice its mass.
        """
        return map(self._row, range(self._laws[0].means.size))

    def _row(self, index: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        first, second = self._laws
        start = index if first is second else 0
        mean, others = first.means[index], second.means[start:]
        products = self.product(
            (mean, others[:, None, None]),
            (first.products[index][:, None], second.products[start:, None, :]),
        )
        masses = first.masses[index][:, None] * second.masses[start:, None, :]
        if first is second:
            masses[1:] *= 2
        return (
            self.mean(mean, others),
            products.reshape(others.size, -1),
            masses.reshape(others.size, -1),
        )

    def sample(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns H, about E, and masses (n,) of parts of both."""
        first, second = (law.sample for law in self._laws)
        means = first[0][:, np.newaxis], second[0][np.newaxis]
        products = first[1][:, np.newaxis], second[1][np.newaxis]
        masses = first[2][:, np.newaxis] * second[2]
        mean, product = self.mean(*means), self.product(means, products)
        return mean.ravel(), product.ravel(), masses.ravel()

    def largest(self) -> tuple[float, float]:
        """Returns the largest H and E."""
        means = [law.means[-1:] for law in self._laws]
        products = [law.products.max(keepdims=True)[0] for law in self._laws]
        return (
            float(self.mean(means[0], means[1])[0]),
            float(self.product((means[0], means[1]), (products[0], products[1]))[0]),
        )

    def errors(self) -> tuple[float, float]:
        """Returns bounds on the relative errors of a mass and of H and E."""
        first, second = self._laws
        # A mass adds up those of all its cells in a row, and the rows.
        terms = second.masses.size * first.masses.shape[1] + first.means.size
        rounding = (4 * terms + _SHARE_ERROR) * floats.UNIT_ROUNDOFF
        places = [law.place_error for law in self._laws]
        return (
            floats.raised(first.mass_error + second.mass_error + rounding),
            sum(places) + _PLACE_ERROR * floats.UNIT_ROUNDOFF,
        )


def _split_sum(both: _Sum) -> _Law:
    """Returns a law on few vectors, with the means of the sum's."""
    means, products, masses = both.sample()
    nodes = _nodes(means, masses, _NODES, both.largest()[0])
    shares = _shares(nodes, means, products, masses)
    found = np.zeros(shares.size)
    for mean, product, mass in both.rows():
        cells, lower, upper = _split(nodes, mean)
        squares = lower * nodes[cells] ** 2 + upper * nodes[cells + 1] ** 2
        goal = product / np.maximum(squares, floats.SMALLEST_MASS)[:, np.newaxis]
        goal = np.minimum(goal, 1.0)  # E is at most H², but for rounding.
        for ends, weights in ((cells, lower), (cells + 1, upper)):
            found += _by_shares(shares, ends, goal, mass * weights[:, np.newaxis])
    mass_error, place_error = both.errors()
    rows = found.reshape(shares.shape)
    kept = rows.any(axis=1)
    return _Law(
        nodes[kept],
        shares[kept],
        rows[kept],
        both.groups,
        mass_error,
        place_error,
    )


def _by_shares(
    shares: FloatArray, rows: IndexArray, goal: FloatArray, masses: FloatArray
) -> FloatArray:
    """Returns masses split to shares in their rows, (all cells,)."""
    width = shares.shape[1]
    columns = np.zeros(goal.shape, dtype=np.int64)
    for column in range(1, width - 1):
        columns += goal >= shares[rows, column][:, np.newaxis]
    cells = rows[:, np.newaxis] * width + columns
    below, above = shares.ravel()[cells], shares.ravel()[cells + 1]
    gaps = above - below
    lower = masses * ((above - goal) / gaps)
    upper = masses * ((goal - below) / gaps)
    found = sums.gather_quickly(cells.ravel(), lower.ravel(), shares.size)
    return found + sums.gather_quickly(cells.ravel() + 1, upper.ravel(), shares.size)


def _pair_of(both: _Sum, infinity_mass: float) -> DominatingPair:
    """Returns the pair of E, split to nodes."""
    _, products, masses = both.sample()
    nodes = _nodes(products, masses, _FINAL_NODES, both.largest()[1])
    found = np.zeros(nodes.size)
    for _, product, mass in both.rows():
        cells, lower, upper = _split(nodes, product.ravel())
        found += sums.gather_quickly(cells, mass.ravel() * lower, nodes.size)
        found += sums.gather_quickly(cells + 1, mass.ravel() * upper, nodes.size)
    mass_error, place_error = both.errors()
    kept = found[1:] > 0
    return DominatingPair(
        nodes[1:][kept],
        found[1:][kept],
        infinity_mass=infinity_mass,
        zero_mass=float(found[0]),
        bound=dominating_pair.Bound.UPPER,
        mass_error=mass_error,
        ratio_error=place_error,
    )


def _split(
    nodes: FloatArray, values: FloatArray
) -> tuple[IndexArray, FloatArray, FloatArray]:
    """Returns the node below each value, and its shares of this and the next."""
    cells = np.searchsorted(nodes, values, side="right") - 1
    np.minimum(cells, nodes.size - 2, out=cells)
    below, above = nodes[cells], nodes[cells + 1]
    gaps = above - below
    return cells, (above - values) / gaps, (values - below) / gaps


def _density(values: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns (n,) weights of values: the mean of laws tilted to answers' places."""
    with np.errstate(divide="ignore"):
        logs = np.log(values)
        losses = np.log(masses) + logs
    seen = np.isfinite(losses)
    weights = np.exp(losses - losses.max(), out=np.zeros(values.size), where=seen)
    weights /= weights.sum()
    logs = np.where(seen, logs, 0.0)
    mean = sums.dot(weights, logs)
    deviation = max(math.sqrt(sums.dot(weights, (logs - mean) ** 2)), 1e-9)
    density = masses / masses.sum() + weights
    last = 0.0
    for tilt in np.geomspace(0.05, 20.0, 28) / deviation:
        exponents = np.where(seen, np.log(np.maximum(weights, 1e-300)), -np.inf)
        exponents += tilt * logs
        largest = float(exponents.max())
        tilted = np.exp(exponents - largest)
        total = float(tilted.sum())
        exponent = tilt * sums.dot(tilted, logs) / total - largest - math.log(total)
        if exponent > _LARGEST_EXPONENT:
            break
        if exponent >= last + _BETWEEN:
            density += tilted / total
            last = exponent
    found: FloatArray = density / density.sum()
    return found


def _nodes(
    values: FloatArray, masses: FloatArray, size: int, largest: float
) -> FloatArray:
    """Returns 0, nodes that are dense where values are, and one above the largest."""
    density = _density(values, masses)
    order = np.argsort(values)
    values, density = values[order], density[order]
    low, high = float(values[values > 0][0]), max(float(values[-1]), 0.0)
    top = floats.raised(max(largest, high))
    low = min(low, high * (1 - 1e-6))
    logs = np.log(np.maximum(values, low))
    ends = np.linspace(math.log(low), math.log(high), size // 2)
    places = np.interp(np.linspace(0, 1, size // 2), np.cumsum(density), logs)
    places = np.unique(np.concatenate([ends, places]))
    wide = np.diff(places, prepend=-math.inf) > 1e-12
    places = places[wide]
    widths = np.diff(places)
    per_width = np.histogram(logs, places, weights=density)[0] / widths
    per_width = np.convolve(np.pad(per_width, 2, mode="edge"), np.ones(5) / 5, "valid")
    # Splits cost least with nodes as dense as the third root.
    wanted = np.cbrt(per_width * widths.sum()) + 0.25
    known = np.append(0.0, np.cumsum(wanted * widths))
    nodes = np.exp(np.interp(np.linspace(0, known[-1], size), known, places))
    return np.unique(np.concatenate([[0.0], nodes[nodes < top], [top]]))


def _shares(
    nodes: FloatArray, means: FloatArray, products: FloatArray, masses: FloatArray
) -> FloatArray:
    """Returns (n, g) shares E / H² about their means at each node, 0 and 1."""
    seen = means > 0
    logs = np.log(means[seen])
    size = np.log(np.maximum(products[seen] / means[seen] ** 2, 1e-12))
    edges = np.linspace(logs.min(), logs.max() + 1e-9, 33)
    weights = np.histogram(logs, edges, weights=masses[seen])[0]
    totals = np.histogram(logs, edges, weights=masses[seen] * size)[0]
    known = weights > 0
    centres = ((edges[1:] + edges[:-1]) / 2)[known]
    at = np.log(np.maximum(nodes, means[seen].min()))
    typical = np.interp(at, centres, totals[known] / weights[known])
    typical = np.minimum(typical, -_LEAST_LOGARITHM)
    inner = np.exp(typical[:, np.newaxis] * _EXPONENTS)
    zeros = np.zeros((nodes.size, 1))
    return np.concatenate([zeros, inner, zeros + 1], axis=1)
