"""What the subcommands' arguments have in common."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
import difflib
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


class _Command(Parser):
    """Names the option that was meant, before those that are missing."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse."""
        known = self._option_string_actions
        for typed in args or ():
            name = typed.partition("=")[0]
            if re.fullmatch(r"--[a-z-]+", name) and name not in known:
                begun = [option for option in known if option.startswith(name)]
                near = begun or difflib.get_close_matches(name, known)
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                self.error(f"unrecognized arguments: {name}.{hint}")
        return super().parse_known_args(args, namespace)


def as_typed(message: str, options: Collection[str]) -> str:
    """Returns a message that names options as they are typed, not as fields.

    Args:
        message: Of a function that the command calls: "batch_size must be …".
        options: The options of the command, as argparse names them.
    """

    def typed(word: re.Match[str]) -> str:
        name, is_first = word[0], word.start() == 0
        if name not in options or not (is_first or "_" in name):
            return name
        return f"--{name.replace('_', '-')}"

    return re.sub(r"[a-z_]+", typed, message)


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], str],
    help: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Adds a command that prints what `run` returns of its options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=epilog,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run, prog=command.prog)
    add_flag(command, "json", "print JSON, no table")
    return command


def add_commands(whole: Parser) -> Any:
    """Returns what `add_command` adds to; without a command, help is printed."""
    whole.set_defaults(run=lambda options: whole.format_help())
    return whole.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=_Command
    )


def add(
    command: Any,
    name: str,
    kind: type,
    metavar: str | tuple[str, ...],
    help: str,
    **more: Any,
) -> None:
    """Adds an option with a value to a command, or to a group of its options."""
    command.add_argument(f"--{name}", type=kind, metavar=metavar, help=help, **more)


def add_flag(command: Any, name: str, help: str) -> None:
    """Adds an option without a value."""
    command.add_argument(f"--{name}", action="store_true", help=help)


_SCHEMES = ", ".join(studies_training_run.OPTIONS)
_OF_RUNS: dict[str, tuple[type, str, str]] = {
    "noise-multiplier": (float, "S", "standard deviation of the noise, over the clip"),
    "dataset-size": (int, "N", "records that are trained on"),
    "batch-size": (int, "B", "records of a batch, on average"),
    "epochs": (float, "E", "passes over the dataset; 2.5 ends amid the third"),
    "steps-per-epoch": (int, "T", "steps of one epoch, in place of these two"),
    "batches-per-record": (int, "K", "with it: steps of an epoch that a record is in"),
    "sampling": (str, "HOW", f"how batches are drawn: {_SCHEMES}; default: each"),
    "delta": (float, "D", "δ, well below 1 / the dataset size"),
    "group-size": (int, "G", "records protected together, as those of a user"),
}
_OF_SOME = ("noise-multiplier", "delta", "group-size")


def add_run(
    command: argparse.ArgumentParser,
    *some: str,
    required: Collection[str] = ("noise-multiplier", "delta"),
) -> None:
    """Adds the options of a training run, among them some that not every one has."""
    fields = studies_training_run.TrainingRun.__dataclass_fields__
    for name, (kind, metavar, words) in _OF_RUNS.items():
        if name not in _OF_SOME or name in some:
            default = fields[name.replace("-", "_")].default
            words += f"; default: {default}" * (default is not None)
            more = {"required": name in required, "default": default}
            add(command, name, kind, metavar, words, **more)


def training_run(
    options: argparse.Namespace, **fields: Any
) -> studies_training_run.TrainingRun:
    """Returns the run of the options.

    Args:
        options: Of a command with `add_run`, and perhaps more.
        fields: What is not among its options, or in their place.

    Raises:
        TypeError, ValueError: If an option is not what its name says.
    """
    names = studies_training_run.TrainingRun.__dataclass_fields__
    known = {name: value for name, value in vars(options).items() if name in names}
    return studies_training_run.TrainingRun(**{**known, **fields})
