"""Every golden row: bounds contain the truth, and are as tight as the row asks.

golden.json is written by make_golden.py, which says where each truth comes from.
"""

import json
import math
import pathlib

import golden_events
import pytest

ROWS = json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())


def name_of(row):
    (event,) = row["event"]
    return f"{row['what']}-{event}-{row['at']:g}"


# Of the module, so that both tests of a row stand side by side, and ask it once.
@pytest.fixture(scope="module", params=ROWS, ids=name_of)
def row(request):
    return request.param


@pytest.fixture(scope="module")
def bracket(row):
    return golden_events.bracket(row)


def test_bounds_contain_the_truth(row, bracket):
    low, high = bracket
    assert low <= row["high"] and row["low"] <= high


def test_bounds_are_tight(row, bracket):
    low, high = bracket
    if math.isfinite(high):
        assert high - low <= row["width"] * high + golden_events.RARE
    else:
        assert row["width"] >= 1


def test_truths_are_brackets_of_many_kinds():
    assert all(row["low"] <= row["high"] for row in ROWS)
    assert len(ROWS) >= 850
    assert {row["what"] for row in ROWS} == {"epsilon", "delta", "power", "renyi"}
