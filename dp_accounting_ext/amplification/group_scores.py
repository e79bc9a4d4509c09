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
mean λ (`group_counts`).
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import group_counts
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

Accuracy = accuracy.Accuracy
_CELLS = accuracy.SCORE_CELLS
DirectedPairs = dominating_pair.DirectedPairs

# Certified, in units of rounding: the error of a value that is computed from a mass and
# probabilities.
_MASS = 32
# Certified: an upper bound on the sum of all masses that underflow.
_TINY = 1e-260
# A limit: further members are assumed to contribute nothing.
MOST_MEMBERS = 64
# Tuning: the largest probability that some step has more members than floats allow.
_CROWDED = 0.01


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
        rate, _ = group_counts.rate_and_tilt(
            steps, allocation.null_probability, members, exponent
        )
    parts = [
        (
            functools.partial(_atoms, step, members, together, rate, tail_mass),
            step.count,
        )
        for step in allocation.steps
    ]
    # At most `tail_mass` is left out for each number of members.
    share = dataclasses.replace(accuracy.shared(8 * (members + 1)), cells=_CELLS)
    summed = law_sums.sum_of(parts, Bound.LOWER, share)
    error = summed.law.mass_error + (_MASS + 4 * members) * floats.UNIT_ROUNDOFF
    q = summed.masses[0]
    p, fewer = (
        _mixed(summed.masses, members * allocation.null_probability, members, number)
        for number in (members, together)
    )
    leave = scores.tests_of(p, q, error)
    # Some of P's mass was left out, so the true probability under P may be larger.
    join = scores.tests_of(q, fewer, error)
    join[1] += tail_mass + _TINY
    remove, add = (
        profile_pairs.pair_below(tests[:, tests[1] <= floats.lowered(1.0)])
        for tests in (leave, join)
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
    mixed: FloatArray = total / _power(members, number)
    return mixed


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
    furthest = max(step.shift for step in allocation.steps)
    together = int(2 * replaced_allocation.LARGEST_SHIFT / furthest)
    numbers = np.arange(1, min(members, MOST_MEMBERS) + 1)
    crowded = sum(
        step.count * special.bdtrc(together, numbers, min(step.probability, 1.0))
        for step in allocation.steps
    )
    fits = (crowded <= _CROWDED) | (numbers <= together)
    return int(numbers[fits][-1]), min(together, int(numbers[fits][-1]))


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
    low = max(-deviations, together * shift - gaussian.FURTHEST)
    high = min(together * shift + deviations, gaussian.FURTHEST)
    cells = gaussian.NormalCells.of([j * shift for j in range(together + 1)], low, high)
    weight = members * steps.probability
    masses = np.zeros((members + 1, cells.masses.shape[1]))
    for number, row in enumerate(cells.masses):
        masses[number] = _power(weight, number) * row
    masses[masses < floats.TINY] = 0.0
    middles = (cells.ends[:-1] + cells.ends[1:]) / 2
    terms, _ = group_counts.counted(middles, steps, rate)
    law = lattice_law.Law(
        lattice_law.Axis.RATIO,
        Bound.LOWER,
        mass_error=cells.mass_error + (_MASS + 4 * members) * floats.UNIT_ROUNDOFF,
        row_error=cells.mass_error,
        degrees=tuple(range(members + 1)),
    )
    return lattice_law.Atoms(law, terms.losses, masses)
