"""Upper bounds for 2-out-of-t random allocation, tighter than those by blocks.

Divide the steps at random into groups of n_1, …, n_m steps, and draw two steps from
different groups at random. These are two steps drawn at random from all. So the
likelihood ratio of 2-out-of-t allocation is a conditional expectation of
E = Σ_{i<j} n_i n_j B_i B_j / Σ_{i<j} n_i n_j, where B_i is the mean of the ratios in
group i. Let H be the mean of all ratios. For the union of two sets of groups,

    E = a E₁ + b E₂ + c H₁ H₂,

which is linear in the vector (H₁, E₁) of one set, given that of the other. So a vector
may be split into several ones with the same mean: the result then increases in the
convex order.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

DominatingPair = dominating_pair.DominatingPair

# Certified: the largest loss, in nats, so that products of ratios fit a float; and a
# bound on the sum of all products of masses that underflow.
_LARGEST_LOSS, _UNDERFLOW = 200.0, 1e-290
# Certified, in units of rounding: how much each step of the sum adds to the relative
# error of a vector or of a share.
_ROUNDING = 64.0

# Tuning, all of these constants.
# The number of groups, which are combined from two laws of half as many.
_GROUPS = 6
# The numbers of values of H, and of E / H², in a law. (ε of 2 of 10 steps, σ = 1, δ =
# 1e-6: 4.170; with 48 values of E / H² 4.158, in up to twice the time.)
_NODES, _SHARES = 256, 24
_FINAL_NODES = 4096  # The number of ratios of the result.
_BINS = 4095  # Bins of the histogram by which values of H are chosen.


@dataclasses.dataclass(frozen=True)
class GroupLaw:
    """The law of (H, E) for several groups of steps without the record, in (a,) atoms.

    Attributes:
        means: (n,) values of H, at least 0 and increasing.
        rows: (a,) for each atom the index of its value of H, increasing.
        products: (a,) values of E. For a single group they are 0.
        masses: (a,) probabilities of the atoms.
        sizes: Numbers of steps in the groups.
        top: An upper bound on E / H² in all atoms.
        mass_error: Bound on the relative error of a mass.
        place_error: Bound on the relative error of H, and of E.
    """

    means: FloatArray
    rows: IntArray
    products: FloatArray
    masses: FloatArray
    sizes: tuple[int, ...]
    top: float
    mass_error: float
    place_error: float

    @property
    def pairs(self) -> int:
        """Number of pairs of steps in different groups."""
        squares = sum(size**2 for size in self.sizes)
        return (sum(self.sizes) ** 2 - squares) // 2

    @property
    def starts(self) -> IntArray:
        """(n + 1,) index of the first atom of each row, and the number of atoms."""
        return np.searchsorted(self.rows, np.arange(self.means.size + 1))


def two_out_of_t(
    pair: DominatingPair, num_steps: int, *, tail_mass: float
) -> DominatingPair:
    """Returns a pair that dominates 2-out-of-t allocation, in both directions.

    Args:
        pair: An upper bound of one step, n atoms.
        num_steps: Number of steps, t > 2.
        tail_mass: Probability that may be moved to the sinks.

    Source:
        docs/mathematics.md, "k out of t, in twos".
    """
    pair = _moderate(pair)
    if not pair.p_masses.any():
        return dominating_pair.trivial_pair(pair.bound)
    groups = min(_GROUPS, num_steps)
    sizes = tuple((num_steps + index) // groups for index in range(groups))
    laws: dict[tuple[int, ...], GroupLaw] = {}
    sink = 0.0
    for size in set(sizes):
        mean = random_allocation.random_allocation(
            pair, size, accuracy.Accuracy(tail_mass / groups / 2)
        )
        mean = dominating_pair.without_tails(mean, tail_mass / groups / 2)
        laws[size,] = _of_one_group(mean, size)
        sink = max(sink, mean.infinity_mass)
    if not all(law.means.any() for law in laws.values()):
        # The masses of all positive ratios have underflowed.
        return dominating_pair.trivial_pair(pair.bound)
    halves = _Sum(_law(sizes[::2], laws), _law(sizes[1::2], laws))
    # The ratio of a lost output is at most the product of two ratios.
    lost = _UNDERFLOW * float(pair.ratios.max()) ** 2
    sink = floats.raised(sums.probability_of_any([(sink, 2)]) + lost)
    return _pair_of(halves, min(sink, 1.0))


def _moderate(pair: DominatingPair) -> DominatingPair:
    """Returns the pair with ratios beyond e^±200 split into 0 and infinity."""
    is_extreme = np.abs(np.log(pair.ratios)) > _LARGEST_LOSS
    if not is_extreme.any():
        return pair
    # Sums may lose masses that underflow.
    lost_p, lost_q = (
        floats.raised(float(masses[is_extreme].sum()) + floats.SMALLEST_MASS)
        for masses in (pair.p_masses, pair.masses)
    )
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[~is_extreme],
        masses=pair.masses[~is_extreme],
        infinity_mass=min(pair.infinity_mass + lost_p, 1.0),
        zero_mass=min(pair.zero_mass + lost_q, 1.0),
    )


def _law(sizes: tuple[int, ...], laws: dict[tuple[int, ...], GroupLaw]) -> GroupLaw:
    """Returns the law of groups of these sizes, which is added to `laws`."""
    sizes = tuple(sorted(sizes))
    if sizes not in laws:
        halves = _Sum(_law(sizes[::2], laws), _law(sizes[1::2], laws))
        laws[sizes] = _split_sum(halves)
    return laws[sizes]


def _of_one_group(mean: dominating_pair.DominatingPair, size: int) -> GroupLaw:
    """Returns the law of the mean of one group's ratios, with its values at nodes."""
    nodes = _nodes_for(mean.ratios, mean.masses)
    cells, lower, upper = _split_between(nodes, mean.ratios)
    masses = sums.gather(cells, mean.masses * lower, nodes.size)
    masses += sums.gather(cells + 1, mean.masses * upper, nodes.size)
    masses[0] += mean.zero_mass
    has_mass = masses > 0
    count = int(has_mass.sum())
    return GroupLaw(
        means=nodes[has_mass],
        rows=np.arange(count),
        products=np.zeros(count),
        masses=masses[has_mass],
        sizes=(size,),
        top=0.0,
        mass_error=mean.mass_error + _ROUNDING * floats.UNIT_ROUNDOFF,
        place_error=mean.ratio_error + _ROUNDING * floats.UNIT_ROUNDOFF,
    )


