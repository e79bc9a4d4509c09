"""Events on a sample of the records: Poisson samples, fixed sizes, allocations."""

import collections
import dataclasses
import math
from typing import Any
from typing import TypeAlias

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.mechanisms import truncated as truncated_samples
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation
NOISES = (
    stock.GaussianDpEvent
    | stock.LaplaceDpEvent
    | stock.NoOpDpEvent
    | stock.NonPrivateDpEvent
)
FixedSize: TypeAlias = (
    stock.SampledWithoutReplacementDpEvent | stock.SampledWithReplacementDpEvent
)
POISSON_SAMPLES = stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent
GROUP_ON_SAMPLE = (
    "`GroupSubsampledEvent` cannot run on a sample: put the sampling inside of it."
)
SEVERAL_OF_SCHEDULE = (
    "`ScheduledAllocationEvent` with num_selected above 1 needs steps of few kinds, "
    "all of which have noise: use fewer kinds, or num_selected=1 for each part of the "
    "schedule."
)
_MOST_DRAWS = 100_000


def scheme_of(event: stock.DpEvent) -> tuple[sampling.Scheme, stock.DpEvent]:
    """Reads how an event draws batches, and returns the event that runs on them.

    An event that draws no batches runs on the whole dataset.
    """
    if isinstance(event, POISSON_SAMPLES):
        rate = fields.sampling_probability(event.sampling_probability)
        return sampling.Poisson(rate), event.event
    if isinstance(event, FixedSize):
        return _fixed_size(event), event.event
    if isinstance(event, stock.TruncatedSubsampledGaussianDpEvent):
        return _truncated(event)
    return sampling.UNSAMPLED, event


def _fixed_size(event: FixedSize) -> sampling.FixedSize:
    size = fields.positive_integer("source_dataset_size", event.source_dataset_size)
    batch = fields.positive_integer("sample_size", event.sample_size)
    replaced = isinstance(event, stock.SampledWithReplacementDpEvent)
    if batch > size and not replaced:
        raise ValueError(
            f"sample_size must be at most source_dataset_size. Found {batch} of {size}."
        )
    if replaced and batch > _MOST_DRAWS:
        raise ValueError(
            f"sample_size must be at most {_MOST_DRAWS} with replacement. "
            f"Found {batch}."
        )
    return sampling.FixedSize(size, batch, replaced)


def _truncated(
    event: stock.TruncatedSubsampledGaussianDpEvent,
) -> tuple[sampling.Scheme, stock.DpEvent]:
    rate = fields.sampling_probability(event.sampling_probability)
    size = fields.non_negative_integer("dataset_size", event.dataset_size)
    batch = fields.non_negative_integer(
        "truncated_batch_size", event.truncated_batch_size
    )
    noise = stock.GaussianDpEvent(fields.noise_multiplier(event.noise_multiplier))
    if not (rate and size and batch):
        return sampling.Poisson(0.0), noise
    return truncated_samples.Truncated(size, rate, batch), noise


def check_group(event: stock.DpEvent, size: int) -> None:
    """Raises `ValueError` for a group of more records than an event's dataset has."""
    for name in ("source_dataset_size", "dataset_size"):
        records = getattr(event, name, size)
        if size > records:
            raise ValueError(
                f"group_size must be at most {name}. Found {size} of {records}."
            )


def noise_of(event: stock.DpEvent) -> batch_mechanisms.Noise:
    """Reads Gaussian or Laplace noise, or no noise where there is no privacy."""
    if isinstance(event, stock.GaussianDpEvent | stock.LaplaceDpEvent):
        noise = fields.noise_multiplier(event.noise_multiplier)
        return batch_mechanisms.Noise(
            noise, is_laplace=noise > 0 and isinstance(event, stock.LaplaceDpEvent)
        )
    return batch_mechanisms.Noise(0.0)


