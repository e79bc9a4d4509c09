"""Upper bounds for 2-out-of-t random allocation, tighter than those by blocks.

Divide the steps at random into groups of n_1, …, n_m steps, and draw two steps from
different groups at random. These are two steps drawn at random from all. So the
likelihood ratio of 2-out-of-t allocation is a conditional expectation of

    E = Σ_{i<j} n_i n_j B_i B_j / Σ_{i<j} n_i n_j,

where B_i is the mean of the ratios in group i. Groups are added one by one. Let H be
the mean of the ratios in some groups. With a further group, H and E become linear
functions of the vector (H, E), given the mean of that group. So a vector may be split
into several ones with the same mean: the result then increases in the convex order.
"""

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

# Certified: the largest loss, in nats, so that products of two ratios fit a float; and
# a bound on the sum of all products of masses that underflow.
_LARGEST_LOSS, _UNDERFLOW = 200.0, 1e-290
# Certified, in units of rounding: how much each group adds to the relative error of a
# vector or of a share.
_ROUNDING = 64.0

# Tuning, all of these constants: the number of groups; of values of H; of values of
# E / H²; of bins of the histogram by which values of H are chosen; and of ratios.
_GROUPS, _NODES, _SHARES, _BINS, _RATIOS = 5, 256, 48, 4095, 4096


