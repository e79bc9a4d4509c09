"""The subcommands profile and trade-off: curves as a table or a picture."""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import importlib.util
import math
import os
import pathlib
from typing import Any

import numpy as np

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

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

A curve is that of the worse direction: whether the record was there, or was
not.

{_OF_BOTH}"""
_SUFFIXES = (".pdf", ".png", ".svg")
_LEAST_DPI, _MOST_DPI = 20, 1200
_POINTS, _POINTS_OF_PICTURES = 21, 81
_SIZE = (8.0, 4.2)  # Inches.


def add_to(commands: Any) -> None:
    """Adds both subcommands."""
    profile = parser.add_command(
        commands,
        "profile",
        _profiles,
        "bounds on δ at many ε, as a table or picture",
        _PROFILE,
    )
    _add_options(profile)
    profile.add_argument(
        "--smallest-delta",
        type=float,
        default=1e-12,
        metavar="D",
        help="where curves end; default: %(default)g",
    )
    profile.add_argument(
        "--epsilons",
        type=float,
        nargs=2,
        metavar=("FIRST", "LAST"),
        help="range of ε; default: of each curve, down to the smallest δ",
    )
    trade_off = parser.add_command(
        commands,
        "trade-off",
        _trade_offs,
        "what membership tests find at each rate of false alarms",
        _TRADE_OFF,
    )
    _add_options(trade_off)
    trade_off.add_argument(
        "--smallest-rate",
        type=float,
        default=1e-6,
        metavar="RATE",
        help="least false positive rate; default: %(default)g",
    )


def _add_options(command: argparse.ArgumentParser) -> None:
    parser.add_run(command, "noise-multiplier")
    command.add_argument(
        "--group-size",
        type=int,
        nargs="+",
        default=[1],
        metavar="G",
        help="records protected together; several make several curves; default: 1",
    )
    command.add_argument(
        "--points",
        type=int,
        metavar="N",
        help=f"points of a curve; default: {_POINTS}, of a picture "
        f"{_POINTS_OF_PICTURES}",
    )
    command.add_argument(
        "--output", metavar="FILE", help="picture to write: .pdf, .png or .svg"
    )
    command.add_argument(
        "--dpi", type=int, default=150, help="dots of an inch; default: %(default)d"
    )


def _profiles(options: argparse.Namespace) -> str:
    _check_inside("smallest_delta", options.smallest_delta)
    run = parser.training_run(options, delta=options.smallest_delta, group_size=1)
    number = _points(options, 3)
    epsilons = None
    if options.epsilons is not None:
        first, last = options.epsilons
        if not 0 <= first < last < math.inf:
            raise ValueError(
                f"epsilons must be two numbers, 0 ≤ first < last. "
                f"Found {first:g} {last:g}."
            )
        epsilons = np.linspace(first, last, number).tolist()
    asked = {"num_points": number, "epsilons": epsilons}
    return _shown(options, "δ(ε)", run, curves.profiles, asked)


def _trade_offs(options: argparse.Namespace) -> str:
    _check_inside("smallest_rate", options.smallest_rate)
    run = parser.training_run(options, group_size=1)
    asked = {"num_points": _points(options, 2), "least_rate": options.smallest_rate}
    return _shown(options, "trade-off", run, curves.trade_offs, asked)


def _check_inside(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1). Found {value:g}.")


def _points(options: argparse.Namespace, least: int) -> int:
    if options.points is None:
        return _POINTS_OF_PICTURES if options.output else _POINTS
    if options.points < least:
        raise ValueError(f"points must be at least {least}. Found {options.points}.")
    return int(options.points)


def _shown(
    options: argparse.Namespace,
    name: str,
    run: training_run.TrainingRun,
    question: Callable[..., list[curves.Curve]],
    asked: dict[str, Any],
) -> str:
    """Returns what is printed of the curves; draws them, if there is a file."""
    _check_output(options)
    with progress_line.Progress("curves") as progress:
        found = question(
            run, group_sizes=options.group_size, progress=progress.show, **asked
        )
    title = f"{name}, noise multiplier {run.noise_multiplier:g}, {text.training(run)}"
    if options.output is not None:
        _draw(found, title, pathlib.Path(options.output), options.dpi)
    if options.json:
        setting = {**run.to_dict(), "group_size": options.group_size}
        results = [curve.to_dict() for curve in found]
        return text.as_json({"setting": setting, "results": results})
    if options.output is not None:
        return f"wrote {options.output}"
    return "\n\n".join([text.wrapped(title), *map(_table, found)])


def _table(curve: curves.Curve) -> str:
    """Returns lines of plain text."""
    x, y = ("ε", "δ") if curve.x_name == "epsilon" else ("FPR", "TPR")
    lines = [f"{curve.label}, {curve.seconds:.2f} CPU s"]
    lines.append(f"{x:>14}{f'{y} lower':>16}{f'{y} upper':>16}")
    for place, low, high in zip(curve.x, curve.lower, curve.upper, strict=True):
        lines.append(
            f"{place:>14.7g}{text.rounded_down(low):>16}{text.rounded_up(high):>16}"
        )
    return "\n".join(lines)


def _check_output(options: argparse.Namespace) -> None:
    """Raises, before anything is computed, what a picture would raise after it.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: If no picture can be written there, or dpi is not what it should be.
    """
    if not _LEAST_DPI <= options.dpi <= _MOST_DPI:
        raise ValueError(
            f"dpi must be from {_LEAST_DPI} to {_MOST_DPI}. Found {options.dpi}."
        )
    if options.output is None:
        return
    path = pathlib.Path(options.output)
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


def _draw(
    found: Sequence[curves.Curve], title: str, path: pathlib.Path, dpi: int
) -> None:
    """Writes a picture; the same numbers make the same file."""
    import matplotlib
    from matplotlib import figure

    dates: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "dp_accounting_ext"}):
        whole = figure.Figure(figsize=_SIZE, layout="constrained")
        curves.plot(found, whole.add_subplot(), title=title)
        whole.savefig(path, dpi=dpi, metadata=dates.get(path.suffix.lower(), {}))
