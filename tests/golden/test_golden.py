"""Every golden row: bounds hold the truth, and are as near to it as the row asks.

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


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_bounds_hold_the_truth(row):
    low, high = golden_events.bracket(row)
    assert low <= row["high"] and row["low"] <= high
    if math.isfinite(high):
        assert high - low <= row["width"] * high + golden_events.RARE
    else:
        assert row["width"] >= 1


def test_truths_are_brackets_of_many_kinds():
    assert all(row["low"] <= row["high"] for row in ROWS)
    assert len(ROWS) >= 850
    assert {row["what"] for row in ROWS} == {"epsilon", "delta", "power", "renyi"}
