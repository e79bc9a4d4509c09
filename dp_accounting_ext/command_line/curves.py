"""The subcommands profile and trade-off: curves as a table or a picture."""

import argparse
from collections.abc import Callable
import importlib.util
import math
import os
import pathlib
from typing import Any

import numpy as np

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.validation import fields

_OF_BOTH = """\
The ways of drawing batches are those of compare. Both ends are certified; the
truth lies between them. In a picture, which needs matplotlib, it is on the line
or, where the ends are further apart than that, in its shade.
"""
_PROFILE = f"""\
example:
  python -m dp_accounting_ext profile --noise-multiplier 1 \\
      --dataset-size 60000 --batch-size 60 --epochs 10 --output profile.png

{_OF_BOTH}"""
_TRADE_OFF = f"""\
example:
  python -m dp_accounting_ext trade-off --noise-multiplier 1 \\
      --dataset-size 60000 --batch-size 60 --epochs 10 --output roc.png

FPR is a membership test's false positive rate, TPR the largest true positive
rate of any test with it. A curve is that of the worse direction: whether the
record was there, or was not. The advantage is the largest TPR less FPR.

{_OF_BOTH}"""
_SUFFIXES = (".pdf", ".png", ".svg")
_POINTS, _POINTS_OF_PICTURES = 21, 81
_SIZE, _DOTS = (8.0, 4.2), 150  # Inches, and dots of one.


def add_to(commands: Any) -> None:
    """Adds both subcommands."""
    words = "bounds on δ at many ε, as a table or picture"
    profile = parser.add_command(commands, "profile", _profiles, words, _PROFILE)
    words = "what membership tests find at each rate of false alarms"
    trade_off = parser.add_command(
        commands, "trade-off", _trade_offs, words, _TRADE_OFF
    )
    for command in (profile, trade_off):
        parser.add_run(command, "noise-multiplier")
        words = "records protected together; several make several curves; default: 1"
        parser.add(command, "group-size", int, "G", words, nargs="+", default=[1])
        words = f"points of a curve; default: {_POINTS}, or {_POINTS_OF_PICTURES} of a "
        parser.add(command, "num-points", int, "N", f"{words}picture")
        words = "picture to write: .pdf, .png or .svg"
        parser.add(command, "output", str, "FILE", words)
    words = "the smallest δ, where curves end; default: %(default)g"
    parser.add(profile, "delta", float, "D", words, default=1e-12)
    words = "range of ε; default: of each curve, down to the smallest δ"
    parser.add(profile, "epsilons", float, ("FIRST", "LAST"), words, nargs=2)
    words = "least false positive rate; default: %(default)g"
    parser.add(trade_off, "least-rate", float, "RATE", words, default=1e-6)


def _profiles(options: argparse.Namespace) -> str:
    asked: dict[str, Any] = {"epsilons": None}
    if options.epsilons is not None:
        first, last = options.epsilons
        with np.errstate(invalid="ignore"):  # Of infinite ends, which are refused.
            asked["epsilons"] = np.linspace(first, last, _points(options))
    return _shown(options, "δ(ε)", curves.profiles, asked)


def _trade_offs(options: argparse.Namespace) -> str:
    asked = {"least_rate": options.least_rate}
    return _shown(options, "trade-off", curves.trade_offs, asked)


def _points(options: argparse.Namespace) -> int:
    if options.num_points is None:
        return _POINTS_OF_PICTURES if options.output else _POINTS
    return fields.positive_integer("num_points", options.num_points)


def _shown(
    options: argparse.Namespace,
    name: str,
    question: Callable[..., list[curves.Curve]],
    asked: dict[str, Any],
) -> str:
    """Returns what is printed of the curves; draws them, if there is a file."""
    run = parser.training_run(options, group_size=1)
    path = None if options.output is None else _checked(pathlib.Path(options.output))
    asked |= {"group_sizes": options.group_size, "num_points": _points(options)}
    with progress_line.shown(lambda: "curves"):
        found = question(run, **asked)
    title = f"{name}, noise multiplier {run.noise_multiplier:g}, {text.training(run)}"
    if path is not None:
        _draw(found, title, path)
    if options.json:
        setting = {**run.to_dict(), "group_size": options.group_size}
        results = [curve.to_dict() for curve in found]
        return text.as_json({"setting": setting, "results": results})
    if path is not None:
        return f"wrote {path}"
    return "\n\n".join([text.wrapped(title), *map(_table, found)])


def _table(curve: curves.Curve) -> str:
    """Returns lines of plain text."""
    lines = [f"{curve.label}, {curve.seconds:.2f} CPU s"]
    x, y = "ε", "δ"
    if curve.x_name != "epsilon":
        x, y = "FPR", "TPR"
        lower, upper = curve.advantage
        bounds = f"{comparison.rounded_down(lower)} to {comparison.rounded_up(upper)}"
        right = comparison.rounded_up(math.nextafter((1 + upper) / 2, 1.0))
        lines.append(f"advantage {bounds}: the best guess at even odds is right")
        lines.append(f"with a chance of {right} at most")
    lines.append(f"{x:>14}{f'{y} lower':>16}{f'{y} upper':>16}")
    for place, low, high in zip(curve.x, curve.lower, curve.upper, strict=True):
        lines.append(
            f"{place:>14.7g}{comparison.rounded_down(low):>16}{comparison.rounded_up(high):>16}"
        )
    return "\n".join(lines)


def _checked(path: pathlib.Path) -> pathlib.Path:
    """Returns the path; raises what a picture would, before anything is computed.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: If no picture can be written there.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"output must end in .pdf, .png or .svg. Found {path}.")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ValueError(
            f"output must be in a directory that can be written to. Found {path}."
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError(
            "matplotlib must be installed for pictures. Found none; run "
            "python -m pip install matplotlib."
        )
    return path


def _draw(found: list[curves.Curve], title: str, path: pathlib.Path) -> None:
    """Writes a picture; the same numbers make the same file."""
    import matplotlib
    from matplotlib import figure

    dates: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "dp_accounting_ext"}):
        whole = figure.Figure(figsize=_SIZE, layout="constrained")
        curves.plot(found, whole.add_subplot(), title=title)
        whole.savefig(path, dpi=_DOTS, metadata=dates.get(path.suffix.lower(), {}))
