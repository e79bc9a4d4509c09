"""What --help shows runs as it stands."""

import re
import subprocess
import sys

import command_runner
import pytest

run = command_runner.run
SUBCOMMANDS = ["calibrate", "compare", "profile", "statement", "sweep", "trade-off"]
SUBCOMMANDS += ["wpm"]


def test_help_names_every_subcommand(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(name in out for name in SUBCOMMANDS)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_begins_with_its_purpose(capsys, subcommand):
    _, whole, _ = run(capsys, "--help")
    _, out, _ = run(capsys, f"{subcommand} --help")
    purpose = " ".join(out.partition("\n\n")[2].partition("\n\n")[0].split())
    assert purpose.endswith(".") and "example" not in purpose
    assert purpose[1:-1] in " ".join(whole.split())


def example_of(capsys, subcommand):
    status, out, _ = run(capsys, f"{subcommand} --help")
    assert status == 0
    example = re.search(r"^examples?:\n((?:  .*\n)+)", out, re.MULTILINE).group(1)
    assert f"python -m dp_accounting_ext {subcommand} " in example
    return example


@pytest.mark.slow
@pytest.mark.parametrize(
    "subcommand", [name for name in SUBCOMMANDS if name != "sweep"]
)
def test_the_example_of(capsys, monkeypatch, tmp_path, subcommand):
    example = example_of(capsys, subcommand)
    monkeypatch.chdir(tmp_path)
    runs = list(command_runner.run_as_shown(capsys, example, tmp_path))
    assert len(runs) == example.count("python -m")
    for status, out, err in runs:
        assert (status, err) == (0, "")
        assert out


def test_the_example_of_sweep_in_a_shell(capsys, tmp_path):
    example = example_of(capsys, "sweep")
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
