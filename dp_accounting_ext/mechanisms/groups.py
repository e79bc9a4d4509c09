"""Groups of records: one mechanism for every way a group can join and leave."""

import abc
import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools

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
    join it. It is chosen with `split`.

    Attributes:
        group_size: Number of records in the group, K.
    """

    group_size: int

    @abc.abstractmethod
    def split(self, removed: int, inserted: int) -> Mechanism:
        """Returns the mechanism for one split of the group.

        Args:
            removed: The number of members who leave.
            inserted: The number of members who join.
        """

    def has_few_rows(self) -> bool:
        """Returns whether Rényi divergences are known without a pair for each split."""
        return self.has_one_split()

    def rdp_rows(
        self, orders: Sequence[float], *, replace_one: bool
    ) -> interface.Divergences:
        """Returns (K + 1, n) Rényi divergences at n orders, with a row for each split.

        Row K₋ is for the split in which K₋ members leave. There is only one row if the
        group is replaced, or if one row bounds all splits.

        Args:
            orders: (n,) orders α ≥ 1.
            replace_one: Whether the whole group is replaced.
        """
        size = self.group_size
        if replace_one or self.has_one_split():
            split = self.split(size, size if replace_one else 0)
            values, failure = renyi_curves.of(split, orders)
            return interface.Divergences(values[np.newaxis], failure)
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

    def has_one_split(self) -> bool:
        """Returns whether the split in which all members leave bounds all splits."""
        return False

    def leaving_is_worst(self) -> bool:
        """Returns whether the split in which all leave has the largest lower bound."""
        return False

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        # A split must be chosen first: see `scenarios`.
        return dominating_pair.DirectedPairs.same(dominating_pair.trivial_pair(bound))


@dataclasses.dataclass(frozen=True)
class GroupedOnBatches(Grouped):
    """Noise on a sum over a batch, or a randomized response to a question about it.

    The question is whether the batch holds a member who leaves, or whether it holds a
    member who joins.

    Attributes:
        group_size: Number of records in the group, K.
        base: The mechanism that runs on a batch.
        scheme: How the batch is drawn.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.7 and its instances; Appendix M
        (randomized response).
    """

    group_size: int
    base: batches.Base
    scheme: sampling.Scheme

    def has_one_split(self) -> bool:
        return self.scheme.takes_all

    def split(self, removed: int, inserted: int) -> Mechanism:
        if removed == inserted == self.group_size:
            return self.scheme.replaced(self.base, removed)
        return self.scheme.split(self.base, removed, inserted)

    def has_few_rows(self) -> bool:
        if self.base.is_revealing or super().has_few_rows():
            return True
        return self.scheme.rdp_theorem(self.base) is not None

    def rdp_rows(
        self, orders: Sequence[float], *, replace_one: bool
    ) -> interface.Divergences:
        theorem, size = self.scheme.rdp_theorem(self.base), self.group_size
        if theorem is None:
            return super().rdp_rows(orders, replace_one=replace_one)
        if not replace_one:
            return interface.Divergences(theorem(orders, size))
        # The row of a group of 2K members in which K leave and K join.
        rows = theorem(orders, 2 * size)
        return interface.Divergences(rows[[min(size, len(rows) - 1)]])


def on_batches(base: batches.Base, scheme: sampling.Scheme, size: int) -> Mechanism:
    """Returns a mechanism on batches of datasets that differ in a group.

    Args:
        base: The mechanism that runs on a batch.
        scheme: How the batch is drawn.
        size: Number of records in the group.
    """
    if base.is_revealing and scheme.takes_all:
        return known_bounds.NonPrivate()
    return GroupedOnBatches(size, base, scheme)


@dataclasses.dataclass(frozen=True)
class GroupedBetween(Grouped):
    """A mechanism for a group that dominates one mechanism and is dominated by another.

    Attributes:
        group_size: Number of records in the group, K.
        below: The mechanism that it dominates.
        above: The mechanism that dominates it.
    """

    group_size: int
    below: Grouped
    above: Grouped

    def has_one_split(self) -> bool:
        return self.above.has_one_split()

    def split(self, removed: int, inserted: int) -> Mechanism:
        both = (each.split(removed, inserted) for each in (self.below, self.above))
        return known_bounds.between(*both)

    def has_few_rows(self) -> bool:
        return self.above.has_few_rows()

    def rdp_rows(
        self, orders: Sequence[float], *, replace_one: bool
    ) -> interface.Divergences:
        return self.above.rdp_rows(orders, replace_one=replace_one)


@dataclasses.dataclass(frozen=True)
class GroupedByChain(Grouped):
    """A mechanism known for one record; its pairs are chained from member to member.

    Attributes:
        group_size: Number of records in the group, K.
        inner: The mechanism on datasets that differ in one record.
        is_replaced: Whether that record is replaced, so that both directions are equal.
    """

    group_size: int
    inner: Mechanism
    is_replaced: bool = False

    def has_one_split(self) -> bool:
        if self.is_replaced or self.inner.claims().is_symmetric:
            return True
        together = allocated_replacements.group(self.inner, self.group_size)
        if together is None:
            return self.group_size > _MOST_SPLITS
        most = _MOST_BUNDLED if together.has_theorem else _MOST_ALLOCATED
        return self.group_size > most

    def leaving_is_worst(self) -> bool:
        return True

    def has_few_rows(self) -> bool:
        return self.group_size > _MOST_ALLOCATED or super().has_few_rows()

    def rdp_rows(
        self, orders: Sequence[float], *, replace_one: bool
    ) -> interface.Divergences:
        if self.has_one_split() or not self.has_few_rows():
            return super().rdp_rows(orders, replace_one=replace_one)
        values, failure = renyi_curves.of(self._any_split(), orders)
        return interface.Divergences(values[np.newaxis], failure)

    def split(self, removed: int, inserted: int) -> Mechanism:
        if self.is_replaced:
            return chained.chain(self.inner, self.group_size, 0)
        if self.inner.claims().is_symmetric:
            return chained.chain(self.inner, removed, inserted)
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
        """Returns mechanisms that dominate a split.

        Args:
            removed: The number of members who leave.
            inserted: The number of members who join.
            leave: The mechanism of members who leave Gaussian steps, if it is one.
        """
        if self.has_one_split():
            return [self._any_split()]
        if leave is None:
            return [chained.chain(self.inner, removed, inserted)]
        if not inserted:
            return [leave]
        if leave.has_theorem and self.group_size > _MOST_ALLOCATED:
            bundled = allocated_replacements.LeaveAndJoin(
                self.inner, removed, inserted, leave.allocation
            )
            return [self._any_split(), bundled]
        join = allocated_replacements.group(self.inner, inserted)
        joining = (
            chained.chain(join, 0, 1)
            if join
            else chained.chain(self.inner, 0, inserted)
        )
        return [chained.InARow(leave, joining)]

    def _any_split(self) -> Mechanism:
        """Returns one chain that dominates every split of the group."""
        return chained.chain(chained.Symmetrized(self.inner), self.group_size, 0)


@dataclasses.dataclass(frozen=True)
class GroupedAnswers(Grouped):
    """Reports on single records, such as randomized responses: one for each record.

    The report of every member may change. The event does not state that each member has
    a report, as there may be a single report. So a lower bound counts one report.

    Attributes:
        group_size: Number of records in the group, K.
        inner: The report on one record.
        is_replaced: Whether every record is replaced, so that directions are equal.
    """

    group_size: int
    inner: Mechanism
    is_replaced: bool

    def split(self, removed: int, inserted: int) -> Mechanism:
        if self.is_replaced:
            removed, inserted = self.group_size, 0
        joining = chained.chain(self.inner, 0, 1)
        reports = [self.inner] * removed + [joining] * inserted
        every = compositions.compose(collections.Counter(reports))
        return known_bounds.between(reports[0], every)


@dataclasses.dataclass(frozen=True)
class OneForAll(Grouped):
    """A mechanism that is the same for all splits of a group, or a group of one member.

    Attributes:
        inner: The mechanism.
        group_size: Number of records in the group.
    """

    inner: Mechanism
    group_size: int = 1

    def split(self, removed: int, inserted: int) -> Mechanism:
        return self.inner

    def has_one_split(self) -> bool:
        return True

    def leaving_is_worst(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class OneSplit(Grouped):
    """A mechanism for a group of which it is known who may leave and who may join.

    Attributes:
        group_size: Number of records in the group.
        grouped: The mechanism, for all splits.
        num_removed: The number of members who leave, at least half of the group.
    """

    group_size: int
    grouped: Grouped
    num_removed: int

    def split(self, removed: int, inserted: int) -> Mechanism:
        return self.grouped.split(self.num_removed, self.group_size - self.num_removed)

    def has_one_split(self) -> bool:
        return True


def is_of_group(part: Mechanism) -> bool:
    """Returns whether a mechanism is known for groups, so that it needs a split."""
    return isinstance(part, Grouped)


def as_group(part: Mechanism) -> Grouped:
    """Returns a mechanism for a group, which may consist of a single record."""
    return part if isinstance(part, Grouped) else OneForAll(part)


@functools.lru_cache(maxsize=256)
def _split(grouped: Grouped, removed: int, inserted: int) -> Mechanism:
    return grouped.split(removed, inserted)


def worst_pairs(
    counts: Mapping[Mechanism, int],
    bound: Bound,
    accuracy: Accuracy,
    *,
    replace_one: bool,
) -> DirectedPairs:
    """Returns pairs of the largest profile over all splits of the group.

    Lower bounds are for one split only: that in which all members leave, or in which
    all are replaced.

    Args:
        counts: Mechanisms of one group size.
        bound: The side of the result.
        accuracy: What the pairs are for.
        replace_one: Whether the whole group is replaced.
    """
    every = [
        interface.pairs_of(compositions.compose(each), bound, accuracy)
        for each in scenarios(counts, replace_one=replace_one)
    ]
    if len(every) == 1 or bound is Bound.LOWER:
        return every[0]
    reverse = [each.swapped() for each in every]
    return profile_pairs.maximum([*every, *reverse]).map(dominating_pair.certain)


def group_sizes(counts: Mapping[Mechanism, int]) -> set[int]:
    """Returns the sizes of the mechanisms' groups. A single record has size 1."""
    return {as_group(part).group_size for part in counts if not part.is_certain()}


