"""Readers of trees of events, by a table from types of events to builders."""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import functools
from typing import Any

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated_replacements
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import schedules
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation

# A limit: the pairs of this many mechanisms fit into the memory of a laptop.
_MOST_DISTINCT = 2000
_SHOWN = 200  # The number of characters of either end of an event, in an error.


class UnsupportedError(Exception):
    """Raised if no mechanism is known for an event.

    Attributes:
        event: The event.
        message: Why it is not supported, and what would be.
    """

    def __init__(self, event: Any, message: str) -> None:
        super().__init__(message)
        self.event = event
        self.message = message


def refusal(
    event: stock.DpEvent, part: Any, message: str | None
) -> privacy_accountant.UnsupportedEventError:
    """Returns the error that the stock accountant raises for an unsupported part."""
    return privacy_accountant.UnsupportedEventError(
        f"Unsupported event: {_shown(event)}. Error: [{message}] caused by subevent "
        f"{_shown(part)}."
    )


def _shown(event: Any) -> str:
    """Returns the text of an event, without the middle if it is long."""
    text = str(event)
    if len(text) <= 2 * _SHOWN:
        return text
    return f"{text[:_SHOWN]} … {text[-_SHOWN:]}"


def refuse_group(event: stock.DpEvent, message: str) -> None:
    """Raises `UnsupportedError` if an event is, or holds, an event of a group."""
    of_groups = dp_event.GroupSubsampledEvent
    if any(isinstance(node, of_groups) for node in event_trees.nodes(event)):
        raise UnsupportedError(event, message)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: how a type of events is read.

    Attributes:
        fields: The names of the fields that are accounted for. Further fields, of a
            newer version, are not ignored.
        mechanism: The function from an event and a `Reader` to the event's mechanism.
            It checks the event's fields.
    """

    fields: Set[str]
    mechanism: "Builder"


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads trees of events under a neighboring relation.

    Attributes:
        neighboring_relation: The relation under which events are read.
        rows: The table from types of events to rows.
        in_sample: Whether the event runs on a sample of the records.
        is_derived: Whether the relation is not the accountant's, but one from which
            bounds for the accountant's relation follow.
    """

    neighboring_relation: NeighborRel
    rows: Mapping[type, Row]
    in_sample: bool = False
    is_derived: bool = False

    def mechanism(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns the mechanism of an event, or of a tree of events.

        Raises:
            UnsupportedError: If no mechanism is known for some part of it.
            TypeError, ValueError: If a field has the wrong type or is out of range.
        """
        self._check_known(event)
        counts: dict[interface.Mechanism, int] = {}
        for leaf, count in event_trees.leaves(event):
            part = self.single(leaf)
            counts[part] = counts.get(part, 0) + count
        check_counts(counts)
        return compositions.compose(counts)

    def parts(self, event: stock.DpEvent) -> dict[interface.Mechanism, int]:
        """Returns the mechanisms that an event composes, as `mechanism` does."""
        return compositions.unpacked({self.mechanism(event): 1})

    def sampled(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns the mechanism of an event that runs on a sample of the records."""
        return dataclasses.replace(self, in_sample=True).mechanism(event)

    def require_own_relation(self, event: stock.DpEvent) -> None:
        """Raises `UnsupportedError` if the relation is derived from the accountant's.

        An event that states that a mechanism is (ε, δ)-private states it for the
        accountant's relation. The theorems for batches of fixed size, and for a
        replaced record on a Poisson sample, need it for another relation.
        """
        if self.is_derived:
            raise UnsupportedError(
                event,
                f"`{type(event).__name__}` states what one record changes under the "
                "neighboring_relation of the accountant; here another counts: "
                f"{self.neighboring_relation}.",
            )

    def single(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns the mechanism of an event that is not a composition.

        If the event's builder supports no replaced records, a replacement is read as
        the removal of a record and the addition of another.
        """
        rows = (self.rows[kind] for kind in type(event).__mro__ if kind in self.rows)
        row = next(rows, None)
        if row is None:
            raise UnsupportedError(
                event,
                f"No mechanism is known for `{type(event).__name__}`; "
                "`PLDAccountant.register` takes one.",
            )
        try:
            return row.mechanism(event, self)
        except UnsupportedError as error:
            is_replaced = self.neighboring_relation is NeighborRel.REPLACE_ONE
            # An error in an inner event is not due to the relation.
            if error.event is not event or not is_replaced:
                raise
        absent = self.under(NeighborRel.ADD_OR_REMOVE_ONE)
        return allocated_replacements.replaced(row.mechanism(event, absent))

    def require(self, event: stock.DpEvent, *relations: NeighborRel) -> None:
        """Raises `UnsupportedError` unless the relation is one of these."""
        if self.neighboring_relation not in relations:
            allowed = " or ".join(f"`{relation.name}`" for relation in relations)
            raise UnsupportedError(
                event,
                f"neighboring_relation must be {allowed} for "
                f"`{type(event).__name__}`. Found {self.neighboring_relation}.",
            )

    def refuse_sample(self, event: stock.DpEvent, verb: str) -> None:
        """Raises `UnsupportedError` on a sample, for what every record does."""
        if self.in_sample:
            raise UnsupportedError(
                event,
                f"`{type(event).__name__}` cannot run on a sample: nothing says what a "
                f"record outside of it {verb}.",
            )

    def under(self, relation: NeighborRel) -> "Reader":
        """Returns a reader for another relation, from which bounds are derived."""
        if relation is self.neighboring_relation:
            return self
        return dataclasses.replace(self, neighboring_relation=relation, is_derived=True)

    def _check_known(self, event: stock.DpEvent) -> None:
        """Raises `UnsupportedError` if any event in the tree is newer than the table.

        A class of dp_accounting that is not in the table is not read as its parent
        class. An unknown field, of a newer version or a subclass, must have its default
        value: the event then means the same as without the field.
        """
        for node in event_trees.nodes(event):
            name, defaults = type(node).__name__, field_defaults(type(node))
            if isinstance(node, stock.UnsupportedDpEvent):
                raise UnsupportedError(
                    node,
                    f"`{name}` stands for a mechanism that no event describes. Put an "
                    "event that bounds it in its place.",
                )
            known = self._known_fields(type(node))
            if known is None:
                raise UnsupportedError(
                    node,
                    f"`{name}` is of a newer dp_accounting than this package accounts "
                    "for; ask the stock accountant, or `PLDAccountant.register` a "
                    "mechanism for it.",
                )
            for field in defaults.keys() - known:
                value = getattr(node, field)
                if not _is_same(value, defaults[field]):
                    raise UnsupportedError(
                        node,
                        f"`{name}` has a field that is not accounted for: {field}. "
                        f"Found {value!r}.",
                    )

    def _known_fields(self, event_type: type) -> Set[str] | None:
        """Returns the fields that are accounted for, None if the class is too new."""
        for kind in event_type.__mro__:
            if kind in self.rows:
                return self.rows[kind].fields
            if kind in _COMPOSITIONS:
                return _COMPOSITIONS[kind]
            if kind is stock.DpEvent:
                break
            if kind.__module__.split(".")[0] == _STOCK_PACKAGE:
                return None
        return field_defaults(event_type).keys()


Builder = Callable[[Any, Reader], interface.Mechanism]

_STOCK_PACKAGE = stock.__name__.split(".")[0]
_COMPOSITIONS = {
    stock.ComposedDpEvent: {"events"},
    stock.SelfComposedDpEvent: {"event", "count"},
}
_KNOWN_RELATIONS = {"ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL"}


def check_relation(relation: NeighborRel) -> None:
    """Raises `ValueError` for a neighboring relation that is not supported."""
    if relation.name not in _KNOWN_RELATIONS:
        known = ", ".join(sorted(_KNOWN_RELATIONS))
        raise ValueError(
            f"neighboring_relation must be one of {known}. Found {relation.name}."
        )


def _field_defaults(event_type: Any) -> Mapping[str, Any]:
    """Returns the fields of a type of events, with their defaults."""
    if not attr.has(event_type):
        return {}
    return {field.name: field.default for field in attr.fields(event_type)}


field_defaults: Callable[[type], Mapping[str, Any]]
field_defaults = functools.lru_cache(_field_defaults)


def _is_same(value: Any, default: Any) -> bool:
    """Returns whether a value equals a default, if the two can be compared."""
    return value is default or (type(value) is type(default) and value == default)


def check_counts(
    counts: Mapping[interface.Mechanism, int],
    known: Container[interface.Mechanism] = (),
    num_known: int = 0,
) -> int:
    """Returns the number of different mechanisms, Gaussian and scheduled ones aside.

    All Gaussian mechanisms of a composition are merged into one, and Gaussian ones on
    samples into few. Mechanisms in `known` are among the `num_known` that were counted
    before.

    Raises:
        ValueError: If a mechanism runs too often, or if there are too many mechanisms.
    """
    distinct = num_known
    for part, count in counts.items():
        fields.positive_integer("count", count)
        is_gaussian = isinstance(part, additive_noise.Gaussian)
        may_run = is_gaussian or known_bounds.is_certain(part)
        if not (may_run or count <= fields.MOST_RUNS):
            raise ValueError(
                f"count must be at most {fields.MOST_RUNS} for what is no "
                f"Gaussian mechanism. Found {count}."
            )
        if not (is_gaussian or part in known or schedules.is_scheduled(part)):
            distinct += 1
    check_distinct(distinct)
    return distinct


def check_distinct(number: int) -> None:
    """Raises `ValueError` for more different mechanisms than memory may hold."""
    if number > _MOST_DISTINCT:
        raise ValueError(
            f"event must add up to at most {_MOST_DISTINCT} different mechanisms, "
            f"Gaussian ones aside. Found {number}: round their noise down, so that "
            "equal ones count as one."
        )
