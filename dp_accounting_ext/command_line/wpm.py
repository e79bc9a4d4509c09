"""The subcommand wpm: one draw of a private distribution, or a plan of draws."""

import argparse
import math
import sys
from typing import Any
from typing import NamedTuple

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

  python -m dp_accounting_ext wpm plan --num-places 200 --epsilon 2
  python -m dp_accounting_ext wpm plan --points places.csv --epsilon 2 \\
      --metric haversine

The files are plain: numbers separated by commas; a first line of names alone is
passed over, or names the columns of costs. A line of points may begin with the
name of its place. Points may be latitudes and longitudes in degrees; a trace is
binned to its nearest points.
What is printed is one draw: the number of a column of costs or of a line of
points, from zero, with its name and coordinates. The law that it is drawn from
is as private as the input: --show-law is for tests.
A plan tells, from what is public, how far a draw will be and how much of a user
it can leave in place.
"""
_WARNING = (
    "the law is as private as the input, and not for release: release the draw alone."
)
_PRIVATE = frozenset({"distribution", "trace"})
_DEGREES = (
    "points look like latitudes and longitudes in degrees, and distances are taken as "
    "in a plane; for kilometres write --metric haversine, and if that is meant, "
    "--metric euclidean."
)


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "wpm",
        _run,
        help="one draw of a private distribution, close in a metric",
        epilog=_EPILOG,
    )
    command.add_argument(
        "action",
        nargs="?",
        choices=("draw", "plan"),
        default="draw",
        help="what to do: a draw, or a plan of what draws will cost; default: draw",
    )
    places = command.add_mutually_exclusive_group(required=True)
    places.add_argument(
        "--cost", metavar="FILE", help="a line of costs for each input; public"
    )
    places.add_argument("--points", metavar="FILE", help="lines of coordinates; public")
    places.add_argument(
        "--num-places",
        type=int,
        metavar="N",
        help="of a plan: so many places, spread over a square",
    )
    masses = command.add_mutually_exclusive_group()
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
        help='of points: "haversine" for degrees, "cityblock", "chebyshev", "cosine"; '
        'default: "euclidean"',
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


class _Places(NamedTuple):
    """The rows of a public file, and what they are called, if they are."""

    numbers: npt.NDArray[np.float64]
    names: list[str]


def _run(options: argparse.Namespace) -> str:
    try:
        found = _plan(options) if options.action == "plan" else _draw(options)
    except (TypeError, ValueError) as error:
        # The library's name of it is no option.
        message = str(error)
        if message.startswith("mu "):
            message = f"distribution {message.removeprefix('mu ')}"
        raise type(error)(message) from None
    plain = options.points is not None and options.metric is None
    if plain and _are_degrees(_numbers("points", options.points).numbers):
        _warn(options, _DEGREES)
    return found


def _draw(options: argparse.Namespace) -> str:
    if options.num_places is not None:
        raise ValueError("num-places must come with plan. Found a draw.")
    if options.distribution is None and options.trace is None:
        raise ValueError(
            "distribution must be a file of masses, or trace one of coordinates. "
            "Found neither."
        )
    with progress_line.Progress("draw"):
        mechanism, places = _mechanism(options)
        private = _private(options, places)
        # An error names the option, and not the argument of a function.
        private_rows.read("distribution", private, mechanism.cost.shape[0])
        place = mechanism.sample(private)
        drawn: dict[str, Any] = {"sample": place}
        if places.names:
            drawn["name"] = places.names[place]
        if options.points is not None:
            drawn["coordinates"] = places.numbers[place].tolist()
        if options.show_law:
            drawn["distribution"] = np.asarray(mechanism.project(private)).tolist()
    if options.show_law:
        _warn(options, _WARNING)
    if options.json:
        return text.as_json(drawn)
    lines = [f"sample: {place}"]
    if places.names:
        lines.append(f"name: {places.names[place]}")
    for name in ("coordinates", "distribution"):
        if name in drawn:
            lines.append(f"{name}: " + ",".join(map(repr, drawn[name])))
    return "\n".join(lines)


def _plan(options: argparse.Namespace) -> str:
    """Returns what draws will cost, from what is public."""
    for name in ("distribution", "trace"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} must be left out of a plan, which is public.")
    with progress_line.Progress("plan"):
        mechanism, _ = _mechanism(options)
        expected = mechanism.expected_cost()
        inputs, outputs = mechanism.cost.shape
        some = np.linspace(0, inputs - 1, min(inputs, 200)).astype(np.intp)
        blind = float(mechanism.cost.rows(some).mean())
    # No private draw does better than randomized response.
    best = 1 / (1 + (outputs - 1) * math.exp(-options.epsilon))
    half = math.log(max(outputs - 1, 1))
    if options.json:
        return text.as_json(
            {
                "places": outputs,
                "epsilon": options.epsilon,
                "most_that_stays": expected.most_likely,
                "most_that_stays_with_any_draw": best,
                "epsilon_for_half_to_stay": half,
                "cost_of_average_user": expected.average,
                "cost_of_worst_user": expected.worst,
                "cost_of_a_place_at_random": blind,
            }
        )
    unit = "cost of a draw"
    if options.num_places is not None:
        unit = "distance of a draw, in sides of the square"
    elif options.points is not None:
        unit = "distance of a draw"
        if options.metric == "haversine":
            unit += ", in km"
        if options.order not in (None, 1.0):
            unit += f", to the power {options.order:g}"
    return "\n".join(
        [
            f"{outputs} places, ε = {options.epsilon:g}",
            f"  stays where it was, of a user at one place   {expected.most_likely:.4g}"
            " at most",
            f"    with any ε-private draw of {outputs} places   {best:.4g} at most",
            f"    for half of a user to stay, ε must be   {half:.4g} at least",
            f"  mean {unit}",
            f"    average user   {expected.average:.4g}",
            f"    worst user   {expected.worst:.4g}",
            f"    a place at random, which tells nothing   {blind:.4g}",
        ]
    )


def _mechanism(
    options: argparse.Namespace,
) -> tuple[wpm.WassersteinProjectionMechanism, _Places]:
    """Returns the mechanism, and the public places or columns of costs.

    Raises:
        ValueError: If a file cannot be read or is bad, or options do not go together.
    """
    base_measure = options.base_measure
    if base_measure not in ("uniform", "minimax"):
        base_measure = _numbers("base-measure", base_measure).numbers.ravel()
    if options.points is None:
        found = "--cost" if options.num_places is None else "--num-places"
        for name in ("trace", "metric", "order"):
            if getattr(options, name) is not None:
                raise ValueError(f"{name} must come with --points. Found {found}.")
    if options.num_places is not None:
        if options.num_places < 2:
            raise ValueError(
                f"num-places must be at least 2. Found {options.num_places}."
            )
        spread = np.random.default_rng(0).random((options.num_places, 2))
        made = wpm.from_points(spread, options.epsilon, base_measure=base_measure)
        return made, _Places(spread, [])
    if options.points is None:
        table = _numbers("cost", options.cost)
        made = wpm.WassersteinProjectionMechanism(
            table.numbers, options.epsilon, base_measure
        )
        return made, table
    places = _numbers("points", options.points)
    order = 1.0 if options.order is None else options.order
    metric = options.metric or "euclidean"
    return (
        wpm.from_points(places.numbers, options.epsilon, metric, order, base_measure),
        places,
    )


def _are_degrees(points: npt.NDArray[np.float64]) -> bool:
    """Tells whether points could well be places on the Earth, close together."""
    if points.shape[1] != 2:
        return False
    inside = (np.abs(points) <= (90, 180)).all()
    apart, size = np.ptp(points, axis=0), np.abs(points).max(axis=0)
    return bool(inside and (points != np.rint(points)).any() and (apart < size).all())


def _warn(options: argparse.Namespace, warning: str) -> None:
    if sys.stderr is not None:
        print(f"{options.prog}: warning: {warning}", file=sys.stderr)


def _private(options: argparse.Namespace, places: _Places) -> npt.NDArray[Any]:
    """Returns the private masses or counts."""
    if options.trace is None:
        return _masses(options.distribution)
    trace = _numbers("trace", options.trace).numbers
    metric = options.metric or "euclidean"
    return wpm.counts_at(places.numbers, trace, metric=metric)


def _masses(path: str) -> npt.NDArray[Any]:
    """Returns masses of a file, or counts if they are whole and more than one."""
    found = _numbers("distribution", path).numbers.ravel()
    whole = bool((found == np.floor(found)).all()) and 1 < found.sum() < 2.0**53
    return found.astype(np.int64) if whole else found


def _numbers(name: str, path: str) -> _Places:
    """Returns the numbers of a plain file of comma-separated values, and names.

    Names are those of columns of costs, in the first line, and those that lines of
    points begin with.

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
    names: list[str] = []
    if len(rows) > 1 and not any(map(_is_number, rows[first])):
        header = [field.strip() for field in rows.pop(first)]
        names = header if name == "cost" else []
    if name == "points" and all(
        len(row) > 1 and not _is_number(row[0]) for row in rows.values()
    ):
        names = [row[0].strip() for row in rows.values()]
        rows = {at: row[1:] for at, row in rows.items()}
    length = len(next(iter(rows.values())))
    if name == "cost" and len(names) != length:
        names = []
    found = []
    for at, row in rows.items():
        try:
            found.append(_row(row, length))
        except ValueError as error:
            what = "something else" if name in _PRIVATE else error
            raise ValueError(f"{form} {what} in line {at} of {path}.") from None
    return _Places(np.array(found), names)


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
