"""The table from types of events to what builds their mechanisms."""

from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import extension_events
from dp_accounting_ext.reading import group_events
from dp_accounting_ext.reading import selection_events
from dp_accounting_ext.reading import stock_events
from dp_accounting_ext.wpm import dp_event as wpm_dp_event

_STOCK: dict[str, event_reader.Builder] = {
    "NoOpDpEvent": stock_events.no_op,
    "NonPrivateDpEvent": stock_events.non_private,
    "GaussianDpEvent": stock_events.gaussian,
    "LaplaceDpEvent": stock_events.laplace,
    "DiscreteLaplaceDpEvent": stock_events.discrete_laplace,
    "RandomizedResponseDpEvent": stock_events.randomized_response,
    "MixtureOfGaussiansDpEvent": stock_events.mixture_of_gaussians,
    "TruncatedSubsampledGaussianDpEvent": stock_events.truncated,
    "PoissonSampledDpEvent": batch_events.poisson_sampled,
    "SampledWithoutReplacementDpEvent": batch_events.fixed_size,
    "SampledWithReplacementDpEvent": batch_events.fixed_size,
    "RandomAllocationDpEvent": extension_events.random_allocation,
    "EpsilonDeltaDpEvent": stock_events.privacy_parameters,
    "ExponentialMechanismDpEvent": selection_events.exponential,
    "PermuteAndFlipDpEvent": selection_events.permute_and_flip,
    "DiscreteGaussianDpEvent": stock_events.discrete_gaussian,
    "ZCDpEvent": stock_events.zero_concentrated,
    "SingleEpochTreeAggregationDpEvent": stock_events.tree_aggregation,
    "RepeatAndSelectDpEvent": selection_events.repeat_and_select,
}

_TABLE: dict[type, event_reader.Row[interface.Mechanism]] = {}


def reader(
    neighboring_relation: privacy_accountant.NeighboringRelation,
) -> event_reader.Reader:
    """Returns what reads the events of an accountant.

    Raises:
        ValueError: If the relation is none that is accounted for.
    """
    event_reader.check_relation(neighboring_relation)
    return event_reader.Reader(neighboring_relation, _TABLE)


def register(event_type: type[stock.DpEvent], builder: event_reader.Builder) -> None:
    """Makes every accountant read a type of event.

    Args:
        event_type: The event's class; a later registration replaces an earlier one.
        builder: From an event and a `Reader` to a `Mechanism`. It checks the
            event's fields, and reads inner events with `reader.mechanism`, or
            `reader.sampled` where they run on a sample.

    Raises:
        TypeError: If event_type is not a class of events, or builder not callable.
    """
    if not (isinstance(event_type, type) and issubclass(event_type, stock.DpEvent)):
        raise TypeError(
            f"event_type must be a subclass of DpEvent. Found {event_type!r}."
        )
    if not callable(builder):
        raise TypeError(f"construction must be callable. Found {builder!r}.")
    _TABLE[event_type] = event_reader.row_of(event_type, builder)


def register_stock_events(module: Any) -> None:
    """Registers those of the stock events that a module has, looked up by name."""
    _TABLE.update(event_reader.stock_rows(module, _STOCK))


register_stock_events(stock)
register(dp_event.RandomAllocationEvent, extension_events.random_allocation)
register(dp_event.ScheduledAllocationEvent, extension_events.scheduled_allocation)
register(dp_event.MatrixAllocationEvent, extension_events.matrix_allocation)
register(dp_event.PLDSubsampleEvent, batch_events.poisson_sampled)
register(dp_event.GroupSubsampledEvent, group_events.group)
register(wpm_dp_event.PrivateSamplingEvent, extension_events.private_sampling)
