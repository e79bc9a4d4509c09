"""From events to mechanisms, by a table that others may add to."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

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
        builders: From types of events to what builds their mechanisms.
        in_sample: Whether the event runs on a sample of the records.
    """

    neighboring_relation: NeighborRel
    builders: "Mapping[type, Builder]"
    in_sample: bool = False

    def mechanism(self, event: stock.DpEvent) -> interface.Mechanism:
        """Returns what an event, or a tree of events, composes.

        Raises:
            UnsupportedError: If no mechanism is known for some part of it.
            TypeError, ValueError: If a field is not what it should be.
        """
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
            if kind in self.builders:
                return self.builders[kind](event, self)
        raise UnsupportedError(event, "Unsupported event.")


Builder = Callable[[Any, Reader], interface.Mechanism]


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
