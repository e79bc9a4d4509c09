"""From events to mechanisms, by a table that others may add to."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation

# Tuning: pairs of so many mechanisms fit the memory of a laptop.
_MOST_DISTINCT = 2000


class UnsupportedError(Exception):
    """Raised where no mechanism is known for an event.

    Attributes:
        event: The event.
        message: What is the matter, and what would do.
    """

    def __init__(self, event: Any, message: str) -> None:
        super().__init__(message)
        self.event = event
        self.message = message


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads events, given what the answer depends on besides them.

    Attributes:
        neighboring_relation: The accountant's.
        rows: From types of events to what builds their mechanisms.
        in_sample: Whether the event runs on a sample of the records.
    """

    neighboring_relation: NeighborRel
    rows: "Mapping[type, Row]"
    in_sample: bool = False

    def mechanism(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns what an event, or a tree of events, composes.

        Raises:
            UnsupportedError: If no mechanism is known for some part of it.
            TypeError, ValueError: If a field is not what it should be.
        """
        self._check_known(event)
        counts: dict[interface.Mechanism, int] = {}
        for leaf, count in event_trees.leaves(event):
            part = self._single(leaf)
            counts[part] = counts.get(part, 0) + count
        check_counts(counts)
        check_distinct(count_distinct(counts))
        return compositions.compose(counts)

    def sampled(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns what an event composes that runs on a sample of the records."""
        return dataclasses.replace(self, in_sample=True).mechanism(event)

    def require(self, event: stock.DpEvent, *relations: NeighborRel) -> None:
        """Raises `UnsupportedError` unless the relation is one of these."""
        if self.neighboring_relation not in relations:
            allowed = " or ".join(f"`{relation.name}`" for relation in relations)
            raise UnsupportedError(
                event,
                f"neighboring_relation must be {allowed} for "
                f"`{type(event).__name__}`. Found {self.neighboring_relation}.",
            )

    def _single(self, event: stock.DpEvent) -> interface.Mechanism:
        for kind in type(event).__mro__:
            if kind in self.rows:
                return self.rows[kind].builder(event, self)
        raise UnsupportedError(
            event,
            "Unsupported event. No mechanism is known for "
            f"`{type(event).__name__}`; `PLDAccountant.register` takes one.",
        )

    def _check_known(self, event: stock.DpEvent) -> None:
        """Raises `UnsupportedError` for what is newer than the table, anywhere.

        A class of dp_accounting's own that is not in the table is not its parent,
        whatever it inherits. A field that is not known must have its default: a newer
        version, or a subclass, then means what it meant without it.
        """
        stack: list[Any] = [event]
        while stack:
            node = stack.pop()
            if self._is_newer(type(node)):
                raise UnsupportedError(
                    node,
                    f"Unsupported event. `{type(node).__name__}` is of a newer "
                    "dp_accounting than this package accounts for; ask the stock "
                    "accountant, or `PLDAccountant.register` a mechanism for it.",
                )
            for name in self._unknown_fields(type(node)):
                value = getattr(node, name)
                if not _is_same(value, field_defaults(type(node))[name]):
                    raise UnsupportedError(
                        node,
                        f"`{type(node).__name__}` has a field that is not accounted "
                        f"for: {name}. Found {value!r}.",
                    )
            stack += [node.event] if hasattr(node, "event") else []
            stack += getattr(node, "events", ())

    def _is_newer(self, event_type: type) -> bool:
        for kind in event_type.__mro__:
            if kind in self.rows or kind in _COMPOSITIONS or kind is stock.DpEvent:
                return False
            if kind.__module__.split(".")[0] == _STOCK_PACKAGE:
                return True
        return False

    def _unknown_fields(self, event_type: type) -> frozenset[str]:
        names = frozenset(field_defaults(event_type))
        for kind in event_type.__mro__:
            if kind in self.rows:
                return names - self.rows[kind].fields
            if kind in _COMPOSITIONS:
                return names - _COMPOSITIONS[kind]
        return frozenset()


Builder = Callable[[Any, Reader], interface.Mechanism]


@dataclasses.dataclass(frozen=True)
class Row:
    """What is known of a type of events.

    Attributes:
        builder: From an event and a `Reader` to a `Mechanism`.
        fields: The names of the fields that it accounts for.
    """

    builder: Builder
    fields: frozenset[str]


_STOCK_PACKAGE = stock.__name__.split(".")[0]
_COMPOSITIONS = {
    stock.ComposedDpEvent: frozenset(["events"]),
    stock.SelfComposedDpEvent: frozenset(["event", "count"]),
}
_KNOWN_RELATIONS = {"ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL"}


def check_relation(relation: NeighborRel) -> None:
    """Raises `ValueError` for a relation that is newer than what is accounted for."""
    if relation.name not in _KNOWN_RELATIONS:
        known = ", ".join(sorted(_KNOWN_RELATIONS))
        raise ValueError(
            f"neighboring_relation must be one of {known}. Found {relation.name}."
        )


def field_defaults(event_type: type) -> Mapping[str, Any]:
    """Returns the fields of a type of events, with their defaults."""
    return _field_defaults(event_type)


@functools.lru_cache(maxsize=1024)
def _field_defaults(event_type: Any) -> Mapping[str, Any]:
    if not attr.has(event_type):
        return {}
    return {field.name: field.default for field in attr.fields(event_type)}


def _is_same(value: Any, default: Any) -> bool:
    """Tells whether a value is a default, in so far as it can be told."""
    return value is default or (type(value) is type(default) and value == default)


def check_counts(counts: Mapping[interface.Mechanism, int]) -> None:
    """Raises `ValueError` for more runs of a mechanism than are accounted for."""
    for part, count in counts.items():
        fields.positive_integer("count", count)
        trivial = compositions.is_certainly_known(part)
        if isinstance(part, additive_noise.Gaussian) or trivial:
            continue
        if count > fields.MOST_RUNS:
            raise ValueError(
                f"count must be at most {fields.MOST_RUNS} for what is no "
                f"Gaussian mechanism. Found {count}."
            )


def count_distinct(parts: Iterable[interface.Mechanism]) -> int:
    """Returns how many mechanisms there are but for Gaussian ones, which become one."""
    return sum(not isinstance(part, additive_noise.Gaussian) for part in parts)


def check_distinct(number: int) -> None:
    """Raises `ValueError` for more different mechanisms than memory may hold."""
    if number > _MOST_DISTINCT:
        raise ValueError(
            f"event must add up to at most {_MOST_DISTINCT} different mechanisms, "
            f"Gaussian ones aside. Found {number}: round their noise down, so that "
            "equal ones count as one."
        )
