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
import unicodedata

import numpy as np

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import workers
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
_STEPS = 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8  # The values of a slider in a decade.
_GIVEN = ["noise multiplier", "ε to be met"]
_RATE, _LEAST_RATE, _POINTS = 1e-3, 1e-6, 25  # The first is one of the points.
_INTERVAL = 1e-3  # With this interval, both bounds of a curve look like one line.
_STYLE = """
:host { font: 16px/1.4 system-ui, sans-serif; } h1 { font-size: 150%; margin: 0; }
table { border-collapse: collapse; margin: .4em 0; font-size: 94%; }
th, td { padding: .3em .4em; border-bottom: 1px solid #ccd; }
th { white-space: nowrap; } sup { line-height: 0; } .wide { overflow-x: auto; }
pre, blockquote { margin: .2em 0 0; padding: .6em .8em; overflow-x: auto;
  background: #f3f4f8; border-left: 3px solid #3f51b5; }
pre:has(span) { white-space: pre-wrap; }  /* Commands break at spaces alone. */
pre span { display: inline-block; max-width: 100%; }
h2 { font-size: 110%; margin: .8em 0 .3em; } button { font-size: 80%; }
label { display: block; font-size: 88%; }
input { width: 100%; margin: .1em 0 .5em; accent-color: #3f51b5; }
p { position: absolute; width: 1px; height: 1px; overflow: hidden; }
"""
_PROGRAM = "python -m dp_accounting_ext"
_TYPED = ("dataset_size", "batch_size", "epochs", "delta", "group_size")
_PYTHON = """\
import dataclasses
from dp_accounting_ext.studies import (
    calibration, comparison, curves, statement, training_run
)
run = training_run.TrainingRun({fields})
rows = {table}
quoted = dataclasses.replace(run, sampling={run.sampling!r}, {noise})
found = curves.trade_offs(quoted)
sentence = statement.brief(quoted, statement.claims(quoted))"""
_WAITED_FOR = "…"
_NO_POINTS: dict[str, Any] = {"x": [], "lower": [], "upper": [], "name": []}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# On a telephone the page is as wide as the screen.
_PAGE = """{% extends base %}
{% block preamble %}<meta name="viewport" content="width=device-width"><style>
#ended { position: sticky; top: 0; z-index: 1; margin: 0; font: 16px system-ui; }
.ended #ended { padding: .6em; background: #b3261e; color: white; }
.ended main { opacity: .4; filter: grayscale(1); }
</style>{% endblock %}
{% block contents %}<p id="ended" role="alert"></p>
<main>{{ embed(roots.whole) }}</main>{% endblock %}
"""
_ENDED = """
document.body.classList.toggle("ended", is_lost)
document.querySelector("main").inert = is_lost
document.getElementById("ended").textContent = is_lost ?
  "The program behind this page has ended: nothing below changes any more. " +
  "Start it again by python -m dp_accounting_ext explore, and open its new page." : ""
"""
_COPY = """
navigator.clipboard.writeText(this.parentElement.nextElementSibling.innerText)
  .then(() => { this.textContent = 'copied' })
"""
# A screen reader reads the native slider's name, and its value as words.
_SLIDER = """
export function render({ model }) {
  const whole = document.createElement("label")
  whole.innerHTML = '<span></span>: <b></b><input type="range" min="0">'
  const [name, value, input] = whole.children
  name.textContent = input.ariaLabel = model.label
  input.max = model.written.length - 1
  input.value = model.place
  const show = () => {
    value.textContent = model.written[input.value]
    input.ariaValueText = model.spoken[input.value]
  }
  input.addEventListener("input", show)
  input.addEventListener("change", () => { model.place = Number(input.value) })
  show()
  return whole
}
"""
# What a screen reader says when the answers are there. Nobody sees it.
_ANNOUNCED = """
export function render({ model }) {
  const told = document.createElement("p")
  told.role = "status"
  model.on("words", () => { told.textContent = model.words })
  return told
}
"""


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


