"""Privacy amplification by random allocation: each record in one of t steps."""

from collections.abc import Sequence
import dataclasses
import functools

from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import law_sums

Accuracy = accuracy.Accuracy
Axis = lattice_law.Axis
DominatingPair = dominating_pair.DominatingPair


@dataclasses.dataclass(frozen=True)
class Steps:
    """Several steps with the same pair.

    Attributes:
        pair: Any realization of one of the steps.
        count: The number of steps.
        weight: The weight of each of them relative to other steps: a block of two bins
            has weight 2.
    """

    pair: DominatingPair
    count: int
    weight: int = 1


def random_allocation(
    pair: DominatingPair, num_steps: int, accuracy: Accuracy
) -> DominatingPair:
    """Returns the pair of 1-out-of-t random allocation.

    Z = (X_1 + … + X_t) / t, where X_i are independent copies of the step's ratio. This
    serves both directions, and keeps infinity_mass.

    Args:
        pair: Any realization of one step, with n atoms; upper or lower.
        num_steps: The number of steps t ≥ 1.
        accuracy: The probability that may be moved to the sinks (of an upper bound) or
            dropped (of a lower one), and the resolution of sums.

    Guarantees:
        An upper (lower) pair of the step gives an upper (lower) pair of the allocation.

    Source:
        https://arxiv.org/abs/2602.17284, Lemma 2.7, Claim 2.9 and Theorem 4.4;
        Theorem 4.6 and Remark 4.7 for the computation.
    """
    steps = [Steps(pair, num_steps)]
    return uneven_allocation(steps, accuracy)


def uneven_allocation(steps: Sequence[Steps], accuracy: Accuracy) -> DominatingPair:
    """Returns the pair of 1-out-of-t allocation over steps that differ.

    Args:
        steps: The steps, all upper or all lower. The sum of their weights is t.
        accuracy: As in `random_allocation`.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 4.4, whose proof also holds for steps
        that differ, as long as they are the same with the record and without it.
    """
    total = sum(step.count * step.weight for step in steps)
    if len(steps) == 1 and steps[0].count == 1:
        return steps[0].pair
    summed = law_sums.sum_of(
        [(functools.partial(_weighted, step), step.count) for step in steps],
        steps[0].pair.bound,
        accuracy,
    )
    return law_sums.pair_of(law_sums.read(summed, total))


def _weighted(steps: Steps) -> lattice_law.Atoms:
    """Returns the law of one step's ratio, multiplied by its weight."""
    atoms = law_sums.of_pair(steps.pair, Axis.RATIO)
    if steps.weight == 1:
        return atoms
    law = dataclasses.replace(
        atoms.law,
        infinity_mass=steps.weight * atoms.law.infinity_mass,
        mass_error=atoms.law.mass_error + floats.UNIT_ROUNDOFF,
        ratio_error=atoms.law.ratio_error + floats.UNIT_ROUNDOFF,
        ledger=atoms.law.ledger.with_ratios_times(steps.weight),
    )
    return lattice_law.Atoms(law, steps.weight * atoms.values, atoms.masses)
