"""The command line: dp-accounting-ext, or python -m dp_accounting_ext."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status, as `command.main` does.

    The commands are imported here, as processes of `workers` do not need them.
    """
    from dp_accounting_ext.command_line import command

    return command.main(arguments)
