"""Laws above that of a sum along a Gaussian Markov chain, in the convex order.

The chain is x_1 ~ N(0, 1), x_{i+1} = r x_i + s ξ with r² + s² = 1. Each step adds
e^{a x_i − a²/2} W_i to a sum S, where the factors W_i are independent and have the
mean one. Both x and S are kept on grids. A value between two grid points, which are
called states for x and places for S, is split: it is moved to one of the two at random,
so that its mean stays the same. If φ is convex and increasing, then E φ(S) is convex in
x and in S. So splitting can only increase it.

Near both ends the variance of x may be larger than one. At the ends it is larger by the
excess e, and by the factor r² less at each step away from them. Each step still adds
the mean one.

There is one recursion, from an end of the chain inward: the law of the sum of the steps
so far, given the state at the last of them. It is used twice. Given the state in the
middle of the chain, the sums on both sides are independent. And if S is multiplied by
1 − p before each step, it is the sum over the steps in which a record may take part if
it is ready at the last of them.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_steps
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats

Grids = markov_chain.Grids

# Certified: a bound on the relative rounding error of sums of thousands of masses.
_CHECKED = 1e-11

# Masses are scaled by this power of two before two small ones are multiplied.
_SCALE = 2.0**500


@dataclasses.dataclass(frozen=True)
class SumLaw:
    """A law that is above that of a sum.

    Attributes:
        places: (l,) The values of the sum, increasing from 0.
        masses: (l,) Their masses.
        lost_mean: A bound on the part of the sum's mean that is not in `masses`.
        lost_mass: A bound on the probability that is not in `masses`.
        lifted_mass: A bound on the probability that the state was below the grid and
            was lifted to the lowest state.
        mass_error: A bound on the relative rounding error of any mass.
        mean: The mean of the true sum.
    """

    places: FloatArray
    masses: FloatArray
    lost_mean: float
    lost_mass: float
    lifted_mass: float
    mass_error: float
    mean: float


class _Side(NamedTuple):
    """The laws of the sum on one side of a step, given the state at that step.

    Attributes:
        rows: The states that are given. The others have no law.
        masses: (n, l) The masses of the chain's places, given each state.
        lost_mass: (n,) Bounds on the probability that is not in `masses`.
        lost_mean: (n,) Bounds on the part of the sum's mean that is not in `masses`.
        lifted: (n,) Bounds on the probability that was lifted to the lowest state.
        error: A bound on the relative error of masses that one step adds.
    """

    rows: slice
    masses: FloatArray
    lost_mass: FloatArray
    lost_mean: FloatArray
    lifted: FloatArray
    error: float

    def whole(self) -> FloatArray:
        """Returns (n,) total masses, including the mass that was lost."""
        return np.asarray(self.masses.sum(axis=1) + self.lost_mass)


def upper_sum(grids: Grids) -> SumLaw:
    """Returns a law above that of the sum of all steps of a chain.

    Guarantees:
        Let the masses be raised by their error, and the places by `place_error`. Let S
        be the true sum. Then E (S − k)₊ is at most Σ masses · (places − k)₊ plus
        `lost_mean`. If the places are also divided by e^{drift}, then E (k − S)₊ is at
        most Σ masses · (k − places)₊ plus k times the lost and lifted masses.
    """
    length = grids.chain.length
    half, is_odd = (length + 1) // 2, length % 2 == 1
    variances = grids.chain.variances()[:half]
    if not is_odd:
        # Of two middle steps, one is in either side. They are equally variable.
        variances = np.append(variances, variances[-1])
    previous: _Side | None = None
    last: _Side | None = None
    for without, side in _sides(grids, variances, 1.0):
        previous, last, other = last, side, without
    with_middle = last if is_odd else previous
    assert with_middle is not None
    return _joined(grids, float(variances[-1]), with_middle, other)


def upper_sums(grids: Grids, decay: float) -> list[SumLaw]:
    """Returns laws above those of the sums of the last 1, 2, … steps of a chain.

    Each sum is multiplied by `decay`, at most 1, before a step adds its ratio.

    Guarantees:
        Those of `upper_sum`, for every sum.
    """
    variances, laws = grids.chain.variances(), []
    for steps, (_, side) in enumerate(_sides(grids, variances, decay), 1):
        state = _law_of_state(grids, float(variances[steps - 1]), side.rows)
        masses = state.matrix[0]
        lost_mass = float(state.above[0] + masses @ side.lost_mass)
        lost_mean = steps * float(state.ratio_above[0])
        lost_mean += float(masses @ side.lost_mean)
        law = _law(
            grids,
            grids.places,
            masses @ side.masses,
            lost_mean=lost_mean,
            lost_mass=lost_mass,
            lifted_mass=float(state.below[0] + masses @ side.lifted),
            mass_error=(grids.chain.length + 2) * side.error,
            mean=float(np.power(decay, np.arange(steps)).sum()),
        )
        laws.append(law)
    return laws


def _sides(
    grids: Grids, variances: FloatArray, decay: float
) -> Iterator[tuple[_Side, _Side]]:
    """Yields the laws of sums, given the state at each step from an end inward.

    Args:
        grids: The chain with its grids.
        variances: The variance of each step from the end.
        decay: What a sum is multiplied by before each step, at most 1.

    Yields:
        The laws without and with the step.
    """
    count = grids.states.size
    rows = grids.likely_rows(float(variances[0]))
    nothing = np.zeros((count, grids.places.size))
    nothing[:, 0] = 1.0
    addition = chain_steps.Addition.of(grids, decay)
    error = (count + addition.most_products + 16) * floats.UNIT_ROUNDOFF
    error += 2 * chain_steps.QUADRATURE_ERROR
    zeros = np.zeros(count)
    without = _Side(rows, nothing, zeros, zeros, zeros, error)
    moved_by: tuple[float, float, slice] | None = None
    side, outer = without, math.nan
    for steps, inner in enumerate(variances.tolist()):
        if steps:
            if moved_by != (outer, inner, side.rows):
                moved_by = outer, inner, side.rows
                rows = grids.likely_rows(inner)
                moves = chain_steps.moves_outward(grids, rows, inner, side.rows, outer)
            without = _moved(moves, side, steps)
        if inner != outer:
            least = grids.least_masses(inner)
        side, outer = (
            _without_small(grids, _added(grids, addition, without), least),
            inner,
        )
        yield without, side


def _law_of_state(grids: Grids, variance: float, rows: slice) -> chain_steps.Moves:
    """Returns the law of a state of this variance, as moves from no state."""
    return chain_steps.moves_of(grids, slice(0, 1), 0.0, 1.0, variance, rows)


def _joined(grids: Grids, variance: float, side: _Side, without: _Side) -> SumLaw:
    """Returns the law of the sum of both sides of the middle.

    Args:
        grids: The chain with its grids.
        variance: The variance of the middle state.
        side: The side that contains the middle step.
        without: The other side.
    """
    length = grids.chain.length
    state = _law_of_state(grids, variance, side.rows)
    middle = state.matrix[0]
    lost_mass = float(state.above[0])
    lost_mean = length * float(state.ratio_above[0])
    lifted = float(state.below[0])
    computed = side.masses.sum(axis=1)
    lost = computed * without.lost_mass + side.lost_mass * without.whole()
    lost_mass += float(middle @ lost)
    for one, other in ((side, without), (without, side)):
        means = one.masses @ grids.places
        lost = one.lost_mean * other.whole() + means * other.lost_mass
        lost_mean += float(middle @ lost)
        lifted += float(middle @ (one.lifted * other.whole()))
    masses, most_terms = _sum_of_sides(
        grids.places, middle, side.masses, without.masses
    )
    return _law(
        grids,
        2 * grids.places,
        masses,
        lost_mean=lost_mean,
        lost_mass=lost_mass,
        lifted_mass=lifted,
        mass_error=(length + 2) * side.error + most_terms * floats.UNIT_ROUNDOFF,
        mean=float(length),
    )


def _law(
    grids: Grids,
    places: FloatArray,
    masses: FloatArray,
    *,
    lost_mean: float,
    lost_mass: float,
    lifted_mass: float,
    mass_error: float,
    mean: float,
) -> SumLaw:
    """Returns a law, rounded up and checked. Small masses are counted as lost."""
    small = masses < markov_chain.SMALLEST_MASS
    law = SumLaw(
        places=places,
        masses=np.where(small, 0.0, masses),
        lost_mean=floats.raised(lost_mean + float(masses[small] @ places[small])),
        lost_mass=floats.raised(lost_mass + float(masses[small].sum())),
        lifted_mass=floats.raised(lifted_mass),
        mass_error=mass_error,
        mean=mean,
    )
    _check_above(grids, law)
    return law


def _sum_of_sides(
    places: FloatArray, middle: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, int]:
    """Returns the law of the sum of two sides, split between twice the places.

    Args:
        places: (l,) The places, increasing from 0.
        middle: (n,) The masses of the middle state.
        first: (n, l) The masses of the first side's places, given the middle state.
        second: (n, l) The masses of the second side's places.

    Returns:
        (l,) the masses of the places 2 · places, and the largest number of terms of one
        of these masses.
    """
    # The scale keeps products of two small masses from underflow.
    roots = np.sqrt(middle)[:, np.newaxis] * _SCALE
    joint = (first * roots).T @ (second * roots)
    split, terms = np.zeros(places.size), np.zeros(places.size, np.int64)
    doubled = 2 * places
    for start in range(0, places.size, markov_chain.ROWS):
        rows = slice(start, start + markov_chain.ROWS)
        sums = places[rows, np.newaxis] + places
        low = np.searchsorted(doubled, sums.ravel(), side="right") - 1
        np.minimum(low, places.size - 2, out=low)
        share = (sums.ravel() - doubled[low]) / (doubled[low + 1] - doubled[low])
        np.clip(share, 0.0, 1.0, out=share)
        masses = joint[rows].ravel()
        upper = masses * share
        split += np.bincount(low, masses - upper, places.size)
        split[1:] += np.bincount(low, upper, places.size)[:-1]
        terms += np.bincount(low, minlength=places.size)
    most_terms = 2 * int(terms.max()) + places.size // markov_chain.ROWS + 8
    return split / _SCALE**2, most_terms


def _added(grids: Grids, addition: chain_steps.Addition, side: _Side) -> _Side:
    """Returns a side whose sum also contains the step of the given state.

    Args:
        grids: The chain with its grids.
        addition: What a step adds.
        side: The side without this step.
    """
    masses, lost = addition.apply(side.masses)
    lost += side.lost_mean + floats.raised(1.0) * grids.ratios * side.lost_mass
    return side._replace(masses=masses, lost_mean=lost)


def _without_small(grids: Grids, side: _Side, least: FloatArray) -> _Side:
    """Returns a side without the small masses, which are counted as lost.

    Args:
        grids: The chain with its grids.
        side: The side. Its array of masses is written to.
        least: (n, l) The least masses that are kept.
    """
    masses = side.masses
    small = masses < least
    cleared = np.where(small, masses, 0.0)
    masses[small] = 0.0
    return side._replace(
        lost_mass=side.lost_mass + cleared.sum(axis=1),
        lost_mean=side.lost_mean + cleared @ grids.places,
    )


def _moved(outward: list[chain_steps.Outward], side: _Side, steps: int) -> _Side:
    """Returns the laws of a side, given the state one step nearer to the middle.

    Args:
        outward: The moves from the states that are given then.
        side: The laws given the state further from the middle.
        steps: The number of steps in the side.
    """
    masses = np.zeros_like(side.masses)
    occupied = np.flatnonzero(side.masses.any(axis=0))
    used = slice(int(occupied[0]), int(occupied[-1]) + 1)
    lost_mass, lost_mean, lifted = np.zeros((3, len(masses)))
    for rows, reached, moves in outward:
        matrix = moves.matrix
        np.matmul(matrix, side.masses[reached, used], out=masses[rows, used])
        lost_mass[rows] = moves.above + matrix @ side.lost_mass[reached]
        lost_mean[rows] = steps * moves.ratio_above + matrix @ side.lost_mean[reached]
        lifted[rows] = moves.below + matrix @ side.lifted[reached]
    rows = slice(outward[0].rows.start, outward[-1].rows.stop)
    return _Side(rows, masses, lost_mass, lost_mean, lifted, side.error)


def times(
    grids: Grids, laws: Sequence[SumLaw], shared: float, *, tail_mass: float
) -> tuple[list[SumLaw], float]:
    """Returns laws above those of a chain's sums times an independent factor.

    Args:
        grids: The chain with its grids.
        laws: Laws above those of sums, which have the same places.
        shared: The factor is e^{g − B/2} for g ~ N(0, B), where B is this number.
        tail_mass: The probability that may be lost on either side of the factor.

    Returns:
        The laws, and a bound on the relative error of the factor's probabilities.
    """
    width = markov_chain.width_of_factors(shared)
    factors, probabilities, lost, error = markov_chain.factors(shared, width, tail_mass)
    factors, probabilities = chain_steps.with_zero(factors, probabilities)
    places = laws[0].places
    totals = factors[:, np.newaxis] * places
    moved = chain_steps.splits(places, totals.ravel())
    above = probabilities @ np.maximum(totals - places[-1], 0.0)
    terms = int(np.bincount(moved.indices).max()) + 16
    products = []
    for law in laws:
        lost_mean = float(law.masses @ (above + lost * places))
        masses = moved @ np.outer(probabilities, law.masses).ravel()
        products.append(
            dataclasses.replace(
                law,
                masses=masses,
                lost_mean=law.lost_mean + floats.raised(lost_mean),
                mass_error=law.mass_error + terms * floats.UNIT_ROUNDOFF,
            )
        )
        _check_above(grids, products[-1])
    return products, error


def _check_above(grids: Grids, law: SumLaw) -> None:
    """Checks that a law above that of a chain's sum has lost neither mass nor mean.

    Splitting and lifting can only raise them.

    Raises:
        MassError: If the mass is below one, or the mean below that of the true sum.
    """
    error = law.mass_error + grids.place_error + _CHECKED
    conservation.check_total(
        "masses of a chain's sum",
        float(law.masses.sum()) + law.lost_mass,
        1.0,
        error,
        more=math.inf,
    )
    conservation.check_total(
        "means of a chain's sum",
        float(law.masses @ law.places) + law.lost_mean,
        law.mean,
        law.mean * error,
        more=math.inf,
    )
