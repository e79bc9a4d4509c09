"""The subcommand wpm: one draw of a private distribution, or a plan of draws."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import io
import itertools
import math
import os
import pathlib
from typing import Any
import warnings

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import wpm
from dp_accounting_ext.command_line import number_file
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import place_file
from dp_accounting_ext.command_line import text
from dp_accounting_ext.common_types import FloatArray
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
      --epsilon 2 --metric haversine

  printf '48.852,2.348\\n48.859,2.294\\n' > public.csv
  python -m dp_accounting_ext wpm plan --num-places 200 --epsilon 2
  python -m dp_accounting_ext wpm plan --points places.csv --epsilon 2 \\
      --metric haversine --public-trace public.csv

The files are CSV, of cells between commas, semicolons (with decimal commas, as
well) or tabs, in UTF-8, in UTF-16 with its mark, or in --encoding. The first
line may name the columns. A column without numbers names the places.
Points may be latitudes and longitudes in degrees, in this order or in columns
named so (lat, lon; y, x; well-known text, as POINT (x y)): those of a trace are
found by the names of those of the points, or stand in the same order. Where
other columns have numbers, --columns names those that are coordinates. A trace
is binned to its nearest points.
What is printed is one draw: the number of a column of costs or of a line of
points, from zero, with its name and coordinates; of a distribution with a row
for each user, a table with a draw for each row. The law that it is drawn from
is as private as the input: --show-law is for tests.
A plan is computed from public inputs. It states how far a draw will be, and how
much of a user's mass it can leave in place. For a public trace it also states
how far the trace is from the points: far, if its columns are in another order.
"""
_WARNING = (
    "the law is as private as the input, and not for release: release the draw alone."
)
_PLAN = """\
{places} places, ε = {epsilon:g}
  stays where it was, of a user at one place   {most_that_stays:.4g} at most
    at every place, by any ε-private draw   {most_that_stays_with_any_draw:.4g} at most
    for half to stay at every place, ε must be   {epsilon_for_half_to_stay:.4g} at least
  mean {unit}
    average user   {cost_of_average_user:.4g}
    worst user   {cost_of_worst_user:.4g}
    a place at random, which reveals nothing   {cost_of_a_place_at_random:.4g}"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "one draw of a private distribution, close in a metric"
    usage = "[plan] --epsilon X"
    command = parser.add_command(commands, "wpm", _run, words, _EPILOG, usage)
    words = "what to do: a draw, or a plan of what draws will cost; default: draw"
    actions = ("draw", "plan")
    command.add_argument(
        "action", nargs="?", choices=actions, default="draw", help=words
    )
    places = command.add_mutually_exclusive_group(required=True)
    parser.add(places, "cost", pathlib.Path, "a line of costs for each input; public")
    parser.add(places, "points", pathlib.Path, "lines of coordinates; public")
    parser.add(places, "num-places", int, "for a plan: so many places in a square")
    masses = command.add_mutually_exclusive_group()
    words = "a mass or a count for each input, or a row of them a user; private"
    parser.add(masses, "distribution", pathlib.Path, words)
    words = "lines of coordinates, with --points; private"
    parser.add(masses, "trace", pathlib.Path, words)
    words = "for a plan, with --points: a trace that is public"
    parser.add(masses, "public-trace", pathlib.Path, words)
    words = "coordinates of points and traces, by names or numbers, as lat,lon"
    parser.add(command, "columns", str, words)
    words = "of files without a mark, such as cp1252"
    parser.add(command, "encoding", str, words, default="utf-8")
    parser.add(command, "epsilon", float, "ε of one draw", required=True)
    words = "of points: haversine for degrees, cityblock, chebyshev, cosine; default: "
    parser.add(command, "metric", str, f"{words}euclidean")
    words = "of points: the power of a distance; default: 1"
    parser.add(command, "order", float, words)
    words = "uniform, minimax, or a file of masses; public"
    parser.add(command, "base-measure", str, words, default="uniform")
    words = "print the private law, too: not for release"
    parser.add(command, "show-law", bool, words)


def _run(options: argparse.Namespace) -> parser.Printed:
    return _plan(options) if options.action == "plan" else _draw(options)


def _draw(options: argparse.Namespace) -> parser.Printed:
    if options.num_places is not None:
        raise ValueError("--num-places must come with plan. Found a draw.")
    if options.public_trace is not None:
        raise ValueError("--public-trace must come with plan. Found a draw.")
    if options.distribution is None and options.trace is None:
        raise ValueError(
            "distribution must be a file of masses, or --trace one of coordinates. "
            "Found neither."
        )
    with text.Progress("finding the base measure"):
        mechanism, places = _mechanism(options)
    private = _private(options, mechanism, places)
    # An error names the option, and not the argument of a function.
    users = private_rows.read("distribution", private, mechanism.cost.shape[0])
    laws: list[FloatArray | None] = [None] * len(users)
    if options.show_law:
        laws = list(np.atleast_2d(np.asarray(mechanism.project(private))))
        warnings.warn(_WARNING, stacklevel=1)
    draws: Iterable[int] = map(mechanism.sample, [private])
    if (
        users.is_batch
    ):  # The time of a single draw would reveal something about that user.
        draws = text.counted(map(mechanism.sample, private), len(users), "draws")
    drawn = [
        _drawn(place, places, options.points is not None, law)
        for place, law in zip(draws, laws, strict=True)
    ]
    if users.is_batch:
        return {"draws": drawn}, _as_table(drawn, places)
    (one,) = drawn
    return one, "\n".join(
        f"{name}: {','.join(map(repr, value)) if isinstance(value, list) else value}"
        for name, value in one.items()
    )


def _drawn(
    place: int,
    places: place_file.Places,
    with_coordinates: bool,
    law: FloatArray | None,
) -> dict[str, Any]:
    """Returns the values of one draw that are printed."""
    drawn: dict[str, Any] = {"sample": place}
    if places.names:
        drawn["name"] = places.names[place]
    if with_coordinates:
        drawn["coordinates"] = places.numbers[place].tolist()
    if law is not None:
        drawn["distribution"] = law.tolist()
    return drawn


def _as_table(drawn: Sequence[Mapping[str, Any]], places: place_file.Places) -> str:
    """Returns a CSV table with a row for each draw."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header: list[str] = []
    for name, value in drawn[0].items():
        many = range(len(value)) if isinstance(value, list) else None
        is_named = name == "coordinates" and all(places.header) and places.header
        named = places.header if is_named else [f"{name}_{n}" for n in many or ()]
        header += named if many is not None else [name]
    writer.writerow(header)
    for each in drawn:
        cells = [v if isinstance(v, list) else [v] for v in each.values()]
        writer.writerow(itertools.chain(*cells))
    return file.getvalue().rstrip("\n")


