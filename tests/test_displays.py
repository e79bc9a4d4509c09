"""What users hold shows itself: in words, in few numbers, rounded outwards."""

import dataclasses
from fractions import Fraction
import functools
import re
import sys
from xml.etree import ElementTree

import dp_accounting
from matplotlib import pyplot
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import displays
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import second_opinion
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(
    noise_multiplier=2.0, steps_per_epoch=3, epochs=2, delta=1e-5
)
STEP = dp_accounting.GaussianDpEvent(1.0)
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?"
MOST_NUMBERS = 60


def parsed(shown):
    """An HTML display is well-formed: its elements, as XML reads them."""
    return ElementTree.fromstring(f"<div>{shown}</div>")


def spent_filter():
    found = ext.budget.RenyiFilter(2.0, 1e-6)
    found.spend(dp_accounting.GaussianDpEvent(20.0))
    return found


def long_accountant():
    found = ext.PLDAccountant()
    for noise in range(1, 20):
        found.compose(dp_accounting.GaussianDpEvent(float(noise)), noise)
    return found


def audited():
    members = np.arange(100) % 2
    return canaries.audit(ext.PLDAccountant(), members, members, guesses=9)


ONE = dataclasses.replace(RUN, sampling="Poisson sampling")
MATRIX = ext.MatrixAllocationEvent(np.array([1.0, 0.5]), 2.0, 4, 1)
ALLOCATION = ext.RandomAllocationEvent(STEP, 1, 5)
ON_LINE = ext.wpm.from_points(np.arange(70.0), 2.0)
LINEAR = ext.wpm.from_points(np.arange(70.0), 2.0, linear=True)
MASSES = np.full(70, 1 / 70)

# One of each kind of object that users get.
HELD = {
    "rows": lambda: comparison.compare(RUN),
    "row": lambda: comparison.bracket(ONE),
    "calibrated": lambda: calibration.calibrate(ONE, 0.3, ext.risk.advantage),
    "strategies": lambda: strategy_comparison.compare(MATRIX, 1e-5),
    "claims": lambda: statement.claims(RUN),
    "run": lambda: RUN,
    "canaries": audited,
    "opinion": lambda: second_opinion.opinion(ONE),
    "profiles": lambda: curves.profiles(RUN, num_points=9),
    "trade-offs": lambda: curves.trade_offs(RUN, num_points=9),
    "curve": lambda: curves.profiles(ONE, num_points=61)[0],
    "accountant": long_accountant,
    "no accountant yet": ext.RdpAccountant,
    "filter": spent_filter,
    "gaussian filter": lambda: ext.budget.GaussianFilter(2.0, 1e-6),
    "sampled": lambda: ext.certify_by_sampling(ALLOCATION, 0.01, 1e-3, 0.5, 1),
    "mechanism": lambda: ON_LINE,
    "plan": ON_LINE.expected_cost,
    "cost": lambda: ON_LINE.cost,
    "average": lambda: ext.wpm.average_of_draws([1, 2], ON_LINE),
    "mean": lambda: ext.wpm.estimate_mean([1, 2], LINEAR, np.arange(70.0)),
    "sphere": lambda: ext.wpm.SphereMechanism(3, 1.0),
    "measure": lambda: ext.wpm.uniform_base_measure(ON_LINE.cost, 2.0),
    "projection": lambda: ext.wpm.project(
        MASSES, ON_LINE.cost, ON_LINE.base_measure, 2.0
    ),
}


@functools.cache
def held(name):
    return HELD[name]()


@pytest.mark.parametrize("name", HELD)
def test_what_is_held_shows_itself(name):
    """Not as its address or a dump of numbers; to a notebook as a table or picture."""
    shown = repr(held(name))
    assert " object at 0x" not in shown
    assert len(re.findall(NUMBER, shown)) <= MOST_NUMBERS
    if name != "cost":
        root = parsed(held(name)._repr_html_())
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags & {"table", "svg"}
        for table in root.iter("table"):
            widths = {len(list(row)) for row in table.iter("tr")}
            assert len(widths) == 1, "rows differ in length"


def test_cells_are_text_and_never_markup():
    table = displays.Table("<b>", ["<i>&"], [["<script>"]], ["<&>"])
    words = [element.text for element in parsed(table.html()).iter() if element.text]
    assert words == ["<b>", "<i>&", "<script>", "<&>"]


def test_text_has_names_to_the_left_and_numbers_to_the_right():
    table = displays.Table("title", ["name", "x"], [["a", "1"], ["bcdef", "10"]], ["n"])
    assert table.text().splitlines() == [
        "title",
        "name    x",
        "a       1",
        "bcdef  10",
        "n",
    ]


def test_bounds_are_shown_rounded_outwards():
    rows = comparison.compare(RUN)
    table = rows._display()
    for row, cells in zip(rows, table.rows, strict=True):
        shown = dict(zip(table.heads, cells, strict=True))
        assert Fraction(shown["ε lower"]) <= Fraction(row.epsilon_lower)
        assert Fraction(shown["ε upper"]) >= Fraction(row.epsilon_upper)


def test_curves_show_as_tables_where_there_is_no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = held("profiles")
    tables = list(parsed(found._repr_html_()).iter("table"))
    assert len(tables) == 1 + len(found)
    assert not list(parsed(curves.Curves()._repr_html_()).iter("svg"))


def test_a_statement_is_set_as_a_page():
    told = statement.privacy_statement(RUN)
    assert told._repr_markdown_() == told == str(told)
    assert type(told._repr_markdown_()) is str
    assert "|---" in told._repr_markdown_().replace(" ", "-")


@pytest.mark.parametrize(
    ("layout", "name"), [(None, "profiles"), ("constrained", "trade-offs")]
)
def test_a_picture_of_the_usual_size_keeps_its_axes(name, layout):
    whole, axes = pyplot.subplots(layout=layout)
    groups = [dataclasses.replace(each, group_size=2) for each in held(name)]
    curves.plot([*held(name), *groups], axes, title=name)
    whole.draw_without_rendering()
    size = whole.get_size_inches() * whole.dpi
    found = axes.get_window_extent()
    assert found.width >= 0.8 * size[0] and found.height >= 0.6 * size[1]
    legend = axes.get_legend().get_window_extent()
    assert 0 <= legend.x0 <= legend.x1 <= size[0]
    assert 0 <= legend.y0 <= legend.y1 < found.y0
    pyplot.close(whole)
