"""2- or 3-out-of-t random allocation by vectors of two means: less than blocks cost.

Cut the steps at random into groups of n_1, …, n_m steps, and draw two steps that are
not of one group: two steps at random. So the ratio of 2 out of t is a conditional
expectation of E = Σ_{i<j} n_i n_j B_i B_j / Σ_{i<j} n_i n_j, B_i the mean of the ratios
of a group. With H the mean of all ratios, two parts of the groups put together have

    E = a E₁ + b E₂ + c H₁ H₂,

linear in the vector (H₁, E₁) of one given that of the other. So a vector may be split
into others with the same mean, and the result grows in the convex order. Of three draws
two are in one half of the steps and one in the other: d E₁ H₂ + (1 − d) H₁ E₂.
"""

from collections.abc import Iterator
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Certified, in units of rounding: what a step of the sum may move a vector by,
# relatively, and its shares.
_PLACE_ERROR = 64.0
_SHARE_ERROR = 32.0
# Certified: products of two, or of three, such ratios, and sums of these, fit a float.
_LARGEST_RATIO = {2: 1e140, 3: 1e95}
_SMALLEST_RATIO = 1e-90
# Certified: of finite ratios, less tells nothing; and what all products of masses that
# are below floats have together.
_LEAST_MASS, _UNDERFLOW = 1e-60, 1e-290

# Tuning.
MOST_DRAWS = 3
_FINAL_NODES = 4096
_SHARES = 11  # Of E / H² at a node of H, with three more at its ends.
_SAMPLE = 250  # Atoms that stand for a law where nodes are chosen.
_BINS = 24, 48  # Of logarithms of H and of E / H² there.
_NARROWEST = 1e-6
_NARROWEST_WIDTH = 1e-3  # Between places where nodes are chosen, over their mean width.
_FEW_STEPS = 40
_LARGEST_EXPONENT, _BETWEEN = 25.0, 3.0  # −ln δ where the answer is to be tight.


@dataclasses.dataclass(frozen=True)
class Effort:
    """What a bound may cost.

    Attributes:
        nodes: Of H.
        groups: Groups of steps.
        most_groups: The same of few steps.
    """

    nodes: int
    groups: int
    most_groups: int


# Of ε at the row's δ and CPU seconds. For 3 of 240 steps, σ = 0.7, and 2 of 391, σ =
# 0.55: 4.404 and 0.4, 4.105 and 0.9; with 6 groups 4.418 and 0.3, 4.112 and 0.5; with
# 256 nodes 4.400 and 0.7, 4.102 and 1.5; with 20 shares 4.387 and 2.2, 4.094 and 4.4.
# For 3 of 10, σ = 0.8: 8.270 with 8 groups, 8.219 with 10.
ALONE = Effort(nodes=192, groups=8, most_groups=10)
# Where several are composed their roundings add up. For 10 of 1000 steps, σ = 1: 1.9640
# with 192 nodes, 1.9615 with 256, 1.9602 with 384, 1.9591 and 0.5 s more with 512.
TOGETHER = Effort(nodes=320, groups=4, most_groups=4)


