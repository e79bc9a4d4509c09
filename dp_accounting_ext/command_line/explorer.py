"""The explorer: a page with sliders, which shows the privacy of a training run.

It uses Panel, which the extra `explore` installs. Bounds are computed in other
processes, so that the page stays responsive. Each bound is shown as soon as it is
computed.
"""

from collections.abc import Mapping
import dataclasses
import functools
import html
from typing import Any

import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import answers
from dp_accounting_ext.command_line import same_run
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

_SLIDERS = {  # The names of sliders, and the powers of ten at which they begin and end.
    "noise_multiplier": ("noise multiplier", -1, 2),
    "epsilon": ("ε to be met", -2, 2),
    "dataset_size": ("records", 3, 9),
    "batch_size": ("records of a batch", 0, 6),
    "epochs": ("epochs", 0, 4),
    "delta": ("δ", -12, -2),
    "group_size": ("records of one user", 0, 2),
}
_STEPS = (
    1.0,
    1.2,
    1.5,
    2.0,
    2.5,
    3.0,
    4.0,
    5.0,
    6.0,
    8.0,
)  # The number of steps of a slider in a decade.
_GIVEN = ["noise multiplier", "ε to be met"]
_RATE, _LEAST_RATE, _POINTS = 1e-3, 1e-6, 25  # The first is one of the points.
_INTERVAL = 1e-3  # With this interval, both bounds of a curve look like one line.
_STYLE = """
:host { font: 16px/1.4 system-ui, sans-serif; } h1 { font-size: 150%; margin: 0; }
table { border-collapse: collapse; margin: .4em 0; font-size: 94%; }
th, td { padding: .3em .5em; border-bottom: 1px solid #ccd; }
pre, blockquote { white-space: pre-wrap; margin: .2em 0 1em; padding: .6em .8em;
  background: #f3f4f8; border-left: 3px solid #3f51b5; overflow-wrap: anywhere; }
h2 { font-size: 110%; margin: 1em 0 .3em; } button { font-size: 80%; }
.wide { overflow-x: auto; }
"""
_WAITED_FOR = "…"
_NO_POINTS: dict[str, Any] = {"x": [], "lower": [], "upper": [], "name": []}
# On a telephone the page is as wide as the screen.
_PAGE = """{% extends base %}
{% block preamble %}<meta name="viewport" content="width=device-width">{% endblock %}
{% block contents %}{{ embed(roots.whole) }}{% endblock %}
"""
_COPY = "navigator.clipboard.writeText(this.parentElement.nextElementSibling.innerText)"


def row_of(run: training_run.TrainingRun, target: float | None) -> comparison.Row:
    """Returns the bounds on ε of a run, whose noise is calibrated to any target ε."""
    if target is None:
        return comparison.bracket(run)
    return calibration.calibrate(run, target)[0]


def curve_of(run: training_run.TrainingRun) -> curves.Points:
    """Returns false positive rates, and bounds on the best true positive rates."""
    rates = np.geomspace(_LEAST_RATE, 1.0, _POINTS)
    accountant = run.accountant(value_discretization_interval=_INTERVAL)
    return curves.true_positive_rates(accountant, rates)


def sentence_of(run: training_run.TrainingRun) -> str:
    """Returns the sentence about a run that can be quoted."""
    return " ".join(statement.brief(run, statement.claims(run)).split())


