"""What --help says of every subcommand; its examples run in tests/test_readme.py."""

from command_runner import SUBCOMMANDS
from command_runner import help_of
import pytest


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_begins_with_its_purpose(subcommand):
    purpose = " ".join(help_of(subcommand).split("\n\n")[1].split())
    assert purpose.endswith(".") and "example" not in purpose
    assert purpose[1:-1] in " ".join(help_of("").split())
    assert f"python -m dp_accounting_ext {subcommand} " in help_of(subcommand)


@pytest.mark.parametrize("subcommand", ["", *SUBCOMMANDS])
def test_help_fits_a_terminal(monkeypatch, subcommand):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, help_of(subcommand).splitlines())) <= 80
