"""Every golden row: bounds contain the truth, and are as tight as the row asks.

golden.json is written by make_golden.py, which says where each truth comes from.
"""

import json
import math
import pathlib

import golden_events
import pytest

ROWS = json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())


EVENTS = list(dict.fromkeys(json.dumps(row["event"]) for row in ROWS))


def parameter(row):
    """A row with its name. Those of two events of three are asked at night.

    So are divergences of correlated noise, which take seconds.
    """
    (event,) = row["event"]
    is_quick = EVENTS.index(json.dumps(row["event"])) % 3 == 0
    is_quick &= event != "MatrixAllocationEvent"
    marks = [] if is_quick else [pytest.mark.nightly]
    return pytest.param(row, id=f"{row['what']}-{event}-{row['at']:g}", marks=marks)


# Of the module, so that rows of an event, which stand side by side, are asked once.
@pytest.fixture(scope="module", params=map(parameter, ROWS))
def row(request):
    return request.param


def test_bounds_contain_the_truth_and_are_tight(row):
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
