"""Replaced records, and groups, under random allocation of Gaussian noise.

What is known of a mechanism for a record that joins or leaves gives a bound for a
record that is replaced: by a theorem if one of several Gaussian steps is drawn at
random, and by a chain otherwise.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

from dp_accounting_ext.amplification import group_counts
from dp_accounting_ext.amplification import group_scores
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
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

# Tuning: the number of atoms of bounds that need not be tight.
_FEW_ATOMS = 1 << 12


def replaced(mechanism: Mechanism) -> Mechanism:
    """Returns the mechanism for a replaced record, from that for an absent one.

    There is a theorem if one of several Gaussian steps is drawn, with or without
    Poisson sampling. It applies to k-out-of-t allocation as well, as a composition of
    blocks. In all other cases the bound is a chain: the old record leaves, and then the
    new one joins.

    Args:
        mechanism: The mechanism with the record, against that without it.
    """
    chain = chained.chain(mechanism, 1, 1)
    if isinstance(mechanism, allocated.SeveralOfSteps) and mechanism.inner is not None:
        return _replaced_draws(mechanism, mechanism.inner, chain)
    allocation = _not_too_far(compositions.drawn_steps(mechanism))
    if allocation is None:
        return chain
    return ReplacedAllocation(allocation)


def _replaced_draws(
    mechanism: allocated.SeveralOfSteps, inner: Mechanism, chain: Mechanism
) -> Mechanism:
    """Returns k-out-of-t allocation for a replaced record, bounded by k blocks.

    Args:
        mechanism: The allocation with the record, against that without it.
        inner: The mechanism of each step.
        chain: The bound by a record that leaves and one that joins. It is returned if
            no better bound is known of a block.
    """
    blocks: dict[Mechanism, int] = {}
    for block, count in compositions.unpacked({mechanism.blocks(): 1}).items():
        replacement = replaced(block)
        if isinstance(block, additive_noise.Gaussian):
            replacement = additive_noise.Gaussian(block.noise_multiplier / 2)
        elif replacement == chained.chain(block, 1, 1):
            return chain
        blocks[replacement] = blocks.get(replacement, 0) + count
    step = _not_too_far(compositions.gaussian_steps(inner))
    is_one = step is not None and sum(kind.count for kind in step.steps) == 1
    below = chain
    if step is not None and is_one and not step.infinity_mass:
        below = ReplacedDraws(mechanism, step)
    above = [compositions.compose(blocks)]
    if 2 * mechanism.num_selected > mechanism.num_steps:
        # In blocks of a single step the record certainly takes part, so that the chain
        # may be smaller: by up to 9 % (4 of 6 steps).
        above.append(chain)
    return known_bounds.between(below, *above)


@dataclasses.dataclass(frozen=True)
class AllocatedGroup(Mechanism):
    """Random allocation from which several members of a group leave.

    Attributes:
        inner: The mechanism with one of the members, against that without it.
        members: The number of members who leave, at least 2.
        allocation: The steps, all of which are Gaussian.
        is_rough: Whether the upper bound is that of the theorem alone, in a rough form.
    """

    inner: Mechanism
    members: int
    allocation: Allocation
    is_rough: bool = False

    @property
    def has_theorem(self) -> bool:
        """Whether an upper bound is known that is smaller than a chain."""
        return len(self.allocation.steps) == 1

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return group_scores.lower_pairs(self.allocation, self.members, accuracy)
        chain = DirectedPairs.same(dominating_pair.trivial_pair(bound))
        if not self.is_rough:
            chain = interface.pairs_of(self._chain, bound, accuracy)
        if not self.has_theorem:
            return chain
        remove = group_counts.upper_pair(
            self.allocation,
            self.members,
            chain.remove,
            accuracy,
            is_rough=self.is_rough,
        )
        return DirectedPairs(remove, chain.add)

    def routes(self, bound: Bound) -> Sequence[Mapping[Mechanism, int]]:
        revealed = self._revealed_sum() if bound is Bound.LOWER else None
        return [{revealed or self: 1}]

    def sum_of(self, members: int) -> Mechanism | None:
        return self.inner.sum_of(members * self.members)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            if self._revealed_sum() is not None:
                return "the sum of all outputs"
            return "sums of scores over the steps, of members who all leave"
        if not self.has_theorem:
            return self._chain.basis(bound)
        return "the counts of members in each step, and a chain where they join"

    def claims(self) -> interface.Claims:
        return self._chain.claims()

    def _revealed_sum(self) -> Mechanism | None:
        """Returns the sum of all outputs if it gives the better lower bound, or None.

        The bound by scores counts at most 64 members.
        """
        share = max(self.members / group_scores.MOST_MEMBERS, 1.0)
        furthest = max(steps.shift for steps in self.allocation.steps)
        number = sum(steps.count for steps in self.allocation.steps)
        if not allocated.sum_reveals_more(share, furthest**2, number):
            return None
        return self.sum_of(1)

    @property
    def _chain(self) -> Mechanism:
        return chained.chain(self.inner, self.members, 0)


def leave_and_join(
    inner: Mechanism, removed: int, inserted: int, allocation: Allocation
) -> Mechanism:
    """Returns an upper bound for random allocation if members leave and others join.

    It is a chain. In its first link all members who leave do so together, bounded by
    the theorem. In each further link, one of the others joins. The tail of the first
    link is no heavier than that of a chain over single members.

    Args:
        inner: The mechanism with one of the members, against that without it.
        removed: The number of members who leave, at least 1.
        inserted: The number of members who join, at least 1.
        allocation: The steps of each member, all of which are equal.
    """
    any_order = chained.chain(chained.Symmetrized(inner), removed + inserted, 0)
    upper = "the counts of members who leave, and a chain of those who join"
    return known_bounds.ByFunction(
        _pairs_of_both,
        (inner, removed, inserted, allocation),
        any_order.claims(),
        (interface.NOTHING, upper),
        Bound.UPPER,
    )


def _pairs_of_both(
    inner: Mechanism,
    removed: int,
    inserted: int,
    allocation: Allocation,
    bound: Bound,
    accuracy: Accuracy,
) -> DirectedPairs:
    """Returns the upper pairs of `leave_and_join`."""
    remove = _one_way(inner, removed, inserted, allocation, accuracy)
    add = _one_way(inner, inserted, removed, allocation, accuracy)
    return DirectedPairs(remove, dominating_pair.dual(add))


def _one_way(
    inner: Mechanism, leave: int, join: int, allocation: Allocation, accuracy: Accuracy
) -> DominatingPair:
    """Returns the chain in which first some members leave and then some join."""
    leaving = inner
    if leave > 1:
        leaving = AllocatedGroup(inner, leave, allocation, is_rough=True)
    first = interface.pairs_of_part(leaving, Bound.UPPER, accuracy).remove
    first = chained_pairs.reduced(first, _FEW_ATOMS)
    link = functools.partial(chained_pairs.chain_one_way, most_atoms=_FEW_ATOMS)

    def chain_of(fine: Accuracy) -> tuple[DominatingPair, float, float]:
        one = interface.pairs_of_part(inner, Bound.UPPER, fine).add
        joining = sums.repeated(dominating_pair.dual(one), join, link)
        chain = link(first, joining)
        return chain, one.zero_mass, chain.infinity_mass - first.infinity_mass

    return chained.with_small_tails(accuracy, chain_of)


def group(mechanism: Mechanism, members: int) -> AllocatedGroup | None:
    """Returns the mechanism in which members leave together, or None.

    None is returned if only a chain is known: for a single member, if the mechanism is
    no allocation of Gaussian steps, or if a step reveals everything or shifts its noise
    by too much.

    Args:
        mechanism: The mechanism with one member, against that without it.
        members: The number of members who leave.
    """
    allocation = _not_too_far(compositions.drawn_steps(mechanism))
    if members < 2 or allocation is None or allocation.infinity_mass:
        return None
    return AllocatedGroup(mechanism, members, allocation)


def _not_too_far(allocation: Allocation | None) -> Allocation | None:
    """Returns the Gaussian steps, or None if one moves its noise by too much."""
    if allocation is None or not allocation.steps:
        return None
    furthest = max(steps.shift for steps in allocation.steps)
    return allocation if furthest <= replaced_allocation.LARGEST_SHIFT else None


@dataclasses.dataclass(frozen=True)
class ReplacedDraws(Mechanism):
    """The lower bound of k-out-of-t allocation for a replaced record, by scores.

    Attributes:
        mechanism: The allocation with the record, against that without it.
        step: The mechanism of one step: a Gaussian step, drawn with some probability.
    """

    mechanism: allocated.SeveralOfSteps
    step: Allocation

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        (drawn,) = self.step.steps
        pair = scores.replaced_pair(
            (drawn.shift, drawn.probability, self.step.null_probability),
            self.mechanism.num_selected,
            self.mechanism.num_steps,
            tail_mass=accuracy.tail_mass,
        )
        return DirectedPairs.same(pair)

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
    """Random allocation of one of several Gaussian steps, if a record is replaced."""

    allocation: Allocation

    def pair(self, bound: Bound, accuracy: Accuracy) -> DominatingPair:
        make = (
            replaced_allocation.upper_pair
            if bound is Bound.UPPER
            else replaced_allocation.lower_pair
        )
        return make(self.allocation, tail_mass=accuracy.tail_mass)

    def sum_of(self, members: int) -> Mechanism | None:
        """Returns the mechanism that releases the sum of all outputs of equal steps."""
        steps, *others = self.allocation.steps
        if others or self.allocation.null_probability or self.allocation.infinity_mass:
            return None
        if not allocated.sum_reveals_more(members, steps.shift**2, steps.count):
            return None
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