def commands_of(run: training_run.TrainingRun, target: float | None) -> str:
    """Returns two commands: one prints the bounds on ε, and one the sentence to quote.

    The run has a dataset size, noise, and the way of drawing batches that is quoted.
    """
    typed = "".join(f" {parser.option(name)} {getattr(run, name)}" for name in _TYPED)
    noise = f" --noise-multiplier {run.noise_multiplier}"
    (way,) = (key for key, name in training_run.OPTIONS.items() if name == run.sampling)
    table = f"compare{noise}" if target is None else f"calibrate --epsilon {target}"
    quoted = f"statement --brief --sampling {way}{noise}"
    return f"{_PROGRAM} {table}{typed}\n{_PROGRAM} {quoted}{typed}"


def python_of(run: training_run.TrainingRun, target: float | None) -> str:
    """Returns Python code that computes `rows`, the curves `found`, and `sentence`."""
    fields = ", ".join(f"{name}={getattr(run, name)!r}" for name in _TYPED)
    noise = f"noise_multiplier={run.noise_multiplier!r}"
    table = f"calibration.calibrate(run, {target})"
    if target is None:
        table, fields = "comparison.compare(run)", f"{fields}, {noise}"
    return _PYTHON.format(fields=fields, table=table, run=run, noise=noise)


def written(value: float) -> str:
    """Returns a number as people write it: 60,000, 1.1, 10⁻⁶."""
    if value >= 1e-3:
        return f"{value:,}".removesuffix(".0")
    digits, _, power = np.format_float_scientific(value, trim="-").partition("e")
    factor = "" if digits == "1" else f"{digits} · "
    return f"{factor}10{str(int(power)).translate(_SUPERSCRIPTS)}"


def spoken(value: float) -> str:
    """Returns a number in words that are read aloud: "10 to the minus 6"."""
    words = unicodedata.normalize("NFKC", written(value))  # 10⁻⁶ becomes 10−6.
    return words.replace("10−", "10 to the minus ").replace("·", "times")


def heading_of(run: training_run.TrainingRun, target: float | None) -> str:
    """Returns what is shown, with all that the sliders say."""
    values = {**dataclasses.asdict(run), "epsilon": target}
    parts = [
        f"{label} {written(values[name])}"
        for name, (label, *_) in _SLIDERS.items()
        if values[name] is not None
    ]
    return f"{'ε' if target is None else 'Noise'}: {', '.join(parts)}"


def table_of(
    run: training_run.TrainingRun,
    target: float | None,
    rows: Mapping[str, comparison.Row | str],
    points: Mapping[str, curves.Points | str],
) -> str:
    """Returns HTML: warnings, and a line for each way of drawing batches.

    Those with an answer have their row, or an error, and their curve.
    """
    heads = ["sampling", "ε lower", "ε upper", "found"]
    heads += ["noise"] * (target is not None)
    cells, notes = [], training_run.warnings_of(run)
    for scheme in training_run.SCHEMES:
        row = rows.get(scheme, _WAITED_FOR)
        curve = points.get(scheme, _WAITED_FOR)
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
        f"false positive rate of {_RATE:g}. An epoch has {written(run.epoch_steps)} "
        f"steps; Poisson sampling draws {written(run.run_steps)} batches at most."
    )
    table = displays.Table(heading_of(run, target), heads, cells, notes).html()
    return f'<div class="wide">{table.replace("e^ε", "e<sup>ε</sup>")}</div>'


