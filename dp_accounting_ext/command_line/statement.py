"""The subcommand statement: what a training run promises, in words."""

import argparse
import dataclasses
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext statement --dataset-size 60000 --batch-size 250 \\
      --epochs 15 --noise-multiplier 1.1 --delta 1e-6 --group-size 5

A text to stand beside a model: ε for one example and, with --group-size, for a
user with so many; if an example is added or removed, and if it is replaced; for
each way of drawing batches, with what would break it. Numbers are certified
upper bounds, rounded up; --json has both bounds in full.
"""
_SAMPLING = {
    scheme.lower().replace(" ", "-"): scheme for scheme in training_run.SCHEMES
}


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "statement",
        _run,
        help="what a training run promises, in words",
        epilog=_EPILOG,
    )
    parser.add_noise(command)
    parser.add_training(command)
    command.add_argument(
        "--sampling",
        metavar="HOW",
        help=f"how batches were drawn: {', '.join(_SAMPLING)}; default: a row for each",
    )


def _run(options: argparse.Namespace) -> str:
    if options.sampling not in (None, *_SAMPLING):
        raise ValueError(
            f"sampling must be one of {', '.join(_SAMPLING)}, which is the one for "
            f"shuffled batches. Found {options.sampling!r}."
        )
    setting = parser.training_run(options, sampling=_SAMPLING.get(options.sampling))
    with progress_line.Progress("statement"):
        claims = statement.claims(setting)
    if not options.json:
        return statement.words(setting, claims)
    results = [dataclasses.asdict(claim) for claim in claims]
    return text.as_json(
        {
            "setting": text.fields(setting),
            "warnings": statement.warnings(setting),
            "results": results,
        }
    )
