"""The table from types of events to their builders, for both accountants."""

from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import base_events
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.reading import stock_pld
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import sampling_event

# The name of each stock event and the fields that are supported; its builder.
_STOCK: dict[str, event_reader.Builder] = {
    "NoOpDpEvent": lambda event, reader: compositions.NO_OP,
    "NonPrivateDpEvent": lambda event, reader: known_bounds.NonPrivate(),
    "GaussianDpEvent noise_multiplier": base_events.additive(additive_noise.Gaussian),
    "LaplaceDpEvent noise_multiplier": base_events.additive(additive_noise.laplace),
    "DiscreteLaplaceDpEvent noise_parameter sensitivity": base_events.discrete_laplace,
    "DiscreteGaussianDpEvent sigma sensitivity dimension": (
        base_events.discrete_gaussian
    ),
    "RandomizedResponseDpEvent noise_parameter num_buckets": (
        base_events.randomized_response
    ),
    "MixtureOfGaussiansDpEvent standard_deviation sensitivities sampling_probs": (
        base_events.mixture_of_gaussians
    ),
    "EpsilonDeltaDpEvent epsilon delta": base_events.privacy_parameters,
    "ZCDpEvent rho xi": base_events.zero_concentrated,
    "ExponentialMechanismDpEvent epsilon": (
        base_events.pure(selections.ExponentialMechanism)
    ),
    "PermuteAndFlipDpEvent epsilon": base_events.pure(selections.permute_and_flip),
    "RepeatAndSelectDpEvent event mean shape": base_events.repeat_and_select,
    "SingleEpochTreeAggregationDpEvent noise_multiplier step_counts": (
        base_events.tree_aggregation
    ),
    "PoissonSampledDpEvent sampling_probability event": batch_events.poisson_sampled,
    "SampledWithoutReplacementDpEvent source_dataset_size sample_size event": (
        batch_events.fixed_size
    ),
    "SampledWithReplacementDpEvent source_dataset_size sample_size event": (
        batch_events.fixed_size
    ),
    "TruncatedSubsampledGaussianDpEvent dataset_size sampling_probability "
    "truncated_batch_size noise_multiplier": batch_events.noise_on_batches,
    "RandomAllocationDpEvent event num_selected num_steps": (
        batch_events.random_allocation
    ),
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
    """Makes every accountant read a type of event, as `PLDAccountant.register` says.

    The builder accounts for all fields of the event.

    Raises:
        TypeError: If event_type is not a class of events, or builder not callable.
    """
    if not (isinstance(event_type, type) and issubclass(event_type, stock.DpEvent)):
        raise TypeError(
            f"event_type must be a subclass of DpEvent. Found {event_type!r}."
        )
    names = event_reader.field_defaults(event_type).keys()
    fields.function("construction", builder)
    _TABLE[event_type] = event_reader.Row(names, builder)


def register_stock_events(module: Any) -> None:
    """Registers those stock events that a module has, by name."""
    for words, builder in _STOCK.items():
        name, *names = words.split()
        if hasattr(module, name):
            _TABLE[getattr(module, name)] = event_reader.Row(set(names), builder)


register_stock_events(stock)
register_stock_events(dp_event)
_OURS: dict[type[stock.DpEvent], event_reader.Builder] = {
    dp_event.RandomAllocationEvent: batch_events.random_allocation,
    dp_event.ScheduledAllocationEvent: batch_events.scheduled_allocation,
    dp_event.PLDSubsampleEvent: batch_events.poisson_sampled,
    dp_event.PLDEvent: stock_pld.known_distribution,
    dp_event.GroupSubsampledEvent: group_events.group,
    sampling_event.PrivateSamplingEvent: base_events.private_sampling,
}
for _type, _builder in _OURS.items():
    register(_type, _builder)