def words_of(rows: Mapping[str, comparison.Row | str]) -> str:
    """Returns the bounds in words that are read aloud; or that some are computed."""
    if len(rows) < len(training_run.SCHEMES):
        return "Computing."
    told = []
    for scheme in training_run.SCHEMES:
        row = rows[scheme]
        words = "no answer"
        if isinstance(row, comparison.Row):
            words = f"ε at most {decimals.rounded_up(row.epsilon_upper, 5)}"
            words += f" with noise multiplier {row.noise_multiplier:g}"
        told.append(f"{scheme}: {words}")
    return f"{'; '.join(told)}."


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
        self._answers = workers.Answers(lambda: next_tick(self._answers.look))
        wide = {"sizing_mode": "stretch_width"}
        kinds = _components(panel)
        begin = {**dataclasses.asdict(run), "epsilon": target or 2.0}
        self._sliders, self._stops = {}, {}
        for name, (label, low, high) in _SLIDERS.items():
            stops = self._stops[name] = _stops(low, high, begin[name])
            self._sliders[name] = slider = kinds["slider"](
                label=label,
                written=list(map(written, stops)),
                spoken=list(map(spoken, stops)),
                place=stops.index(begin[name]),
                stylesheets=[_STYLE],
                margin=(0, 10),
                **wide,
            )
            slider.param.watch(self._changed, "place")
        self._announcement = kinds["announcement"](stylesheets=[_STYLE])
        given = {"options": _GIVEN, "value": _GIVEN[target is not None]}
        self._given = panel.widgets.RadioBoxGroup(name="given", inline=True, **given)
        way = {"options": [*training_run.SCHEMES], "name": "how your loader draws"}
        way["value"] = run.sampling or training_run.RANDOM_ALLOCATION
        self._quoted = panel.widgets.Select(**way, **wide)
        for widget in (self._given, self._quoted):
            widget.param.watch(self._changed, "value")
        parts = [panel.pane.HTML("", stylesheets=[_STYLE], **wide) for _ in range(4)]
        head, self._table, self._sentence, self._code = parts
        head.object = "<h1>What a run promises</h1>DP-SGD, by certified bounds."
        figure, self._sources = _figure()
        controls = [self._given, *self._sliders.values(), self._quoted]
        shown = [self._table, figure, self._sentence, self._code]
        boxes = [
            panel.Column(*column, styles={"flex": flex, "min-width": "0"})
            for column, flex in ((controls, "1 1 15rem"), (shown, "3 1 20rem"))
        ]
        style = {"max-width": "76rem", "margin": "0 auto"}
        rest = panel.FlexBox(*boxes), self._announcement
        whole = panel.Column(head, *rest, styles=style, **wide)
        self.view = panel.Template(_PAGE, items={"whole": whole})
        _tell_of_the_end(panel.state.curdoc)
        panel.state.on_session_destroyed(lambda _: self._answers.end())
        panel.state.onload(self._changed)

    def _settings(self) -> tuple[dict[str, Any], float | None]:
        """Returns the fields of the sliders' run, and the target ε, if it is given."""
        values = {
            name: self._stops[name][slider.place]
            for name, slider in self._sliders.items()
        }
        target = values.pop("epsilon")
        if self._given.value == _GIVEN[1]:
            return {**values, "noise_multiplier": None}, target
        return values, None

    def _changed(self, *_: Any) -> None:
        """Asks for all answers for the sliders, and drops the earlier questions."""
        self._answers.forget()
        values, target = self._settings()
        self._sliders["epsilon"].visible = target is not None
        self._sliders["noise_multiplier"].visible = target is None
        self._sentence.object = self._code.object = ""
        for scheme in training_run.SCHEMES:
            self._draw(scheme, "")
        try:
            run = training_run.TrainingRun(**values)
        except ValueError as error:
            self._table.object = f"<b>{html.escape(str(error))}</b>"
            self._announcement.words = str(error)
            return
        rows: dict[str, comparison.Row | str] = {}
        points: dict[str, curves.Points | str] = {}

        def show() -> None:
            self._table.object = table_of(run, target, rows, points)
            self._announcement.words = words_of(rows)

        def of_row(way: training_run.TrainingRun, row: comparison.Row | str) -> None:
            rows[str(way.sampling)] = row
            show()
            if target is not None and isinstance(row, comparison.Row):
                noise = row.noise_multiplier
                ask_more(dataclasses.replace(way, noise_multiplier=noise))

        def ask_more(way: training_run.TrainingRun) -> None:
            scheme = str(way.sampling)

            def of_curve(curve: curves.Points | str) -> None:
                points[scheme] = curve
                show()
                self._draw(scheme, curve)

            self._answers.ask(of_curve, curve_of, way)
            if scheme == self._quoted.value:
                self._ask_for_sentence(way, target)

        show()
        # Two processes answer in this order: the table, the picture, the sentence.
        ways = training_run.schemes_of(run)
        for way in ways:
            self._answers.ask(functools.partial(of_row, way), row_of, way, target)
        if target is None:  # Otherwise these questions need the noise of the row.
            for way in sorted(ways, key=lambda way: way.sampling == self._quoted.value):
                ask_more(way)

    def _ask_for_sentence(
        self, run: training_run.TrainingRun, target: float | None
    ) -> None:
        """Shows commands and Python code, and asks for the sentence to quote."""
        typed = commands_of(run, target), python_of(run, target)
        self._code.object = _boxed("Commands", typed[0], "pre", "commands")
        self._code.object += _boxed("Python", typed[1], "pre", "Python")

        def quote(sentence: str) -> None:
            self._sentence.object = _boxed(
                "To quote", sentence, "blockquote", "sentence"
            )

        self._sentence.object = _boxed("To quote", "computing …", "blockquote", "")
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
    values = [float(f"{a * 10.0**b:.3g}") for b in range(low, high) for a in _STEPS]
    if isinstance(value, int):
        values = [int(stop) for stop in values if stop.is_integer()]
    return sorted({*values, value})


