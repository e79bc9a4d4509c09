"""The command line: dp-accounting-ext, or python -m dp_accounting_ext."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    The commands are imported here, as processes of `workers` do not need them.

    Returns:
        The exit status, as of `command.main`.
    """
    from dp_accounting_ext.command_line import command

    return command.main(arguments)
