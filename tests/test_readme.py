"""What the README, the pages of docs and --help show runs as it stands."""

import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys

import command_runner
import nights
import pytest

from dp_accounting_ext.command_line import explore_command
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.verify import brackets

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
WITHOUT_PYTHON = {
    "CHANGELOG",
    "CONTRIBUTING",
    "measurements",
    "reference",
    "releases",
    "rounding",
}
MODULE = "python -m dp_accounting_ext"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


@functools.cache
def run_python(page):
    """Runs a page's blocks in one namespace, which is returned."""
    namespace = {"__name__": page.stem}
    for number, block in enumerate(blocks(page, "python")):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    return namespace


def run_in_a_process(command, folder):
    """Runs a command of a page in another folder; returns what it prints."""
    arguments = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_every_python_block_runs(page, own_table):
    assert bool(blocks(page, "python")) == (page.stem not in WITHOUT_PYTHON)
    run_python(page)


def test_the_readme_shows_a_certified_bracket(own_table):
    namespace = run_python(ROOT / "README.md")
    lower, upper = namespace["accountant"].get_epsilon_bounds(1e-6)
    assert lower <= upper == namespace["epsilon"]


def commands():
    """Every use of the command that is shown, and what writes files for it."""
    found = {}
    shown = [block for page in PAGES for block in blocks(page, "sh")]
    for text in [*shown, *map(command_runner.help_of, command_runner.SUBCOMMANDS)]:
        lines = text.replace("\\\n", " ")
        files = "\n".join(re.findall(r"^ *(printf .* > \w+\.csv)$", lines, re.M))
        for line in re.split("&&|\n", lines):
            if f"{MODULE} " in line:
                found[" ".join(line[line.index(MODULE) :].split())] = files
    return found


COMMANDS = commands()
OF_THE_README = [line for line in COMMANDS if "help" not in line][:1]


@pytest.mark.parametrize("command", [*OF_THE_README, *nights.at_night(*COMMANDS)])
def test_every_command_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # The page would be there until Ctrl-C: tests/browser opens it.
    monkeypatch.setattr(explore_command, "serve", lambda *run, show: None)
    # Nobody reads the bounds: wide ones will do, and one process for a sweep.
    monkeypatch.setattr(accuracy, "CELLS", accuracy.FEWEST_CELLS)
    monkeypatch.setattr(brackets, "_CELLS", 150)
    monkeypatch.setattr(brackets, "_OUTPUTS", 120)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    lines = f"{COMMANDS[command]}\n{command}"
    ((status, out, err),) = command_runner.run_as_shown(capsys, lines, tmp_path)
    assert (status, bool(out), err) == (0, True, "")


def as_rows(table):
    """Returns the words of a table's lines, numbers rounded, without the CPU times."""

    def word(text):
        try:
            return f"{float(text):.4g}"
        except ValueError:
            return text

    lines = [re.sub(r" [\d.]+(  \(\d\))?$", "", line) for line in table.splitlines()]
    return [[word(text) for text in line.split()] for line in lines]


def test_what_the_readme_prints_is_what_its_command_prints(tmp_path):
    shown = re.findall(
        r"^```sh\n.*?^```$.*?^```text\n(.*?)^```$",
        (ROOT / "README.md").read_text(),
        re.DOTALL | re.M,
    )
    first = next(iter(COMMANDS))
    assert as_rows(shown[0]) == as_rows(run_in_a_process(first, tmp_path))


def anchors(page):
    """Returns what links to a page's headings end in, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^):]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target
    mentioned = re.findall(r"`((?:docs|benchmarks|tests)/[\w/]+\.py)", page.read_text())
    for target in mentioned:
        assert (ROOT / target).exists(), target