@dataclasses.dataclass(frozen=True)
class _Law:
    """The law of (H, E) for some groups of steps without the record.

    Attributes:
        means: Values of H, at least 0; of a law with few vectors (r, 1), increasing.
        products: (r, c) values of E, several for each H.
        masses: (r, c) probabilities.
        steps: The number of steps in the groups.
        pairs: The number of pairs of steps in different groups.
        mass_error: A bound on the relative error of a mass.
        place_error: A bound on the relative error of H, and of E.
    """

    means: FloatArray
    products: FloatArray
    masses: FloatArray
    steps: int
    pairs: int
    mass_error: float
    place_error: float

    @classmethod
    def of_group(cls, mean: DominatingPair, size: int) -> "_Law":
        """Returns the law of one group, from the pair of the mean of its ratios."""
        nodes = _nodes_for(mean.ratios, mean.masses)
        cells, lower, upper = _split(nodes, mean.ratios)
        masses = _gathered(cells, mean.masses * lower, mean.masses * upper, nodes.size)
        masses[0] += mean.zero_mass
        rounding = _ROUNDING * floats.UNIT_ROUNDOFF
        return cls(
            nodes[:, np.newaxis],
            np.zeros((nodes.size, 1)),
            masses[:, np.newaxis],
            size,
            0,
            mean.mass_error + rounding,
            mean.ratio_error + rounding,
        )

    def with_group(self, group: "_Law") -> "_Law":
        """Returns the law with one more group: (r, c, n) vectors of H and E."""
        steps, ways = self.steps + group.steps, self.steps * group.steps
        pairs = self.pairs + ways
        means, products = self.means[..., np.newaxis], self.products[..., np.newaxis]
        others = group.means[:, 0]
        # Each mass of a split law is a sum over no more than all vectors.
        terms = np.count_nonzero(self.masses) * np.count_nonzero(group.masses)
        return _Law(
            (self.steps * means + group.steps * others) / steps,
            (self.pairs * products + ways * means * others) / pairs,
            self.masses[..., np.newaxis] * group.masses[:, 0],
            steps,
            pairs,
            self.mass_error
            + group.mass_error
            + (terms + _ROUNDING) * floats.UNIT_ROUNDOFF,
            self.place_error + group.place_error + _ROUNDING * floats.UNIT_ROUNDOFF,
        )

    def with_few_vectors(self) -> "_Law":
        """Returns the law split onto fewer vectors, which keeps its mean."""
        nodes = _nodes_for(self.means.ravel(), self.masses.sum(axis=1).ravel())
        cells, lower, upper = _split(nodes, self.means)
        squares = lower * nodes[cells] ** 2 + upper * nodes[cells + 1] ** 2
        shares = self.products / np.maximum(squares, floats.SMALLEST_MASS)
        # E / H² is near its limit if all groups have nearly the same mean. So values
        # are dense there. The least positive one is about e^−100 of the limit.
        limit = floats.raised(float(shares.max()))
        depths = 0.1 * np.expm1(np.linspace(0.0, 7.0, _SHARES))
        places = np.append(0.0, limit * np.exp(-depths[::-1]))
        columns, low, high = _split(places, shares)
        found = np.zeros(nodes.size * places.size)
        for row, weight in ((cells, lower), (cells + 1, upper)):
            own = weight * self.masses
            at = columns + row * places.size
            found += _gathered(at, own * low, own * high, found.size)
        return dataclasses.replace(
            self,
            means=nodes[:, np.newaxis],
            products=np.multiply.outer(nodes**2, places),
            masses=found.reshape(nodes.size, places.size),
        )


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
    number = min(_GROUPS, num_steps)
    sizes = [(num_steps + index) // number for index in range(number)]
    groups: dict[int, _Law] = {}
    sink = 0.0
    for size in set(sizes):
        share = tail_mass / number / 2
        mean = random_allocation.random_allocation(pair, size, accuracy.Accuracy(share))
        mean = dominating_pair.without_tails(mean, share)
        groups[size] = _Law.of_group(mean, size)
        sink = max(sink, mean.infinity_mass)
    law = groups[sizes[0]]
    for size in sizes[1:-1]:
        law = law.with_group(groups[size])
        if not (law.products > 0)[law.masses > 0].any():
            # The masses of all positive ratios have underflowed.
            return dominating_pair.trivial_pair(Bound.UPPER)
        law = law.with_few_vectors()
    # The ratio of a lost output is at most the product of two ratios.
    lost = _UNDERFLOW * float(pair.ratios.max()) ** 2
    sink = floats.raised(sums.probability_of_any([(sink, 2)]) + lost)
    return _pair_of(law.with_group(groups[sizes[-1]]), min(sink, 1.0))


def _moderate(pair: DominatingPair) -> DominatingPair:
    """Returns the pair with huge and tiny ratios split into 0 and infinity."""
    gone = np.abs(np.log(pair.ratios)) > _LARGEST_LOSS
    if not gone.any():
        return pair
    # Sums may lose masses that underflow.
    lost_p, lost_q = (
        floats.raised(float(masses[gone].sum()) + floats.SMALLEST_MASS)
        for masses in (pair.p_masses, pair.masses)
    )
    return dataclasses.replace(
        pair,
        ratios=pair.ratios[~gone],
        masses=pair.masses[~gone],
        infinity_mass=min(pair.infinity_mass + lost_p, 1.0),
        zero_mass=min(pair.zero_mass + lost_q, 1.0),
    )


def _pair_of(law: _Law, infinity_mass: float) -> DominatingPair:
    """Returns the pair of all groups, with its ratios split between nodes."""
    seen = law.products[(law.products > 0) & (law.masses > 0)]
    if not seen.size:  # The masses of all other ratios have underflowed.
        return dominating_pair.trivial_pair(Bound.UPPER)
    ends = float(seen.min()), floats.raised(float(law.products.max()))
    nodes = np.append(0.0, np.geomspace(*ends, _RATIOS))
    cells, lower, upper = _split(nodes, law.products)
    found = _gathered(cells, law.masses * lower, law.masses * upper, nodes.size)
    kept = found[1:] > 0
    return DominatingPair(
        nodes[1:][kept],
        found[1:][kept],
        infinity_mass=infinity_mass,
        zero_mass=min(float(found[0]) + _UNDERFLOW, 1.0),
        bound=Bound.UPPER,
        mass_error=law.mass_error,
        ratio_error=law.place_error,
    )


def _nodes_for(values: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns nodes from 0 to above the largest value, dense where masses are.

    Args:
        values: (n,) values, at least 0. At least one is positive.
        masses: (n,) their probabilities.
    """
    seen = values > 0
    logs, weights = np.log(values[seen]), masses[seen]
    low, high = float(logs.min()), floats.raised(float(values.max()))
    ends = np.linspace(low, math.log(high), _BINS + 1)
    p = weights * values[seen]
    # If all masses of a law underflow, this law has no influence on the nodes.
    wholes = [max(float(law.sum()), floats.SMALLEST_MASS) for law in (weights, p)]
    density = weights / wholes[0] + p / wholes[1]
    # Splits cost least if the density of nodes is proportional to the third root of the
    # density of mass. A constant is added for rare values.
    wanted = np.cbrt(np.histogram(logs, ends, weights=density)[0])
    wanted += 0.25 * wanted.max()
    known = np.append(0.0, np.cumsum(wanted))
    nodes = np.exp(np.interp(np.linspace(0.0, known[-1], _NODES), known, ends))
    return np.unique(np.concatenate([[0.0], nodes[nodes < high], [high]]))


def _split(
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


def _gathered(
    cells: IntArray, lower: FloatArray, upper: FloatArray, size: int
) -> FloatArray:
    """Returns (size,) sums of masses: `lower` in cells, `upper` in the cells after."""
    cells = cells.ravel()
    found = sums.gather_quickly(cells, lower.ravel(), size)
    return found + sums.gather_quickly(cells + 1, upper.ravel(), size)
