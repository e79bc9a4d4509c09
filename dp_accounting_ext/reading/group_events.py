"""Events as a group of records sees them."""

import collections
import dataclasses
from typing import Any

import attr
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.mechanisms import truncated
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import sampling_event

NeighborRel = privacy_accountant.NeighboringRelation

_Answers = stock.RandomizedResponseDpEvent | sampling_event.PrivateSamplingEvent

# A limit of time: a larger group has too many splits.
_LARGEST_GROUP = 1024
# The sampling scheme of an event that draws no records, so that no group affects it.
_NOBODY = sampling.Poisson(0.0)


@dataclasses.dataclass(frozen=True)
class Group:
    """The records in which the two datasets of all composed events differ.

    Attributes:
        size: Their number.
        num_removed: The number of those that the first dataset has, at least half of
            them, if the events say it; otherwise None.
    """

    size: int = 1
    num_removed: int | None = None

    def joined(self, other: "Group") -> "Group":
        """Returns the larger of two groups: that of a composition of their events.

        Raises:
            ValueError: If one of them tells a split, and the other one differs from it.
        """
        larger, smaller = (self, other) if self.size > other.size else (other, self)
        tells_split = (self.num_removed, other.num_removed) != (None, None)
        if tells_split and larger != smaller and smaller.size > 1:
            raise ValueError(
                "num_removed and group_size must be the same in all "
                f"GroupSubsampledEvents, if a split is told. Found {self} and {other}."
            )
        return larger


ONE_RECORD = Group()