def table_of(
    run: training_run.TrainingRun,
    rows: Mapping[str, comparison.Row | str],
    found: Mapping[str, curves.Points | str],
) -> str:
    """Returns HTML: warnings, and a row for each way of drawing batches.

    Args:
        run: The run that the sliders show, without noise if the noise is calibrated.
        rows: For each way of drawing batches with an answer, its row or an error.
        found: For each way of drawing batches with an answer, its curve.
    """
    heads = ["sampling", "ε lower", "ε upper", "found"]
    heads += ["noise"] * (run.noise_multiplier is None)
    cells, notes = [], training_run.warnings_of(run)
    for scheme in training_run.SCHEMES:
        row = rows.get(scheme, _WAITED_FOR)
        curve = found.get(scheme, _WAITED_FOR)
        line = [scheme, *[_WAITED_FOR] * 3, *[""] * (len(heads) - 4)]
        if isinstance(row, comparison.Row):
            line[1] = decimals.rounded_down(row.epsilon_lower, 5)
            line[2] = decimals.rounded_up(row.epsilon_upper, 5)
            line[4:] = [f"{row.noise_multiplier:g}"] * len(line[4:])
            notes += [f"{scheme}: {row.note}."] * bool(row.note)
        elif row != _WAITED_FOR:
            line[1:] = ["–"] * len(line[1:])
            notes.append(f"{scheme}: {row}")
        if not isinstance(curve, str):
            rates, _, upper = curve
            share = upper[np.searchsorted(rates, _RATE)]
            line[3] = decimals.rounded_up(share, 3)
        elif curve != _WAITED_FOR:
            line[3] = "–"
        cells.append(line)
    notes.append(
        f"Found: the largest share of members that a membership test finds at a "
        f"false positive rate of {_RATE:g}."
    )
    title = f"ε at δ = {run.delta:g}: {run.in_words}"
    table = displays.Table(title, heads, cells, notes).html()
    return f'<div class="wide">{table}</div>'


class Page:
    """The page of one visitor: its `view`, and the answers for its sliders.

    Args:
        panel: The Panel library.
        run: The run that the sliders show at first.
        target: The target ε, if it is given in place of the noise; otherwise None.
    """

    def __init__(
        self, panel: Any, run: training_run.TrainingRun, target: float | None
    ) -> None:
        # Functions that are called in the page's next tick may change the page.
        next_tick = panel.state.curdoc.add_next_tick_callback
        self._answers = answers.Answers(lambda: next_tick(self._answers.look))
        wide = {"sizing_mode": "stretch_width"}
        begin = {**dataclasses.asdict(run), "epsilon": target or 2.0}
        self._sliders = {}
        for name, (label, low, high) in _SLIDERS.items():
            stops = _stops(low, high, begin[name])
            self._sliders[name] = slider = panel.widgets.DiscreteSlider(
                name=label, options=stops, value=begin[name], **wide
            )
            slider.param.watch(self._changed, "value_throttled")
        given = {"options": _GIVEN, "value": _GIVEN[target is not None]}
        self._given = panel.widgets.RadioButtonGroup(**given, **wide)
        way = {"options": [*training_run.SCHEMES], "name": "how your loader draws"}
        way["value"] = run.sampling or training_run.RANDOM_ALLOCATION
        self._quoted = panel.widgets.Select(**way, **wide)
        for widget in (self._given, self._quoted):
            widget.param.watch(self._changed, "value")
        parts = [panel.pane.HTML("", stylesheets=[_STYLE], **wide) for _ in range(4)]
        head, self._table, self._quote, self._same = parts
        head.object = "<h1>What a run promises</h1>DP-SGD, by certified bounds."
        figure, self._sources = _figure()
        controls = [self._given, *self._sliders.values(), self._quoted]
        shown = [self._table, figure, self._quote, self._same]
        boxes = [
            panel.Column(*column, styles={"flex": flex, "min-width": "0"})
            for column, flex in ((controls, "1 1 15rem"), (shown, "3 1 20rem"))
        ]
        style = {"max-width": "76rem", "margin": "0 auto"}
        whole = panel.Column(head, panel.FlexBox(*boxes), styles=style, **wide)
        self.view = panel.Template(_PAGE, items={"whole": whole})
        panel.state.on_session_destroyed(lambda _: self._answers.end())
        panel.state.onload(self._changed)

    def _changed(self, *_: Any) -> None:
        """Asks for all answers for the sliders, and drops the earlier questions."""
        self._answers.forget()
        values = {name: slider.value for name, slider in self._sliders.items()}
        target = values.pop("epsilon")
        is_target = self._given.value == _GIVEN[1]
        values |= {"noise_multiplier": None} if is_target else {}
        target = target if is_target else None
        self._sliders["epsilon"].visible = is_target
        self._sliders["noise_multiplier"].visible = not is_target
        self._quote.object = self._same.object = ""
        for scheme in training_run.SCHEMES:
            self._draw(scheme, "")
        try:
            run = training_run.TrainingRun(**values)
        except ValueError as error:
            self._table.object = f"<b>{html.escape(str(error))}</b>"
            return
        rows: dict[str, comparison.Row | str] = {}
        found: dict[str, curves.Points | str] = {}

        def of_row(each: training_run.TrainingRun, row: comparison.Row | str) -> None:
            rows[str(each.sampling)] = row
            self._table.object = table_of(run, rows, found)
            if target is not None and isinstance(row, comparison.Row):
                each = dataclasses.replace(each, noise_multiplier=row.noise_multiplier)
                ask_for_curve(each)
                if each.sampling == self._quoted.value:
                    self._ask_for_sentence(each, target)

        def ask_for_curve(each: training_run.TrainingRun) -> None:
            self._answers.ask(functools.partial(of_curve, each), curve_of, each)

        def of_curve(
            each: training_run.TrainingRun, curve: curves.Points | str
        ) -> None:
            found[str(each.sampling)] = curve
            self._table.object = table_of(run, rows, found)
            self._draw(str(each.sampling), curve)

        self._table.object = table_of(run, rows, found)
        # Two processes answer in this order: first the table, then the picture.
        for each in training_run.schemes_of(run):
            self._answers.ask(functools.partial(of_row, each), row_of, each, target)
        if (
            target is None
        ):  # Otherwise all other questions need the noise multiplier of the row.
            for each in training_run.schemes_of(run):
                ask_for_curve(each)
            quoted = dataclasses.replace(run, sampling=self._quoted.value)
            self._ask_for_sentence(quoted, target)

    def _ask_for_sentence(
        self, run: training_run.TrainingRun, target: float | None
    ) -> None:
        """Shows commands and Python code, and asks for the sentence to quote."""
        typed = same_run.commands(run, target), same_run.python(run, target)
        self._same.object = _copied("Commands", typed[0], "pre")
        self._same.object += _copied("Python", typed[1], "pre")

        def quote(sentence: str) -> None:
            self._quote.object = _copied("To quote", sentence, "blockquote")

        quote("computing …")
        self._answers.ask(quote, sentence_of, run)

    def _draw(self, scheme: str, curve: curves.Points | str) -> None:
        data: dict[str, Any] = _NO_POINTS
        if not isinstance(curve, str):
            rates, lower, upper = curve
            data = {"x": rates, "upper": upper, "name": [scheme] * _POINTS}
            data["lower"] = np.maximum(lower, 1e-300)
        self._sources[scheme].data = data


