"""Lower bounds for groups under random allocation of Gaussian noise.

Each of g members independently takes part in one of several steps, or, with some
probability, in none. All members move the noise of step i by s_i in one direction: with
j of them in the step it is N(j s_i, 1). Let f_{i,j} be the law of some statistic of the
step's noise in this case, w_i the probability of step i, and w₀ that of no step. The
sum of the statistics of all steps then has the laws

    Q: Π f_{i,0},   P: g! [z^g] e^{w₀ z} Π (Σ_j f_{i,j} (w_i z)^j / j!)

where all products are convolutions of positive terms. The statistic is the logarithm of
Σ_n (λ w_i)^n e^{n s_i y_i − n² s_i²/2} / n! for some λ, rounded to cells. The sum is
then the logarithm of the likelihood ratio if the number of members were random with
mean λ (`allocated_group_above`).
"""

import functools
import math

import numpy as np
from scipy import optimize
from scipy import special

from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification.k_of_t import bound_cells
from dp_accounting_ext.amplification.k_of_t import step_laws
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import normal_cells
from dp_accounting_ext.pairs import profile_pairs

Accuracy = accuracy.Accuracy
SCORE_CELLS = accuracy.SCORE_CELLS
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair

# Certified, in units of rounding: the error of a value that is computed from a mass and
# probabilities; and the error of a term of h_i, or of a value computed from such terms.
_MASS, _TERMS = 32, 64
# Certified: an upper bound on the sum of all masses that underflow.
_TINY = 1e-260
# A limit: further members are assumed to contribute nothing.
MOST_MEMBERS = 64
# Tuning: the largest probability that some step has more members than floats allow.
CROWDED = 0.01


def lower_pairs(
    allocation: replaced_allocation.Allocation, members: int, accuracy: Accuracy
) -> DirectedPairs:
    """Returns lower pairs of an allocation from which a group of records is removed.

    Args:
        allocation: The steps, none of which has infinite losses.
        members: The size of the group, at least 2. At most 64 members contribute
            anything, and fewer do if each of them moves the noise far.
        accuracy: The probability of the rarest outputs that are considered, and the δ
            for which the scores are tuned.

    Guarantees:
        H(P‖Q) of the first pair, and H(Q‖P) of the second one, are at most those of
        members who all move the noise in one direction, at every κ ≥ 0.

    Source:
        docs/mathematics.md, "Groups under random allocation, from below".
    """
    tail_mass = accuracy.tail_mass
    members, together = counted_members(allocation, members)
    rate = members / 2
    if len(allocation.steps) == 1:
        (steps,) = allocation.steps
        # λ is chosen for this δ.
        exponent = max(-math.log(accuracy.frequent_delta), 4.0)
        rate, _ = rate_and_tilt(steps, allocation.null_probability, members, exponent)
    parts = [
        (
            functools.partial(_atoms, each, members, together, rate, tail_mass),
            each.count,
        )
        for each in allocation.steps
    ]
    # At most `tail_mass` is left out for each number of members.
    share = Accuracy(tail_mass / (8 * (members + 1))).with_cells(SCORE_CELLS)
    law = law_sums.sum_of(parts, Bound.LOWER, share, both=False)
    error = law.mass_error + (_MASS + 4 * members) * floats.UNIT_ROUNDOFF
    q = law.masses[0]
    p, fewer = (
        _mixed(law.masses, members * allocation.null_probability, members, number)
        for number in (members, together)
    )
    leave = _in_floats(p, q)
    ratios = (p / np.maximum(q, floats.SMALLEST_MASS))[leave]
    order = np.argsort(ratios, kind="stable")
    remove = DominatingPair(
        ratios[order],
        q[leave][order],
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=error,
        ratio_error=2 * error,
    )
    # Some of P's mass was left out, so the true probability under P may be larger.
    lost = tail_mass + _TINY
    join = q > floats.SMALLEST_MASS
    gains, costs = q[join], fewer[join]
    order = np.argsort(costs / gains, kind="stable")
    tests = np.array([np.cumsum(gains[order]), np.cumsum(costs[order]) + lost])
    rounding = 2 * (order.size + 16) * floats.UNIT_ROUNDOFF
    tests *= np.exp([[-rounding], [rounding]])
    add = profile_pairs.pair_below(
        tests[:, tests[1] <= floats.lowered(1.0)],
        mass_error=error,
        ratio_error=2 * error,
    )
    return DirectedPairs(remove, dominating_pair.dual(add))


