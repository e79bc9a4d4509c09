"""The subcommand compare: ε of the ways of drawing batches."""

import argparse
from collections.abc import Sequence
import dataclasses
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext compare --noise-multiplier 1 --steps 1000 \\
      --selected 1 --epochs 10 --delta 1e-6

Each record is in `selected` steps of each epoch's `steps`. The schemes differ in
how these steps are drawn:
  random allocation  uniformly at random (balls-and-bins for --selected 1)
  Poisson sampling   each step with probability selected / steps, on its own
  no amplification   known to the adversary

Both ends of ε are certified; the truth lies between them. With --group-size they hold
for a group of records, who join or leave as they like; no theorem is known for a group
under random allocation.
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "compare",
        _run,
        help="ε of random allocation, Poisson sampling and no amplification",
        epilog=_EPILOG,
    )
    command.add_argument("--noise-multiplier", type=float, required=True)
    parser.add_training(command)


def _run(options: argparse.Namespace) -> str:
    setting = training_run.TrainingRun(
        noise_multiplier=options.noise_multiplier,
        num_steps=options.steps,
        num_selected=options.selected,
        num_epochs=options.epochs,
        delta=options.delta,
        group_size=options.group_size,
    )
    rows = comparison.compare(setting)
    if not options.json:
        return _table(setting, rows)
    results = [dataclasses.asdict(row) for row in rows]
    return text.as_json({"setting": dataclasses.asdict(setting), "results": results})


def _table(setting: training_run.TrainingRun, rows: Sequence[comparison.Row]) -> str:
    """Returns lines of plain text."""
    lines = [
        f"ε at δ = {setting.delta:g}, noise multiplier {setting.noise_multiplier:g}, "
        + text.training(setting),
        "",
        f"{'scheme':<20}{'lower':>14}{'upper':>14}{'CPU s':>9}",
    ]
    for row in rows:
        line = f"{row.scheme:<20}{text.rounded_down(row.epsilon_lower):>14}"
        line += f"{text.rounded_up(row.epsilon_upper):>14}{row.seconds:>9.2f}"
        lines.append(f"{line}  {row.note}" if row.note else line)
    return "\n".join(lines)
