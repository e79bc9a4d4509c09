"""Pictures as data: a table of all numbers, and panels on plain matplotlib."""

from collections.abc import Sequence
import csv
import dataclasses
import math
import pathlib
import textwrap
from typing import Any

# Colours that the colour-blind tell apart (Okabe and Ito).
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, BLACK, GREY = "#56B4E9", "#E69F00", "#000000", "#B9BEC6"

ALLOCATION = {"color": BLUE, "ls": "-"}
POISSON = {"color": VERMILLION, "ls": "--"}
RENYI = {"color": GREEN, "ls": "-."}
PLAIN = {"color": BLACK, "ls": ":"}
POINTS = {"color": BLACK, "ls": "none", "marker": "o", "ms": 3.5}

_RULES = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "svg.hashsalt": "dp_accounting_ext",
}
_WIDTH, _HEIGHT, _LINE = 4.4, 3.3, 0.17  # Inches: of a panel, of a legend's line.
_LETTERS_PER_INCH = 16
_FEW_DECADES = 2.5  # An axis of fewer has ticks between powers of ten.


@dataclasses.dataclass(frozen=True)
class Curve:
    """Points, or certified bands.

    Attributes:
        label: What the legend says.
        x: (n,) where.
        upper: (n,) values, or upper ends of bands.
        lower: (n,) lower ends of bands; none for values alone.
        style: What matplotlib's `plot` takes.
    """

    label: str
    x: Sequence[float]
    upper: Sequence[float]
    lower: Sequence[float] | None = None
    style: dict[str, Any] = dataclasses.field(default_factory=lambda: ALLOCATION)


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes.

    Attributes:
        title: What sets it apart from the other panels.
        x_label: Quantity and unit.
        y_label: Quantity and unit.
        curves: What is drawn, the first lowest.
        logarithmic: Which axes are: "", "x", "y" or "xy".
        limits: Ends of the vertical axis, None where the curves decide.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    logarithmic: str = ""
    limits: tuple[float | None, float | None] = (None, None)


@dataclasses.dataclass(frozen=True)
class Picture:
    """Panels side by side.

    Attributes:
        title: Wrapped to the picture's width.
        panels: At least one.
        note: Parameters, and what differs from the figure that is drawn again.
        columns: Panels of a row.
    """

    title: str
    panels: Sequence[Panel]
    note: str = ""
    columns: int = 3


def write_table(picture: Picture, path: pathlib.Path) -> None:
    """Writes all numbers: a line a point, behind comments that say what they are."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for comment in (picture.title, picture.note):
            file.write(f"# {comment}\n" if comment else "")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "curve", "x", "lower", "upper", "x_is", "y_is"])
        for panel in picture.panels:
            for curve in panel.curves:
                lower = [""] * len(curve.x) if curve.lower is None else curve.lower
                for x, low, high in zip(curve.x, lower, curve.upper, strict=True):
                    row = [panel.title, curve.label, float(x), low, float(high)]
                    writer.writerow([*row, panel.x_label, panel.y_label])


def draw(picture: Picture, path: pathlib.Path, dpi: int = 150) -> None:
    """Writes a picture, of the kind that its suffix names."""
    import matplotlib
    from matplotlib import figure

    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    entries = max(len(panel.curves) for panel in picture.panels)
    width = columns * _WIDTH
    letters = round(width * _LETTERS_PER_INCH)
    note = _wrapped(picture.note, letters)
    title = _wrapped(picture.title, round(0.75 * letters))
    height = rows * (_HEIGHT + entries * _LINE) + _LINE * (len(note) + 2 * len(title))
    with matplotlib.rc_context(_RULES):
        whole = figure.Figure(figsize=(width, height), layout="constrained")
        # Title and note are of the whole, the panels of its only part.
        part = whole.subfigures()
        places = part.subplots(rows, columns, squeeze=False).ravel()
        for place in places[len(picture.panels) :]:
            place.remove()
        for panel, place in zip(picture.panels, places, strict=False):
            _draw_panel(panel, place)
        whole.suptitle("\n".join(title), fontsize=11)
        whole.supxlabel("\n".join(note), x=0.01, ha="left", fontsize=7.5)
        # No date, so that the same numbers make the same file.
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        whole.savefig(path, dpi=dpi, metadata=dates.get(path.suffix.lower()))


def _wrapped(text: str, letters: int) -> list[str]:
    """Returns lines, none of which ends within an equation."""
    return textwrap.wrap(text.replace(" = ", "\u00a0=\u00a0"), letters)


def _draw_panel(panel: Panel, axes: Any) -> None:
    from matplotlib import ticker

    least = 0.0 if "y" in panel.logarithmic else -math.inf
    drawn = [y for curve in panel.curves for y in curve.upper if y > least]
    bottom = panel.limits[0] or (min(drawn, default=1.0) if least == 0 else least)
    for curve in panel.curves:
        style = {"lw": 1.4, **curve.style}
        upper = [y if y > least else math.nan for y in curve.upper]
        if style.pop("bars", False):
            axes.bar(curve.x, upper, 0.9, color=style["color"], label=curve.label)
            continue
        axes.plot(curve.x, upper, label=curve.label, **style)
        if curve.lower is not None:
            ends = zip(curve.lower, upper, strict=True)
            lower = [min(max(low, bottom), high) for low, high in ends]
            axes.fill_between(curve.x, lower, upper, color=style["color"], alpha=0.25)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    for name in panel.logarithmic:
        axes.set(**{f"{name}scale": "log"})
    axes.set_ylim(*panel.limits)
    for name in panel.logarithmic:
        low, high = getattr(axes, f"get_{name}lim")()
        if math.log10(high / low) < _FEW_DECADES:
            axis = getattr(axes, f"{name}axis")
            axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(ticker.NullFormatter())
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