def _mixed(
    masses: FloatArray, null_probability: float, members: int, number: int
) -> FloatArray:
    """Returns the (n,) masses of P if a number of members takes part in the steps.

    Args:
        masses: (members + 1, n) coefficients of the sum over the steps.
        null_probability: The Poisson mean of the number of members in no step, if the
            total number of members has mean `members`.
        members: The sum of the Poisson means of all steps and of no step.
        number: The number of members.
    """
    nowhere = [_power(null_probability, number - j) for j in range(number + 1)]
    # The numbers of members in the steps are Poisson variables, given their sum.
    total = np.einsum("j,jn->n", np.array(nowhere), masses[: number + 1])
    found: FloatArray = total / _power(members, number)
    return found


def _in_floats(p: FloatArray, q: FloatArray) -> BoolArray:
    """Returns which of (n,) masses and of their quotients fit a float."""
    fit = (p > floats.SMALLEST_MASS) & (q > floats.SMALLEST_MASS)
    with np.errstate(divide="ignore", invalid="ignore"):  # Where a mass is zero.
        return np.asarray(fit & (np.abs(np.log(p) - np.log(q)) <= floats.LARGEST_LOSS))


def counted_members(
    allocation: replaced_allocation.Allocation, members: int
) -> tuple[int, int]:
    """Returns how many members a lower bound counts, in all and in any one step.

    If many members move the noise of one step, masses do not fit a float. So a lower
    bound counts only as many members as are rarely too many in one step. This number
    does not decrease as the group grows.

    Args:
        allocation: The steps.
        members: The size of the group.
    """
    furthest = max(each.shift for each in allocation.steps)
    together = int(2 * replaced_allocation.LARGEST_SHIFT / furthest)
    numbers = np.arange(1, min(members, MOST_MEMBERS) + 1)
    crowded = sum(
        each.count * special.bdtrc(together, numbers, min(each.probability, 1.0))
        for each in allocation.steps
    )
    few = (crowded <= CROWDED) | (numbers <= together)
    return int(numbers[few][-1]), min(together, int(numbers[few][-1]))


def _power(rate: float, number: int) -> float:
    """Returns rate^number / number!, with a relative error of number + 4 roundings."""
    return rate**number / math.factorial(number)


def _atoms(
    steps: replaced_allocation.Steps,
    members: int,
    together: int,
    rate: float,
    tail_mass: float,
) -> lattice_law.Atoms:
    """Returns the laws of one step's statistic, one row for each number of members.

    Args:
        steps: The steps.
        members: The number of members.
        together: The largest number of them in this step. Larger numbers are left out.
        rate: The mean λ of the number of members.
        tail_mass: The probability that may lie beyond the cells.
    """
    shift = steps.shift * (1 - replaced_allocation.SHIFT * floats.UNIT_ROUNDOFF)
    deviations = -float(special.ndtri(tail_mass / steps.count))
    low = max(-deviations, together * shift - normal_cells.FURTHEST)
    high = min(together * shift + deviations, normal_cells.FURTHEST)
    cells = normal_cells.NormalCells.of(
        [j * shift for j in range(together + 1)], low, high
    )
    weight = members * steps.probability
    masses = np.zeros((members + 1, cells.masses.shape[1]))
    for number, row in enumerate(cells.masses):
        masses[number] = _power(weight, number) * row
    masses[masses < floats.TINY] = 0.0
    middles = (cells.ends[:-1] + cells.ends[1:]) / 2
    values, _, _ = counted(middles, steps, rate)
    return lattice_law.Atoms(
        lattice_law.Axis.RATIO,
        Bound.LOWER,
        values,
        masses,
        mass_error=cells.mass_error + (_MASS + 4 * members) * floats.UNIT_ROUNDOFF,
        row_error=cells.mass_error,
        degrees=tuple(range(members + 1)),
    )