def have_one_split(parts: Iterable[Mechanism]) -> bool:
    """Returns whether the split in which all members leave bounds all splits."""
    return all(as_group(part).has_one_split() for part in parts)


def scenarios(
    counts: Mapping[Mechanism, int], *, replace_one: bool
) -> list[dict[Mechanism, int]]:
    """Returns the scenarios: for each split of the group, mechanisms to compose.

    The two datasets fix the split, so it is the same at every step. The guarantee is
    the largest over the splits of their compositions, not the composition of each
    step's largest split. A split and its reverse are the two directions of one
    scenario.

    Args:
        counts: Mechanisms of one group size.
        replace_one: Whether the whole group is replaced.

    Source:
        https://arxiv.org/abs/2403.04867, section 3.
    """
    if not any(map(is_of_group, counts)):
        return [dict(counts)]
    (size,) = group_sizes(counts) or {1}
    if replace_one:
        splits = [(size, size)]
    elif have_one_split(counts):
        splits = [(size, 0)]
    else:
        splits = [(size - joined, joined) for joined in range(size // 2 + 1)]
    leaving_is_worst = all(as_group(part).leaving_is_worst() for part in counts)
    found = []
    for removed, inserted in splits:
        scenario: dict[Mechanism, int] = {}
        for part, count in counts.items():
            split = _split(as_group(part), removed, inserted)
            if leaving_is_worst and removed < size and split != part:
                split = known_bounds.between(None, split)
            scenario[split] = scenario.get(split, 0) + count
        if scenario not in found:
            found.append(scenario)
    return found
