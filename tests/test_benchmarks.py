"""The runner of benchmarks measures, judges and writes as it says."""

import dataclasses
import importlib
import math
import pathlib

import cases
import dp_accounting
import nights
import pytest
import run

LAPLACE = cases.Case("Groups", "Laplace", dp_accounting.LaplaceDpEvent(1.0), ratio=0.0)
GOOD = run.Found(0.9999999, 1.0, 0.1, 0.2, 10.0, 20.0, 0.01)
ON_PAGE = {"lower": "0.999999", "upper": "1", "gap": "1.0e-06"}


def row(case=LAPLACE, stock=None, page=ON_PAGE, **changes):
    return run.Row(case, dataclasses.replace(GOOD, **changes), stock, page=page)


def stock_of(**changes):
    found = dataclasses.replace(GOOD, lower=math.nan, first=0.3, later=0.03)
    return dataclasses.replace(found, **changes)


def held(**changes):
    return dataclasses.replace(LAPLACE, **changes)


@pytest.mark.parametrize(
    "good",
    [
        row(),
        row(lower=1.0),
        row(lower=1.0 - 1.29e-6),
        row(held(enough=1e-5), lower=1.0 - 9e-6),
        row(page={}, lower=0.5),
        row(upper=0.0, lower=0.0),
        row(held(work=4.1)),
        row(held(ratio=2.9), stock_of()),
        row(held(ratio=2.9, again=True), stock_of(first=0.01)),
        row(held(ratio=50.0), stock_of(first=1e-3), first=1e-3),
        row(stock=stock_of(upper=1 - 5e-7), lower=1 - 6e-7),
        row(stock=stock_of(upper=math.inf)),
    ],
)
def test_goals_that_are_met(good):
    assert good.missed() == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(lower=1.0 - 1.31e-6), "gap 1.31e-06, goal 1.3e-06"),
        (row(held(enough=1e-7), lower=1.0 - 1.31e-6), "goal 1.3e-06"),
        (row(lower=1.1), "bounds are 1.1, 1.0"),
        (row(upper=math.inf), "bounds are 0.9999999, inf"),
        (row(upper=math.nan, lower=math.nan), "bounds are nan, nan"),
        (row(held(work=3.9)), "yardsticks 10, goal 9.75"),
        (row(held(work=3.9), work=math.nan), "yardsticks nan"),
        (row(held(megabytes=19.0)), "MB 20, goal 19"),
        (row(held(ratio=3.1), stock_of()), "3.00 times as fast, goal 3.1"),
        (row(held(ratio=3.1, again=True), stock_of()), "3.00 times as fast"),
        (row(stock=stock_of(upper=0.9998)), "1 is above the stock's 0.9998"),
        (row(stock=stock_of(upper=0.9999998)), "is below 0.9999999"),
        (row(stock=stock_of(upper=math.nan)), "1 is above the stock's nan"),
        (run.Row(LAPLACE, None), "no answer"),
    ],
)
def test_goals_that_are_missed(bad, message):
    assert any(message in line for line in bad.missed())


def test_a_case_is_measured_in_a_process_of_its_own(capsys):
    found = run.measured(LAPLACE, ON_PAGE)
    assert found.missed() == []
    assert found.ours.lower <= found.ours.upper <= found.stock.upper * (1 + 1e-6)
    assert 0 < found.ours.first <= found.ours.seconds and found.speed() > 0
    later = run.measured(held(again=True, epsilon=0.5), {})
    assert 0 < later.ours.later < 0.1 and "ms" in later.cells()
    assert run.apart(lambda: 1 / 0) is None
    assert capsys.readouterr().out == ""


PAGE = """# Page

## Groups

Words.

|case|lower|upper|CPU s|
|---|---|---|---|
|Laplace|0.9999999|1|0.1|

## Others

|case|noise|
|---|---|
|Laplace|3|
"""


def test_a_page_that_is_older_than_the_code_is_told():
    cells = run.rows_of(PAGE)
    assert cells["Others", "Laplace"] == {"case": "Laplace", "noise": "3"}
    of_page = cells["Groups", "Laplace"]
    assert run.stale(row(page=of_page)) == []
    assert run.stale(row(page={})) == []
    (told,) = run.stale(row(page=of_page, upper=1.001))
    assert told == "Laplace: the page has upper 1, measured is 1.001"
    assert run.stale(row(page=of_page, lower=math.nan))


def test_each_case_is_on_the_page_whose_width_is_its_goal():
    """So that none becomes much wider unseen."""
    known = run.rows_of(run.PAGE.read_text(encoding="utf-8"))
    for case in cases.every_case():
        page = known[case.section, case.name]
        if case.again or case.target is not None:  # Widths of these are not shown.
            continue
        widest = run.Row(case, None, page=page).widest()
        assert widest <= max(1.3 * float(page["gap"]), 1e-6)


def test_what_is_written_is_on_the_page(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    monkeypatch.setattr(run, "PAGE", page)
    run.write({"Groups": run.as_table([row(upper=2.0)])})
    cells = run.rows_of(page.read_text())
    assert cells["Groups", "Laplace"]["upper"] == "2"
    assert cells["Others", "Laplace"] == {"case": "Laplace", "noise": "3"}


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
