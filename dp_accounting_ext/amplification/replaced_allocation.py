"""Random allocation of Gaussian noise, if one record replaces another.

One of several steps is drawn. Step i moves its noise by s_i with the old record and by
−s_i with the new one; with some probability no step is drawn, and nothing moves. With
independent y_i ~ N(0, 1), X_i = e^{s_i y_i − s_i²/2} and X′_i = e^{−s_i y_i − s_i²/2},
let

    S = w₀ + Σ w_i X_i,   S′ = w₀ + Σ w_i X′_i,   H_κ(P‖Q) = E (S − κ S′)₊,

where w_i is the probability of step i and w₀ that of no step. No two records have a
larger divergence (docs/mathematics.md, "A replaced record under random allocation"). By
symmetry the profile for κ ≥ 1 determines the whole profile.

Let F_j(c) = E (S − κ_j S′ + c)₊: for each κ_j, the law of one sum of independent
variables gives it for all c. Upper bounds: for κ = α κ₁ + (1 − α) κ₂ with 0 ≤ α ≤ 1,
and for any m, since the positive part is convex,

    H_κ ≤ α F₁(−m (κ − κ₁)) + (1 − α) F₂(m (κ₂ − κ)).

The error of this is at most of the order of (κ₂ − κ₁)² times the variance of S′ around
m, so that a few κ_j are enough. Lower bounds: the sum S − κ_j S′, rounded to cells, is
a statistic of the outputs. The probabilities of its cells with either record are sums
of positive terms, and tests of it are tests of the mechanism. More κ_j are added as
long as they improve the bounds.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
from typing import TypeVar

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import scores
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

DominatingPair = dominating_pair.DominatingPair

# A limit: with larger shifts there are outputs whose densities do not fit a float.
LARGEST_SHIFT = 12.0
# Certified: errors in units of rounding.
EXPONENTIAL = 24  # Of an exponential, besides that of its exponent.
_THRESHOLD = 64  # Of a threshold, which is a sum of a few products.
SHIFT, _CHANCE = 8, 16  # Of a shift, and of a probability.
# Certified: the relative error of sums of thousands of masses and of rounded
# probabilities; and more than the mass that `_BELOW` adds.
_CHECKED, _MOST_RAISED = 1e-12, 1e-7
# Certified: the factor by which the mass below all cells is raised.
_BELOW = 1 + 1e-9

# Tuning, all of these constants.
# The probability, over all steps, of noise below all cells.
RARE = 1e-6
# The values of m that are tried, relative to the mean of S′.
_MEANS = np.array([[0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1]]).T
_PLACES = 2048  # The number of κ at which the profile is computed.
_LARGEST_GAP = 4e-4  # The gap between bounds at these κ, relative to ε.
_MOST = 48  # The largest number of κ_j.
_USUAL = -14.0  # Where ln δ is lower, bounds may be further apart.
_LEAST_LOSS = 1e-14  # The smallest loss at which the profile is computed.


@dataclasses.dataclass(frozen=True)
class Steps:
    """Several equal steps.

    Attributes:
        shift: How far a record moves the noise, in standard deviations, in (0, 12].
        probability: The probability that a given one of the steps is drawn.
        count: The number of steps.
    """

    shift: float
    probability: float
    count: int


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Steps one of which is drawn. All probabilities sum to one.

    Attributes:
        steps: The steps.
        null_probability: The probability that the outputs do not depend on the record.
        infinity_mass: The probability that the outputs reveal the record.
    """

    steps: tuple[Steps, ...]
    null_probability: float
    infinity_mass: float


