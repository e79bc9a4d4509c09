"""From events to Rényi curves, by a table of their types."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import renyi_pairs
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.validation import event_trees

NeighborRel = privacy_accountant.NeighboringRelation


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads events, given what the answer depends on besides them.

    Attributes:
        neighboring_relation: The accountant's.
        table: From types of events to what is known of them.
        in_sample: Whether the event runs on a sample of the records.
    """

    neighboring_relation: NeighborRel
    table: "Mapping[type, Entry]"
    in_sample: bool = False

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
        counts: dict[curves.Curve, int] = {}
        for leaf, count in event_trees.leaves(event):
            part = self._single(leaf)
            counts[part] = counts.get(part, 0) + count
        counts = curves.together(counts)
        event_reader.check_distinct(len(counts))
        return counts

    def curve(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the one curve of a tree of events, as `counts` does."""
        return curves.compose(self.counts(event))

    def sampled(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the curve of a tree that runs on a sample of the records."""
        return dataclasses.replace(self, in_sample=True).curve(event)

    def require(self, event: stock.DpEvent, *relations: NeighborRel) -> None:
        """Raises `UnsupportedError` unless the relation is one of these."""
        event_reader.Reader(self.neighboring_relation, {}).require(event, *relations)

    def _single(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the curve of a theorem, or of pairs where there is none."""
        try:
            return self._by_theorem(event)
        except event_reader.UnsupportedError:
            mechanism = self.mechanism(event)
            if mechanism is None:
                raise
        return renyi_pairs.curve(mechanism, self.neighboring_relation)

    def mechanism(self, event: stock.DpEvent) -> interface.Mechanism | None:
        """Returns what an event composes, if it has pairs, and None if it has none."""
        return renyi_pairs.mechanism_of(
            event, self.neighboring_relation, in_sample=self.in_sample
        )

    def _by_theorem(self, event: stock.DpEvent) -> curves.Curve:
        for kind in type(event).__mro__:
            if kind in self.table:
                self.table[kind].check_fields(event)
                return self.table[kind].build(event, self)
        raise event_reader.UnsupportedError(event, "Unsupported event.")


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a type of events.

    Attributes:
        build: From an event and a `Reader` to a curve; it checks the event's fields.
        fields: The names of the fields that it reads.
    """

    build: Callable[[Any, Reader], curves.Curve]
    fields: frozenset[str]

    def check_fields(self, event: stock.DpEvent) -> None:
        """Raises `UnsupportedError` for fields that a newer class has.

        Nothing is known of what they mean.
        """
        found = {field.name for field in attr.fields(type(event))}
        unknown = ", ".join(sorted(found - self.fields))
        if unknown:
            raise event_reader.UnsupportedError(
                event,
                f"`{type(event).__name__}` has fields that are not accounted for: "
                f"{unknown}.",
            )
