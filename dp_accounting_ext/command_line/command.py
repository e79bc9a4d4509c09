"""The command with its subcommands, its errors and its exit status."""

import argparse
from collections.abc import Sequence
import warnings

from dp_accounting_ext.command_line import explore_command
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import risks
from dp_accounting_ext.command_line import sweep_command
from dp_accounting_ext.command_line import text
from dp_accounting_ext.command_line import training
from dp_accounting_ext.command_line import wpm_command
from dp_accounting_ext.validation import extras

_PROG = "dp-accounting-ext"
_INCOMPLETE, _INTERRUPTED = 1, 130
_OF_VERDICTS = {"disagrees": 1, "undecided": 3, "not refuted": 4}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        The exit status. It is 0 if all was done; 1 if a part failed, which the output
        names, or if a second computation disagrees; 2 for bad input; 3 if there is no
        second opinion, and 4 if it only refutes nothing; and 130 if the command was
        interrupted.
    """
    whole = _whole_parser()
    options = argparse.Namespace(prog=whole.prog)
    try:
        # Printing the help can fail, as printing any other output can.
        _, unknown = whole.parse_known_args(arguments, options)
        if unknown:
            raise ValueError(parser.unrecognized(unknown[0], vars(options)))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            results, printed = options.run(options)
        for words in dict.fromkeys(str(warning.message) for warning in warned):
            sentence = parser.as_typed(words, vars(options))
            text.complain(options.prog, sentence, "warning")
        text.write(text.as_json(results) if options.json else printed)
    except KeyboardInterrupt as error:
        text.complain(options.prog, str(error) or "interrupted.")
        return _INTERRUPTED
    except (
        OSError,
        ModuleNotFoundError,
        TypeError,
        ValueError,
        ArithmeticError,
        MemoryError,
    ) as error:
        text.complain(options.prog, _reason(error, options))
        return parser.BAD_INPUT
    if results.get("without_bounds"):
        return _INCOMPLETE
    return _OF_VERDICTS.get(results.get("verdict", ""), 0)


def _whole_parser() -> parser.Parser:
    """Returns the parser of all subcommands. Without one, the help is printed."""
    whole = parser.Parser(
        prog=_PROG,
        usage="%(prog)s [-h] COMMAND ...",
        description="Certified privacy accounting, and private draws.",
        epilog="With --version alone, the version is printed.",
        allow_abbrev=False,
    )
    whole.set_defaults(run=lambda options: ({}, whole.format_help()), json=False)
    commands = whole.add_subparsers(
        dest="command",
        # As argparse does not count by how much commands are indented, the longest of
        # their names would not be on the lines of what they do.
        metavar="COMMAND    ",
        prog=_PROG,
        title="commands",
        parser_class=parser.Parser,
    )
    for module in (training, risks, sweep_command, wpm_command, explore_command):
        module.add_to(commands)
    return whole


def _reason(error: Exception, options: argparse.Namespace) -> str:
    """Returns the message of an error, which mostly names a remedy."""
    if isinstance(error, OSError) and error.filename is not None:
        path = repr(error.filename)
        return f"{path} must be a file that can be opened. Found: {error.strerror}."
    if isinstance(error, ModuleNotFoundError):
        return extras.missing(error)
    # Bounds that cross raise ArithmeticError itself. Python raises only its subclasses.
    special = isinstance(error, ArithmeticError) and type(error) is not ArithmeticError
    if special or isinstance(error, MemoryError):
        return f"beyond what this machine can compute: {type(error).__name__}."
    return parser.as_typed(str(error), vars(options))