def few_out_of_t(
    pair: DominatingPair,
    num_selected: int,
    num_steps: int,
    *,
    tail_mass: float,
    effort: Effort = ALONE,
) -> DominatingPair:
    """Returns a pair that dominates 2- or 3-out-of-t allocation, in both directions.

    Args:
        pair: An upper bound of one step, n atoms.
        num_selected: Number of steps with the record, k = 2 or 3.
        num_steps: Number of steps, t > k.
        tail_mass: Probability that may be moved to the sinks.
        effort: What the bound may cost.

    Guarantees:
        Dominates the allocation; trivially where ratios have no powers in floats.

    Source:
        docs/mathematics.md, "k out of t, in twos and threes".
    """
    pair = _without_smallest(pair)
    if pair.p_masses.sum() < _LEAST_MASS or (
        pair.ratios.max() > _LARGEST_RATIO[num_selected]
    ):
        return dominating_pair.trivial_pair(pair.bound)
    most = effort.groups if num_steps > _FEW_STEPS else effort.most_groups
    groups = min(most, num_steps)
    sizes = tuple((num_steps + index) // groups for index in range(groups))
    means = {
        size: dominating_pair.without_tails(
            random_allocation.random_allocation(
                pair, size, tail_mass=tail_mass / groups / 2
            ),
            tail_mass / groups / 2,
        )
        for size in set(sizes)
    }
    laws: dict[tuple[int, ...], _Law] = {
        (size,): _of_one_group(mean, size, effort.nodes) for size, mean in means.items()
    }
    halves = (_law(half, laws, effort.nodes) for half in (sizes[::2], sizes[1::2]))
    sinks = max(mean.infinity_mass for mean in means.values())
    infinity_mass = sums.probability_of_any([(sinks, num_selected)])
    # What is lost has a ratio that is at most the product of so many.
    infinity_mass += _UNDERFLOW * float(pair.ratios.max()) ** num_selected
    found = _pair_of(
        _Sum(*halves), num_selected, min(floats.raised(infinity_mass), 1.0)
    )
    return dataclasses.replace(found, zero_mass=min(found.zero_mass + _UNDERFLOW, 1.0))


def _without_smallest(pair: DominatingPair) -> DominatingPair:
    """Returns the pair with ratios that have no powers split to 0 and infinity."""
    gone = pair.ratios < _SMALLEST_RATIO
    if not gone.any():
        return pair
    lost = [float(masses[gone].sum()) for masses in (pair.p_masses, pair.masses)]
    # Sums may lose what is below all floats.
    lost_p, lost_q = (floats.raised(mass + floats.SMALLEST_MASS) for mass in lost)
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[~gone],
        masses=pair.masses[~gone],
        infinity_mass=min(pair.infinity_mass + lost_p, 1.0),
        zero_mass=min(pair.zero_mass + lost_q, 1.0),
    )


