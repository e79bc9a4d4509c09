"""Pictures as data, the tables beside them, and how they are drawn."""

from collections.abc import Sequence
import csv
import dataclasses
import enum
import importlib.util
import math
import os
import pathlib
import textwrap
from typing import Any

from dp_accounting_ext.validation import fields

SUFFIXES = (".pdf", ".png", ".svg")
# Tuning: how a picture looks; sizes are in inches.
DPI = 150
_LEAST_DPI, _MOST_DPI = 20, 1200
_PANEL_WIDTH = 4.2
_PANEL_HEIGHT = 3.2
_SIDE_LEGEND_WIDTH = 2.7
_LEGEND_ENTRY_WIDTH = 2.3
_LINE_HEIGHT = 0.2
_NOTE_LINE_HEIGHT = 0.14
_NOTE_LETTERS_PER_INCH = 17
_FEW_DECADES = 2.5  # An axis of so many has ticks between powers of ten.
_INK = "#333333"
_RULES = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "svg.hashsalt": "dp_accounting_ext",
}


class Colour(enum.Enum):
    """Colours that the colour-blind tell apart (Okabe and Ito)."""

    BLUE = "#0072B2"
    VERMILLION = "#D55E00"
    GREEN = "#009E73"
    PURPLE = "#CC79A7"
    ORANGE = "#E69F00"
    SKY = "#56B4E9"
    BLACK = "#000000"
    GREY = "#B9BEC6"


class Dashes(enum.Enum):
    """Line styles, so that a picture is legible without colours."""

    SOLID = "-"
    DASHED = "--"
    DOTTED = ":"
    DASH_DOT = "-."
    LONG = (0, (9, 2))
    SPARSE = (0, (2, 4))


class Kind(enum.Enum):
    """How points are shown; dots are on lines of their colour, which legends name.

    A broad line is pale: a narrow one on it is seen.
    """

    LINE = "line"
    BROAD = "broad"
    POINTS = "points"
    BARS = "bars"
    STEPS = "steps"


@dataclasses.dataclass(frozen=True)
class Look:
    """The style of a curve."""

    colour: Colour
    dashes: Dashes = Dashes.SOLID
    kind: Kind = Kind.LINE


ALLOCATION = Look(Colour.BLUE)
POISSON = Look(Colour.VERMILLION, Dashes.DASHED)
RENYI = Look(Colour.GREEN, Dashes.DASH_DOT)
PLAIN = Look(Colour.BLACK, Dashes.DOTTED)


@dataclasses.dataclass(frozen=True)
class Curve:
    """Points, or certified bands.

    Attributes:
        label: What the legend says.
        x: (n,) where.
        upper: (n,) values, or upper ends of bands.
        lower: (n,) lower ends of bands; none for values alone.
        look: Its style.
    """

    label: str
    x: Sequence[float]
    upper: Sequence[float]
    lower: Sequence[float] | None = None
    look: Look = ALLOCATION


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes.

    Attributes:
        title: What sets it apart from the other panels.
        x_label: Quantity and unit.
        y_label: Quantity and unit.
        curves: What is drawn, the first lowest.
        log_x: Whether the axis is logarithmic; so for `log_y`. Values that are not
            positive are left out there.
        y_limits: Ends of the axis, None where the curves decide.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    y_limits: tuple[float | None, float | None] = (None, None)


@dataclasses.dataclass(frozen=True)
class Picture:
    """Panels side by side.

    Attributes:
        title: One line.
        panels: At least one.
        note: Parameters, and what differs from the figure that is drawn again.
        columns: Panels of a row.
    """

    title: str
    panels: Sequence[Panel]
    note: str = ""
    columns: int = 3


def check_output(path: pathlib.Path, *, dpi: int = DPI) -> None:
    """Raises what `draw` would, before anything is computed.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError, ValueError: If it is no name of a picture, in a directory that is
            there and can be written to; or dpi is not what it should be.
    """
    if path.suffix.lower() not in SUFFIXES:
        *others, last = SUFFIXES
        ends = f"{', '.join(others)} or {last}"
        raise ValueError(f"output must end in {ends}. Found {path}.")
    if not _LEAST_DPI <= fields.positive_integer("dpi", dpi) <= _MOST_DPI:
        raise ValueError(f"dpi must be from {_LEAST_DPI} to {_MOST_DPI}. Found {dpi}.")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ValueError(
            f"output must be in a directory that can be written to. Found {path}."
        )
    check_matplotlib()


def check_matplotlib() -> None:
    """Raises a ModuleNotFoundError if matplotlib is not installed."""
    try:
        found = importlib.util.find_spec("matplotlib")
    except ValueError:  # It is None in sys.modules.
        found = None
    if found is None:
        raise ModuleNotFoundError(
            "matplotlib must be installed for pictures. Found none; run "
            "python -m pip install matplotlib."
        )


