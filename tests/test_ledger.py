"""Answers are as tight and as quick as the ledger says; the ledger can tell."""

import dataclasses
import importlib
import pathlib

import nights
import pytest

CI = pathlib.Path(__file__).parent.parent / ".ci"
# What a test may take, in seconds of the machine that wrote the ledger.
QUICK = 1.0


@pytest.fixture
def ledger(monkeypatch):
    monkeypatch.syspath_prepend(CI)
    return importlib.import_module("ledger")


@pytest.mark.parametrize("sample", [3, *nights.at_night(60)])
def test_answers_are_those_of_a_sample_of_rows(ledger, capsys, sample):
    rows = [row for row in ledger.rows() if row.seconds <= QUICK]
    code = ledger.beside.Revision(CI.parent)
    try:
        worse = ledger.check(code, rows[:: len(rows) // sample])
    finally:
        code.close()
    assert worse == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"upper": 1.03}, "upper bound"),
        ({"lower": 0.95}, "lower bound"),
        ({"yardsticks": 16.0, "seconds": 0.4}, "time"),
        ({"upper": None, "lower": None}, "None"),
    ],
)
def test_a_row_tells_what_is_worse(ledger, changes, word):
    row = ledger.Row(ledger.YARDSTICK, 0.98, 1.0, 10.0, 0.4, 100.0)
    assert row.worse(row) == []
    (told,) = row.worse(dataclasses.replace(row, **changes))
    assert word in told
