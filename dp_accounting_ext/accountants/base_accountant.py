"""The base class of both accountants: it composes an event entirely, or not at all."""

import abc
import copy
import threading
from typing import Any
from typing import TypeAlias
from typing import TypeVar

from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as stock_pld

from dp_accounting_ext import displays
from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

CompositionErrorDetails = privacy_accountant.PrivacyAccountant.CompositionErrorDetails
_Parts: TypeAlias = dict[interface.Mechanism, int]
Accountant = TypeVar("Accountant", bound="Composing")

# All accountants share this lock, so that no run is lost if two threads compose at the
# same time: a lost run would make a bound too small. (A lock of each accountant could
# not be copied or pickled.) What was composed is one immutable value, so that queries
# need no lock.
_COMPOSING = threading.RLock()


class Composing(displays.Displayed, privacy_accountant.PrivacyAccountant):
    """An accountant that keeps what was composed as one immutable value.

    Args:
        neighboring_relation: Which datasets are adjacent.
    """

    def __init__(
        self, neighboring_relation: privacy_accountant.NeighboringRelation
    ) -> None:
        event_reader.check_relation(fields.neighboring_relation(neighboring_relation))
        # The stock class's constructor is skipped: its state would stay empty, and
        # reading it must raise.
        privacy_accountant.PrivacyAccountant.__init__(self, neighboring_relation)
        self._composed = self._nothing(group_events.ONE_RECORD)

    @abc.abstractmethod
    def _nothing(self, group: group_events.Group) -> Any:
        """Returns the empty composition, as a group sees it."""

    @abc.abstractmethod
    def _plus(self, before: Any, parts: _Parts, count: int) -> Any:
        """Returns the composition with `count` runs of some mechanisms added."""

    def _display(self) -> displays.Table:
        relation = self._neighboring_relation.name
        rows = [(event, runs) for runs, event in event_trees.described(self.ledger)]
        title = f"{type(self).__name__}, {relation}"
        return displays.Table(title, ("composed", "runs"), rows)

    def __repr__(self) -> str:
        """Returns a description of what was composed, without computing any bound."""
        shown = self._display()
        lines = [
            f"  {runs} × {event}" if runs else f"  {event}"
            for event, runs in shown.rows
        ]
        return "\n".join([f"{shown.title}, composed:", *lines])

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for copies and pickles, with a ledger of their own."""
        with _COMPOSING:
            return {**vars(self), "_ledger": copy.deepcopy(self._ledger)}

    @property
    def ledger(self) -> stock_dp_event.DpEvent:
        """The events composed so far, as one event."""
        with _COMPOSING:
            return self._ledger.build()

    def supports(self, event: stock_dp_event.DpEvent) -> bool:
        """Returns whether the event has a supported type, whatever its fields."""
        try:
            event_trees.event_tree(event)
        except (TypeError, ValueError):
            return False
        return self._maybe_compose(event, 0, False) is None

    def compose(
        self: Accountant,
        event: stock_dp_event.DpEvent | stock_pld.PrivacyLossDistribution,
        count: int = 1,
    ) -> Accountant:
        """Composes an event entirely, or raises and changes nothing.

        Args:
            event: The event, or a privacy loss distribution, which counts as its
                `PLDEvent`.
            count: The number of its runs.

        Raises:
            TypeError: If a field has the wrong type.
            ValueError: If a field is out of range, or the event is too large.
            UnsupportedEventError: If the accountant does not support the event.
        """
        if isinstance(event, stock_pld.PrivacyLossDistribution):
            event = dp_event.PLDEvent(event)
        event_trees.event_tree(event)
        count = fields.positive_integer("count", count)
        event, count = event_trees.repeated(event, count)
        with _COMPOSING:
            error = self._maybe_compose(event, count, True)
            if error is not None:
                raise event_reader.refusal(
                    event, error.invalid_event, error.error_message
                )
            self._ledger.compose(event, count)
        return self

    def _maybe_compose(
        self, event: stock_dp_event.DpEvent, count: int, do_compose: bool
    ) -> CompositionErrorDetails | None:
        """Composes an event if asked to; returns why it is not supported, or None."""
        before = self._composed
        try:
            group = before.group.joined(group_events.largest(event))
            parts = self._parts(event, group)
            is_larger = group != before.group
            earlier = self._parts(self.ledger, group) if is_larger else {}
        except event_reader.UnsupportedError as error:
            return CompositionErrorDetails(
                invalid_event=error.event, error_message=error.message
            )
        except (TypeError, ValueError):
            if do_compose:
                raise
            return None  # Bad fields are reported when the event is composed.
        if do_compose:
            if is_larger:
                before = self._plus(self._nothing(group), earlier, 1)
            self._composed = self._plus(before, parts, count)
        return None

    def _parts(
        self, event: stock_dp_event.DpEvent, group: group_events.Group
    ) -> _Parts:
        """Returns the mechanisms of an event, as a group sees it."""
        reader = event_table.reader(self._neighboring_relation)
        return reader.parts(group_events.seen_by(event, group))
