"""Events on a sample of the records: Poisson samples and batches of fixed size."""

import dataclasses
import math
from typing import TypeAlias

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
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
_MOST_DRAWS = 100_000
# Of these no two batches are further apart than neighbors.
_ANSWERS = discrete_outputs.RandomizedResponse | discrete_outputs.PrivateDraw


def poisson_sampled(
    event: stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent,
    reader: event_reader.Reader,
) -> interface.Mechanism:
    """Reads an event, or a tree of events, on a Poisson sample."""
    rate = fields.sampling_probability(event.sampling_probability)
    if reader.neighboring_relation is NeighborRel.REPLACE_ONE:
        both = merged(event)
        if both is not None:
            more, less = (poisson_sampled(each, reader) for each in both)
            return more if more == less else known_bounds.Between(less, more)
        if isinstance(event.event, NOISES):
            # A record moves to the other end.
            noise = noise_of(event.event, groups.Poisson(rate), 1)
            if rate == 0:
                return compositions.NO_OP
            return noise.split(1, 1) if isinstance(noise, groups.Grouped) else noise
        reader.require(
            event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL
        )
    return subsampled.on_poisson_sample(rate, reader.sampled(event.event))


def merged(
    event: stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent,
) -> list[stock.PoissonSampledDpEvent] | None:
    """Returns the one sample of one noise that a sample is, rounded up, and down.

    A sample of a sample is one of the product of the rates, of every member of a group
    alike, and Gaussians on one sample are one with less noise. None where it is one
    already, or where it is no such.
    """
    rate = fields.sampling_probability(event.sampling_probability)
    leaves, depth = list(event_trees.leaves(event.event)), 0
    while len(leaves) == 1 and leaves[0][1] == 1:
        inner = leaves[0][0]
        if not isinstance(inner, POISSON_SAMPLES):
            break
        rate *= fields.sampling_probability(inner.sampling_probability)
        leaves, depth = list(event_trees.leaves(inner.event)), depth + 1
    noises = [
        (fields.noise_multiplier(each.noise_multiplier), count)
        for each, count in leaves
        if isinstance(each, stock.GaussianDpEvent)
    ]
    runs = sum(count for _, count in leaves)
    is_one = runs == 1 and isinstance(leaves[0][0], NOISES)
    if len(noises) < len(leaves) and not is_one:
        return None
    if runs == 0 or rate == 0 or (runs == 1 and not depth):
        return None
    if runs > 1 and any(noise == 0 for noise, _ in noises):
        leaves, runs = [(stock.NonPrivateDpEvent(), 1)], 1
    found = []
    for sign in (1, -1):
        up = 1 + sign * 4 * (depth + 1) * floats.UNIT_ROUNDOFF
        noise: stock.DpEvent = leaves[0][0]
        if runs > 1:
            least = min(noise for noise, _ in noises)
            more = math.fsum(count * (least / noise) ** 2 for noise, count in noises)
            down = 1 - sign * 8 * floats.UNIT_ROUNDOFF
            noise = stock.GaussianDpEvent(down * least / math.sqrt(more))
        found.append(stock.PoissonSampledDpEvent(min(rate * up, 1.0), noise))
    return found


