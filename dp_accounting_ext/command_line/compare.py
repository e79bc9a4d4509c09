"""The subcommand compare: ε of the ways of drawing batches."""

import argparse
from collections.abc import Sequence
import dataclasses
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import strategy_option
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext compare --noise-multiplier 1 \\
      --dataset-size 60000 --batch-size 60 --epochs 10 --delta 1e-6

Each record is in one batch of each epoch, or in `selected` of its `steps`. The
schemes differ in how these steps are drawn:
  random allocation  uniformly at random, for each record on its own
                     (balls-and-bins for --selected 1)
  Poisson sampling   each step with probability B / N, or selected / steps
  no amplification   known to the adversary
Batches cut from a shuffle: no row of this table covers them. Use `statement`,
row "no amplification", column "replace".

Both ends of ε are certified; the truth lies between them. With --group-size
they hold for a group of records, who join or leave as they like; under random
allocation their upper end is a chain from record to record, and need not be
tight.

With --strategy the noise is correlated, C x + z with the matrix C: its bins are
the steps of an epoch, in which records stay for all epochs, and the noise is in
units of a contribution's clip, whatever the norm of a column of C. Compared are
balls in bins; cyclic Poisson sampling, in turn from as many groups as there are
bands, where bands are at most the steps; and no amplification:
  python -m dp_accounting_ext compare --noise-multiplier 4 --steps 100 \\
      --epochs 10 --delta 1e-5 --strategy 0.8,0.4,0.3
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
    parser.add_noise(command)
    parser.add_training(command)
    command.add_argument("--strategy", metavar="C", help=strategy_option.HELP)


def _run(options: argparse.Namespace) -> str:
    setting = parser.training_run(options)
    rows, fields, words = _compared(setting, options.strategy)
    if not options.json:
        return _table(setting, words, rows)
    results = [dataclasses.asdict(row) for row in rows]
    return text.as_json({"setting": fields, "results": results})


def _compared(
    setting: training_run.TrainingRun, strategy: str | None
) -> tuple[list[comparison.Row], dict[str, Any], str]:
    """Returns the rows, the fields of what was compared, and the run in words."""
    fields, words = text.fields(setting), text.training(setting)
    with progress_line.Progress("schemes") as progress:
        if strategy is None:
            rows = comparison.compare(setting, progress=progress.show)
            return rows, fields, words
        event = strategy_option.event(strategy, setting)
        delta = training_run.given("delta", setting.delta)
        rows = strategy_comparison.compare(event, delta, progress=progress.show)
    fields |= {"strategy": strategy}
    return rows, fields, f"{words}, correlated noise"


def _table(
    setting: training_run.TrainingRun, words: str, rows: Sequence[comparison.Row]
) -> str:
    """Returns lines of plain text."""
    title = (
        f"ε at δ = {setting.delta:g}, noise multiplier "
        f"{setting.noise_multiplier:g}, {words}"
    )
    cells = [(row.scheme, *text.bounds(row), f"{row.seconds:.2f}") for row in rows]
    columns = {"scheme": -20, "lower": 14, "upper": 14, "CPU s": 9}
    return text.table(title, columns, cells, [row.note for row in rows])
