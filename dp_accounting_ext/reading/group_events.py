"""Events as a group of records sees them."""

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation


def group(
    event: dp_event.GroupSubsampledEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a tree of events as a group of records sees it."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE)
    if reader.in_sample:
        raise event_reader.UnsupportedError(
            event,
            "`GroupSubsampledEvent` cannot run on a sample: put the sampling inside "
            "of it.",
        )
    size = fields.group_size(event.group_size)
    counts: dict[interface.Mechanism, int] = {}
    for leaf, count in event_trees.leaves(event.event):
        part = _grouped(leaf, size, reader)
        counts[part] = counts.get(part, 0) + count
    event_reader.check_counts(counts)
    event_reader.check_distinct(event_reader.count_distinct(counts))
    return compositions.compose(counts)


def _grouped(
    event: stock.DpEvent, size: int, reader: event_reader.Reader
) -> interface.Mechanism:
    """Returns what a group sees of one mechanism, possibly on a sample."""
    inner: stock.DpEvent = event
    sampling: groups.Sampling = groups.Unsampled()
    if isinstance(event, stock.PoissonSampledDpEvent | dp_event.PLDSubsampleEvent):
        rate = fields.sampling_probability(event.sampling_probability)
        inner, sampling = event.event, groups.Poisson(rate)
        if rate == 0:
            return compositions.NO_OP
    elif isinstance(
        event,
        stock.SampledWithoutReplacementDpEvent | stock.SampledWithReplacementDpEvent,
    ):
        inner, fixed = event.event, batch_events.fixed_sampling(event)
        sampling = fixed
        if size > fixed.dataset_size:
            raise ValueError(
                "group_size must be at most source_dataset_size. "
                f"Found {size} of {fixed.dataset_size}."
            )
    if isinstance(inner, stock.RandomizedResponseDpEvent):
        return _grouped_response(event, inner, size, sampling, reader)
    noise = batch_events.noise_of(inner, sampling, size)
    if reader.neighboring_relation is not NeighborRel.REPLACE_ONE:
        return noise
    if isinstance(noise, groups.Grouped):
        return batch_events.in_both_datasets(noise)
    return noise


def _grouped_response(
    event: stock.DpEvent,
    inner: stock.RandomizedResponseDpEvent,
    size: int,
    sampling: groups.Sampling,
    reader: event_reader.Reader,
) -> interface.Mechanism:
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE)
    if isinstance(sampling, groups.FixedSize):
        raise event_reader.UnsupportedError(
            event,
            "Randomized response on a batch of fixed size is unproven for groups: "
            "use a `PoissonSampledDpEvent`.",
        )
    buckets = fields.positive_integer("num_buckets", inner.num_buckets)
    noise = fields.probability("noise_parameter", inner.noise_parameter)
    if buckets != 2:
        raise ValueError(f"num_buckets must be 2 in a group. Found {buckets}.")
    if noise == 1:
        return compositions.NO_OP
    if noise == 0 and isinstance(sampling, groups.Unsampled):
        return known_bounds.NonPrivate()
    rate = sampling.rate if isinstance(sampling, groups.Poisson) else 1.0
    return groups.GroupedRandomizedResponse(size, noise, rate)