def upper_pair(allocation: Allocation, *, tail_mass: float) -> DominatingPair:
    """Returns a pair that dominates the allocation with a record replaced.

    Args:
        allocation: The steps.
        tail_mass: The probability that may be moved to the sinks.

    Guarantees:
        H(P‖Q) and H(Q‖P) of the result are at least those of any two records, which may
        contribute adaptively, at every κ ≥ 0.

    Source:
        docs/mathematics.md, "A replaced record under random allocation".
    """
    losses = _losses_of(allocation, tail_mass)
    laws = _refined(
        losses,
        lambda kappa: _Above(allocation, kappa, tail_mass),
        lambda laws, kappa: float(_smallest_bound(laws, np.array([kappa]))[0]),
        tail_mass,
    )
    kappas = np.exp(losses)
    values = _smallest_bound(laws, kappas) + floats.raised(allocation.infinity_mass)
    return _with_errors(profile_pairs.symmetric(kappas, np.minimum(values, 1.0)))


def lower_pair(allocation: Allocation, *, tail_mass: float) -> DominatingPair:
    """Returns a pair that is dominated by the allocation with a record replaced.

    Args:
        allocation: The steps.
        tail_mass: The probability of the rarest outputs that are considered.

    Guarantees:
        H(P‖Q) and H(Q‖P) of the result are at most those of an old record at s_i and a
        new one at −s_i, at every κ ≥ 0.
    """
    losses = _losses_of(allocation, tail_mass)
    laws = _refined(
        losses,
        lambda kappa: _Below(allocation, kappa, tail_mass),
        _largest_bound,
        tail_mass,
    )
    tests = np.concatenate([law.tests for law in laws], axis=1)
    return _with_errors(profile_pairs.symmetric_below(tests, allocation.infinity_mass))


def _with_errors(pair: DominatingPair) -> DominatingPair:
    """Returns the pair with the errors of probabilities, which both laws have."""
    return dataclasses.replace(
        pair,
        mass_error=pair.mass_error + _CHANCE * floats.UNIT_ROUNDOFF,
        ratio_error=pair.ratio_error + 2 * _CHANCE * floats.UNIT_ROUNDOFF,
    )


def _ends(steps: Steps, total: int, tail_mass: float) -> tuple[float, float]:
    """Returns the interval of the noise in which outputs are considered one by one.

    Args:
        steps: The steps.
        total: The number of steps of all kinds.
        tail_mass: The probability that P may have above the interval.
    """
    low = float(special.ndtri(RARE / total))
    high = steps.shift - float(special.ndtri(tail_mass / total))
    return max(low, steps.shift - gaussian.FURTHEST), min(
        high, gaussian.FURTHEST - steps.shift
    )


class _Above:
    """An upper law of S − κ S′ for one κ, as that of Σ r_i (X_i / κ − X′_i).

    Args:
        allocation: The steps. r_i is the probability of a step over the largest one.
        kappa: κ ≥ 1.
        tail_mass: The probability that may be lost.
    """

    def __init__(self, allocation: Allocation, kappa: float, tail_mass: float) -> None:
        self.kappa = kappa
        unit = max(step.probability for step in allocation.steps)
        self._null_probability = allocation.null_probability / unit
        self._mean = (1 - allocation.infinity_mass) / unit
        summed = _sum_of(allocation, kappa, tail_mass, Bound.UPPER)
        law = summed.law
        self._nodes = summed.values + law.ratio_error * np.abs(summed.values)
        self._masses = summed.masses[0]
        self._infinity_mass, self._zero_mass = law.infinity_mass, law.zero_mass
        terms = 2 * (summed.values.size + 16) * floats.UNIT_ROUNDOFF
        self._factor = unit * kappa * math.exp(law.mass_error + terms)

    def value(self) -> float:
        """Returns the upper bound at κ_j itself."""
        return float(self.values(np.array([self.kappa])).min())

    def values(self, kappas: FloatArray) -> FloatArray:
        """Returns upper bounds on E (S − κ_j S′ + m (κ_j − κ))₊.

        Args:
            kappas: (n,) κ.

        Returns:
            (k, n) bounds, a row for each m.
        """
        moved = self._mean * _MEANS * (self.kappa - kappas) / self.kappa
        constant = self._null_probability * (self.kappa - 1) / self.kappa
        places = constant - moved
        places -= (
            _THRESHOLD * floats.UNIT_ROUNDOFF * (self._null_probability + np.abs(moved))
        )
        divergences = profile_pairs.values_at(
            places, self._nodes, self._masses, self._infinity_mass
        )
        # What was lost counts with the positive part of its threshold.
        divergences += self._zero_mass * np.maximum(-places, 0.0)
        bounds: FloatArray = self._factor * divergences
        return bounds


