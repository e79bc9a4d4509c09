"""What --help shows runs as it stands."""

import re
import subprocess
import sys

from command_runner import run
import pytest

from dp_accounting_ext import command_line

SUBCOMMANDS = sorted(
    module.__name__.rsplit(".", 1)[1] for module in command_line._SUBCOMMANDS
)


def test_help_names_every_subcommand(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert {"compare", "calibrate", "sweep", "wpm"} <= set(SUBCOMMANDS)
    assert all(name in out for name in SUBCOMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_the_example_of(capsys, tmp_path, subcommand):
    status, out, _ = run(capsys, f"{subcommand} --help")
    assert status == 0
    example = re.search(r"^examples?:\n((?:  .*\n)+)", out, re.MULTILINE).group(1)
    assert f"python -m dp_accounting_ext {subcommand} " in example
    done = subprocess.run(
        ["sh", "-ec", example.replace("python -m", f"{sys.executable} -m")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("subcommand", ["", *SUBCOMMANDS])
def test_help_fits_a_terminal(capsys, monkeypatch, subcommand):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, f"{subcommand} --help")
    assert max(map(len, out.splitlines())) <= 80
