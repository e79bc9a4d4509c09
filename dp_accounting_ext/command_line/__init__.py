"""The command line: dp-accounting-ext, or python -m dp_accounting_ext."""

import argparse
from collections.abc import Sequence

import dp_accounting_ext
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import sweep
from dp_accounting_ext.command_line import text
from dp_accounting_ext.command_line import training
from dp_accounting_ext.command_line import wpm

_MODULES = (training, sweep, wpm)
_PROG = "dp-accounting-ext"
_INCOMPLETE, _INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        The exit status: 0, 1 where a part could not be done and the output says which,
        2 for bad input, 130 where it was interrupted.
    """
    whole = parser.Parser(
        prog=_PROG,
        description="Certified privacy accounting, and private draws.",
        allow_abbrev=False,
    )
    version = f"{_PROG} {dp_accounting_ext.__version__}"
    whole.add_argument("-V", "--version", action="version", version=version)
    commands = parser.add_commands(whole)
    for module in _MODULES:
        module.add_to(commands)
    options = argparse.Namespace(prog=whole.prog)
    try:
        # What --help prints can fail as any other output can.
        whole.parse_args(arguments, options)
        text.write(options.run(options))
    except text.IncompleteError as incomplete:
        text.write(str(incomplete))
        return _INCOMPLETE
    except KeyboardInterrupt as error:
        text.complain(options.prog, str(error) or "interrupted.")
        return _INTERRUPTED
    except OSError as error:
        path, reason = error.filename, error.strerror
        found = f"{path!r} must be a file that can be opened. Found: {reason}."
        text.complain(options.prog, str(error) if path is None else found)
        return parser.BAD_INPUT
    except (TypeError, ValueError, ModuleNotFoundError) as error:
        text.complain(options.prog, parser.as_typed(str(error), vars(options)))
        return parser.BAD_INPUT
    except (ArithmeticError, MemoryError) as error:
        reason = f"beyond what this machine can compute: {type(error).__name__}."
        if type(error) is ArithmeticError:
            reason = str(error)  # Of bounds that cross; what Python raises is special.
        text.complain(options.prog, reason)
        return parser.BAD_INPUT
    return 0