def _smallest_bound(laws: Sequence[_Above], kappas: FloatArray) -> FloatArray:
    """Returns (n,) upper bounds at (n,) κ between the first and the last κ_j.

    Args:
        laws: Upper laws, with increasing κ_j.
        kappas: (n,) κ, increasing.
    """
    bounds = np.ones(kappas.size)
    for low, high in itertools.pairwise(laws):
        is_between = (kappas >= low.kappa) & (kappas <= high.kappa)
        between = kappas[is_between]
        width = high.kappa - low.kappa
        # A row for each m.
        means = (high.kappa - between) / width * low.values(between)
        means += (between - low.kappa) / width * high.values(between)
        # Either share, and its product with a bound, has a few roundings.
        bounds[is_between] = np.minimum(
            bounds[is_between], means.min(axis=0) * (1 + 32 * floats.UNIT_ROUNDOFF)
        )
    decreasing: FloatArray = np.minimum.accumulate(bounds)
    return decreasing


class _Below:
    """Tests of the sum Σ r_i (X_i / κ − X′_i), rounded to cells.

    Args:
        allocation: As in `_Above`.
        kappa: As in `_Above`.
        tail_mass: As in `_Above`.

    Attributes:
        kappa: As in `_Above`.
        tests: (2, n) probabilities under P and Q, as of `scores.tests_of`.
    """

    def __init__(self, allocation: Allocation, kappa: float, tail_mass: float) -> None:
        self.kappa = kappa
        unit = max(step.probability for step in allocation.steps)
        summed = _sum_of(allocation, kappa, tail_mass, Bound.LOWER)
        masses, q, p = summed.masses
        p = unit * p + allocation.null_probability * masses
        q = unit * q + allocation.null_probability * masses
        self.tests = scores.tests_of(p, q, summed.law.mass_error)

    def value(self) -> float:
        """Returns the lower bound at κ_j itself."""
        return _largest_bound([self], self.kappa)


def _largest_bound(laws: Sequence[_Below], kappa: float) -> float:
    """Returns the largest lower bound on the divergence at κ."""
    return max(float((law.tests[0] - kappa * law.tests[1]).max()) for law in laws)


def _atoms(
    noise: gaussian.NormalCells,
    shift: float,
    kappa: float,
    weight: float,
    bound: Bound,
) -> lattice_law.Atoms:
    """Returns the law of one step's term of the sum.

    Args:
        noise: The cells of the noise.
        shift: How far the record moves the noise.
        kappa: κ ≥ 1.
        weight: The factor of the term.
        bound: The side. In an upper law each cell is split between its ends, and the
            mass below all cells goes to the first end; every rounding raises a term, or
            moves mass to the higher end.
    """
    base, q, p = noise.masses
    if bound is Bound.LOWER:
        law = lattice_law.Law(
            lattice_law.Axis.RATIO,
            bound,
            mass_error=noise.mass_error,
            row_error=noise.mass_error,
            degrees=(0, 1, 3),
        )
        values = np.sort(weight * (p / kappa - q) / base)
        rows = np.array([base, weight * q, weight * p])
        return lattice_law.Atoms(law, values, rows)
    exponents = shift * noise.ends
    old, new = np.exp(exponents - shift**2 / 2), np.exp(-exponents - shift**2 / 2)
    terms = old / kappa - new
    off = (EXPONENTIAL + 4 * (np.abs(exponents) + shift**2)) * floats.UNIT_ROUNDOFF
    off = off * (old / kappa + new)
    mean = (p / kappa - q + 3 * noise.mass_error * (p / kappa + q)) / base
    # If the ends are equal up to rounding, all mass goes to the higher one.
    width = np.diff(terms) - off[1:] - off[:-1]
    share = np.ones_like(mean)
    np.divide(mean - terms[:-1] + off[:-1], width, out=share, where=width > 0)
    share = np.clip(share * (1 + 8 * floats.UNIT_ROUNDOFF), 0.0, 1.0)
    masses = np.append(base * (1 - share), 0.0)
    masses[1:] += base * share
    masses[0] += float(special.ndtr(noise.ends[0])) * _BELOW
    beyond, _, beyond_p = noise.above.tolist()
    law = lattice_law.Law(
        lattice_law.Axis.RATIO,
        bound,
        infinity_mass=floats.raised(weight * beyond_p / kappa),
        zero_mass=floats.raised(beyond),
        mass_error=noise.mass_error,
    )
    values = np.maximum.accumulate(weight * (terms + off))
    return lattice_law.Atoms(law, values, masses[np.newaxis])


