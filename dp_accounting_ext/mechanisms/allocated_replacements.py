"""Replaced records, and groups, under random allocation of Gaussian noise.

What a mechanism is to a record that joins or leaves says what it is to one that is
replaced: as one of several Gaussian steps, each with its chance, or by a chain.
"""

from collections.abc import Mapping
import dataclasses
import math

from dp_accounting_ext.amplification import allocated_group
from dp_accounting_ext.amplification import allocated_group_above
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import chained_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair
Mechanism = interface.Mechanism
Allocation = replaced_allocation.Allocation

# Tuning: atoms of bounds that need not be tight, and how much of a tail may be left of
# a chain, as of `chained`.
_FEW_ATOMS, _MOST_GROWN = 1 << 12, 100.0


def replaced(mechanism: Mechanism) -> Mechanism:
    """Returns a mechanism where a record is replaced, from that where one is absent.

    One of several Gaussian steps, on a Poisson sample or not, has a theorem, and so
    have k of t steps, as blocks. All else is chained: out with the one record, in with
    the other.

    Args:
        mechanism: With the record, against that without it.
    """
    chain = chained.chain(mechanism, 1, 1)
    if isinstance(mechanism, allocated.RandomAllocation) and mechanism.num_selected > 1:
        return _replaced_draws(mechanism, chain)
    allocation = _not_too_far(mechanism.gaussian_steps())
    if allocation is None:
        return chain
    exact = ReplacedAllocation(allocation)
    # Its profile may be loose between the places where it is known.
    return known_bounds.Between(exact, exact, chain)


def _replaced_draws(
    mechanism: allocated.RandomAllocation, chain: Mechanism
) -> Mechanism:
    """Returns what a replaced record changes in k of t steps: that of k blocks."""
    blocks: dict[Mechanism, int] = {}
    for block, count in compositions.unpacked({mechanism.blocks(): 1}).items():
        found = replaced(block)
        if block.gaussian_noise is not None:
            found = additive_noise.Gaussian(block.gaussian_noise / 2)
        elif found == chained.chain(block, 1, 1):
            return chain
        blocks[found] = blocks.get(found, 0) + count
    step = _not_too_far(compositions.gaussian_steps(mechanism.inner))
    is_one = step is not None and sum(each.count for each in step.steps) == 1
    below = chain
    if step is not None and is_one and not step.infinity_mass:
        below = ReplacedDraws(mechanism, step)
    return known_bounds.Between(below, compositions.compose(blocks), chain)


@dataclasses.dataclass(frozen=True)
class AllocatedGroup(Mechanism):
    """Members of a group under random allocation who leave.

    Attributes:
        inner: The mechanism with one of them, against that without.
        members: How many leave, at least 2.
        allocation: Its steps, all of which are Gaussian.
    """

    inner: Mechanism
    members: int
    allocation: Allocation

    @property
    def has_theorem(self) -> bool:
        """Whether an upper bound is known that is less than a chain."""
        return len(self.allocation.steps) == 1

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            if self._sum_is_worst():
                return DirectedPairs.same(dominating_pair.trivial_pair(bound))
            return allocated_group.lower_pairs(self.allocation, self.members, accuracy)
        known = interface.pairs_of(self._chain, bound, accuracy)
        if not self.has_theorem:
            return known
        remove = allocated_group_above.upper_pair(
            self.allocation,
            self.members,
            known.remove,
            accuracy,
        )
        return DirectedPairs(remove, known.add)

    def other_parts(self, bound: Bound) -> Mapping[Mechanism, int]:
        revealed = self.sum_of(1)
        if bound is Bound.UPPER or revealed is None:
            return {self: 1}
        return {revealed: 1}

    def sum_of(self, members: int) -> Mechanism | None:
        return self.inner.sum_of(members * self.members)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return "sums of scores over the steps, of members who all leave"
        if not self.has_theorem:
            return self._chain.basis(bound)
        return "the counts of members in each step, and a chain where they join"

    def claims(self) -> interface.Claims:
        return self._chain.claims()

    def _sum_is_worst(self) -> bool:
        """Tells whether the sum of all outputs tells all that members who count do.

        These are no further apart than where all of them are in one step.
        """
        revealed = self.sum_of(1)
        if revealed is None or revealed.gaussian_noise is None:
            return False
        furthest = max(steps.shift for steps in self.allocation.steps)
        together = allocated_group.MOST_MEMBERS * furthest * interface.LOSS_ROUNDED_UP
        return 1 / revealed.gaussian_noise >= together

    @property
    def _chain(self) -> Mechanism:
        return chained.chain(self.inner, self.members, 0)


@dataclasses.dataclass(frozen=True)
class LeavingQuickly(Mechanism):
    """Members who leave, bounded by the theorem alone, quickly, and in one direction.

    Attributes:
        members: How many leave.
        allocation: The steps of each, all of them alike.
    """

    members: int
    allocation: Allocation

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        nothing = dominating_pair.trivial_pair(bound)
        if bound is Bound.LOWER:
            return DirectedPairs.same(nothing)
        remove = allocated_group_above.upper_pair(
            self.allocation,
            self.members,
            nothing,
            accuracy,
            is_rough=True,
        )
        return DirectedPairs(remove, nothing)


