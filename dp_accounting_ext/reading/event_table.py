"""The table from types of events to their builders, for both accountants."""

from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import extension_events
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.reading import stock_events
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import sampling_event

# For each stock event: the fields that are supported, and its builder.
_STOCK: dict[str, tuple[str, event_reader.Builder]] = {
    "NoOpDpEvent": ("", stock_events.no_op),
    "NonPrivateDpEvent": ("", stock_events.non_private),
    "GaussianDpEvent": ("noise_multiplier", stock_events.gaussian),
    "LaplaceDpEvent": ("noise_multiplier", stock_events.laplace),
    "DiscreteLaplaceDpEvent": (
        "noise_parameter sensitivity",
        stock_events.discrete_laplace,
    ),
    "RandomizedResponseDpEvent": (
        "noise_parameter num_buckets",
        stock_events.randomized_response,
    ),
    "MixtureOfGaussiansDpEvent": (
        "standard_deviation sensitivities sampling_probs",
        stock_events.mixture_of_gaussians,
    ),
    "TruncatedSubsampledGaussianDpEvent": (
        "dataset_size sampling_probability truncated_batch_size noise_multiplier",
        batch_events.truncated,
    ),
    "PoissonSampledDpEvent": (
        "sampling_probability event",
        batch_events.poisson_sampled,
    ),
    "SampledWithoutReplacementDpEvent": (
        "source_dataset_size sample_size event",
        batch_events.fixed_size,
    ),
    "SampledWithReplacementDpEvent": (
        "source_dataset_size sample_size event",
        batch_events.fixed_size,
    ),
    "RandomAllocationDpEvent": (
        "event num_selected num_steps",
        extension_events.random_allocation,
    ),
    "EpsilonDeltaDpEvent": ("epsilon delta", stock_events.privacy_parameters),
    "ExponentialMechanismDpEvent": ("epsilon", stock_events.exponential),
    "PermuteAndFlipDpEvent": ("epsilon", stock_events.permute_and_flip),
    "DiscreteGaussianDpEvent": (
        "sigma sensitivity dimension",
        stock_events.discrete_gaussian,
    ),
    "ZCDpEvent": ("rho xi", stock_events.zero_concentrated),
    "SingleEpochTreeAggregationDpEvent": (
        "noise_multiplier step_counts",
        stock_events.tree_aggregation,
    ),
    "RepeatAndSelectDpEvent": ("event mean shape", stock_events.repeat_and_select),
}

_TABLE: dict[type, event_reader.Row] = {}


def reader(
    neighboring_relation: privacy_accountant.NeighboringRelation,
) -> event_reader.Reader:
    """Returns a reader of the events of an accountant.

    Raises:
        ValueError: If the relation is not supported.
    """
    event_reader.check_relation(neighboring_relation)
    return event_reader.Reader(neighboring_relation, _TABLE)


def register(event_type: type[stock.DpEvent], builder: event_reader.Builder) -> None:
    """Makes every accountant read a type of event.

    Args:
        event_type: The event's class; a later registration replaces an earlier one.
        builder: The function from an event and a `Reader` to a `Mechanism`. It checks
            the event's fields. It reads inner events with `reader.mechanism`, or with
            `reader.sampled` if they run on a sample.

    Raises:
        TypeError: If event_type is not a class of events, or builder not callable.
    """
    if not (isinstance(event_type, type) and issubclass(event_type, stock.DpEvent)):
        raise TypeError(
            f"event_type must be a subclass of DpEvent. Found {event_type!r}."
        )
    _add(event_type, fields.function("construction", builder))


def _add(event_type: type, builder: event_reader.Builder) -> None:
    """Adds a row for a type of events. Its builder accounts for all of the fields."""
    known = event_reader.field_defaults(event_type).keys()
    _TABLE[event_type] = event_reader.Row(known, builder)


def register_stock_events(module: Any) -> None:
    """Registers those stock events that a module has, by name."""
    for name, (known, builder) in _STOCK.items():
        if hasattr(module, name):
            row = event_reader.Row(set(known.split()), builder)
            _TABLE[getattr(module, name)] = row


register_stock_events(stock)
register_stock_events(dp_event)
_add(dp_event.RandomAllocationEvent, extension_events.random_allocation)
_add(dp_event.ScheduledAllocationEvent, extension_events.scheduled_allocation)
_add(dp_event.PLDEvent, extension_events.known_distribution)
_add(dp_event.PLDSubsampleEvent, batch_events.poisson_sampled)
_add(dp_event.GroupSubsampledEvent, group_events.group)
_add(sampling_event.PrivateSamplingEvent, extension_events.private_sampling)