def fixed_size(event: FixedSize, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads a batch of fixed size.

    The noise multiplier is over the bound on a record's norm, the clip, as in the
    event's definition. A record in the batch takes another's place there, so the
    sensitivity is that of batch substitution, 2 · clip, in either relation.
    """
    if is_empty(event):
        return compositions.NO_OP
    if reader.neighboring_relation is NeighborRel.REPLACE_SPECIAL:
        return _one_replaced_by_nothing(event, reader)
    sampling = fixed_sampling(event)
    if not isinstance(event.event, NOISES):
        return _batch_of_any(event, sampling, reader)
    noise = noise_of(event.event, sampling, 1)
    if not isinstance(noise, groups.GroupedOnBatches):
        return noise
    if reader.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE:
        return noise.split(1, 0)
    base = noise.base
    if not isinstance(base, batches.Noise) or base.noise_multiplier == 0:
        return in_both_datasets(noise).split(1, 1)
    if sampling.with_replacement:
        return batches.replaced_draws(base.replaced(), sampling.members(1, 0))
    # One record of the batch replaced is one shift.
    rate = sampling.sample_size / sampling.dataset_size
    one = base.replaced().on(((1.0, 1.0),), batches.NONE)
    return subsampled.substituted_sample(one, rate)


def _batch_of_any(
    event: FixedSize,
    sampling: groups.FixedSize,
    reader: event_reader.Reader,
) -> interface.Mechanism:
    """Reads what runs on a batch, from what it tells of one record of it replaced."""
    between = dataclasses.replace(
        reader.under(NeighborRel.REPLACE_ONE), in_sample=False
    )
    inner = between.mechanism(event.event)
    parts = compositions.unpacked({inner: 1})
    if any(isinstance(part, groups.Grouped) for part in parts):
        raise event_reader.UnsupportedError(
            event,
            "`GroupSubsampledEvent` cannot run on a sample: put the sampling inside "
            "of it.",
        )
    if inner == compositions.NO_OP or compositions.is_certainly_known(inner):
        kind = stock.NoOpDpEvent if parts == {} else stock.NonPrivateDpEvent
        return fixed_size(attr.evolve(event, event=kind()), reader)
    base = batches.Neighbours(inner, all(isinstance(p, _ANSWERS) for p in parts))
    if reader.neighboring_relation is NeighborRel.REPLACE_ONE:
        if sampling.with_replacement:
            return batches.replaced_draws(base, sampling.members(1, 0))
        either = base.on(((1.0, 1.0),), batches.NONE)
        return subsampled.substituted_sample(
            either, sampling.sample_size / sampling.dataset_size
        )
    is_whole = sampling.sample_size == sampling.dataset_size
    if is_whole and not sampling.with_replacement:
        return reader.sampled(event.event)
    return batches.on_batches(
        base,
        [batches.Coupled(removed=sampling.members(1, 0))],
        is_attained=sampling.dataset_size > 1,
    )


def _one_replaced_by_nothing(
    event: FixedSize,
    reader: event_reader.Reader,
) -> interface.Mechanism:
    """Reads a batch where a record is replaced by one that contributes nothing.

    Gaussian noise without replacement is tight. Of all else a bound from above is a
    record, and from below it is one among others that contribute nothing either.
    """
    above = fixed_size(event, reader.under(NeighborRel.REPLACE_ONE))
    sampling = fixed_sampling(event)
    if isinstance(event.event, stock.GaussianDpEvent) and not sampling.with_replacement:
        noise = fields.noise_multiplier(event.event.noise_multiplier)
        if noise:
            rate = sampling.sample_size / sampling.dataset_size
            return subsampled.zeroed_sample(noise, rate)
    if isinstance(event.event, NOISES):
        below = noise_of(event.event, sampling, 1)
        if isinstance(below, groups.GroupedOnBatches):
            # Others contribute nothing, as does what is in the record's place.
            below = below.base.on(sampling.members(1, 0), batches.NONE)
    elif sampling.with_replacement:
        return known_bounds.UpperOnly(above)
    else:
        rate = sampling.sample_size / sampling.dataset_size
        below = subsampled.poisson_sampled(rate, reader.sampled(event.event))
    return above if above == below else known_bounds.Between(below, above)


def is_empty(event: FixedSize) -> bool:
    """Tells whether no record is drawn, so that the batch tells nothing."""
    fields.positive_integer("source_dataset_size", event.source_dataset_size)
    return fields.non_negative_integer("sample_size", event.sample_size) == 0


def fixed_sampling(event: FixedSize) -> groups.FixedSize:
    """Reads how a batch of fixed size is drawn."""
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
    return groups.FixedSize(size, batch, replaced)


def in_both_datasets(noise: groups.Grouped) -> groups.Grouped:
    """Returns the same with the size of each dataset, not of both groups together.

    Where a group replaces another, either dataset has the size that is given.
    """
    if not isinstance(noise, groups.GroupedOnBatches):
        return noise
    sampling = noise.sampling
    if isinstance(sampling, groups.FixedSize):
        size = sampling.dataset_size + noise.group_size
        sampling = dataclasses.replace(sampling, dataset_size=size)
    return dataclasses.replace(noise, sampling=sampling)


def noise_of(
    event: stock.DpEvent,
    sampling: groups.Poisson | groups.FixedSize,
    size: int,
) -> interface.Mechanism:
    """Returns the noise that a group sees, or what costs nothing, or all."""
    if isinstance(event, stock.NoOpDpEvent):
        return compositions.NO_OP
    if isinstance(event, stock.GaussianDpEvent | stock.LaplaceDpEvent):
        noise = fields.noise_multiplier(event.noise_multiplier)
    elif isinstance(event, stock.NonPrivateDpEvent):
        noise = 0.0
    else:
        raise event_reader.UnsupportedError(
            event,
            "A batch of fixed size, or a group's, must run a `GaussianDpEvent` or a "
            f"`LaplaceDpEvent`: others are unproven. Found {event}.",
        )
    if noise == 0 and sampling == groups.UNSAMPLED:
        return known_bounds.NonPrivate()
    is_laplace = noise > 0 and isinstance(event, stock.LaplaceDpEvent)
    return groups.GroupedOnBatches(size, batches.Noise(noise, is_laplace), sampling)
