"""Reads events as Rényi curves: of a theorem, or of the pairs of their mechanisms."""

from collections.abc import Sequence
import dataclasses

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import pair_divergences
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import divergence

NeighborRel = privacy_accountant.NeighboringRelation

# A limit of time: each split has pairs of its own.
_MOST_MEMBERS = 64


@dataclasses.dataclass(frozen=True)
class Reader(event_reader.TreeReader[curves.Curve]):
    """Reads events as curves."""

    @property
    def norms_replaced(self) -> int:
        """How far apart neighbours' sums may be, in norms of a record."""
        return 2 if self.neighboring_relation is NeighborRel.REPLACE_ONE else 1

    def counts(self, event: stock.DpEvent) -> dict[curves.Curve, int]:
        """Returns the curves that a tree of events composes.

        Checks all fields, and computes nothing.

        Raises:
            UnsupportedError: If no theorem covers some part of it.
            TypeError, ValueError: If a field is not what it should be.
        """
        counts = curves.together(self.leaves(event))
        event_reader.check_distinct(len(counts))
        return counts

    def curve(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the one curve of a tree of events, as `counts` does."""
        return curves.compose(self.counts(event))

    def sampled(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the curve of a tree that runs on a sample of the records."""
        return dataclasses.replace(self, in_sample=True).curve(event)

    def _built(self, row: event_reader.Row, event: stock.DpEvent) -> curves.Curve:
        """Returns the curve of a theorem, or of pairs where there is none."""
        try:
            if row.curve is None:
                raise self._unsupported(event)
            found: curves.Curve = row.curve(event, self)
        except event_reader.UnsupportedError:
            mechanism = self.mechanism(event)
            if mechanism is None:
                raise
            return curve_of(mechanism, self.neighboring_relation)
        return found

    def mechanism(self, event: stock.DpEvent) -> interface.Mechanism | None:
        """Returns what an event composes, if it has pairs, and None if it has none."""
        event_reader.check_relation(self.neighboring_relation)
        reader = event_reader.Reader(
            self.neighboring_relation, self.rows, self.in_sample
        )
        try:
            mechanism = reader.mechanism(event)
        except event_reader.UnsupportedError:
            return None
        sizes = groups.group_sizes(compositions.unpacked({mechanism: 1}))
        is_too_large = max(sizes, default=1) > _MOST_MEMBERS
        return None if len(sizes) > 1 or is_too_large else mechanism

    def _unsupported(self, event: stock.DpEvent) -> event_reader.UnsupportedError:
        return event_reader.UnsupportedError(
            event,
            "No Rényi curve is known for "
            f"`{type(event).__name__}`; `PLDAccountant` may take it.",
        )


def curve_of(mechanism: interface.Mechanism, relation: NeighborRel) -> curves.Curve:
    """Returns the curve of a mechanism's pairs, of a group a row for each split."""
    if mechanism == compositions.NO_OP:
        return curves.NO_OP
    if compositions.is_certainly_known(mechanism):
        return curves.NON_PRIVATE
    parts = compositions.unpacked({mechanism: 1})
    (size,) = groups.group_sizes(parts)
    if not any(isinstance(part, groups.Grouped) for part in parts):
        return curves.Curve(pair_divergences.upper_rdp, (mechanism,))
    replace_one = relation is NeighborRel.REPLACE_ONE
    return curves.Curve(_group_rdp, (tuple(parts.items()), size, replace_one))


def _group_rdp(
    orders: Sequence[float],
    parts: Sequence[tuple[interface.Mechanism, int]],
    size: int,
    replace_one: bool,
) -> curves.FloatArray:
    """Returns K + 1 rows: in row K₋ that many members are only in the first dataset.

    Where the group is replaced, all of it is in either dataset: the rows are equal.
    """
    above = [max(float(order), divergence.LOWEST_ORDER) for order in orders]

    def both_ways(split: tuple[int, int]) -> tuple[curves.FloatArray, ...]:
        composed = compositions.compose(
            {
                part.split(*split) if isinstance(part, groups.Grouped) else part: count
                for part, count in parts
            }
        )
        return pair_divergences.divergences(
            composed, above, dominating_pair.Bound.UPPER
        )

    if replace_one:
        return np.tile(both_ways((size, size))[0], (size + 1, 1))
    rows: dict[int, curves.FloatArray] = {}
    for removed in range(size, (size - 1) // 2, -1):
        # A split and its reverse are the two directions of one.
        rows[removed], rows[size - removed] = both_ways((removed, size - removed))
    return np.array([rows[removed] for removed in range(size + 1)])


def least(
    orders: Sequence[float], known: curves.Curve, mechanism: interface.Mechanism
) -> curves.FloatArray:
    """Returns the smaller of a theorem's bound and that of a mechanism's pairs."""
    return np.minimum(known.rdp(orders), pair_divergences.upper_rdp(orders, mechanism))
