"""The subcommand compare: ε of the ways of drawing batches."""

import argparse
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

Each record is in one batch of each epoch, or in --batches-per-record. The ways
of drawing batches, and their names for --sampling:
  random allocation  each record draws its batch on its own, uniformly
                     (random-allocation; balls and bins)
  Poisson sampling   each batch draws its records, each with probability B / N
                     (poisson-sampling)
  no amplification   the adversary knows each record's batch (no-amplification)
  shuffled or fixed batches
                     the dataset is cut into batches, as plain data loaders do
                     (shuffled): ε holds if a record is replaced by another

Both ends of ε are certified; the truth lies between them. With --group-size
they hold for a group of records, who join or leave as they like. A row whose
bracket is wide has a note; where brackets overlap, a line says so.

With --strategy the noise is correlated, C x + z with the matrix C: its bins are
the steps of an epoch, in which records stay for all epochs, and the noise is in
units of a contribution's clip, whatever the norm of a column of C. Compared are
balls in bins; cyclic Poisson sampling, in turn from as many groups as there are
bands, where bands are at most the steps; and no amplification:
  python -m dp_accounting_ext compare --noise-multiplier 4 \\
      --steps-per-epoch 100 --epochs 10 --delta 1e-5 --strategy 0.8,0.4,0.3
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "compare",
        _run,
        "bounds on ε for each way of drawing batches",
        _EPILOG,
    )
    parser.add_run(command, "noise-multiplier", "delta", "group-size")
    command.add_argument("--strategy", metavar="C", help=strategy_option.HELP)


def _run(options: argparse.Namespace) -> str:
    run = parser.training_run(options)
    setting = run.to_dict()
    title = f"ε at δ = {run.delta:g}, noise multiplier {run.noise_multiplier:g}, "
    title += text.training(run)
    if options.strategy is None:
        runs = training_run.schemes_of(run)
        rows = progress_line.mapped("rows", comparison.bracket, runs)
    else:
        setting["strategy"] = options.strategy
        title += ", correlated noise"
        event = strategy_option.event(options.strategy, run)
        with progress_line.shown(lambda: "rows"):
            rows = strategy_comparison.compare(event, options.delta)
    if options.json:
        return text.json_of_rows({"setting": setting}, rows)
    return text.table(title, ("sampling", "ε lower", "ε upper", "CPU s"), rows)
