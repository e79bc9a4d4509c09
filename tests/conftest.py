"""What makes tests quick: a core for each worker, no garbage that is looked through
again, and few examples; and a table of events for each test that registers some."""

import gc
import os

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
