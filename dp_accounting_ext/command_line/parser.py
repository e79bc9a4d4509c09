"""The parser of arguments, and options that several subcommands share."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import difflib
import os
import pathlib
import re
import sys
import textwrap
from typing import Any
from typing import NoReturn

from dp_accounting_ext.command_line import columns
from dp_accounting_ext.command_line import tables
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import training_run as studies_training_run

# A command's function from its options to the values for JSON and the text.
Printed = tuple[dict[str, Any], str]

BAD_INPUT = 2
_METAVARS = {int: "N", float: "X", str: "NAME", pathlib.Path: "FILE"}
# Messages of argparse, and what is printed in place of them.
_SENTENCES = {
    r"argument (\S+): invalid float value: (.*)": (
        r"\1 must be a number, such as 0.5 or 1e-6. Found \2."
    ),
    r"argument (\S+): invalid int value: (.*)": (
        r"\1 must be an integer, such as 100. Found \2."
    ),
    r"argument (\S+): expected (?:at least )?one argument": (
        r"\1 must be followed by a value. Found none."
    ),
    r"argument (\S+): expected (\d+) arguments": (
        r"\1 must be followed by \2 values. Found fewer."
    ),
    r"argument (\S+): ignored explicit argument (.*)": (
        r"\1 must be without a value. Found \2."
    ),
    r"argument (\S+): not allowed with argument (\S+)": (
        r"\1 must be left out with \2. Found both."
    ),
}
_NO_OPTIONS = {"command", "prog", "run"}  # Attributes of a namespace, but no options.


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that never breaks an option or a name at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the command with a message of argparse, in this package's words."""
        wrong_choice = re.search(
            r"argument (\S+) *: invalid choice: '(.*)' \((.*)\)", message
        )
        if wrong_choice:
            name, typed, list_of_choices = wrong_choice.groups()
            choices = re.findall(r"[\w-]+", list_of_choices.removeprefix("choose from"))
            message = f"{name} must be one of {', '.join(choices)}. Found {typed!r}."
            message += _meant(typed, choices)
        required = re.match(r"(one of )?the (?:following )?arguments (.*)", message)
        if required:
            *others, last = re.findall(r"--[\w-]+", required[2])
            listed = f"{', '.join(others)}{' and ' * bool(others)}{last}"
            if required[1]:
                message = f"One of {listed} must be given. Found none of them."
            else:
                message = f"{listed} must be given. Found nothing."
        for pattern, sentence in _SENTENCES.items():
            message = re.sub(pattern, sentence, message, flags=re.DOTALL)
        text.complain(self.prog, message)
        sys.exit(BAD_INPUT)

    def print_help(self, file: Any = None) -> None:
        """Prints the help on standard output, like all other output."""
        text.write(self.format_help())


def option(name: str) -> str:
    """Returns the name of a field as an option, as it is typed."""
    return f"--{name.replace('_', '-')}"


def as_typed(message: str, options: Collection[str]) -> str:
    """Returns a function's message, with the command's options as they are typed.

    So "batch_size must be …" becomes "--batch-size must be …". What is between quotes
    was found so, and stays.
    """

    def typed(word: re.Match[str]) -> str:
        is_option = word[0] in options and (word.start() == 0 or "_" in word[0])
        return option(word[0]) if is_option else word[0]

    return re.sub(r"(?<!\w)'[^']*'|[a-z_]+", typed, message)


def unrecognized(typed: str, options: Collection[str]) -> str:
    """Returns an error for an unknown word, with options that may have been meant."""
    possible = [option(name) for name in options if name not in _NO_OPTIONS]
    name = typed.partition("=")[0]
    return f"Options must be those of --help. Found {name}.{_meant(name, possible)}"


def _meant(typed: str, possible: Sequence[str]) -> str:
    """Returns a question with those of the known words that may have been meant."""
    near = [word for word in possible if typed[:2] == "--" and word.startswith(typed)]
    near = near or difflib.get_close_matches(typed, possible, cutoff=0.7)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], Printed],
    help: str,
    epilog: str,
    usage: str,
) -> argparse.ArgumentParser:
    """Adds a command that prints, as text or JSON, the result of `run` for options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        usage=" ".join(["%(prog)s", *usage.split(), "[options]"]),
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=epilog,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run, prog=command.prog)
    add(command, "json", bool, "print JSON, no table")
    return command


def add(command: Any, name: str, kind: type, help: str, **more: Any) -> None:
    """Adds an option to a command or group. An option of type bool takes no value."""
    if kind is bool:
        more |= {"action": "store_true"}
    else:
        more = {"type": kind, "metavar": _METAVARS[kind], **more}
        help += "; default: %(default)s" * (more.get("default") is not None)
    command.add_argument(option(name), help=help, **more)


_SCHEMES = ", ".join(studies_training_run.OPTIONS)
_OF_RUNS: dict[str, tuple[type, str]] = {
    "dataset_size": (int, "records that are trained on"),
    "batch_size": (int, "records of a batch, on average"),
    "sampling_rate": (float, "in place of both: probability of a record, in a step"),
    "steps_per_epoch": (int, "in place of them: steps of one epoch"),
    "batches_per_record": (int, "with it: steps of an epoch that a record is in"),
    "epochs": (float, "passes over the dataset; 2.5 ends amid the third; default: 1"),
    "num_steps": (int, "in place of epochs: steps of the run"),
    "sampling": (str, f"how batches are drawn: {_SCHEMES}; default: each"),
    "noise_multiplier": (float, "standard deviation of the noise, over the clip"),
    "delta": (float, "δ, well below 1 / the dataset size"),
    "group_size": (int, "records protected together, as those of a user"),
    "strategy": (
        str,
        "correlated noise: 1,0.5,0.25 for a banded Toeplitz matrix, blt:DECAYS:SCALES "
        "for a BLT, or a file of coefficients or of rows",
    ),
}


def add_run(command: argparse.ArgumentParser, *others: str) -> None:
    """Adds the options of a training run, with some added or left out."""
    fields = studies_training_run.TrainingRun.__dataclass_fields__
    for name, (kind, words) in _OF_RUNS.items():
        if name not in others:
            add(command, name, kind, words, default=fields[name].default)


def refuse(options: argparse.Namespace, where: str, *names: str) -> None:
    """Refuses options that are given, and have no meaning there."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            raise ValueError(f"{name} must be left out {where}. Found {value}.")


def training_run(
    options: argparse.Namespace, **fields: Any
) -> studies_training_run.TrainingRun:
    """Returns the training run of options, with some fields added or replaced.

    A strategy is typed, or in a file.
    """
    given = {name: value for name, value in vars(options).items() if name in _OF_RUNS}
    typed = given.get("strategy")
    if typed is not None and os.path.exists(typed):
        table = columns.array(tables.read("strategy", typed))
        # The file may have a coefficient on each line.
        given["strategy"] = table.ravel() if 1 in table.shape else table
    return studies_training_run.TrainingRun(**{**given, **fields})