def _nodes_for(values: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns nodes from 0 to above the largest value, dense where masses are.

    Args:
        values: (n,) values, at least 0. At least one is positive.
        masses: (n,) their probabilities.
    """
    is_positive = values > 0
    logs = np.log(values[is_positive])
    low, high = float(logs.min()), floats.raised(float(values.max()))
    ends = np.linspace(low, math.log(high), _BINS + 1)
    p = masses * values
    # A law all of whose masses underflow does not count.
    totals = [max(float(law.sum()), floats.SMALLEST_MASS) for law in (masses, p)]
    weights = masses[is_positive] / totals[0] + p[is_positive] / totals[1]
    # Splits cost least if the density of nodes is proportional to the third root of the
    # density of mass. A constant is added for rare values.
    density = np.cbrt(np.histogram(logs, ends, weights=weights)[0])
    density += 0.25 * density.max()
    cumulated = np.append(0.0, np.cumsum(density))
    nodes = np.exp(np.interp(np.linspace(0.0, cumulated[-1], _NODES), cumulated, ends))
    return np.unique(np.concatenate([[0.0], nodes[nodes < high], [high]]))


def _gathered(
    cells: IntArray, lower: FloatArray, upper: FloatArray, size: int
) -> FloatArray:
    """Returns (size,) sums of masses: `lower` in cells, `upper` in the cells after."""
    cells = cells.ravel()
    sums_below = sums.gather_quickly(cells, lower.ravel(), size)
    return sums_below + sums.gather_quickly(cells + 1, upper.ravel(), size)


def _split_between(
    nodes: FloatArray, values: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Returns the index of the node below each value, and the shares of two nodes.

    A value is the mean of the node below it and the next one, with these shares.
    """
    cells = np.searchsorted(nodes, values, side="right") - 1
    np.minimum(cells, nodes.size - 2, out=cells)
    below, above = nodes[cells], nodes[cells + 1]
    gaps = above - below
    return cells, (above - values) / gaps, (values - below) / gaps


class _Sum:
    """The law of (H, E) for the union of two independent sets of groups.

    Args:
        first: The law of the first set.
        second: The law of the second set, which may be the same object.
    """

    def __init__(self, first: GroupLaw, second: GroupLaw) -> None:
        self._laws = first, second
        self.sizes = first.sizes + second.sizes
        steps = sum(first.sizes), sum(second.sizes)
        across = steps[0] * steps[1]
        pairs = first.pairs + across + second.pairs
        # H is a weighted mean of H₁ and H₂, and E one of E₁, E₂ and H₁ H₂.
        self._of_means = steps[0] / sum(steps), steps[1] / sum(steps)
        self._of_both = across / pairs
        self._of_products = first.pairs / pairs, second.pairs / pairs
        # A mass is a sum over all cells of a row, and over all rows.
        widest = int(np.bincount(first.rows).max())
        terms = second.masses.size * widest + first.means.size
        self.errors = {
            "mass_error": floats.raised(first.mass_error + second.mass_error)
            + (4 * terms + _ROUNDING) * floats.UNIT_ROUNDOFF,
            "place_error": first.place_error
            + second.place_error
            + _ROUNDING * floats.UNIT_ROUNDOFF,
        }

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Returns (n, m) values of H for each pair of rows, and their masses."""
        first, second = self._laws
        of_first, of_second = self._of_means
        values = np.add.outer(of_first * first.means, of_second * second.means)
        masses = (np.bincount(law.rows, law.masses) for law in self._laws)
        return values, np.multiply.outer(*masses)

    def _products(
        self,
        means: tuple[FloatArray | float, FloatArray],
        products: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Returns E of the union from H and E of both sets."""
        of_first, of_second = self._of_products
        added = self._of_both * means[0] * means[1] + of_second * products[1]
        return of_first * products[0] + added

    def ends(self) -> tuple[float, float]:
        """Returns about the smallest positive E, and an upper bound on the largest."""
        first, second = self._laws
        smallest = (
            float(law.means[law.means > 0].min(initial=math.inf)) for law in self._laws
        )
        largest = self._products(
            (first.means[-1:], second.means[-1:]),
            (first.products.max(keepdims=True), second.products.max(keepdims=True)),
        )
        return math.prod(smallest) / 8, floats.raised(float(largest[0]))

    def tops(self) -> tuple[float, float]:
        """Returns two bounds on E / H².

        The first holds for the exact law, by Maclaurin's inequality, but splits may
        exceed it. The second also holds after splits: it is twice the largest quotient
        of a term of E and the same term of H².
        """
        of_first, of_second = self._of_means
        first, second = self._laws
        groups, steps = len(self.sizes), sum(self.sizes)
        pairs = (steps**2 - sum(size**2 for size in self.sizes)) // 2
        limit = (groups - 1) / groups * steps**2 / (2 * pairs)
        largest = max(
            limit,
            self._of_both / (2 * of_first * of_second),
            self._of_products[0] * first.top / of_first**2,
            self._of_products[1] * second.top / of_second**2,
        )
        return limit, 2 * largest

    def parts(self) -> Iterator[tuple[int, IntArray, FloatArray, FloatArray]]:
        """Yields each row of the first law with the atoms of the second.

        If both laws are the same object, each pair of different rows comes once, with
        twice its mass.

        Yields:
            The row of the first law, with a atoms; (b,) rows of the second, one for
            each atom; (a, b) values of E; and (a, b) probabilities.
        """
        first, second = self._laws
        starts, others_start = first.starts, second.starts
        for index, mean in enumerate(first.means.tolist()):
            own = slice(*starts[[index, index + 1]])
            others = slice(others_start[index] if first is second else 0, None)
            rows, masses = second.rows[others], second.masses[others]
            if first is second:
                masses = np.where(rows > index, 2 * masses, masses)
            products = self._products(
                (mean, second.means[rows]),
                (first.products[own, np.newaxis], second.products[others]),
            )
            yield index, rows, products, first.masses[own, np.newaxis] * masses


def _split_sum(halves: _Sum) -> GroupLaw:
    """Returns the law of a union with fewer atoms.

    Each vector (H, E) is replaced by several from a grid, with the same mean.
    """
    means, weights = halves.means()
    nodes = _nodes_for(means.ravel(), weights.ravel())
    cells, lower, upper = _split_between(nodes, means)
    # The mean of H² after H is split: E is this times a value of E / H², also split.
    squares = lower * nodes[cells] ** 2 + upper * nodes[cells + 1] ** 2
    squares = np.maximum(squares, floats.SMALLEST_MASS)
    limit, top = halves.tops()
    # E / H² is near the limit if all groups have nearly the same mean. So values are
    # dense there. The least positive one is about e^−100 of the limit.
    depths = 0.1 * np.expm1(np.linspace(0.0, 7.0, _SHARES))
    shares = np.concatenate([[0.0], limit * np.exp(-depths[::-1]), [top]])
    summed = np.zeros(nodes.size * shares.size)
    for row, rows, products, masses in halves.parts():
        columns, low, high = _split_between(shares, products / squares[row, rows])
        columns += cells[row, rows] * shares.size
        for weight in (lower, upper):
            own = masses * weight[row, rows]
            summed += _gathered(columns, own * low, own * high, summed.size)
            columns += shares.size
    places = np.flatnonzero(summed)
    rows, columns = np.divmod(places, shares.size)
    distinct, rows = np.unique(rows, return_inverse=True)
    return GroupLaw(
        means=nodes[distinct],
        rows=rows,
        products=shares[columns] * nodes[distinct][rows] ** 2,
        masses=summed[places],
        sizes=halves.sizes,
        top=float(shares[columns].max()),
        **halves.errors,
    )


def _pair_of(halves: _Sum, infinity_mass: float) -> DominatingPair:
    """Returns the pair of all draws, with its ratios split between nodes."""
    smallest, largest = halves.ends()
    if not largest > 0:  # The masses of all other ratios have underflowed.
        return dominating_pair.trivial_pair(Bound.UPPER)
    nodes = np.append(0.0, np.geomspace(smallest, largest, _FINAL_NODES))
    summed = np.zeros(nodes.size)
    for _, _, products, masses in halves.parts():
        cells, lower, upper = _split_between(nodes, products)
        summed += _gathered(cells, masses * lower, masses * upper, summed.size)
    has_mass = summed[1:] > 0
    return DominatingPair(
        nodes[1:][has_mass],
        summed[1:][has_mass],
        infinity_mass=infinity_mass,
        zero_mass=min(float(summed[0]) + _UNDERFLOW, 1.0),
        bound=Bound.UPPER,
        mass_error=halves.errors["mass_error"],
        ratio_error=halves.errors["place_error"],
    )
