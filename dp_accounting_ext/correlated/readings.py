"""From events with correlated noise to mechanisms."""

from collections.abc import Callable
from typing import Any

from dp_accounting import dp_event
from dp_accounting import privacy_accountant

from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import runs
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation


def read(event: dp_event.DpEvent, reader: event_reader.Reader) -> interface.Mechanism:
    """Reads a run with correlated noise."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    strategy, noise, schedule = checked(event)
    return schedule.mechanism(strategy, noise)


def checked(event: Any) -> tuple[strategies.Strategy, float, runs.Schedule]:
    """Returns the checked strategy, noise multiplier and schedule of a run.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.
    """
    strategy, schedule = READINGS[type(event)](event)
    return strategy, fields.noise_multiplier(event.noise_multiplier), schedule


def _balls_in_bins(
    event: events.MatrixAllocationEvent,
) -> tuple[strategies.Strategy, schedules.BallsInBins]:
    bins, steps = strategies.bins(event.num_bins, event.num_epochs)
    strategy = strategies.strategy(event.strategy, steps)
    return strategy, schedules.BallsInBins(steps, bins)


def _fresh_windows(
    event: events.WindowedAllocationEvent,
) -> tuple[strategies.Strategy, schedules.FreshWindows]:
    window = strategies.integer_up_to("window", event.window, strategies.MOST_BINS)
    cycles = fields.positive_integer("num_cycles", event.num_cycles)
    length = window + fields.positive_integer("separation", event.separation) - 1
    if length * cycles > strategies.MOST_STEPS:
        raise ValueError(
            f"num_cycles must make at most {strategies.MOST_STEPS} steps. Found "
            f"{cycles} cycles of {length} steps."
        )
    strategy = strategies.separated_column(event.strategy, event.separation)
    rate = fields.sampling_probability(event.sampling_probability)
    return strategy, schedules.FreshWindows(length * cycles, window, cycles, rate)


def _min_sep(
    event: events.MinSepSamplingEvent,
) -> tuple[strategies.Strategy, schedules.MinSep]:
    apart = strategies.integer_up_to(
        "separation", event.separation, strategies.MOST_APART
    )
    steps = strategies.integer_up_to("num_steps", event.num_steps)
    strategy = strategies.separated(event.strategy, apart, steps)
    rate = fields.sampling_probability(event.sampling_probability)
    warm = fields.flag("warm_start", event.warm_start)
    return strategy, schedules.MinSep(steps, rate, apart, warm)


def _cyclic_poisson(
    event: events.CyclicPoissonEvent,
) -> tuple[strategies.Strategy, schedules.CyclicPoisson]:
    length = fields.positive_integer("cycle_length", event.cycle_length)
    steps = fields.positive_integer("num_steps", event.num_steps)
    strategy = strategies.strategy(event.strategy, steps)
    # Without correlation there is no limit.
    if strategy.only_entry is None:
        strategies.integer_up_to("cycle_length", length)
        strategies.integer_up_to("num_steps", steps)
    rate = fields.sampling_probability(event.sampling_probability)
    return strategy, schedules.CyclicPoisson(steps, rate, length)


def _poisson(
    event: events.PoissonMatrixEvent,
) -> tuple[strategies.Strategy, schedules.CyclicPoisson]:
    steps = strategies.integer_up_to("num_steps", event.num_steps)
    strategy = strategies.strategy(event.strategy, steps)
    rate = fields.sampling_probability(event.sampling_probability)
    return strategy, schedules.CyclicPoisson(steps, rate, 1)


def _selected_steps(
    event: events.SelectedStepsMatrixEvent,
) -> tuple[strategies.Strategy, schedules.SelectedSteps]:
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    epochs = fields.positive_integer("num_epochs", event.num_epochs)
    number = strategies.integer_up_to("num_steps times num_epochs", steps * epochs)
    strategy = strategies.strategy(event.strategy, number)
    return strategy, schedules.SelectedSteps(number, selected, steps)


READINGS: dict[
    type[dp_event.DpEvent],
    Callable[[Any], tuple[strategies.Strategy, runs.Schedule]],
] = {
    events.CyclicPoissonEvent: _cyclic_poisson,
    events.MatrixAllocationEvent: _balls_in_bins,
    events.MinSepSamplingEvent: _min_sep,
    events.PoissonMatrixEvent: _poisson,
    events.SelectedStepsMatrixEvent: _selected_steps,
    events.WindowedAllocationEvent: _fresh_windows,
}