@dataclasses.dataclass(frozen=True)
class _Law:
    """Groups of steps: the law of (H, E) without the record, in (a,) atoms.

    Attributes:
        means: (n,) values of H, not negative, increasing.
        rows: (a,) which of these each atom has, increasing.
        products: (a,) values of E; of one group 0.
        masses: (a,) probabilities.
        sizes: Numbers of steps in the groups.
        top: At least E / H² in all atoms.
        mass_error: Bound on the relative error of a mass.
        place_error: Bound on the relative error of H, and of E.
    """

    means: FloatArray
    rows: IndexArray
    products: FloatArray
    masses: FloatArray
    sizes: tuple[int, ...]
    top: float
    mass_error: float
    place_error: float

    @functools.cached_property
    def starts(self) -> IndexArray:
        """(n + 1,) first atoms of the rows."""
        return np.searchsorted(self.rows, np.arange(self.means.size + 1))

    @functools.cached_property
    def pairs(self) -> int:
        """Number of pairs of steps in different groups."""
        squares = sum(size**2 for size in self.sizes)
        return (sum(self.sizes) ** 2 - squares) // 2

    @functools.cached_property
    def sample(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """H, E and masses of (n,) atoms that stand for groups of near ones."""
        means = self.means[self.rows]
        density = _density(means, self.masses) + 0.2 / means.size
        if self.top:
            density += _density(self.products, self.masses)
        places = np.cumsum(density) / density.sum()
        starts = np.searchsorted(places, np.linspace(0.0, 1.0, _SAMPLE))
        starts = np.unique(np.minimum(starts, means.size - 1))
        starts[0] = 0
        masses = np.add.reduceat(self.masses, starts)
        means = np.add.reduceat(means * self.masses, starts)
        products = np.add.reduceat(self.products * self.masses, starts)
        kept = masses > floats.SMALLEST_MASS
        masses = masses[kept]
        return means[kept] / masses, products[kept] / masses, masses


def _of_one_group(mean: DominatingPair, size: int, num_nodes: int) -> _Law:
    """Returns the law of a group's mean, split to nodes."""
    density = _density(mean.ratios, mean.masses)
    ends = float(mean.ratios[mean.ratios > 0][0]), float(mean.ratios[-1])
    nodes = _nodes(mean.ratios, density, num_nodes, ends)
    cells, lower, upper = _split(nodes, mean.ratios)
    masses = sums.gather(cells, mean.masses * lower, nodes.size)
    masses += sums.gather(cells + 1, mean.masses * upper, nodes.size)
    masses[0] += mean.zero_mass
    kept = masses > 0
    count = int(kept.sum())
    return _Law(
        means=nodes[kept],
        rows=np.arange(count),
        products=np.zeros(count),
        masses=masses[kept],
        sizes=(size,),
        top=0.0,
        mass_error=mean.mass_error + _SHARE_ERROR * floats.UNIT_ROUNDOFF,
        place_error=mean.ratio_error + _PLACE_ERROR * floats.UNIT_ROUNDOFF,
    )


def _law(
    sizes: tuple[int, ...], known: dict[tuple[int, ...], _Law], num_nodes: int
) -> _Law:
    """Returns the law of groups of such sizes, each made once."""
    sizes = tuple(sorted(sizes))
    if sizes not in known:
        halves = (_law(half, known, num_nodes) for half in (sizes[::2], sizes[1::2]))
        known[sizes] = _split_sum(_Sum(*halves), num_nodes)
    return known[sizes]


@dataclasses.dataclass(frozen=True)
class _Weights:
    """A sum of products: of E₁, of H₁ H₂, of E₂, of E₁ H₂, and of H₁ E₂."""

    first: float = 0.0
    cross: float = 0.0
    second: float = 0.0
    two_and_one: float = 0.0
    one_and_two: float = 0.0

    def at(
        self,
        means: tuple[FloatArray, FloatArray],
        products: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Returns the sum, of H and E of each; those of the second are the more."""
        own = self.first * products[0]
        slope = self.cross * means[0] + self.two_and_one * products[0]
        of_product = self.second + self.one_and_two * means[0]
        found: FloatArray = slope * means[1]
        found += own
        found += of_product * products[1]
        return found


class _Sum:
    """Two independent laws put together.

    Args:
        first: One.
        second: The other, or the same.
    """

    def __init__(self, first: _Law, second: _Law) -> None:
        self._laws = first, second
        self.sizes = first.sizes + second.sizes
        one, other = sum(first.sizes), sum(second.sizes)
        self._of_means = one / (one + other), other / (one + other)
        cross = one * other
        self.pairs = pairs = first.pairs + cross + second.pairs
        self._of_two = _Weights(
            first.pairs / pairs, cross / pairs, second.pairs / pairs
        )
        ways = first.pairs * other, one * second.pairs
        triples = max(sum(ways), 1)
        self._of_three = _Weights(
            two_and_one=ways[0] / triples, one_and_two=ways[1] / triples
        )

    def weights(self, draws: int) -> _Weights:
        """Returns what the ratio of so many draws is made of."""
        return self._of_two if draws == 2 else self._of_three

    def mean(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Returns H of both, of H of each."""
        return self._of_means[0] * first + self._of_means[1] * second

    def product(self, part: "_Part") -> FloatArray:
        """Returns (a, b) values of E of both."""
        return self._of_two.at(part.means, part.products)

    @property
    def tops(self) -> tuple[float, float]:
        """The most that E / H² can be, which splits may exceed, and more than they do.

        By Maclaurin's inequality; and twice the most of its terms over those of H².
        """
        mine, theirs = self._of_means
        first, second = self._laws
        groups, steps = len(self.sizes), sum(self.sizes)
        limit = (groups - 1) / groups * steps**2 / (2 * self.pairs)
        most = max(
            limit,
            self._of_two.cross / (2 * mine * theirs),
            self._of_two.first * first.top / mine**2,
            self._of_two.second * second.top / theirs**2,
        )
        return limit, 2 * most

    def parts(self) -> Iterator["_Part"]:
        """Returns both, by rows of the first.

        Where both are one law a pair of rows is met once, with twice its mass.
        """
        first, second = self._laws
        for index in range(first.means.size):
            start = index if first is second else 0
            own = slice(first.starts[index], first.starts[index + 1])
            others = slice(second.starts[start], None)
            rows = second.rows[others] - start
            masses = second.masses[others]
            if first is second:
                masses = np.where(rows > 0, 2 * masses, masses)
            means = first.means[index : index + 1, np.newaxis], second.means[start:]
            yield _Part(
                self.mean(means[0][0], means[1]),
                rows,
                (means[0], means[1][rows]),
                (first.products[own, np.newaxis], second.products[others]),
                first.masses[own, np.newaxis] * masses,
            )

    def sample(self, draws: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns H, about the ratio of so many draws, and masses (n,) of parts."""
        first, second = (law.sample for law in self._laws)
        means = first[0][:, np.newaxis], second[0]
        ratios = self.weights(draws).at(means, (first[1][:, np.newaxis], second[1]))
        masses = first[2][:, np.newaxis] * second[2]
        return self.mean(*means).ravel(), ratios.ravel(), masses.ravel()

    def smallest(self) -> float:
        """Returns the least H of positive ones, or about so much."""
        means = [law.means[law.means > 0][:1] for law in self._laws]
        return float(self.mean(means[0], means[1])[0])

    def largest(self, draws: int) -> tuple[float, float]:
        """Returns the largest H and ratio of so many draws, or more."""
        first, second = self._laws
        means = first.means[-1:], second.means[-1:]
        products = first.products.max(keepdims=True), second.products.max(keepdims=True)
        ratio = self.weights(draws).at(means, products)
        return float(self.mean(*means)[0]), float(ratio[0])

    def errors(self) -> tuple[float, float]:
        """Returns bounds on the relative errors of a mass and of H and E."""
        first, second = self._laws
        # A mass adds up those of all its cells in a row, and the rows.
        widest = int(np.diff(first.starts).max())
        terms = second.masses.size * widest + first.means.size
        rounding = (4 * terms + _SHARE_ERROR) * floats.UNIT_ROUNDOFF
        places = first.place_error + second.place_error
        return (
            floats.raised(first.mass_error + second.mass_error + rounding),
            places + _PLACE_ERROR * floats.UNIT_ROUNDOFF,
        )


@dataclasses.dataclass(frozen=True)
class _Part:
    """One row of a first law with a atoms, and some rows of a second, with b.

    Attributes:
        whole: (m,) H of both.
        rows: (b,) which of these an atom of the second has.
        means: H of each, that broadcast to (a, b).
        products: E of each, that broadcast so too.
        masses: (a, b) probabilities.
    """

    whole: FloatArray
    rows: IndexArray
    means: tuple[FloatArray, FloatArray]
    products: tuple[FloatArray, FloatArray]
    masses: FloatArray


def _split_sum(both: _Sum, num_nodes: int) -> _Law:
    """Returns a law on few vectors, with the means of the sum's."""
    means, products, masses = both.sample(2)
    density = _density(means, masses) + _density(products, masses)
    ends = both.smallest(), both.largest(2)[0]
    nodes = _nodes(means, density / 2, num_nodes, ends)
    shares = _shares(nodes, means, products, density, both.tops)
    found = np.zeros(shares.size)
    for part in both.parts():
        cells, lower, upper = _split(nodes, part.whole)
        squares = lower * nodes[cells] ** 2 + upper * nodes[cells + 1] ** 2
        goal = both.product(part)
        goal /= np.maximum(squares, floats.SMALLEST_MASS)[part.rows]
        for near, weights in ((cells, lower), (cells + 1, upper)):
            own = part.masses * weights[part.rows]
            found += _by_shares(shares, near[part.rows], goal, own)
    kept = np.flatnonzero(found)
    rows = kept // shares.shape[1]
    distinct, rows = np.unique(rows, return_inverse=True)
    share = shares.ravel()[kept]
    mass_error, place_error = both.errors()
    return _Law(
        means=nodes[distinct],
        rows=rows,
        products=share * nodes[distinct][rows] ** 2,
        masses=found[kept],
        sizes=both.sizes,
        top=float(share.max()),
        mass_error=mass_error,
        place_error=place_error,
    )


def _by_shares(
    shares: FloatArray, rows: IndexArray, goal: FloatArray, masses: FloatArray
) -> FloatArray:
    """Returns masses split to shares in their rows, (all cells,).

    Args:
        shares: (n, g) values, in each row increasing, from 0 to more than all goals.
        rows: (b,) rows.
        goal: (a, b) values to be kept in the mean.
        masses: (a, b) masses.
    """
    width = shares.shape[1]
    flat = shares.ravel()
    columns = np.zeros(goal.shape, dtype=np.int64)
    for column in range(1, width - 1):
        columns += goal >= shares[rows, column]
    columns += rows * width
    below, above = flat[columns], flat[columns + 1]
    upper = masses * ((goal - below) / (above - below))
    lower = masses * ((above - goal) / (above - below))
    cells = columns.ravel()
    found = sums.gather_quickly(cells, lower.ravel(), shares.size)
    cells += 1
    return found + sums.gather_quickly(cells, upper.ravel(), shares.size)


def _pair_of(both: _Sum, draws: int, infinity_mass: float) -> DominatingPair:
    """Returns the pair of so many draws, its ratios split to nodes."""
    _, ratios, masses = both.sample(draws)
    density = _density(ratios, masses)
    ends = float(ratios[ratios > 0].min()), both.largest(draws)[1]
    nodes = _nodes(ratios, density, _FINAL_NODES, ends)
    weights = both.weights(draws)
    found = np.zeros(nodes.size)
    for part in both.parts():
        ratio = weights.at(part.means, part.products).ravel()
        mass = part.masses.ravel()
        cells, lower, upper = _split(nodes, ratio)
        found += sums.gather_quickly(cells, mass * lower, nodes.size)
        found += sums.gather_quickly(cells + 1, mass * upper, nodes.size)
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
    if not seen.any():
        return np.full(values.size, 1 / values.size)
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
    values: FloatArray, density: FloatArray, size: int, ends: tuple[float, float]
) -> FloatArray:
    """Returns 0, nodes that are dense where values are, and one above the largest."""
    order = np.argsort(values)
    values, density = values[order], density[order]
    high = float(values[-1])
    top = floats.raised(max(ends[1], high))
    low = min(ends[0], high * (1 - 1e-6))
    logs = np.log(np.maximum(values, low))
    even = np.linspace(math.log(low), math.log(high), size // 2)
    places = np.interp(np.linspace(0, 1, size // 2), np.cumsum(density), logs)
    places = np.unique(np.concatenate([even, places]))
    # Of narrower ones the width is that of rounding, and so would the nodes be.
    narrowest = _NARROWEST_WIDTH * (math.log(high) - math.log(low)) / size
    wide = np.diff(places, prepend=-math.inf) > narrowest
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
    nodes: FloatArray,
    means: FloatArray,
    products: FloatArray,
    density: FloatArray,
    tops: tuple[float, float],
) -> FloatArray:
    """Returns (n, g) shares E / H² that are dense where they are at each node.

    Between 0 and the two tops.
    """
    seen = (means > 0) & (products > 0)
    logs = np.log(means[seen])
    highest = math.log(tops[0])
    size = np.minimum(np.log(products[seen]) - 2 * logs, highest)
    limits = (
        (float(logs.min()) - _NARROWEST, float(logs.max())),
        (float(size.min()) - _NARROWEST, highest),
    )
    weights, edges, ends = np.histogram2d(
        logs, size, bins=_BINS, range=limits, weights=density[seen]
    )
    for axis, kernel in enumerate((np.ones(3), np.ones(5))):
        weights = np.apply_along_axis(np.convolve, axis, weights, kernel, "same")
    wanted = np.cbrt(weights)
    wanted += 0.03 * wanted.max(axis=1, keepdims=True) + 1e-9
    known = np.concatenate([np.zeros((_BINS[0], 1)), np.cumsum(wanted, axis=1)], axis=1)
    places = np.linspace(0.0, 1.0, _SHARES + 1)[:-1]
    inner = np.array([np.interp(places * each[-1], each, ends) for each in known])
    centres = (edges[1:] + edges[:-1]) / 2
    at = np.log(np.maximum(nodes, means[seen].min()))
    found = np.exp([np.interp(at, centres, column) for column in inner.T]).T
    zeros = np.zeros((nodes.size, 1))
    return np.concatenate([zeros, found, *(zeros + top for top in tops)], axis=1)
