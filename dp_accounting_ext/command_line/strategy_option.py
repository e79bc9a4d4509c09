"""The option --strategy: a matrix of correlated noise, in three forms."""

import os

from dp_accounting_ext import dp_event
from dp_accounting_ext.command_line import number_file
from dp_accounting_ext.studies import training_run

HELP = (
    "correlated noise: 1,0.5,0.25 for a banded Toeplitz matrix, "
    "blt:DECAYS:SCALES for a BLT, or a file of coefficients or of rows"
)
_BUFFERED = "blt:"
# What does not go with it, and what is there where it was not given.
_ALONE = {"sampling": None, "group_size": 1, "batches_per_record": 1}


def event(typed: str, run: training_run.TrainingRun) -> dp_event.MatrixAllocationEvent:
    """Returns the run of a strategy, whose bins are the steps of an epoch.

    Args:
        typed: What was given for the option.
        run: The run, without what no theorem about such noise covers.

    Raises:
        ValueError: If the option, or one beside it, is not what it must be.
        OSError: If it names a file that cannot be read.
    """
    for name, default in _ALONE.items():
        if getattr(run, name) != default:
            raise ValueError(
                f"{name} must be left out with --strategy. Found {getattr(run, name)}."
            )
    if not isinstance(run.epochs, int):
        raise ValueError(f"--epochs must be whole with --strategy. Found {run.epochs}.")
    noise = training_run.given("noise_multiplier", run.noise_multiplier)
    of_run = noise, run.num_steps, run.epochs
    if os.path.exists(typed):
        table = number_file.read("strategy", typed).numbers
        matrix = table.ravel() if 1 in table.shape else table  # A coefficient a line.
        return dp_event.MatrixAllocationEvent(matrix.tolist(), *of_run)
    try:
        parts = [
            [float(cell) for cell in part.split(",")]
            for part in typed.removeprefix(_BUFFERED).split(":")
        ]
    except ValueError:
        parts = []
    if len(parts) != 1 + typed.startswith(_BUFFERED):
        raise ValueError(
            "--strategy must be numbers such as 1,0.5,0.25, or blt:0.9,0.5:0.1,0.2, or "
            f"a file of numbers separated by commas. Found {typed!r}."
        )
    if len(parts) == 1:
        return dp_event.MatrixAllocationEvent(parts[0], *of_run)
    decays, scales = parts
    return dp_event.MatrixAllocationEvent.from_buffered_toeplitz(
        decays, scales, *of_run
    )
