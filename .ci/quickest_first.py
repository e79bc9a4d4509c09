"""A plugin of pytest for `mutants.py`: the tests that take least time run first."""

import json
import pathlib

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by the times that mutmut's first run has left, if it has been."""
    statistics = pathlib.Path("mutmut-stats.json")
    if statistics.exists():
        seconds = json.loads(statistics.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
