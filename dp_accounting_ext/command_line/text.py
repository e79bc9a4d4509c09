"""What the subcommands' output has in common."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import decimal
import json
import math
import shutil
import sys
import textwrap
from typing import Any

from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

_WIDTH, _LEAST_WIDTH = 80, 20


def write(whole: str) -> None:
    """Prints on standard output; letters that it does not have are replaced.

    A reader who has left is no error: they have seen what they wanted.

    Raises:
        OSError: If it cannot be written.
    """
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(BrokenPipeError):
        print(whole.encode(encoding, "replace").decode(encoding), flush=True)


def complain(prog: str, message: str) -> None:
    """Prints one line on standard error, whatever the message."""
    if sys.stderr is not None:
        print(f"{prog}: error: {' '.join(message.split())}", file=sys.stderr)


def wrapped(paragraph: str, indent: str = "") -> str:
    """Returns a paragraph on lines that fit the terminal, or a page of 80 letters."""
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    return textwrap.fill(paragraph, max(width, _LEAST_WIDTH), subsequent_indent=indent)


def bounds(row: comparison.Row | calibration.Row) -> tuple[str, str]:
    """Returns the bounds on ε, rounded outwards."""
    return rounded_down(row.epsilon_lower), rounded_up(row.epsilon_upper)


def table(
    title: str,
    columns: Mapping[str, int],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> str:
    """Returns a title, a table, and notes below it.

    Args:
        title: A paragraph.
        columns: From heads to widths; what has a negative one begins at the left.
        rows: Cells of the columns.
        notes: As in `with_notes`.
    """

    def line(cells: Iterable[str]) -> str:
        aligned = zip(cells, columns.values(), strict=True)
        return "".join(f"{c:<{-w}}" if w < 0 else f"{c:>{w}}" for c, w in aligned)

    body = with_notes([line(cells) for cells in rows], notes)
    return "\n".join([wrapped(title), "", line(columns), *body])


def with_notes(rows: Sequence[str], notes: Sequence[str]) -> list[str]:
    """Returns rows, each with the number of its note, and the notes below them.

    Args:
        rows: Lines of a table.
        notes: What is to be said of each; "" for nothing. Equal ones are one.
    """
    numbers = {note: f"({i})" for i, note in enumerate(_distinct(notes), 1)}
    lines = [
        f"{row}  {numbers[note]}" if note else row
        for row, note in zip(rows, notes, strict=True)
    ]
    below = [wrapped(f"{number} {note}", "    ") for note, number in numbers.items()]
    return [*lines, *[""] * bool(below), *below]


def _distinct(notes: Sequence[str]) -> list[str]:
    return [note for note in dict.fromkeys(notes) if note]


def as_json(value: Any) -> str:
    """Returns JSON; an infinite number is the string "inf", a missing one null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value


def rounded_down(value: float) -> str:
    """Returns seven significant digits, not above the value."""
    return _rounded(value, decimal.ROUND_FLOOR)


def rounded_up(value: float) -> str:
    """Returns seven significant digits, not below the value."""
    return _rounded(value, decimal.ROUND_CEILING)


def _rounded(value: float, rounding: str) -> str:
    context = decimal.Context(prec=7, rounding=rounding)
    return str(context.create_decimal_from_float(value)).lower().replace("inity", "")


def fields(setting: training_run.TrainingRun) -> dict[str, Any]:
    """Returns what is known of a training run, by the names of its fields.

    And what is counted of it: `sampling_rate`, `num_samples` and `steps_of_epoch`.
    """
    known = dataclasses.asdict(setting)
    counted = ("sampling_rate", "num_samples", "steps_of_epoch")
    known |= {name: getattr(setting, name) for name in counted}
    return {name: value for name, value in known.items() if value is not None}


def training(setting: training_run.TrainingRun) -> str:
    """Returns a training run in words, but for its noise."""
    if setting.dataset_size is None:
        words = f"{setting.num_selected} of {setting.num_steps} steps"
    else:
        words = f"{setting.dataset_size} records in batches of {setting.batch_size}"
    words += f", {training_run.in_words(setting.epochs)}"
    if setting.dataset_size is not None:
        words += f" (t = {setting.steps_of_epoch}; Poisson: {setting.num_samples} "
        words += f"steps at most, q = {setting.rate_in_words})"
    if setting.group_size > 1:
        words += f", groups of {setting.group_size}"
    return words