def _sum_of(
    allocation: Allocation, kappa: float, tail_mass: float, bound: Bound
) -> lattice_law.Atoms:
    """Returns the law of Σ r_i (X_i / κ − X′_i)."""
    number = sum(step.count for step in allocation.steps)
    unit = max(step.probability for step in allocation.steps)
    parts, means = [], []
    for steps in allocation.steps:
        sign = 1 if bound is Bound.UPPER else -1
        shift = steps.shift * (1 + sign * SHIFT * floats.UNIT_ROUNDOFF)
        low, high = _ends(steps, number, tail_mass)
        noise = gaussian.NormalCells.of((0.0, -shift, shift), low, high)
        probability = steps.probability / unit
        make = functools.partial(_atoms, noise, shift, kappa, probability, bound)
        parts.append((make, steps.count))
        means.append(steps.count * probability * _kept_mean(noise, shift, kappa))
    tail = max(tail_mass / (unit * kappa), floats.SMALLEST_MASS)
    accurate = dataclasses.replace(accuracy.Accuracy(tail), cells=accuracy.SCORE_CELLS)
    summed = law_sums.sum_of(parts, bound, accurate)
    if bound is Bound.UPPER:
        _check_above(summed, math.fsum(means))
    return summed


def _kept_mean(noise: gaussian.NormalCells, shift: float, kappa: float) -> float:
    """Returns the mean of X / κ − X′ over noise that is not above the last cell.

    Noise below all cells counts as the lower end of the first cell. The value there is
    negative and large, so the mass there must be exactly that of the law.
    """
    low, high = float(noise.ends[0]), float(noise.ends[-1])
    old, new = special.ndtr([[high - shift, low - shift], [high + shift, low + shift]])
    first = math.exp(shift * low - shift**2 / 2) / kappa
    first -= math.exp(-shift * low - shift**2 / 2)
    inside = (old[0] - old[1]) / kappa - (new[0] - new[1])
    return float(inside + first * special.ndtr(low) * _BELOW)


def _check_above(summed: lattice_law.Atoms, mean: float) -> None:
    """Checks that an upper law of Σ r_i (X_i / κ − X′_i) lost neither mass nor mean.

    Both may only be raised; what is lost is in the sinks.

    Args:
        summed: The law.
        mean: The exact mean over noise that is not above all cells.

    Raises:
        MassError: If the law has less mass, or a lower mean.
    """
    law, masses = summed.law, summed.masses[0]
    error = law.mass_error + law.ratio_error + _CHECKED
    conservation.check_total(
        "masses of a sum for replaced records",
        float(masses.sum()) + law.zero_mass,
        1.0,
        error,
        more=_MOST_RAISED + law.zero_mass,
    )
    conservation.check_total(
        "means of a sum for replaced records",
        sums.dot(masses, summed.values) + law.infinity_mass,
        mean,
        error * (1 + sums.dot(masses, np.abs(summed.values)) + abs(mean)),
        more=math.inf,
    )


