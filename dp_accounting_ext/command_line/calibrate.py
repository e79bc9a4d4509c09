"""The subcommand calibrate: the noise that a target needs."""

import argparse
from collections.abc import Sequence
import dataclasses
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext calibrate --dataset-size 60000 --batch-size 60 \\
      --epochs 10 --epsilon 2 --delta 1e-6

The least noise multiplier, to six digits, at which ε is certified to be at
most the target; and the certified bounds on ε that it gives. The schemes are
those of compare.
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "calibrate",
        _run,
        help="the noise multiplier that meets a target, for each of these",
        epilog=_EPILOG,
    )
    command.add_argument(
        "--epsilon",
        type=float,
        required=True,
        metavar="EPS",
        help="ε at most, to 690",
    )
    parser.add_training(command)


def _run(options: argparse.Namespace) -> str:
    setting = parser.training_run(options)
    with progress_line.Progress("schemes") as progress:
        rows = calibration.calibrate(setting, options.epsilon, progress=progress.show)
    if not options.json:
        return _table(setting, options.epsilon, rows)
    target = {"epsilon": options.epsilon, **text.fields(setting)}
    results = [dataclasses.asdict(row) for row in rows]
    return text.as_json({"target": target, "results": results})


def _table(
    setting: training_run.TrainingRun, epsilon: float, rows: Sequence[calibration.Row]
) -> str:
    """Returns lines of plain text."""
    title = (
        f"noise multiplier for ε ≤ {epsilon:g} at δ = {setting.delta:g}, "
        + text.training(setting)
    )
    cells = [
        (
            row.scheme,
            repr(row.noise_multiplier),
            *text.bounds(row),
            f"{row.seconds:.2f}",
        )
        for row in rows
    ]
    columns = {"scheme": -20, "noise": 14, "ε lower": 14, "ε upper": 14, "CPU s": 9}
    return text.table(title, columns, cells, [row.note for row in rows])