def noise_on_batches(
    event: stock.DpEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads noise, or nothing, on a batch that an event draws."""
    scheme, inner = scheme_of(event)
    if isinstance(inner, stock.NoOpDpEvent):
        return compositions.NO_OP
    return scheme.one(noise_of(inner), reader.neighboring_relation)


def poisson_sampled(
    event: stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent,
    reader: event_reader.Reader,
) -> interface.Mechanism:
    """Reads an event, or a tree of events, on a Poisson sample."""
    rate = fields.sampling_probability(event.sampling_probability)
    if reader.neighboring_relation is NeighborRel.REPLACE_ONE:
        brackets = merged(event)
        if brackets is not None:
            above, below = (poisson_sampled(inner, reader) for inner in brackets)
            return known_bounds.between(below, above)
        if isinstance(event.event, NOISES):
            # A replaced record moves from one end of its range to the other.
            return noise_on_batches(event, reader)
        reader.require(
            event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL
        )
    return subsampled.on_poisson_sample(rate, reader.sampled(event.event))


def merged(
    event: stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent,
) -> list[stock.PoissonSampledDpEvent] | None:
    """Returns the simplification of a nested sample to one noise on one sample.

    A Poisson sample of a Poisson sample is one of the product of the rates, also for
    each member of a group. Several Gaussians on one sample are one Gaussian with less
    noise.

    Returns:
        Two events: the first is rounded to reveal more, the second to reveal less. None
        if the event needs no simplification or does not have this form.
    """
    rate, depth, runs = 1.0, 0, 1
    inner: stock.DpEvent = event
    while runs == 1 and isinstance(inner, POISSON_SAMPLES):
        rate *= fields.sampling_probability(inner.sampling_probability)
        depth += 1
        leaves = list(event_trees.leaves(inner.event))
        runs = sum(count for _, count in leaves)
        inner = leaves[0][0] if leaves else stock.NoOpDpEvent()
    is_noise = runs == 1 and isinstance(inner, NOISES)
    are_gaussian = all(isinstance(leaf, stock.GaussianDpEvent) for leaf, _ in leaves)
    if rate * runs == 0 or (runs, depth) == (1, 1) or not (is_noise or are_gaussian):
        return None
    noises = [inner] * 2 if is_noise else _one_for_all(leaves)
    rounding = 4 * depth * floats.UNIT_ROUNDOFF
    return [
        stock.PoissonSampledDpEvent(min(rate * (1 + error), 1.0), noise)
        for error, noise in zip((rounding, -rounding), noises, strict=True)
    ]


def _one_for_all(leaves: list[tuple[Any, int]]) -> list[stock.DpEvent]:
    """Returns one Gaussian for several, with the noise rounded down, and up."""
    noises = [(fields.noise_multiplier(e.noise_multiplier), n) for e, n in leaves]
    smallest = min(noise for noise, _ in noises)
    if smallest == 0:
        return [stock.NonPrivateDpEvent()] * 2
    # The sum of all 1/σ², over that of the smallest noise.
    precision = math.fsum(count * (smallest / noise) ** 2 for noise, count in noises)
    errors = (-8 * floats.UNIT_ROUNDOFF, 8 * floats.UNIT_ROUNDOFF)
    return [
        stock.GaussianDpEvent((1 + error) * smallest / math.sqrt(precision))
        for error in errors
    ]


def fixed_size(event: FixedSize, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads a batch of fixed size.

    The noise multiplier is relative to the clip, the bound on a record's norm, as in
    the event's definition. A record that is in the batch takes the place of another
    record, so that the sensitivity is 2 · clip under either relation.
    """
    if is_empty(event):
        return compositions.NO_OP
    scheme = _fixed_size(event)
    if isinstance(event.event, NOISES):
        return noise_on_batches(event, reader)
    if reader.neighboring_relation is NeighborRel.REPLACE_SPECIAL:
        return _zeroed_in_batch_of_any(event, scheme, reader)
    return _batch_of_any(event, scheme, reader)


def _batch_of_any(
    event: FixedSize, scheme: sampling.FixedSize, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a mechanism on a batch, from its pairs for one replaced record."""
    between = dataclasses.replace(
        reader.under(NeighborRel.REPLACE_ONE), in_sample=False
    )
    inner = between.mechanism(event.event)
    event_reader.refuse_group(event, GROUP_ON_SAMPLE)
    parts = compositions.unpacked({inner: 1})
    if inner == compositions.NO_OP or known_bounds.is_certain(inner):
        kind = stock.NoOpDpEvent if parts == {} else stock.NonPrivateDpEvent
        return fixed_size(attr.evolve(event, event=kind()), reader)
    base = batch_mechanisms.NeighboringBatches(
        inner, all(p.holds_for_any_inputs for p in parts)
    )
    is_added = reader.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE
    if is_added and scheme.rate == 1 and not scheme.with_replacement:
        return reader.sampled(event.event)
    return scheme.one(base, reader.neighboring_relation)


def _zeroed_in_batch_of_any(
    event: FixedSize, scheme: sampling.FixedSize, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a batch where a record is replaced by one that contributes nothing.

    The upper bound is that of a record replaced by any other. The lower bound is that
    of a record among others that contribute nothing either.
    """
    above = _batch_of_any(event, scheme, reader.under(NeighborRel.REPLACE_ONE))
    if scheme.with_replacement:
        return known_bounds.between(None, above)
    inner = reader.sampled(event.event)
    below = subsampled.on_poisson_sample(scheme.rate, inner)
    return known_bounds.between(below, above)


def is_empty(event: FixedSize) -> bool:
    """Returns whether no record is ever drawn, so that nothing is released."""
    fields.positive_integer("source_dataset_size", event.source_dataset_size)
    return fields.non_negative_integer("sample_size", event.sample_size) == 0


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
    counts: collections.Counter[interface.Mechanism] = collections.Counter()
    for inner, count in zip(events, numbers, strict=True):
        counts[reader.sampled(inner)] += fields.positive_integer("counts", count)
    event_reader.check_distinct(len(counts))
    run = counts.total()
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    if run > steps:
        raise ValueError(
            f"counts must sum to at most num_steps. Found {run} of {steps}."
        )
    if selected == 1:
        return allocated.allocate_to_schedule(counts, steps)
    mechanism = allocated.allocate_several(counts, selected, steps)
    if mechanism is None:
        raise event_reader.UnsupportedError(event, SEVERAL_OF_SCHEDULE)
    return mechanism