def _plan(options: argparse.Namespace) -> parser.Printed:
    """Returns the expected cost of draws, from public values."""
    for name in ("distribution", "trace"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{name} must be left out of a plan, which is public. Found a file; "
                "a trace that is public is --public-trace."
            )
    with text.Progress("finding the base measure"):
        mechanism, places = _mechanism(options)
        apart = _distance_of_public_trace(options, places)
        expected = mechanism.expected_cost()
    inputs, outputs = mechanism.cost.shape
    some = np.linspace(0, inputs - 1, min(inputs, 200)).astype(np.intp)
    found = {
        "places": outputs,
        "epsilon": options.epsilon,
        "most_that_stays": expected.most_likely,
        # No private draw does better than randomized response.
        "most_that_stays_with_any_draw": 1
        / (1 + (outputs - 1) * math.exp(-options.epsilon)),
        "epsilon_for_half_to_stay": math.log(max(outputs - 1, 1)),
        "cost_of_average_user": expected.average,
        "cost_of_worst_user": expected.worst,
        "cost_of_a_place_at_random": float(mechanism.cost.rows(some).mean()),
    }
    unit = "cost of a draw"
    if options.num_places is not None:
        unit = "distance of a draw, in sides of the square"
    elif options.points is not None:
        unit = "distance of a draw" + ", in km" * (options.metric == "haversine")
        if options.order not in (None, 1.0):
            unit += f", to the power {options.order:g}"
    printed = _PLAN.format(unit=unit, **found)
    if apart is not None:
        found["distance_of_public_trace"] = apart
        printed += f"\n  half of the public trace   {apart:.4g} from a point at least"
    return found, printed


