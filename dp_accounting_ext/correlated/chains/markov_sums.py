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
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import state_moves
from dp_accounting_ext.correlated.chains import sum_additions
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats

Chain = markov_chain.Chain

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
    """

    places: FloatArray
    masses: FloatArray
    lost_mean: float
    lost_mass: float
    lifted_mass: float
    mass_error: float


class _Side(NamedTuple):
    """The laws of the sum on one side of a step, given the state at that step.

    Attributes:
        rows: The states that are given. The others have no law.
        masses: (n, l) The masses of the chain's places, given each state.
        lost_mass: (n,) Bounds on the probability that is not in `masses`.
        lost_mean: (n,) Bounds on the part of the sum's mean that is not in `masses`.
        lifted: (n,) Bounds on the probability that was lifted to the lowest state.
    """

    rows: slice
    masses: FloatArray
    lost_mass: FloatArray
    lost_mean: FloatArray
    lifted: FloatArray

    def whole(self) -> FloatArray:
        """Returns (n,) total masses, including the mass that was lost."""
        return np.asarray(self.masses.sum(axis=1) + self.lost_mass)


def upper_sum(chain: Chain) -> SumLaw:
    """Returns a law above that of the chain's sum.

    Given the middle state, the sums on both sides of it are independent. The law of a
    side's sum given the state is computed by a recursion from the end of the chain to
    its middle. Both sides have the same law.

    Guarantees:
        Let the masses be raised by their error, and the places by `place_error`. Let S
        be the true sum. Then E (S − k)₊ is at most Σ masses · (places − k)₊ plus
        `lost_mean`. If the places are also divided by e^{drift}, then E (k − S)₊ is at
        most Σ masses · (k − places)₊ plus k times the lost and lifted masses.
    """
    count, half = chain.states.size, (chain.length + 1) // 2
    variances = chain.variances()[:half].tolist()
    rows = chain.likely_rows(variances[0])
    nothing = np.zeros((count, chain.places.size))
    nothing[:, 0] = 1.0
    without = _Side(rows, nothing, *np.zeros((3, count)))
    side = _without_small(chain, _added(chain, [], without), variances[0])
    terms = 2 * (chain.factors.size + 1)
    additions: list[sum_additions.Addition] = []
    if half > 2:
        blocks = range(0, count, markov_chain.ROWS)
        ends = [slice(start, min(start + markov_chain.ROWS, count)) for start in blocks]
        additions = [sum_additions.Addition.of(chain, block) for block in ends]
        most_terms = max(terms, *(each.most_terms for each in additions))
    else:
        most_terms = terms * chain.places.size
    known: tuple[float, float, slice] | None = None
    # One of the sides contains the middle step. The other one has half of the steps,
    # rounded down.
    inward = [*variances[1:], *variances[-1:]][: chain.length // 2]
    for steps, (outer, inner) in enumerate(zip(variances, inward, strict=False), 1):
        if known != (outer, inner, side.rows):
            known = outer, inner, side.rows
            rows = chain.likely_rows(inner)
            moves = state_moves.moves_outward(chain, rows, inner, side.rows, outer)
        without = _moved(rows, moves, side, steps)
        if steps < half:
            side = _without_small(chain, _added(chain, additions, without), inner)
    operations = count + most_terms + 16
    error = operations * floats.UNIT_ROUNDOFF + 2 * state_moves.QUADRATURE_ERROR
    return _joined(chain, variances[-1], side, without, error)


def _joined(
    chain: Chain, variance: float, side: _Side, without: _Side, error: float
) -> SumLaw:
    """Returns the law of the sum of both sides of the middle.

    Args:
        chain: The chain.
        variance: The variance of the middle state.
        side: The side that contains the middle step.
        without: The other side.
        error: A bound on the relative error of masses that one step adds.
    """
    start = state_moves.moves_of(chain, slice(0, 1), 0.0, 1.0, variance, side.rows)
    middle = start.matrix[0]
    lost_mass = float(start.above[0])
    lost_mean = chain.length * float(start.ratio_above[0])
    lifted = float(start.below[0])
    kept = side.masses.sum(axis=1)
    gone = kept * without.lost_mass + side.lost_mass * without.whole()
    lost_mass += float(middle @ gone)
    for one, other in ((side, without), (without, side)):
        totals = one.masses @ chain.places
        gone = one.lost_mean * other.whole() + totals * other.lost_mass
        lost_mean += float(middle @ gone)
        lifted += float(middle @ (one.lifted * other.whole()))
    masses, most_terms = _both(chain.places, middle, side.masses, without.masses)
    places = 2 * chain.places
    small = masses < markov_chain.SMALLEST_MASS
    lost_mass += float(masses[small].sum())
    lost_mean += float(masses[small] @ places[small])
    mass_error = (chain.length + 2) * error + most_terms * floats.UNIT_ROUNDOFF
    law = SumLaw(
        places=places,
        masses=np.where(small, 0.0, masses),
        lost_mean=floats.raised(lost_mean),
        lost_mass=floats.raised(lost_mass),
        lifted_mass=floats.raised(lifted),
        mass_error=mass_error,
    )
    _check_above(chain, law)
    return law


def _both(
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
    found, terms = np.zeros(places.size), np.zeros(places.size, np.int64)
    goals = 2 * places
    for start in range(0, places.size, markov_chain.ROWS):
        rows = slice(start, start + markov_chain.ROWS)
        sums = places[rows, np.newaxis] + places
        low = np.searchsorted(goals, sums.ravel(), side="right") - 1
        np.minimum(low, places.size - 2, out=low)
        share = (sums.ravel() - goals[low]) / (goals[low + 1] - goals[low])
        np.clip(share, 0.0, 1.0, out=share)
        masses = joint[rows].ravel()
        upper = masses * share
        found += np.bincount(low, masses - upper, places.size)
        found[1:] += np.bincount(low, upper, places.size)[:-1]
        terms += np.bincount(low, minlength=places.size)
    return found / _SCALE**2, 2 * int(
        terms.max()
    ) + places.size // markov_chain.ROWS + 8


def _added(
    chain: Chain, additions: Sequence[sum_additions.Addition], side: _Side
) -> _Side:
    """Returns a side whose sum also contains the step of the given state.

    Args:
        chain: The chain.
        additions: What a step adds, for all states; or nothing, to compute it anew.
        side: The side without this step.
    """
    lost_mean = side.lost_mean + floats.raised(1.0) * chain.ratios * side.lost_mass
    if not additions:
        masses, gone = sum_additions.added_once(chain, side.masses, side.rows)
        return side._replace(masses=masses, lost_mean=lost_mean + gone)
    masses = np.zeros_like(side.masses)
    for addition in additions:
        if (
            addition.rows.start < side.rows.stop
            and side.rows.start < addition.rows.stop
        ):
            lost_mean[addition.rows] += addition.apply(side.masses, masses)
    return side._replace(masses=masses, lost_mean=lost_mean)


def _without_small(chain: Chain, side: _Side, variance: float) -> _Side:
    """Returns a side without the small masses, which are counted as lost.

    Args:
        chain: The chain.
        side: The side. Its array of masses is written to.
        variance: The variance of the given state.
    """
    masses = side.masses
    likely = chain.likelihoods(variance)[:, np.newaxis]
    least = np.maximum(
        chain.least_masses / np.maximum(likely, floats.TINY), markov_chain.SMALLEST_MASS
    )
    small = masses < least
    cleared = np.where(small, masses, 0.0)
    masses[small] = 0.0
    return side._replace(
        lost_mass=side.lost_mass + cleared.sum(axis=1),
        lost_mean=side.lost_mean + cleared @ chain.places,
    )


def _moved(rows: slice, moves: state_moves.Moves, side: _Side, steps: int) -> _Side:
    """Returns the laws of a side, given the state one step nearer to the middle.

    Args:
        rows: The states that are given then.
        moves: The moves from these states to those that `side` is given.
        side: The laws given the state further from the middle.
        steps: The number of steps in the side.
    """
    masses = np.zeros_like(side.masses)
    occupied = np.flatnonzero(side.masses.any(axis=0))
    used = slice(int(occupied[0]), int(occupied[-1]) + 1)
    moves.apply(side.masses[:, used], out=masses[rows, used])
    lost_mass, lost_mean, lifted = np.zeros((3, len(masses)))
    lost_mass[rows] = moves.above + moves.matrix @ side.lost_mass
    lost_mean[rows] = steps * moves.ratio_above + moves.matrix @ side.lost_mean
    lifted[rows] = moves.below + moves.matrix @ side.lifted
    return _Side(rows, masses, lost_mass, lost_mean, lifted)


def times(
    chain: Chain,
    law: SumLaw,
    factors: FloatArray,
    probabilities: FloatArray,
    lost: float,
) -> SumLaw:
    """Returns a law above that of a chain's sum times an independent factor.

    Args:
        chain: The chain.
        law: A law above that of the chain's sum.
        factors: (m,) The values of the factor, increasing and positive.
        probabilities: (m,) Their probabilities. The factor is 0 with the remaining
            probability.
        lost: A bound on the amount by which the factor's mean is below one.
    """
    values = np.outer(law.places, np.append(factors, 0.0))
    moved, above = sum_additions.split(law.places, values, probabilities)
    terms = int(np.diff(moved.indptr).max()) + 16
    gone = float(law.masses @ (above + lost * law.places))
    found = dataclasses.replace(
        law,
        masses=moved @ law.masses,
        lost_mean=law.lost_mean + floats.raised(gone),
        mass_error=law.mass_error + terms * floats.UNIT_ROUNDOFF,
    )
    _check_above(chain, found)
    return found


def _check_above(chain: Chain, law: SumLaw) -> None:
    """Checks that a law above that of a chain's sum has lost neither mass nor mean.

    Splitting and lifting can only raise them.

    Raises:
        MassError: If the mass is below one, or the mean below the number of steps.
    """
    error = law.mass_error + markov_chain.place_error(chain) + _CHECKED
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
        chain.length,
        chain.length * error,
        more=math.inf,
    )