def write_table(picture: Picture, path: pathlib.Path) -> None:
    """Writes all numbers: a line a point, behind comments that say what they are.

    Raises:
        OSError: If it cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        for comment in (picture.title, picture.note):
            if comment:
                file.write(f"# {' '.join(comment.split())}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "curve", "x", "lower", "upper", "x_is", "y_is"])
        for panel in picture.panels:
            for curve in panel.curves:
                for row in _rows(curve):
                    writer.writerow(
                        [panel.title, curve.label, *row, panel.x_label, panel.y_label]
                    )


def _rows(curve: Curve) -> list[list[str]]:
    """Returns places, lower and upper ends in full; no lower end is an empty one."""
    lower = [""] * len(curve.x)
    if curve.lower is not None:
        lower = [repr(float(value)) for value in curve.lower]
    return [
        [repr(float(x)), low, repr(float(high))]
        for x, low, high in zip(curve.x, lower, curve.upper, strict=True)
    ]


def draw(picture: Picture, path: pathlib.Path, *, dpi: int = DPI) -> None:
    """Writes a picture, a PDF, PNG or SVG by its suffix.

    Args:
        picture: What to draw.
        path: Where to.
        dpi: Dots of an inch of a PNG, from 20 to 1200.

    Raises:
        ModuleNotFoundError, TypeError, ValueError: As `check_output` does.
        OSError: If it cannot be written.
    """
    check_output(path, dpi=dpi)
    import matplotlib
    from matplotlib import figure

    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    with matplotlib.rc_context(_RULES):
        size = (columns * _PANEL_WIDTH, rows * _PANEL_HEIGHT)
        whole = figure.Figure(figsize=size, layout="constrained")
        # Title and note are of the whole, the legend of its only part: none is in the
        # place of another.
        part: Any = whole.subfigures()
        axes = part.subplots(rows, columns, squeeze=False).ravel()
        for place in axes[len(picture.panels) :]:
            place.remove()
        for panel, place in zip(picture.panels, axes, strict=False):
            _draw_panel(panel, place)
        width, height = _add_legends(picture, part, rows, columns)
        whole.set_size_inches(size[0] + width, size[1] + height)
        _add_texts(picture, whole)
        # What is to be laid out has ticks, and these are found by drawing.
        whole.draw_without_rendering()
        # No date, so that the same numbers make the same file.
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        metadata = dates.get(path.suffix.lower(), {})
        whole.savefig(path, dpi=dpi, metadata=metadata)


def _add_legends(
    picture: Picture, part: Any, rows: int, columns: int
) -> tuple[float, float]:
    """Adds legends, none of which hides a curve; returns the room that they need.

    One legend is above panels of the same curves, or to the right of a single panel;
    panels of different curves have their own below them.
    """
    names = [_legend_of(panel) for panel in picture.panels]
    handles, labels = part.axes[0].get_legend_handles_labels()
    if len(picture.panels) == 1:
        part.legend(handles, labels, loc="outside right upper")
        return _SIDE_LEGEND_WIDTH, 0.0
    if all(name == names[0] for name in names):
        entries = int(columns * _PANEL_WIDTH / _LEGEND_ENTRY_WIDTH)
        ncols = min(entries, len(labels))
        part.legend(handles, labels, loc="outside upper center", ncols=ncols)
        return 0.0, -(-len(labels) // entries) * _LINE_HEIGHT
    for place in part.axes:
        place.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return 0.0, rows * max(map(len, names)) * _LINE_HEIGHT


def _add_texts(picture: Picture, whole: Any) -> None:
    """Adds the title and the note, and the room that they need."""
    width, height = whole.get_size_inches()
    note = textwrap.wrap(picture.note, round(width * _NOTE_LETTERS_PER_INCH))
    height += 2 * _LINE_HEIGHT + len(note) * _NOTE_LINE_HEIGHT
    whole.set_size_inches(width, height)
    whole.suptitle(picture.title, fontsize=11)
    style = {"fontsize": 7.5, "color": _INK, "ha": "left"}
    whole.supxlabel("\n".join(note), x=0.01, **style)


def _legend_of(panel: Panel) -> list[str]:
    """Returns the names in the legend: all but those of dots."""
    return [curve.label for curve in panel.curves if curve.look.kind is not Kind.POINTS]


def _draw_panel(panel: Panel, axes: Any) -> None:
    above = 0.0 if panel.log_y else -math.inf
    for curve in panel.curves:
        _draw_curve(curve, axes, above, _bottom(panel, above))
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if panel.log_x:
        axes.set_xscale("log")
        _name_ticks(axes.xaxis, axes.get_xlim())
    if panel.log_y:
        axes.set_yscale("log")
    axes.set_ylim(*panel.y_limits)
    if panel.log_y:
        _name_ticks(axes.yaxis, axes.get_ylim())


def _name_ticks(axis: Any, limits: tuple[float, float]) -> None:
    """Names ticks of a logarithmic axis: powers of ten, or of few, 1, 2 and 5 too."""
    from matplotlib import ticker

    if math.log10(limits[1] / limits[0]) < _FEW_DECADES:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _bottom(panel: Panel, above: float) -> float:
    """Returns the least value that has a place on the axis, where bands end."""
    if panel.y_limits[0] is not None:
        return panel.y_limits[0]
    ends = [(*curve.upper, *(curve.lower or ())) for curve in panel.curves]
    return min((value for of in ends for value in of if value > above), default=1.0)


def _draw_curve(curve: Curve, axes: Any, above: float, bottom: float) -> None:
    """Draws the values above a number; others are gaps, but for bands' lower ends."""
    colour = curve.look.colour.value
    upper = [value if value > above else math.nan for value in curve.upper]
    if curve.look.kind is Kind.BARS:
        axes.bar(curve.x, upper, color=colour, width=0.9, label=curve.label)
        return
    if curve.look.kind is Kind.POINTS:
        axes.plot(curve.x, upper, "o", ms=3.5, color=colour, zorder=1.9)
        return
    style = {"color": colour, "ls": curve.look.dashes.value, "lw": 1.7}
    if curve.look.kind is Kind.BROAD:
        style |= {"lw": 5.0, "alpha": 0.45, "zorder": 1.8}
    if curve.look.kind is Kind.STEPS:
        style["drawstyle"] = "steps-mid"
    axes.plot(curve.x, upper, label=curve.label, **style)
    if curve.lower is not None:
        lower = [max(value, bottom) for value in curve.lower]
        axes.fill_between(curve.x, lower, upper, color=colour, alpha=0.25, lw=0)
