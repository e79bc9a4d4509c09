"""Runs the command in this process."""

import contextlib
import io
import shlex
import subprocess

from dp_accounting_ext import command_line

MODULE = "python -m dp_accounting_ext "
SUBCOMMANDS = [
    "calibrate",
    "canaries",
    "compare",
    "explore",
    "profile",
    "risk",
    "statement",
]
SUBCOMMANDS += ["sweep", "trade-off", "verify", "wpm"]


def help_of(subcommand):
    """Returns what a subcommand's --help prints; of all of them without one."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            command_line.main([*subcommand.split(), "--help"])
        except SystemExit as end:
            assert end.code == 0
    return out.getvalue()


def run(capsys, arguments):
    return run_split(capsys, arguments.split())


def run_split(capsys, arguments):
    try:
        status = command_line.main(arguments)
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_as_shown(capsys, text, folder):
    """Runs lines as a shell would: those of the command here, others in a shell.

    Yields:
        Of each line of the command its status, output and errors.
    """
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip().startswith(MODULE):
            yield run_split(capsys, shlex.split(line.strip().removeprefix(MODULE)))
        elif line.strip():
            subprocess.run(["sh", "-ec", line], cwd=folder, check=True)