def _stops(low: int, high: int, value: float) -> list[float]:
    """Returns a slider's values between two powers of ten, and its first value."""
    found = [float(f"{a * 10.0**b:.3g}") for b in range(low, high) for a in _STEPS]
    if isinstance(value, int):
        found = [int(each) for each in found if each.is_integer()]
    return sorted({*found, value})


def _copied(title: str, words: str, tag: str) -> str:
    """Returns the HTML of a text with a button that copies the text."""
    button = f'<button onclick="{_COPY}">copy</button>'
    return f"<h2>{title} {button}</h2><{tag}>{html.escape(words)}</{tag}>"


def _figure() -> tuple[Any, dict[str, Any]]:
    """Returns an empty picture of trade-off curves, and its data by their names."""
    from bokeh import models
    from bokeh import plotting

    kinds = {"x_axis_type": "log", "y_axis_type": "log", "toolbar_location": None}
    ends = {"x_range": (_LEAST_RATE, 1.0), "y_range": (_LEAST_RATE, 1.1)}
    size = {"height": 420, "sizing_mode": "stretch_width"}
    figure = plotting.figure(**kinds, **ends, **size, tools="")
    figure.xaxis.axis_label = "false positive rate of a membership test"
    figure.yaxis.axis_label = "true positive rate, at most"
    tips = [("", "@name"), ("false positives", "@x"), ("members found", "@upper")]
    figure.add_tools(models.HoverTool(tooltips=tips))
    sources, dashes = {}, {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}
    for scheme, style in curves.STYLES.items():
        of = {"source": models.ColumnDataSource(_NO_POINTS), "color": style["color"]}
        figure.varea("x", "lower", "upper", alpha=0.2, **of)
        line = {"line_dash": dashes[style["linestyle"]], "line_width": 2, **of}
        figure.line("x", "upper", legend_label=scheme, **line)
        sources[scheme] = of["source"]
    guessing = ends["x_range"], ends["x_range"]
    figure.line(*guessing, color="#B9BEC6", legend_label="guessing")
    figure.add_layout(figure.legend[0], "below")
    figure.legend.ncols = 2
    return figure, sources
