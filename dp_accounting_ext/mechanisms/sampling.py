"""How batches are drawn: all that the package asks of a sampling scheme.

A scheme answers four questions about a group of records whose members are in one of two
datasets, or in both:

1. *Who is in a batch?* `coupled` gives the law of how far a batch of either dataset is
   from one that both may have. From it alone follows an upper bound for every mechanism
   that runs on a batch, and every way in which a group can leave and join.
2. *What replaces a record?* `replaced` is for datasets of one size, where other records
   have the members' places, and `absent` for datasets of two sizes; `one_replaced` and
   `one_zeroed` are for a single record, where more is known of some schemes than of
   groups.
3. *Which case is attained?* `attained` gives a law that two datasets have, so that a
   lower bound follows from it.
4. *Which theorem holds of its Rényi divergences?* `rdp_theorem`.

Only the first must be answered. `docs/register.md` shows a scheme of one's own.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import ClassVar

from dp_accounting import privacy_accountant

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import sampled_members
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.renyi import shifted_noise

Coupled = batches.Coupled
Mechanism = interface.Mechanism
NeighborRel = privacy_accountant.NeighboringRelation
Shifts = shifts.Shifts
# A function from (n,) Rényi orders and the size K of a group to (K + 1, n) upper
# bounds. Row K₋ is for the split in which K₋ members leave. There is only one row if it
# bounds all splits.
RdpTheorem = Callable[[Sequence[float], int], FloatArray]


class Scheme(abc.ABC):
    """A way to draw batches. Subclass it as a frozen dataclass.

    Attributes:
        group_relations: The neighboring relations under which `split` and `replaced`
            hold for groups. Under other relations a group is bounded by a chain of
            single records.
        probability_error: Bound on the relative error of the probability of each part.
    """

    group_relations: ClassVar[frozenset[NeighborRel]] = frozenset(NeighborRel)
    probability_error: ClassVar[float] = batches.WEIGHT_ERROR

    @property
    def takes_all(self) -> bool:
        """Whether every record is in the batch with probability one."""
        return False

    @abc.abstractmethod
    def coupled(self, removed: int, inserted: int) -> Sequence[Coupled]:
        """Returns the distances of two datasets' batches from a common batch.

        Args:
            removed: Members of the group that only the first dataset has.
            inserted: Members that only the second dataset has.

        Returns:
            One part, or one for each outcome of a draw that has the same law in both
            datasets, such as the number of other records in the batch. Distances are in
            norms of a record.
        """

    def attained(
        self, base: batches.Base, removed: int, inserted: int
    ) -> Sequence[Coupled] | None:
        """Returns the batches of two actual datasets, for a lower bound, or None.

        Args:
            base: The mechanism that runs on a batch.
            removed: Members that only the first dataset has.
            inserted: Members that only the second dataset has.
        """
        return None

    def rdp_theorem(self, base: batches.Base) -> RdpTheorem | None:
        """Returns a theorem on the Rényi divergences of all splits, or None."""
        return None

    def split(self, base: batches.Base, removed: int, inserted: int) -> Mechanism:
        """Returns the mechanism on batches if some members leave and others join.

        Args:
            base: The mechanism that runs on a batch.
            removed: The number of members who leave.
            inserted: The number of members who join.
        """
        return self.between(
            base,
            self.coupled(removed, inserted),
            self.attained(base, removed, inserted),
        )

    def between(
        self,
        base: batches.Base,
        coupled: Sequence[Coupled],
        attained: Sequence[Coupled] | None,
        *others: Mechanism,
    ) -> Mechanism:
        """Returns the mechanism bounded from above and, if possible, from below.

        Args:
            base: The mechanism that runs on a batch.
            coupled: The parts of the upper bound; see `coupled`.
            attained: The parts of the lower bound, or None; see `attained`.
            *others: Further mechanisms that dominate it.
        """
        above = batches.on_parts(base, coupled, self.probability_error)
        below = None
        if attained is not None and base.attains(attained):
            below = batches.on_parts(base, attained, self.probability_error)
        return known_bounds.between(below, above, *others)

    def replaced(self, base: batches.Base, members: int) -> Mechanism:
        """Returns the mechanism where other records replace the members of a group."""
        return self.split(base, members, members)

    def absent(self, base: batches.Base, removed: int, inserted: int) -> Mechanism:
        """Returns the mechanism where each dataset lacks the other one's members."""
        return self.split(base, removed, inserted)

    def one(self, base: batches.Base, relation: NeighborRel) -> Mechanism:
        """Returns the mechanism on batches of datasets that differ in one record.

        Args:
            base: The mechanism that runs on a batch.
            relation: What happens to the record in the other dataset.
        """
        if relation is NeighborRel.REPLACE_ONE:
            return self.one_replaced(base)
        if relation is NeighborRel.REPLACE_SPECIAL:
            return self.one_zeroed(base)
        return self.one_absent(base)

    def one_absent(self, base: batches.Base) -> Mechanism:
        """Returns the mechanism where the other dataset lacks the record."""
        return self.split(base, 1, 0)

    def one_replaced(self, base: batches.Base) -> Mechanism:
        """Returns the mechanism where the other dataset has another record instead."""
        return self.replaced(base, 1)

    def one_zeroed(self, base: batches.Base) -> Mechanism:
        """Returns the mechanism where the record contributes nothing, but is drawn."""
        return self.split(base, 1, 0)


