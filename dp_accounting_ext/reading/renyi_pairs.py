"""Rényi curves of what no theorem covers, from the pairs of its mechanisms."""

from collections.abc import Sequence
import dataclasses

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import pair_divergences
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import divergence

NeighborRel = privacy_accountant.NeighboringRelation

# A limit of time: each split has pairs of its own.
_MOST_MEMBERS = 64


def mechanism_of(
    event: stock.DpEvent, relation: NeighborRel, *, in_sample: bool
) -> interface.Mechanism | None:
    """Returns what an event composes, if it has pairs, and None if it has none."""
    reader = dataclasses.replace(event_table.reader(relation), in_sample=in_sample)
    try:
        mechanism = reader.mechanism(event)
    except event_reader.UnsupportedError:
        return None
    sizes = groups.group_sizes(compositions.unpacked({mechanism: 1}))
    is_too_large = max(sizes, default=1) > _MOST_MEMBERS
    return None if len(sizes) > 1 or is_too_large else mechanism


def is_unknown(event_type: type) -> bool:
    """Tells whether a type of events is newer than the other accountant's table."""
    return event_table.reader(NeighborRel.ADD_OR_REMOVE_ONE).is_newer(event_type)


def curve(mechanism: interface.Mechanism, relation: NeighborRel) -> curves.Curve:
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