def _boxed(title: str, words: str, tag: str, copied: str) -> str:
    """Returns the HTML of a text, with a button that copies it if it is named."""
    button = f'<button onclick="{_COPY}" aria-label="copy the {copied}">copy</button>'
    lines = html.escape(words).splitlines()
    if copied == "commands":
        lines = [
            " ".join(f"<span>{word}</span>" for word in line.split()) for line in lines
        ]
    heading = f"<h2>{title} {button if copied else ''}</h2>"
    return f"{heading}<{tag}>{chr(10).join(lines)}</{tag}>"


@functools.cache
def _components(panel: Any) -> dict[str, Any]:
    """Returns Panel's types of the slider, and of what is read aloud."""
    import param

    class Slider(panel.custom.JSComponent):  # type: ignore[misc]
        label, place = param.String(), param.Integer()
        written, spoken = param.List(), param.List()
        _esm = _SLIDER

    class Announcement(panel.custom.JSComponent):  # type: ignore[misc]
        words = param.String()
        _esm = _ANNOUNCED

    return {"slider": Slider, "announcement": Announcement}


def _tell_of_the_end(document: Any) -> None:
    """Makes the page say when its program has ended, in place of Bokeh's own words."""
    from bokeh import models

    lost = {"connection_lost": "true", "client_reconnected": "false"}
    for event, is_lost in lost.items():
        code = f"const is_lost = {is_lost}{_ENDED}"
        document.js_on_event(event, models.CustomJS(code=code))
    if hasattr(document, "config"):
        document.config.notify_connection_status = False


def _figure() -> tuple[Any, dict[str, Any]]:
    """Returns an empty picture of trade-off curves, and their data."""
    from bokeh import models
    from bokeh import plotting

    kinds = {"x_axis_type": "log", "y_axis_type": "log", "toolbar_location": None}
    ends = {"x_range": (_LEAST_RATE, 1.0), "y_range": (_LEAST_RATE, 1.1)}
    size = {"height": 400, "sizing_mode": "stretch_width", "min_border_right": 16}
    figure = plotting.figure(**kinds, **ends, **size, tools="")
    figure.xaxis.axis_label = "false positive rate of a membership test"
    figure.yaxis.axis_label = "true positive rate, at most"
    tips = [("", "@name"), ("false positives", "@x"), ("members found", "@upper")]
    figure.add_tools(models.HoverTool(tooltips=tips))
    guessing = ends["x_range"], ends["x_range"]
    figure.line(*guessing, color="#B9BEC6", legend_label="guessing")
    sources, dashes = {}, {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}
    for scheme in training_run.SCHEMES:
        style = curves.STYLES[scheme]
        of = {"source": models.ColumnDataSource(_NO_POINTS), "color": style["color"]}
        figure.varea("x", "lower", "upper", alpha=0.2, **of)
        line = {"line_dash": dashes[style["linestyle"]], "line_width": 2, **of}
        figure.line("x", "upper", legend_label=scheme, **line)
        sources[scheme] = of["source"]
    # No curve is below that of guessing.
    figure.legend.update(location="bottom_right", label_text_font_size="12px")
    figure.legend.update(glyph_width=36, border_line_color=None)
    return figure, sources
