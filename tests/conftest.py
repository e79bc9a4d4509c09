"""Options of the long form of the referee, and the table that it prints.

And what makes many tests quick: a core for each worker, and no garbage that is looked
through again.
"""

import gc
import os
import pathlib

import pytest

# Read when NumPy is imported. Of workers that share the cores, each with threads of its
# own for products of matrices, one waits for the other: 1.6 times the CPU time in all.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

_LINES = pytest.StashKey[list[str]]()


def pytest_addoption(parser):
    group = parser.getgroup("referee", "the long form of tests/referee")
    group.addoption("--referee-minutes", type=float, default=1.0)
    group.addoption("--referee-kind", action="append", help="of trees; all if none")
    group.addoption("--referee-seed", type=int, default=0)
    group.addoption("--referee-log", type=pathlib.Path, help="a file for the table")


def pytest_configure(config):
    config.stash[_LINES] = []
    config.referee_lines = _LINES


def pytest_collection_finish():
    """Modules and tests stay: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash[_LINES]:
        terminalreporter.write_line(line)
