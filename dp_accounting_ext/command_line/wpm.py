"""The subcommand wpm: one draw of a private distribution."""

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import wpm
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.wpm import private_rows

_EPILOG = """\
examples:
  printf '0,1,4\\n1,0,1\\n4,1,0\\n' > cost.csv
  printf '0.25,0.75,0\\n' > mu.csv
  python -m dp_accounting_ext wpm --cost cost.csv --distribution mu.csv \\
      --epsilon 5

  printf '48.85,2.35\\n48.86,2.29\\n48.89,2.34\\n' > places.csv
  printf '48.851,2.351\\n48.852,2.349\\n48.861,2.291\\n' > trace.csv
  python -m dp_accounting_ext wpm --points places.csv --trace trace.csv \\
      --epsilon 2 --metric haversine --sample

The files are plain: numbers separated by commas; a first line of names alone is
passed over. Points may be latitudes and longitudes in degrees; a trace is
binned to its nearest points.
What is printed is one draw, the number of a column of costs or of a line of
points, from zero. The law that it is drawn from is as private as the input:
--show-law is for tests.
"""
_WARNING = (
    "the law is as private as the input, and not for release: release the draw alone."
)
_PRIVATE = frozenset({"distribution", "trace"})


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "wpm",
        _run,
        help="one draw of a private distribution, close in a metric",
        epilog=_EPILOG,
    )
    places = command.add_mutually_exclusive_group(required=True)
    places.add_argument(
        "--cost", metavar="FILE", help="a line of costs for each input; public"
    )
    places.add_argument("--points", metavar="FILE", help="lines of coordinates; public")
    masses = command.add_mutually_exclusive_group(required=True)
    masses.add_argument(
        "--distribution",
        metavar="FILE",
        help="a mass, or a count, for each input; private",
    )
    masses.add_argument(
        "--trace", metavar="FILE", help="lines of coordinates, with --points; private"
    )
    command.add_argument(
        "--epsilon", type=float, required=True, metavar="EPS", help="ε of one draw"
    )
    command.add_argument(
        "--metric",
        help='of points: "haversine" for degrees, or a metric of SciPy\'s; default: '
        '"euclidean"',
    )
    command.add_argument(
        "--order", type=float, help="of points: the power of a distance; default: 1"
    )
    command.add_argument(
        "--base-measure",
        default="uniform",
        metavar="HOW",
        help='"uniform", "minimax", or a file of masses; public; default: "uniform"',
    )
    command.add_argument(
        "--sample", action="store_true", help="has no effect: a draw is always printed"
    )
    command.add_argument(
        "--show-law",
        action="store_true",
        help="print the private law, too: not for release",
    )


def _run(options: argparse.Namespace) -> str:
    try:
        return _draw(options)
    except (TypeError, ValueError) as error:
        # The library's name of it is no option.
        message = str(error)
        if message.startswith("mu "):
            message = f"distribution {message.removeprefix('mu ')}"
        raise type(error)(message) from None


def _draw(options: argparse.Namespace) -> str:
    base_measure = options.base_measure
    if base_measure not in ("uniform", "minimax"):
        base_measure = _numbers("base-measure", base_measure).ravel()
    with progress_line.Progress("draw"):
        mechanism, private = _read(options, base_measure)
        # An error names the option, and not the argument of a function.
        private_rows.read("distribution", private, mechanism.cost.shape[0])
        drawn: dict[str, Any] = {"sample": mechanism.sample(private)}
        if options.show_law:
            drawn["distribution"] = np.asarray(mechanism.project(private)).tolist()
    if options.show_law and sys.stderr is not None:
        print(f"{options.prog}: warning: {_WARNING}", file=sys.stderr)
    if options.json:
        return text.as_json(drawn)
    lines = [f"sample: {drawn['sample']}"]
    if options.show_law:
        law = ",".join(f"{share!r}" for share in drawn["distribution"])
        lines.append(f"distribution: {law}")
    return "\n".join(lines)


def _read(
    options: argparse.Namespace, base_measure: Any
) -> tuple[wpm.WassersteinProjectionMechanism, npt.NDArray[Any]]:
    """Returns the mechanism, and the private masses or counts.

    Raises:
        ValueError: If a file cannot be read or is bad, or options do not go together.
    """
    if options.points is None:
        for name in ("trace", "metric", "order"):
            if getattr(options, name) is not None:
                raise ValueError(f"{name} must come with --points. Found --cost.")
        cost = _numbers("cost", options.cost)
        made = wpm.WassersteinProjectionMechanism(cost, options.epsilon, base_measure)
        return made, _masses(options.distribution)
    points = _numbers("points", options.points)
    metric, order = options.metric or "euclidean", options.order
    made = wpm.from_points(
        points, options.epsilon, metric, 1.0 if order is None else order, base_measure
    )
    if options.trace is None:
        return made, _masses(options.distribution)
    trace = _numbers("trace", options.trace)
    return made, wpm.counts_at(points, trace, metric=metric)


def _masses(path: str) -> npt.NDArray[Any]:
    """Returns masses of a file, or counts if they are whole and more than one."""
    found = _numbers("distribution", path).ravel()
    whole = bool((found == np.floor(found)).all()) and 1 < found.sum() < 2.0**53
    return found.astype(np.int64) if whole else found


def _numbers(name: str, path: str) -> npt.NDArray[np.float64]:
    """Returns the numbers of a plain file of comma-separated values.

    Raises:
        ValueError: If it cannot be read, or holds anything but numbers; what, is told
            of public files alone.
    """
    allowed = "a file of numbers that can be read"
    if name == "base-measure":
        allowed = f'"uniform", "minimax" or {allowed}'
    with parser.named_file(name, path, allowed), open(path, "rb") as file:
        content = file.read()
    form = f"{name} must be a file of rows of numbers separated by commas, all of one "
    form += "length. Found"
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{form} no text in {path}.") from None
    rows = {at: line.split(",") for at, line in enumerate(lines, 1) if line.strip()}
    if not rows:
        least = "point" if name in ("points", "trace") else "number"
        raise ValueError(f"{name} must have a {least} at least. Found an empty file.")
    first = next(iter(rows))
    if len(rows) > 1 and not any(map(_is_number, rows[first])):
        del rows[first]
    length = len(next(iter(rows.values())))
    found = []
    for at, row in rows.items():
        try:
            found.append(_row(row, length))
        except ValueError as error:
            what = "something else" if name in _PRIVATE else error
            raise ValueError(f"{form} {what} in line {at} of {path}.") from None
    return np.array(found)


def _row(fields: list[str], length: int) -> list[float]:
    """Returns the numbers of a line.

    Raises:
        ValueError: If they are not so many numbers; with what was found.
    """
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise ValueError(f"{wrong!r:.60}") from None
    if len(numbers) != length:
        raise ValueError(f"{len(numbers)} in place of {length} numbers")
    return numbers


def _is_number(field: str) -> bool:
    """Tells numbers from names; one that is misspelt counts as a name."""
    try:
        float(field)
    except ValueError:
        return False
    return True