def rate_and_tilt(
    steps: replaced_allocation.Steps,
    null_probability: float,
    members: int,
    exponent: float,
) -> tuple[float, float]:
    """Returns the λ and the tilt of L that suit a δ.

    Under the law of L with this tilt, the mean number of members in all steps is g. The
    profile at the mean of L is then about δ.

    Args:
        steps: The steps.
        null_probability: The probability that a member is in no step.
        members: The number of members g.
        exponent: The approximate −ln δ.
    """
    # This is a rough law of the noise. It suffices for up to three members in one step,
    # as more are rare.
    ends = np.linspace(-7.0, min(7.0 + 3 * steps.shift, normal_cells.FURTHEST), 160)
    weights = np.exp(-(ends**2) / 2)
    weights /= weights.sum()
    before = -1.0, math.log(members), 0.0
    for rate in (members * np.geomspace(0.82, 1e-4, 46)).tolist():
        first, variances, _ = counted(ends, steps, rate)
        # The derivative of L with respect to ln λ is the mean number of members.
        means = np.gradient(first, ends) / steps.shift
        goal = (members - rate * null_probability) / steps.count
        tilt = _tilt_for_mean(weights, first, means, goal)
        if tilt is None:
            break
        log, tilted = step_laws.tilted(weights, (1 + tilt) * first)
        mean = sums.dot(tilted, first)
        spread = math.sqrt(steps.count * sums.dot(tilted, (first - mean) ** 2))
        variance = steps.count * sums.dot(tilted, variances) + rate * null_probability
        here = steps.count * (tilt * mean - log) + math.log1p(2.5 * tilt * spread)
        here += math.log1p(tilt) + log_poisson(members, rate)
        here += float(bound_cells.log_reciprocal(np.array([variance]))[0])
        after = here, math.log(rate), tilt
        if here > exponent:
            # Interpolate between the last two, by their exponents.
            share = (exponent - before[0]) / (here - before[0])
            log, tilt = (
                x + share * (y - x) for x, y in zip(before[1:], after[1:], strict=True)
            )
            return math.exp(log), tilt
        before = after
    return math.exp(before[1]), before[2]


def _tilt_for_mean(
    weights: FloatArray, first: FloatArray, means: FloatArray, goal: float
) -> float | None:
    """Returns the tilt of L at which the mean number of members is `goal`, or None."""

    def excess(log_tilt: float) -> float:
        _, tilted = step_laws.tilted(weights, (1 + math.exp(log_tilt)) * first)
        return sums.dot(tilted, means) - goal

    low, high = -6.0, 7.0
    if excess(high) < 0:
        return None
    if excess(low) >= 0:
        return 0.0
    return math.exp(float(optimize.brentq(excess, low, high, xtol=0.01)))


def log_poisson(members: int, rate: float) -> float:
    """Returns ln Pois(g; λ), the logarithm of a Poisson probability."""
    return members * math.log(rate) - rate - math.log(math.factorial(members))


def counted(
    places: FloatArray, steps: replaced_allocation.Steps, rate: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns ln h_i(λ) − λ w_i, and the variance of the number of members in a step.

    Both are as in `allocated_group_above`.

    Args:
        places: (n,) values of the step's noise.
        steps: The steps.
        rate: The mean λ of the number of members.

    Returns:
        (n,) values, (n,) variances, and a bound on the absolute error of a value.
    """
    shift, log_rate = steps.shift, math.log(rate * steps.probability)
    top = max(float(places[-1]), 0.0)
    # From this n on, each term is at most 1 / e of the one before.
    number = 1
    while log_rate - math.log(number) + shift * top - (number - 0.5) * shift**2 > -1:
        number += 1 + number // 8
    counts = np.arange(number + 40.0)[:, np.newaxis]
    factorials = np.cumsum(np.log(np.maximum(counts, 1.0)), axis=0)
    logs = counts * log_rate - factorials - (counts * shift) ** 2 / 2
    exponents = logs + counts * shift * places
    largest = exponents.max(axis=0)
    weights = np.exp(exponents - largest)
    total = weights.sum(axis=0)
    mean = (counts * weights).sum(axis=0) / total
    variances = ((counts - mean) ** 2 * weights).sum(axis=0) / total
    size = float((np.abs(counts * log_rate) + factorials + counts * shift * top).max())
    off = (_TERMS + 8 * size + 4 * counts.size) * floats.UNIT_ROUNDOFF
    values = largest + np.log(total) - rate * steps.probability
    return np.maximum.accumulate(values), variances * (1 - off), off