def group(
    event: dp_event.GroupSubsampledEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a tree of events as a group of records sees it."""
    if reader.in_sample or reader.is_derived:
        raise event_reader.UnsupportedError(event, batch_events.GROUP_ON_SAMPLE)
    group = _group_of(event)
    size, num_removed = group.size, group.num_removed
    if num_removed and reader.neighboring_relation is NeighborRel.REPLACE_ONE:
        raise ValueError(
            "num_removed must be None for a neighboring_relation of REPLACE_ONE, where "
            f"every member is replaced. Found {event.num_removed!r}."
        )
    counts: collections.Counter[interface.Mechanism] = collections.Counter()
    for leaf, count in event_trees.leaves(event.event):
        part = _grouped(leaf, size, reader)
        has_one_split = num_removed is not None or groups.have_one_split([part])
        if size > _LARGEST_GROUP and not has_one_split:
            raise ValueError(
                f"group_size must be at most {_LARGEST_GROUP} for a "
                f"`{type(leaf).__name__}`. Found {size}."
            )
        if num_removed and isinstance(part, groups.Grouped):
            part = part.split(num_removed, size - num_removed)
        counts[part] += count
    event_reader.check_counts(counts)
    return compositions.compose(counts)


def largest(event: stock.DpEvent) -> Group:
    """Returns the largest group in a tree, or a single record."""
    group = ONE_RECORD
    for leaf, _ in event_trees.leaves(event):
        if isinstance(leaf, dp_event.GroupSubsampledEvent):
            group = group.joined(_group_of(leaf))
    return group


def _group_of(event: dp_event.GroupSubsampledEvent) -> Group:
    """Reads the group of an event, and how many of its members are removed."""
    size = fields.positive_integer("group_size", event.group_size)
    if event.num_removed is None:
        return Group(size)
    removed = fields.non_negative_integer("num_removed", event.num_removed)
    if removed > size:
        raise ValueError(
            f"num_removed must be at most group_size. Found {removed} of {size}."
        )
    # For one record, and for any split and its reverse, both directions are meant.
    return Group(size, max(removed, size - removed)) if size > 1 else Group()


def seen_by(event: stock.DpEvent, group: Group) -> stock.DpEvent:
    """Returns a tree of events, of single records or of groups, as a group sees it.

    All composed events are on the same two datasets. The largest group in the tree
    determines in how many records these differ.
    """
    if group == ONE_RECORD:
        return event
    seen: list[stock.DpEvent] = []
    for leaf, count in event_trees.leaves(event):
        inner = leaf.event if isinstance(leaf, dp_event.GroupSubsampledEvent) else leaf
        grouped = dp_event.GroupSubsampledEvent(group.size, inner, group.num_removed)
        seen.append(stock.SelfComposedDpEvent(grouped, count))
    return stock.ComposedDpEvent(seen)


def _grouped(event: Any, size: int, reader: event_reader.Reader) -> interface.Mechanism:
    """Returns the mechanism that a group sees for one event, possibly on a sample.

    It is tight if a theorem gives the group's pair. Otherwise it is bounded by a chain
    of datasets, each of which differs from the next in one record.
    """
    if isinstance(event, batch_events.FixedSize) and batch_events.is_empty(event):
        return compositions.NO_OP
    tight = _tight(event, size, reader)
    if tight is not None:
        return tight
    of_member = _one_member(event, size, reader)
    event_reader.refuse_group(
        event, "A `GroupSubsampledEvent` cannot hold another: multiply their sizes."
    )
    if of_member == compositions.NO_OP or known_bounds.is_certain(of_member):
        return of_member
    # An event of a newer dp_accounting, known by its name.
    if type(event).__name__ == "DiscreteGaussianDpEvent":
        # The members move the function by at most their number times the sensitivity,
        # and may move it by as much.
        moved = size * fields.scale("sensitivity", event.sensitivity)
        return reader.single(attr.evolve(event, sensitivity=moved))
    is_replaced = reader.neighboring_relation is NeighborRel.REPLACE_ONE
    if isinstance(event, _Answers):
        answers = groups.GroupedAnswers(size, of_member)
        return answers.split(size, 0) if is_replaced else answers
    if is_replaced or of_member.claims().is_symmetric:
        return chained.chain(of_member, size, 0)
    return groups.GroupedByChain(size, of_member)


def _one_member(
    event: stock.DpEvent, size: int, reader: event_reader.Reader
) -> interface.Mechanism:
    """Returns the mechanism for one member, on any dataset that occurs in the chain.

    Other members may have been removed before. The smaller the dataset, the larger is
    the share of its records that a batch has.
    """
    if reader.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE and size > 1:
        if isinstance(event, stock.SampledWithoutReplacementDpEvent):
            smallest = event.source_dataset_size - size + 1
            if smallest <= event.sample_size:
                raise event_reader.UnsupportedError(
                    event,
                    "source_dataset_size must be at least sample_size and group_size "
                    f"for a batch of a `{type(event.event).__name__}`. Found "
                    f"{event.source_dataset_size}.",
                )
            event = attr.evolve(event, source_dataset_size=smallest)
        elif (sized := _with_size(event)) is not None:
            raise event_reader.UnsupportedError(
                sized,
                f"`{type(sized).__name__}` is of a dataset of one size, which changes "
                "where members leave. Use a neighboring_relation of `REPLACE_ONE`.",
            )
    return reader.single(event)


def _with_size(event: stock.DpEvent) -> stock.DpEvent | None:
    """Returns the event, or one inside of it, that names the size of its dataset."""
    sized = batch_events.FixedSize | stock.TruncatedSubsampledGaussianDpEvent
    nodes = event_trees.nodes(event)
    return next((node for node in nodes if isinstance(node, sized)), None)


def _tight(
    event: stock.DpEvent, size: int, reader: event_reader.Reader
) -> interface.Mechanism | None:
    """Returns a mechanism with tight bounds for a group, or None if none is known.

    It is known for additive noise and for randomized response to one question.
    """
    if isinstance(event, batch_events.POISSON_SAMPLES):
        above_and_below = batch_events.merged(event)
        if above_and_below is not None:
            above, below = (_tight(e, size, reader) for e in above_and_below)
            of_kind = groups.GroupedOnBatches
            if isinstance(above, of_kind) and isinstance(below, of_kind):
                return dataclasses.replace(above, below=below)
            return above
    scheme, inner = batch_events.scheme_of(event)
    if scheme == _NOBODY or reader.neighboring_relation not in scheme.group_relations:
        return None
    batch_events.check_group(event, size)
    is_absent = reader.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE
    limit = truncated.MOST_ABSENT
    if isinstance(scheme, truncated.Truncated) and is_absent and size > limit:
        raise event_reader.UnsupportedError(
            event,
            f"group_size must be at most {limit} where members are absent from one of "
            f"the datasets. Found {size}. Use a neighboring_relation of "
            "`REPLACE_SPECIAL`.",
        )
    if isinstance(inner, stock.RandomizedResponseDpEvent):
        return _grouped_response(event, inner, size, scheme, reader)
    if isinstance(inner, stock.NoOpDpEvent):
        return compositions.NO_OP
    if not isinstance(inner, batch_events.NOISES):
        return None
    base = batch_events.noise_of(inner)
    return groups.on_batches(base, scheme, size, reader.neighboring_relation)


def _grouped_response(
    event: stock.DpEvent,
    inner: stock.RandomizedResponseDpEvent,
    size: int,
    scheme: sampling.Scheme,
    reader: event_reader.Reader,
) -> interface.Mechanism | None:
    """Returns randomized response to a question about a batch, for a group."""
    if reader.neighboring_relation is not NeighborRel.ADD_OR_REMOVE_ONE:
        return None
    if isinstance(event, batch_events.FixedSize):
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
    base = batch_mechanisms.Answer(noise)
    return groups.on_batches(base, scheme, size, reader.neighboring_relation)