@dataclasses.dataclass(frozen=True)
class LeaveAndJoin(Mechanism):
    """Members under random allocation who leave, and others who join: an upper bound.

    Those who leave do so together, as far as a theorem knows of it, and the others join
    one by one: a chain. The first link has no more of a tail than the chain.

    Attributes:
        inner: The mechanism with one of them, against that without.
        removed: How many leave,
        inserted: and join; either at least 1.
        allocation: The steps of each, all of them alike.
    """

    inner: Mechanism
    removed: int
    inserted: int
    allocation: Allocation

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        fewer, more = sorted((self.removed, self.inserted))
        larger = self._one_way(more, fewer, accuracy)
        # Of few an even number leaves, which two splits have in common: in a direction
        # that does not matter.
        is_odd = fewer % 2 == 1 and 2 < 2 * fewer <= more
        smaller = self._one_way(fewer + is_odd, more, accuracy)
        is_fewer = self.inserted == fewer
        remove, add = (larger, smaller) if is_fewer else (smaller, larger)
        return DirectedPairs(remove, dominating_pair.dual(add))

    def _one_way(self, leave: int, join: int, accuracy: Accuracy) -> DominatingPair:
        """Returns the chain of those who leave and those who join, in that order."""
        leaving = self.inner if leave == 1 else LeavingQuickly(leave, self.allocation)
        first = interface.pairs_of_part(leaving, Bound.UPPER, accuracy).remove
        first = chained_pairs.on_few_atoms(first, _FEW_ATOMS)
        finer, before = accuracy.tail_mass, math.inf
        while True:
            fine = accuracy.with_tails(finer)
            one = interface.pairs_of_part(self.inner, Bound.UPPER, fine).add
            known = one.zero_mass
            joining = chained_pairs.powers(
                dominating_pair.dual(one), join, most_atoms=_FEW_ATOMS
            )
            found = chained_pairs.chain_one_way(first, joining, most_atoms=_FEW_ATOMS)
            grown = found.infinity_mass - first.infinity_mass
            if grown <= _MOST_GROWN * accuracy.tail_mass or known >= before:
                return found
            if finer <= floats.RARE:
                return found
            finer, before = max(finer**2, floats.RARE), known

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return interface.NOTHING
        return "the counts of members who leave, and a chain of those who join"

    def claims(self) -> interface.Claims:
        members = self.removed + self.inserted
        return chained.chain(batches.Symmetrized(self.inner), members, 0).claims()


def leave_and_join(
    mechanism: Mechanism, removed: int, inserted: int
) -> LeaveAndJoin | None:
    """Returns a mechanism where some members leave and some join, if a theorem knows.

    Args:
        mechanism: With one member, against that without.
        removed: How many leave,
        inserted: and join; either at least 1.
    """
    leave = group(mechanism, max(removed, inserted, 2))
    if leave is None or not leave.has_theorem:
        return None
    return LeaveAndJoin(mechanism, removed, inserted, leave.allocation)


def group(mechanism: Mechanism, members: int) -> AllocatedGroup | None:
    """Returns members who leave Gaussian steps, if more is known of them than a chain.

    Args:
        mechanism: With one member, against that without.
        members: How many leave.
    """
    allocation = _not_too_far(mechanism.gaussian_steps())
    if members < 2 or allocation is None or allocation.infinity_mass:
        return None
    return AllocatedGroup(mechanism, members, allocation)


def _not_too_far(allocation: Allocation | None) -> Allocation | None:
    """Returns Gaussian steps of which none moves its noise too far, or None."""
    if allocation is None or not allocation.steps:
        return None
    furthest = max(steps.shift for steps in allocation.steps)
    return allocation if furthest <= replaced_allocation.LARGEST_SHIFT else None


@dataclasses.dataclass(frozen=True)
class ReplacedDraws(Mechanism):
    """What sums over k of t steps tell of a record that is replaced: a lower bound.

    Attributes:
        mechanism: The allocation of one record, against that of none.
        step: What it has in a step: one Gaussian step, drawn with some chance.
    """

    mechanism: allocated.RandomAllocation
    step: Allocation

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        (drawn,) = self.step.steps
        pair = allocation_by_sum.replaced_pair(
            (drawn.shift, drawn.chance, self.step.null_probability),
            self.mechanism.num_selected,
            self.mechanism.num_steps,
            tail_mass=accuracy.tail_mass,
        )
        return DirectedPairs.same(pair)

    def other_parts(self, bound: Bound) -> Mapping[Mechanism, int]:
        revealed = self.sum_of(1)
        return {self: 1} if revealed is None else {revealed: 1}

    def sum_of(self, members: int) -> Mechanism | None:
        return self.mechanism.sum_of(2 * members)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return "sums of scores over the steps"
        return interface.NOTHING

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)


@dataclasses.dataclass(frozen=True)
class ReplacedAllocation(interface.OnePairMechanism):
    """One of several Gaussian steps, of which a record that is replaced has one."""

    allocation: Allocation

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        make = (
            replaced_allocation.upper_pair
            if bound is Bound.UPPER
            else replaced_allocation.lower_pair
        )
        return make(self.allocation, tail_mass=accuracy.tail_mass)

    def sum_of(self, members: int) -> Mechanism | None:
        """Returns what the sum of all steps' outputs tells, if all steps are alike."""
        alone = len(self.allocation.steps) == 1
        if (
            not alone
            or self.allocation.null_probability
            or self.allocation.infinity_mass
        ):
            return None
        (steps,) = self.allocation.steps
        deviation = math.sqrt(steps.count) / steps.shift
        return additive_noise.Gaussian(floats.raised(deviation / (2 * members)))

    def basis(self, bound: Bound) -> str:
        return "the mean of the likelihood ratios of the steps of either record"

    def claims(self) -> interface.Claims:
        if self.allocation.infinity_mass:
            return interface.Claims(is_symmetric=True)
        furthest = 2 * max(steps.shift for steps in self.allocation.steps)
        return interface.Claims(
            gaussian_precision=floats.raised(furthest**2, by=1e-14), is_symmetric=True
        )
