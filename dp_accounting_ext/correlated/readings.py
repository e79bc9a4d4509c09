"""From events with correlated noise to mechanisms."""

from dp_accounting import privacy_accountant

from dp_accounting_ext.correlated import events
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.validation import fields

NeighborRel = privacy_accountant.NeighboringRelation


def matrix_allocation(
    event: events.MatrixAllocationEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise and balls-in-bins batches."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    # Its recursions and grids are loaded when such an event is first read.
    from dp_accounting_ext.correlated.runs import matrix_allocation as matrix_mechanisms

    return matrix_mechanisms.allocate(*matrix_fields(event))


def matrix_fields(
    event: events.MatrixAllocationEvent,
) -> tuple[strategies.Strategy, float, int, int]:
    """Returns the checked fields of a run with correlated noise.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.
    """
    bins, epochs = strategies.bins(event.num_bins, event.num_epochs)
    noise = fields.noise_multiplier(event.noise_multiplier)
    return strategies.strategy(event.strategy, bins * epochs), noise, bins, epochs


def cyclic_poisson(
    event: events.CyclicPoissonEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise and Poisson samples of secret groups."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    from dp_accounting_ext.correlated.runs import cyclic

    length = fields.positive_integer("cycle_length", event.cycle_length)
    steps = fields.positive_integer("num_steps", event.num_steps)
    matrix = strategies.strategy(event.strategy, steps)
    # Without correlation there is no limit.
    if matrix.only_entry is None:
        for name, value in (("cycle_length", length), ("num_steps", steps)):
            if value > strategies.MOST_STEPS:
                raise ValueError(
                    f"{name} must be at most {strategies.MOST_STEPS}. Found {value}."
                )
    noise = fields.noise_multiplier(event.noise_multiplier)
    rate = fields.sampling_probability(event.sampling_probability)
    return cyclic.sample(cyclic.Run(matrix, noise, rate, length, steps))


def min_sep_sampling(
    event: events.MinSepSamplingEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise and b-min-sep sampling."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    from dp_accounting_ext.correlated.runs import min_sep_sampling

    apart, steps = strategies.separated_steps(event.separation, event.num_steps)
    matrix = strategies.separated(event.strategy, apart, steps)
    noise = fields.noise_multiplier(event.noise_multiplier)
    rate = fields.sampling_probability(event.sampling_probability)
    warm = fields.flag("warm_start", event.warm_start)
    return min_sep_sampling.sample(
        min_sep_sampling.Run(matrix, noise, rate, apart, steps, warm)
    )


def poisson_matrix(
    event: events.PoissonMatrixEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise on Poisson samples."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    from dp_accounting_ext.correlated.runs import cyclic

    matrix, noise, rate, steps = poisson_matrix_fields(event)
    return cyclic.sample(cyclic.Run(matrix, noise, rate, 1, steps))


def poisson_matrix_fields(
    event: events.PoissonMatrixEvent,
) -> tuple[strategies.Strategy, float, float, int]:
    """Returns the checked fields of a run with correlated noise on Poisson samples.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.
    """
    _, steps = strategies.separated_steps(1, event.num_steps)
    matrix = strategies.strategy(event.strategy, steps)
    noise = fields.noise_multiplier(event.noise_multiplier)
    rate = fields.sampling_probability(event.sampling_probability)
    return matrix, noise, rate, steps


def selected_steps_matrix(
    event: events.SelectedStepsMatrixEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise and k of the t steps of each epoch."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    from dp_accounting_ext.correlated.runs import selected_steps

    return selected_steps.select(
        selected_steps.Run(*selected_steps_matrix_fields(event))
    )


def selected_steps_matrix_fields(
    event: events.SelectedStepsMatrixEvent,
) -> tuple[strategies.Strategy, float, int, int, int]:
    """Returns the checked fields of a run with k of the t steps of each epoch.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.
    """
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    epochs = fields.positive_integer("num_epochs", event.num_epochs)
    if steps * epochs > strategies.MOST_STEPS:
        raise ValueError(
            f"num_steps times num_epochs must be at most {strategies.MOST_STEPS}. "
            f"Found {steps * epochs}."
        )
    matrix = strategies.strategy(event.strategy, steps * epochs)
    noise = fields.noise_multiplier(event.noise_multiplier)
    return matrix, noise, selected, steps, epochs


def windowed_allocation(
    event: events.WindowedAllocationEvent, reader: event_reader.Reader
) -> interface.Mechanism:
    """Reads a run with correlated noise and fresh windows."""
    reader.require(event, NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL)
    from dp_accounting_ext.correlated.runs import fresh_windows

    window, cycles = strategies.cycles(event.window, event.separation, event.num_cycles)
    column = strategies.separated_column(event.strategy, event.separation)
    noise = fields.noise_multiplier(event.noise_multiplier)
    rate = fields.sampling_probability(event.sampling_probability)
    return fresh_windows.allocate(column, noise, window, cycles, rate)
