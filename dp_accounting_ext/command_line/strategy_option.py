"""The option --strategy: a matrix of correlated noise, in three forms."""

import csv
import os

from dp_accounting_ext import dp_event
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import strategies

HELP = (
    "correlated noise: 1,0.5,0.25 for a banded Toeplitz matrix, "
    "blt:DECAYS:SCALES for a BLT, or a file of coefficients or of rows"
)
_REMEDY = (
    "numbers such as 1,0.5,0.25, or blt:0.9,0.5:0.1,0.2, or a file of numbers "
    "separated by commas"
)
_FORM = f"--strategy must be {_REMEDY}"
_BUFFERED = "blt:"


def event(typed: str, run: training_run.TrainingRun) -> dp_event.MatrixAllocationEvent:
    """Returns the run of a strategy, whose bins are the steps of an epoch.

    Args:
        typed: What was given for the option.
        run: The run, without what no theorem about such noise covers.

    Raises:
        ValueError: If the option, or one beside it, is not what it must be.
        OSError: If it names a file that cannot be read.
    """
    _check(run)
    noise = training_run.given("noise_multiplier", run.noise_multiplier)
    fields = noise, run.num_steps, int(run.epochs)
    if typed.startswith(_BUFFERED):
        parts = typed.removeprefix(_BUFFERED).split(":")
        if len(parts) != 2:
            raise ValueError(f"{_FORM}. Found {typed!r}.")
        decays, scales = (_numbers(part.split(","), typed) for part in parts)
        try:
            return dp_event.MatrixAllocationEvent.from_buffered_toeplitz(
                decays, scales, *fields
            )
        except ValueError as error:
            raise ValueError(f"--strategy {_BUFFERED} {error}") from None
    rows = [typed.split(",")] if _is_numbers(typed) else _lines(typed)
    numbers = [_numbers(row, typed) for row in rows]
    if all(len(row) == 1 for row in numbers):  # A coefficient a line.
        numbers = [[row[0] for row in numbers]]
    strategy = numbers[0] if len(numbers) == 1 else numbers
    return dp_event.MatrixAllocationEvent(strategy, *fields)


def _is_numbers(typed: str) -> bool:
    """Tells whether numbers were meant, right or wrong, and no file."""
    if all(letter in "0123456789.,+-eE " for letter in typed):
        return True
    return "," in typed and not os.path.exists(typed)


def _check(run: training_run.TrainingRun) -> None:
    """Refuses what a strategy does not go with."""
    if not isinstance(run.epochs, int):
        raise ValueError(f"--epochs must be whole with --strategy. Found {run.epochs}.")
    if run.sampling is not None:
        raise ValueError(
            f"--sampling must be left out with --strategy. Found {run.sampling}."
        )
    for name in ("batches_per_record", "group_size"):
        if getattr(run, name) != 1:
            raise ValueError(
                f"{name} must be 1 with --strategy. Found {getattr(run, name)}."
            )
    bins, steps = run.num_steps, run.num_steps * run.epochs
    if bins > strategies.MOST_BINS or steps > strategies.MOST_STEPS:
        raise ValueError(
            f"--strategy must have at most {strategies.MOST_BINS} steps an epoch, and "
            f"{strategies.MOST_STEPS} in all. Found {bins} and {steps}."
        )


def _lines(path: str) -> list[list[str]]:
    """Returns the cells of a file."""
    if "\0" in path:
        raise ValueError(f"{_FORM}. Found {path!r}.")
    try:
        with (
            parser.named_file("strategy", path, _REMEDY),
            open(path, encoding="utf-8-sig", newline="") as file,
        ):
            return [line for line in csv.reader(file) if line]
    except (UnicodeError, csv.Error):
        raise ValueError(f"{_FORM}. Found other letters in {path!r}.") from None


def _numbers(cells: list[str], typed: str) -> list[float]:
    numbers = []
    for cell in cells:
        try:
            numbers.append(float(cell))
        except ValueError:
            found = f"{cell!r} in {typed!r}"
            raise ValueError(f"{_FORM}. Found {found}.") from None
    return numbers
