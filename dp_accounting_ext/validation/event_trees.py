"""Trees of events: checks of their size, and what they compose."""

from collections.abc import Iterator
from typing import Any

from dp_accounting import dp_event

from dp_accounting_ext.validation import fields

MOST_EVENTS = 300_000
DEEPEST = 200
MOST_SAMPLINGS = 16
# The most lines of a description, and the most characters of a line.
_MOST_LINES, _LONGEST_LINE = 10, 300


def event_tree(event: Any) -> None:
    """Checks the size of a tree of events before any code recurses into it.

    Raises:
        TypeError: If it, or a part of it, is not an event.
        ValueError: If it is nested too deeply, or holds too many events.
    """
    stack = [(event, 0, 0)]
    events = 0
    while stack:
        node, depth, samplings = stack.pop()
        events += 1
        if not isinstance(node, dp_event.DpEvent):
            raise TypeError(f"event must be a DpEvent. Found {node!r}.")
        name = type(node).__name__
        if events > MOST_EVENTS:
            raise ValueError(
                f"event must hold at most {MOST_EVENTS} events. Found more."
            )
        if depth > DEEPEST:
            raise ValueError(
                f"event must be nested at most {DEEPEST} deep. "
                f"Found a {name} below as many."
            )
        if samplings > MOST_SAMPLINGS:
            raise ValueError(
                f"event must sample at most {MOST_SAMPLINGS} times one within another. "
                f"Found a {name} below as many."
            )
        composed = dp_event.ComposedDpEvent | dp_event.SelfComposedDpEvent
        below = samplings + (not isinstance(node, composed))
        stack += [(child, depth + 1, below) for child in _children(node)]


def nodes(event: dp_event.DpEvent) -> Iterator[Any]:
    """Yields an event and all events and fields inside it.

    Raises:
        TypeError: If the events of a composition are not a sequence.
    """
    stack = [event]
    while stack:
        yield stack[-1]
        stack += _children(stack.pop())


def repeated(event: dp_event.DpEvent, count: int) -> tuple[dp_event.DpEvent, int]:
    """Returns the event that an event repeats, and how many times in all.

    Raises:
        TypeError, ValueError: If a count is not a positive integer.
    """
    while isinstance(event, dp_event.SelfComposedDpEvent):
        count *= fields.positive_integer("count", event.count)
        event = event.event
    return event, fields.positive_integer("count", count)


def described(ledger: dp_event.DpEvent) -> list[tuple[str, str]]:
    """Returns (count, description) of each event that was composed.

    Args:
        ledger: The ledger of an accountant.
    """
    parts = composed(ledger)
    lines = [
        (str(count), str(event)[:_LONGEST_LINE]) for event, count in parts[:_MOST_LINES]
    ]
    if len(parts) > _MOST_LINES:
        lines.append(("", f"and {len(parts) - _MOST_LINES} more"))
    return lines or [("", "nothing")]


def composed(ledger: dp_event.DpEvent) -> list[tuple[dp_event.DpEvent, int]]:
    """Returns (event, count) of the events that were composed.

    Args:
        ledger: The ledger of an accountant.
    """
    parts = getattr(ledger, "events", [ledger])
    return [
        repeated(part, 1)
        for part in parts
        if not isinstance(part, dp_event.NoOpDpEvent)
    ]


def _children(event: dp_event.DpEvent) -> list[Any]:
    children = (
        fields.sequence("events", event.events) if hasattr(event, "events") else []
    )
    return [*children, event.event] if hasattr(event, "event") else children


def leaves(event: dp_event.DpEvent) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yields (event, count) of the leaves of a tree of compositions.

    Raises:
        TypeError, ValueError: If a count is not a positive integer.
    """
    stack = [(event, 1)]
    while stack:
        node, count = stack.pop()
        if isinstance(node, dp_event.SelfComposedDpEvent):
            number = fields.positive_integer("count", node.count)
            stack.append((node.event, count * number))
        elif isinstance(node, dp_event.ComposedDpEvent):
            children = fields.sequence("events", node.events)
            stack += [(child, count) for child in children]
        else:
            yield node, count
