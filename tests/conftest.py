"""Options of the long form of the referee, and the table that it prints.

And what makes tests quick: a core for each worker, no garbage that is looked through
again, and few examples.
"""

import gc
import os
import pathlib

import hypothesis
from hypothesis import Phase
import pytest

# Read when NumPy is imported. Of workers that share the cores, each with threads of its
# own for products of matrices, one waits for the other: 1.6 times the CPU time in all.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, and few; at night more. To shrink one takes minutes:
# ask for it, and for others, by --hypothesis-profile=default.
hypothesis.settings.register_profile(
    "quick",
    max_examples=int(os.environ.get("EXAMPLES", "16")),
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
hypothesis.settings.load_profile("quick")

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


@pytest.fixture
def own_table(monkeypatch):
    """What a test registers is forgotten after it."""
    # Here: NumPy is to be imported after OMP_NUM_THREADS is set.
    from dp_accounting_ext.reading import event_table

    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash[_LINES]:
        terminalreporter.write_line(line)