def _deviation(allocation: Allocation) -> float:
    """Returns the standard deviation of S, computed so that no square underflows."""
    return math.hypot(
        *(
            step.probability * math.sqrt(step.count * math.expm1(step.shift**2))
            for step in allocation.steps
        )
    )


LawAt = TypeVar("LawAt", _Above, _Below)


def _losses_of(allocation: Allocation, tail_mass: float) -> FloatArray:
    """Returns (n,) losses from 0 up to where the profile has hardly any mass."""
    deviations = -float(special.ndtri(tail_mass))
    highest = 0.0
    for steps in allocation.steps:
        # The loss if the outputs of one step are large, and the loss if that step is
        # known to be drawn.
        large = steps.shift * (deviations + steps.shift / 2)
        of_large = float(np.logaddexp(0.0, large + math.log(steps.probability))) + 2
        of_known_step = 2 * steps.shift * (deviations + steps.shift)
        highest = max(highest, min(of_large, of_known_step))
    highest = min(max(highest, 100 * _LEAST_LOSS), floats.LARGEST_LOSS)
    # If the standard deviation of S is small, it is about that of the loss. Losses far
    # below it need no places of their own.
    deviation = min(_deviation(allocation), 1.0)
    lowest = max(min(deviation / 16, highest / 100), _LEAST_LOSS)
    return np.append(0.0, np.geomspace(lowest, highest, _PLACES))


def _refined(
    losses: FloatArray,
    sum_at: Callable[[float], LawAt],
    bound: Callable[[Sequence[LawAt], float], float],
    tail_mass: float,
) -> list[LawAt]:
    """Returns sums for a few κ_j that determine a profile between them.

    An interval is halved as long as the bound by the sum at its middle is far from the
    bound by the sums at its ends. The halves are assumed to be twice as accurate.

    Args:
        losses: (n,) losses, increasing from 0, at which the profile is computed.
        sum_at: The function from κ_j to its sum.
        bound: The function from sums and κ to the bound there.
        tail_mass: Where the profile is below this it may be loose.
    """
    first = losses[-1] * np.array([0.0, 1 / 16, 1 / 4, 1.0])
    places = np.searchsorted(losses, first).tolist()
    laws = {place: sum_at(math.exp(losses[place])) for place in places}
    # Intervals by the indices of their ends, with the gaps between bounds inside.
    waiting = [(math.inf, x, y) for x, y in itertools.pairwise(places)]
    while waiting and len(laws) < _MOST:
        waiting.sort()
        gap, low, high = waiting.pop()
        half = (losses[low] + losses[high]) / 2
        middle = int(np.searchsorted(losses, half))
        if gap <= _LARGEST_GAP:
            break
        if middle in (low, high):
            continue
        kappa = math.exp(losses[middle])
        by_ends = bound([laws[low], laws[high]], kappa)
        laws[middle] = sum_at(kappa)
        at_low, by_middle = laws[low].value(), laws[middle].value()
        gap = math.inf
        if min(at_low, by_ends, by_middle) > 0:
            # ln δ is lower by about `fall` at an ε that is e times as large. So this is
            # about a relative gap of ε. Bounds may rise with κ, as profiles do not.
            fall = max(math.log(at_low / by_middle), 0.0) / (half - losses[low]) * half
            gap = abs(math.log(by_ends / by_middle)) / (1 + fall) / 2
            # Losses at which the profile is very small are rarely asked for.
            gap /= max(1.0, math.log(by_middle) / _USUAL) ** 2
        waiting.append((gap, low, middle))
        if by_middle > tail_mass:
            waiting.append((gap, middle, high))
    return [laws[place] for place in sorted(laws)]