def _distance_of_public_trace(
    options: argparse.Namespace, places: place_file.Places
) -> float | None:
    """Returns the median distance of a public trace to the points, or None."""
    if options.public_trace is None:
        return None
    trace = _trace(options, "public-trace", options.public_trace, places)
    return wpm.check_public_trace(
        places.numbers, trace, metric=options.metric or "euclidean"
    )


def _trace(
    options: argparse.Namespace,
    option: str,
    path: pathlib.Path,
    places: place_file.Places,
) -> FloatArray:
    """Returns the places of a file, with coordinates in the order of the points."""
    return place_file.read_trace(
        option,
        path,
        places,
        is_haversine=options.metric == "haversine",
        is_private=option == "trace",
        columns=options.columns,
        encoding=options.encoding,
    )


def _mechanism(
    options: argparse.Namespace,
) -> tuple[wpm.WassersteinProjectionMechanism, place_file.Places]:
    """Returns the mechanism, and the public places; without points, the costs.

    Raises:
        ValueError: If a file cannot be read or is bad, or options do not go together.
    """
    base_measure = options.base_measure
    if base_measure not in ("uniform", "minimax"):
        if not os.path.exists(base_measure):
            raise ValueError(
                "base_measure must be uniform, minimax, or a file of masses. "
                f"Found {base_measure!r}."
            )
        base_measure = _table(options, "base-measure", base_measure).numbers.ravel()
    if options.points is not None:
        order = 1.0 if options.order is None else options.order
        places = place_file.read_points(
            options.points,
            is_haversine=options.metric == "haversine",
            columns=options.columns,
            encoding=options.encoding,
        )
        made = wpm.from_points(
            places.numbers, options.epsilon, options.metric, order, base_measure
        )
        return made, places
    for name in ("trace", "public_trace", "metric", "order", "columns"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{parser.option(name)} must come with --points. Found another source."
            )
    if options.cost is not None:
        table = _table(options, "cost", options.cost)
        costs = table.numbers
        made = wpm.WassersteinProjectionMechanism(costs, options.epsilon, base_measure)
        return made, place_file.Places(costs, [], table.header, False)
    if options.num_places < 2:
        raise ValueError(f"num-places must be at least 2. Found {options.num_places}.")
    spread = np.random.default_rng(0).random((options.num_places, 2))
    made = wpm.from_points(spread, options.epsilon, base_measure=base_measure)
    return made, place_file.Places(spread, [], [], False)


def _table(
    options: argparse.Namespace, option: str, path: pathlib.Path, **more: bool
) -> number_file.Table:
    return number_file.read(option, path, encoding=options.encoding, **more)


def _private(
    options: argparse.Namespace,
    mechanism: wpm.WassersteinProjectionMechanism,
    places: place_file.Places,
) -> npt.NDArray[Any]:
    """Returns one user's private masses or counts, or a row of them for each user.

    Numbers are counts if all of them are integers and a row sums to more than one.
    """
    if options.trace is not None:
        trace = _trace(options, "trace", options.trace, places)
        metric = options.metric or "euclidean"
        return wpm.counts_at(places.numbers, trace, metric=metric)
    found = _table(options, "distribution", options.distribution, is_private=True)
    masses, inputs = found.numbers, mechanism.cost.shape[0]
    if masses.shape[1] != inputs or len(masses) == 1:
        masses = masses.ravel()
    whole = bool((masses == np.floor(masses)).all())
    most = np.atleast_2d(masses).sum(axis=1).max()
    return masses.astype(np.int64) if whole and 1 < most < 2.0**53 else masses
