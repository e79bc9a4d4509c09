"""Groups of records: one mechanism for every way a group can join and leave."""

import abc
import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import ClassVar

from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import allocated_replacements
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.pairs import profile_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs
Mechanism = interface.Mechanism
NeighborRel = privacy_accountant.NeighboringRelation

# Tuning: for a group of more members than these, one chain bounds all splits, each link
# in the worse direction. It costs as much as one split (a second for an allocation),
# and for an allocation its ε is up to 0.1 % above that of the worst split at δ = 1e-6,
# and 1 % at δ = 0.01. If each member takes part in one of several Gaussian steps, the
# chain's ε is three times as large. There, all splits are bounded one by one for up to
# 16 members, and many splits at once for up to 64.
_MOST_SPLITS, _MOST_ALLOCATED, _MOST_BUNDLED = 8, 16, 64


class Grouped(Mechanism):
    """A mechanism on datasets that differ in a group of records, the members.

    A split of the group states how many members leave the first dataset, and how many
    join it. It is chosen with `split`. A mechanism that is the same for all splits, or
    whose split is told, is no `Grouped`.

    Attributes:
        group_size: Number of records in the group, K.
        leaving_is_worst: Whether the split in which all leave has the largest lower
            bound.
    """

    group_size: int
    leaving_is_worst: ClassVar[bool] = False

    @abc.abstractmethod
    def split(self, removed: int, inserted: int) -> Mechanism:
        """Returns the mechanism for one split of the group.

        Args:
            removed: The number of members who leave.
            inserted: The number of members who join.
        """

    def has_one_split(self) -> bool:
        """Returns whether `split(K, 0)` bounds all splits, or there is no other one."""
        return False

    def has_few_rows(self) -> bool:
        """Returns whether `rdp_rows` needs no pair for each split of the group."""
        return self.has_one_split()

    def rdp_rows(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns Rényi divergences at n orders, as the function `rdp_rows` does."""
        size = self.group_size
        if self.has_one_split():
            return rdp_rows(self.split(size, 0), orders)
        rows: dict[int, FloatArray] = {}
        probabilities = []
        for removed in range(size, (size - 1) // 2, -1):
            # A split and its reverse are the two directions of one mechanism.
            leave, join, failure = renyi_curves.both_ways(
                self.split(removed, size - removed), orders
            )
            rows[removed], rows[size - removed] = leave, join
            probabilities.append(failure)
        ordered = [rows[removed] for removed in range(size + 1)]
        return interface.Divergences(np.array(ordered), max(probabilities))

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        # A split must be chosen first: see `scenarios`.
        return DirectedPairs.same(dominating_pair.trivial_pair(bound))


@dataclasses.dataclass(frozen=True)
class GroupedOnBatches(Grouped):
    """Noise on a sum over a batch, or a randomized response to a question about it.

    The question is whether the batch holds a member who leaves, or whether it holds a
    member who joins.

    Attributes:
        group_size: Number of records in the group, K.
        base: The mechanism that runs on a batch.
        scheme: How the batch is drawn.
        relation: What happens to the members in the other dataset.
        below: A mechanism of the same kind that this one dominates, from which lower
            bounds follow; or None, if they follow from the scheme.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.7 and its instances; Appendix M
        (randomized response).
    """

    group_size: int
    base: batches.Base
    scheme: sampling.Scheme
    relation: NeighborRel = NeighborRel.ADD_OR_REMOVE_ONE
    below: "GroupedOnBatches | None" = None

    @property
    def is_replaced(self) -> bool:
        """Whether every member is replaced by another record."""
        return self.relation is NeighborRel.REPLACE_ONE

    def has_one_split(self) -> bool:
        return self.is_replaced or self.scheme.takes_all

    def split(self, removed: int, inserted: int) -> Mechanism:
        if self.is_replaced:
            above = self.scheme.replaced(self.base, self.group_size)
        elif self.relation is NeighborRel.ADD_OR_REMOVE_ONE:
            above = self.scheme.absent(self.base, removed, inserted)
        else:
            above = self.scheme.split(self.base, removed, inserted)
        if self.below is None:
            return above
        return known_bounds.between(self.below.split(removed, inserted), above)

    def has_few_rows(self) -> bool:
        if self.base.is_revealing or self.has_one_split():
            return True
        return self.scheme.rdp_theorem(self.base) is not None

    def rdp_rows(self, orders: Sequence[float]) -> interface.Divergences:
        theorem, size = self.scheme.rdp_theorem(self.base), self.group_size
        if theorem is None:
            return super().rdp_rows(orders)
        if not self.is_replaced:
            return interface.Divergences(theorem(orders, size))
        # The row of a group of 2K members in which K leave and K join.
        rows = theorem(orders, 2 * size)
        return interface.Divergences(rows[[min(size, len(rows) - 1)]])


def on_batches(
    base: batches.Base, scheme: sampling.Scheme, size: int, relation: NeighborRel
) -> Mechanism:
    """Returns a mechanism on batches of datasets that differ in a group.

    Args:
        base: The mechanism that runs on a batch.
        scheme: How the batch is drawn.
        size: Number of records in the group.
        relation: What happens to the members in the other dataset.
    """
    if base.is_revealing and scheme.takes_all:
        return known_bounds.NonPrivate()
    return GroupedOnBatches(size, base, scheme, relation)


@dataclasses.dataclass(frozen=True)
class GroupedByChain(Grouped):
    """A mechanism known for one record; its pairs are chained from member to member.

    Attributes:
        group_size: Number of records in the group, K.
        inner: The mechanism on datasets that differ in one record, one of which has it.
    """

    leaving_is_worst = True

    group_size: int
    inner: Mechanism

    def has_one_split(self) -> bool:
        together = allocated_replacements.group(self.inner, self.group_size)
        if together is None:
            return self.group_size > _MOST_SPLITS
        limit = _MOST_BUNDLED if together.has_theorem else _MOST_ALLOCATED
        return self.group_size > limit

    def has_few_rows(self) -> bool:
        return self.group_size > _MOST_ALLOCATED or self.has_one_split()

    def rdp_rows(self, orders: Sequence[float]) -> interface.Divergences:
        if self.has_few_rows():
            return rdp_rows(self._any_split(), orders)
        return super().rdp_rows(orders)

    def split(self, removed: int, inserted: int) -> Mechanism:
        leave = allocated_replacements.group(self.inner, removed)
        above = self._above(removed, inserted, leave)
        # The members who join may contribute nothing, so leaving is a lower bound.
        return known_bounds.between(leave or above[0], *above)

    def _above(
        self,
        removed: int,
        inserted: int,
        leave: allocated_replacements.AllocatedGroup | None,
    ) -> list[Mechanism]:
        """Returns upper bounds for one split; the last of them takes the least time.

        Args:
            removed: The number of members who leave.
            inserted: The number of members who join.
            leave: The bound for those who leave together, or None if there is no other
                than a chain.
        """
        if self.has_one_split():
            return [self._any_split()]
        if leave is None:
            return [chained.chain(self.inner, removed, inserted)]
        if not inserted:
            return [leave]
        bundled = allocated_replacements.leave_and_join(
            self.inner, removed, inserted, leave.allocation
        )
        if leave.has_theorem and self.group_size > _MOST_ALLOCATED:
            return [self._any_split(), bundled]
        join = allocated_replacements.group(self.inner, inserted)
        joining = (
            chained.chain(join, 0, 1)
            if join
            else chained.chain(self.inner, 0, inserted)
        )
        tight = chained.in_a_row((leave, 1, False), (joining, 1, False))
        return [tight, bundled] if leave.has_theorem else [tight]

    def _any_split(self) -> Mechanism:
        """Returns one chain that dominates every split of the group."""
        return chained.chain(chained.Symmetrized(self.inner), self.group_size, 0)


@dataclasses.dataclass(frozen=True)
class GroupedAnswers(Grouped):
    """Reports on single records, such as randomized responses: one for each record.

    The report of every member may change. The event does not state that each member has
    a report, as there may be a single report. So a lower bound counts one report. If
    records are replaced, the split in which all leave stands for it.

    Attributes:
        group_size: Number of records in the group, K.
        inner: The report on one record.
    """

    group_size: int
    inner: Mechanism

    def split(self, removed: int, inserted: int) -> Mechanism:
        joining = chained.chain(self.inner, 0, 1)
        reports = [self.inner] * removed + [joining] * inserted
        all_reports = compositions.compose(collections.Counter(reports))
        return known_bounds.between(reports[0], all_reports)


@functools.lru_cache(maxsize=256)
def _split(grouped: Grouped, removed: int, inserted: int) -> Mechanism:
    return grouped.split(removed, inserted)


def have_one_split(parts: Iterable[Mechanism]) -> bool:
    """Returns whether `split(K, 0)` of each bounds all splits of its group."""
    return all(part.has_one_split() for part in parts if isinstance(part, Grouped))


def has_few_rows(part: Mechanism) -> bool:
    """Returns whether `rdp_rows` needs no pair for each split of a group."""
    return not isinstance(part, Grouped) or part.has_few_rows()


def rdp_rows(part: Mechanism, orders: Sequence[float]) -> interface.Divergences:
    """Returns (K + 1, n) Rényi divergences at n orders, with a row for each split.

    Row K₋ is for the split in which K₋ members leave. There is only one row if it
    bounds all splits.

    Args:
        part: The mechanism, of a group or of a single record.
        orders: (n,) orders α ≥ 1.
    """
    if isinstance(part, Grouped):
        return part.rdp_rows(orders)
    values, failure_probability = renyi_curves.of(part, orders)
    return interface.Divergences(values[np.newaxis], failure_probability)


def worst_pairs(
    counts: Mapping[Mechanism, int], bound: Bound, accuracy: Accuracy
) -> DirectedPairs:
    """Returns pairs of the largest profile over all splits of the group.

    Lower bounds are for one split only: that in which all members leave.

    Args:
        counts: Mechanisms of one group size.
        bound: The side of the result.
        accuracy: What the pairs are for.
    """
    pairs_of_splits = [
        interface.pairs_of(compositions.compose(scenario), bound, accuracy)
        for scenario in scenarios(counts)
    ]
    if len(pairs_of_splits) == 1 or bound is Bound.LOWER:
        return pairs_of_splits[0]
    reverse = [pairs.swapped() for pairs in pairs_of_splits]
    return profile_pairs.maximum([*pairs_of_splits, *reverse]).map(
        dominating_pair.certain
    )


def scenarios(counts: Mapping[Mechanism, int]) -> list[dict[Mechanism, int]]:
    """Returns the scenarios: for each split of the group, mechanisms to compose.

    The two datasets fix the split, so it is the same at every step. The guarantee is
    the largest over the splits of their compositions, not the composition of each
    step's largest split. A split and its reverse are the two directions of one
    scenario.

    Args:
        counts: Mechanisms of one group size.

    Source:
        https://arxiv.org/abs/2403.04867, section 3.
    """
    families = [part for part in counts if isinstance(part, Grouped)]
    if not families:
        return [dict(counts)]
    (size,) = {family.group_size for family in families}
    # If all bounds are those of the split in which all leave, no other one matters.
    limit = 0 if have_one_split(families) else size // 2
    leaving_is_worst = all(family.leaving_is_worst for family in families)
    distinct = []
    for inserted in range(limit + 1):
        scenario: dict[Mechanism, int] = {}
        for part, count in counts.items():
            if isinstance(part, Grouped):
                part = _split(part, size - inserted, inserted)
                if leaving_is_worst and inserted:
                    part = known_bounds.between(None, part)
            scenario[part] = scenario.get(part, 0) + count
        if scenario not in distinct:
            distinct.append(scenario)
    return distinct
