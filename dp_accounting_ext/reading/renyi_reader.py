"""From events to Rényi curves."""

import dataclasses

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import renyi_pairs
from dp_accounting_ext.renyi import curves

NeighborRel = privacy_accountant.NeighboringRelation


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

    def single(self, event: stock.DpEvent) -> curves.Curve:
        """Returns the curve of a theorem, or of pairs where there is none."""
        try:
            return super().single(event)
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

    def is_newer(self, event_type: type) -> bool:
        """Tells whether a class of dp_accounting's is newer than the table."""
        return super().is_newer(event_type) and renyi_pairs.is_unknown(event_type)

    def _unsupported(self, event: stock.DpEvent) -> event_reader.UnsupportedError:
        return event_reader.UnsupportedError(
            event,
            "No Rényi curve is known for "
            f"`{type(event).__name__}`; `PLDAccountant` may take it.",
        )
