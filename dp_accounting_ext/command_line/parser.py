"""What the subcommands' arguments have in common."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
import re
import sys
import textwrap
from typing import Any
from typing import NoReturn

from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import training_run as studies_training_run

BAD_INPUT = 2


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Breaks no option, and no name, at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        text.complain(self.prog, message)
        sys.exit(BAD_INPUT)

    def print_help(self, file: Any = None) -> None:
        """Prints the help on standard output, as all else is printed."""
        text.write(self.format_help())


def as_typed(message: str, options: Collection[str]) -> str:
    """Returns a message that names options as they are typed, not as fields.

    Args:
        message: Of a function that the command calls: "num_steps must be …".
        options: The options of the command, as argparse names them.
    """

    def typed(word: re.Match[str]) -> str:
        is_first, name = word.start() == 0, word[0].removeprefix("num_")
        if name not in options or not (is_first or "_" in word[0]):
            return word[0]
        return f"--{name.replace('_', '-')}"

    return re.sub(r"[a-z_]+", typed, message)


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], str], **texts: str
) -> argparse.ArgumentParser:
    """Adds a command that prints what `run` returns of its options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        formatter_class=_Formatter,
        allow_abbrev=False,
        **texts,
    )
    command.set_defaults(run=run, prog=command.prog)
    command.add_argument("--json", action="store_true", help="print JSON, no table")
    return command


def add_noise(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds the option of a run's noise."""
    command.add_argument(
        "--noise-multiplier",
        type=float,
        required=required,
        metavar="S",
        help="standard deviation of the noise, over the clip",
    )


def add_training(command: argparse.ArgumentParser) -> None:
    """Adds the options of a training run, but for its noise."""
    add_batches(command)
    command.add_argument(
        "--delta",
        type=float,
        required=True,
        metavar="D",
        help="δ, well below 1 / the dataset size",
    )
    command.add_argument(
        "--group-size",
        type=int,
        default=1,
        metavar="G",
        help="records protected together, such as a user's or a family's; default: 1",
    )


def add_batches(command: argparse.ArgumentParser) -> None:
    """Adds the options that say how often a record is in a batch."""
    command.add_argument(
        "--dataset-size", type=int, metavar="N", help="records that are trained on"
    )
    command.add_argument(
        "--batch-size", type=int, metavar="B", help="records of a batch, on average"
    )
    command.add_argument(
        "--epochs",
        type=float,
        default=1,
        metavar="E",
        help="passes over the dataset; 2.5 for a run that ends amid the third; "
        "default: 1",
    )
    command.add_argument(
        "--steps",
        type=int,
        metavar="T",
        help="in place of --dataset-size and --batch-size: steps of one epoch, N / B; "
        "not of the whole run",
    )
    command.add_argument(
        "--selected",
        type=int,
        default=1,
        metavar="K",
        help="with --steps: steps of an epoch that each record is in; default: 1",
    )


def training_run(
    options: argparse.Namespace, **fields: Any
) -> studies_training_run.TrainingRun:
    """Returns the run of the options.

    Args:
        options: Of a command with `add_batches`, and perhaps more.
        fields: What is not among its options, or in their place.

    Raises:
        TypeError, ValueError: If an option is not what its name says.
    """
    known = vars(options)
    names = "noise_multiplier", "epochs", "delta", "dataset_size", "batch_size"
    found = {name: known[name] for name in (*names, "group_size") if name in known}
    found |= {"num_steps": options.steps, "num_selected": options.selected}
    return studies_training_run.TrainingRun(**{**found, **fields})
