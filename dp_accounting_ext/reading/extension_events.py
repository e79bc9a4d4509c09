"""Events that the stock library does not have."""

import functools

from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import stock_pld
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import sampling_event

NeighborRel = privacy_accountant.NeighboringRelation
# A limit: distributions that were read last and are kept, some 20 MB each.
_MOST_READ = 8


def known_distribution(
    event: dp_event.PLDEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a mechanism of which a privacy loss distribution is known."""
    reader.require_own_relation(event)
    return _of_distribution(event.privacy_loss_distribution)


@functools.lru_cache(maxsize=_MOST_READ)
def _of_distribution(
    distribution: stock_pld.PrivacyLossDistribution,
) -> interface.Mechanism:
    """Returns the mechanism of a distribution: one object, so that runs are counted.

    Raises:
        TypeError, ValueError: If it is no pessimistic privacy loss distribution.
    """
    known = known_bounds.KnownPairs(stock_pld.read(distribution)[0])
    if known.bound is not Bound.UPPER:
        raise ValueError(
            "privacy_loss_distribution must be pessimistic, as only an upper bound can "
            "be composed. Found pessimistic_estimate=False."
        )
    return known


def random_allocation(
    event: dp_event.RandomAllocationEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads steps in k of which each record takes part."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    inner = reader.sampled(event.event)
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    return allocated.allocate(inner, selected, steps)


def scheduled_allocation(
    event: dp_event.ScheduledAllocationEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads an allocation epoch whose steps differ, or that was stopped."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    events = fields.sequence("events", event.events)
    numbers = fields.sequence("counts", event.counts)
    if not events or len(events) != len(numbers):
        raise ValueError(
            "events and counts must have the same length, at least 1. "
            f"Found {len(events)} and {len(numbers)}."
        )
    counts: dict[interface.Mechanism, int] = {}
    for inner, count in zip(events, numbers, strict=True):
        part = reader.sampled(inner)
        number = fields.positive_integer("counts", count)
        counts[part] = counts.get(part, 0) + number
    event_reader.check_distinct(len(counts))
    run = sum(counts.values())
    steps = fields.number_of_steps(event.num_steps)
    if run > steps:
        raise ValueError(
            f"counts must sum to at most num_steps. Found {run} of {steps}."
        )
    return allocated.allocate_to_schedule(counts, steps)


def private_sampling(
    event: sampling_event.PrivateSamplingEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads one draw from a private distribution."""
    # Imported here: few programs draw, and an import of the package should be fast.
    from dp_accounting_ext.wpm import checks
    from dp_accounting_ext.wpm import reached_laws

    if reader.in_sample:
        raise event_reader.UnsupportedError(
            event,
            "`PrivateSamplingEvent` cannot run on a sample: nothing says what a record "
            "outside of it releases.",
        )
    reader.require(event, NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL)
    privacy = checks.epsilon(event.epsilon)
    total = fields.real_number("total_mass", event.total_mass)
    mass = checks.total_mass("total_mass must be", total, privacy)
    largest = checks.largest_masses(event.largest_masses, mass)
    return discrete_outputs.PrivateDraw(
        reached_laws.dominating(privacy, mass, largest),
        reached_laws.attained(privacy, mass, largest)[0],
    )
