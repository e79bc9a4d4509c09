"""What the README and the pages of docs show runs as it stands."""

import contextlib
import io
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from dp_accounting_ext.reading import event_table

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULE = "python -m dp_accounting_ext"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


def run_python(page):
    """Runs a page's blocks in one namespace, which is returned."""
    namespace = {"__name__": page.stem}
    for number, block in enumerate(blocks(page, "python")):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    return namespace


@pytest.fixture
def own_table(monkeypatch):
    """What a page registers is forgotten after it."""
    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))


def test_there_are_pages():
    names = {page.name for page in PAGES}
    assert {"README.md", "mathematics.md", "register.md"} <= names
    assert {"migration.md", "guarantees.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_runs(page, own_table):
    assert blocks(page, "python") or page.stem == "mutation_testing"
    run_python(page)


def test_the_readme_shows_a_certified_bracket(own_table):
    namespace = run_python(ROOT / "README.md")
    lower, upper = namespace["accountant"].get_epsilon_bounds(1e-6)
    assert lower <= upper == namespace["epsilon"]


def commands():
    """Every use of the command that a page shows in a shell."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").split("&&"):
                if MODULE in line:
                    yield line[line.index(MODULE) :].strip()


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_runs(command, tmp_path):
    arguments = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
    mentioned = re.findall(r"`((?:docs|benchmarks|tests)/[\w/]+\.py)", page.read_text())
    for target in mentioned:
        assert (ROOT / target).exists(), target