@dataclasses.dataclass(frozen=True)
class Poisson(Scheme):
    """Every record takes part with the same probability, independently.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8.
    """

    rate: float

    @property
    def takes_all(self) -> bool:
        return self.rate == 1

    def coupled(self, removed: int, inserted: int) -> Sequence[Coupled]:
        return [
            Coupled(
                sampled_members.poisson(removed, self.rate),
                sampled_members.poisson(inserted, self.rate),
            )
        ]

    def attained(
        self, base: batches.Base, removed: int, inserted: int
    ) -> Sequence[Coupled]:
        return self.coupled(removed, inserted)

    def rdp_theorem(self, base: batches.Base) -> RdpTheorem | None:
        noise = base.gaussian_noise
        if noise is None:
            return None
        rate = self.rate
        return lambda orders, size: shifted_noise.group_rdp(orders, size, rate, noise)


# Every batch is the whole dataset.
UNSAMPLED = Poisson(1.0)


@dataclasses.dataclass(frozen=True)
class FixedSize(Scheme):
    """A batch of fixed size, of records drawn with or without replacement.

    A member replaces another record in the batch, so it moves the sum by twice the
    bound on a record's norm. If there are too few other records to fill the batch, it
    moves the sum by its own norm.

    Attributes:
        dataset_size: Number of records with the whole group present, N.
        sample_size: Number of draws, q.
        with_replacement: Whether a record can be drawn again.
    """

    group_relations = frozenset(
        {NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE}
    )

    dataset_size: int
    sample_size: int
    with_replacement: bool

    @property
    def rate(self) -> float:
        """A record's share of the draws."""
        return self.sample_size / self.dataset_size

    def members(self, present: int, absent: int) -> Shifts:
        """Returns the law of the number of members in a batch of one dataset.

        Args:
            present: Members of the group in the dataset.
            absent: Members of the group that are in the other dataset only.
        """
        size = self.dataset_size - absent
        if self.with_replacement:
            return sampled_members.with_replacement(present, size, self.sample_size)
        return sampled_members.without_replacement(
            present, size, min(self.sample_size, size)
        )

    def coupled(self, removed: int, inserted: int) -> Sequence[Coupled]:
        common = self._batch(self.dataset_size - removed - inserted)
        first, second = (
            self._batch(self.dataset_size - absent) for absent in (inserted, removed)
        )
        return [
            Coupled(
                self._moves(removed, inserted, common - first),
                self._moves(inserted, removed, common - second),
            )
        ]

    def attained(
        self, base: batches.Base, removed: int, inserted: int
    ) -> Sequence[Coupled]:
        """Returns batches of records with values of +1 and −1, the largest norm.

        Members who leave have +1. All other records, and members who join, have −1. So
        all batches of the second dataset have one sum.
        """
        if not (removed and inserted) or base.is_revealing:
            return self.coupled(removed, inserted)
        first, second = (
            self._batch(self.dataset_size - absent) for absent in (inserted, removed)
        )
        return [Coupled(self._moves(removed, inserted, second - first))]

    def replaced(self, base: batches.Base, members: int) -> Mechanism:
        if base.is_revealing or base.is_of_one_question:
            # Here `dataset_size` is the size of either dataset, while a split counts
            # the members of both.
            size = self.dataset_size + members
            union = dataclasses.replace(self, dataset_size=size)
            return union.split(base, members, members)
        base, drawn = base.replaced(), self.members(members, 0)
        above = batches.replaced_members(base, drawn)
        # The members have the value +1, and all other records have −1.
        is_attained = members == 1 or base.attains([Coupled(drawn)])
        below = base.on(drawn, batches.NONE) if is_attained else None
        return known_bounds.between(below, above)

    def one_absent(self, base: batches.Base) -> Mechanism:
        if base.counts_norms:
            return self.split(base, 1, 0)
        # A member takes the place of another record, at distance one.
        parts = [Coupled(self.members(1, 0))]
        return batches.on_batches(base, parts, is_attained=self.dataset_size > 1)

    def one_replaced(self, base: batches.Base) -> Mechanism:
        if base.is_revealing or self.with_replacement:
            return self.replaced(base, 1)
        one = base.replaced().on(((1.0, 1.0),), batches.NONE)
        return subsampled.substituted_sample(one, self.rate)

    def one_zeroed(self, base: batches.Base) -> Mechanism:
        """Returns the mechanism where the record contributes nothing, but is drawn.

        For Gaussian noise and draws without replacement the bound is tight. Otherwise
        the upper bound is that of a record that is replaced, and the lower bound is
        that of a record whose others contribute nothing either.
        """
        if base.gaussian_noise is not None and not self.with_replacement:
            return subsampled.zeroed_sample(base.gaussian_noise, self.rate)
        above = self.one_replaced(base)
        below = base.on(self.members(1, 0), batches.NONE)
        return known_bounds.between(below, above)

    def _moves(self, present: int, absent: int, missing: int) -> Shifts:
        """Returns the law of the distance of a batch: two norms for each member.

        Args:
            present: Members of the group in the dataset.
            absent: Members of the group that are in the other dataset only.
            missing: How many records fewer than the other batch this one holds.
        """
        return tuple(
            (2.0 * members + missing, weight)
            for members, weight in self.members(present, absent)
        )

    def _batch(self, size: int) -> int:
        """Returns the size of a batch from a dataset of this size."""
        if self.with_replacement and size:
            return self.sample_size
        return min(self.sample_size, size)
