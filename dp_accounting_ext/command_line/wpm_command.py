"""The subcommand wpm: one draw of a private distribution, or a plan of draws."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
import pathlib
from typing import Any
import warnings

import numpy as np

from dp_accounting_ext import wpm
from dp_accounting_ext.command_line import columns
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import tables
from dp_accounting_ext.command_line import text
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.studies import result_file
from dp_accounting_ext.wpm import private_rows

_EPILOG = """\
examples:
  printf '0,1,4\\n1,0,1\\n4,1,0\\n' > cost.csv
  printf '0.25,0.75,0\\n' > mu.csv
  python -m dp_accounting_ext wpm --cost cost.csv --distribution mu.csv \\
      --epsilon 5

  printf 'lat,lon\\n48.85,2.35\\n48.86,2.29\\n48.89,2.34\\n' > places.csv
  printf 'lat,lon\\n48.851,2.351\\n48.852,2.349\\n48.861,2.291\\n' > trace.csv
  python -m dp_accounting_ext wpm --points places.csv --trace trace.csv \\
      --epsilon 2 --metric haversine

  printf 'who,lng,lat\\nann,2.351,48.851\\nbob,2.291,48.861\\n' > visits.csv
  python -m dp_accounting_ext wpm --points places.csv --trace visits.csv \\
      --epsilon 2 --metric haversine --user who --output draws.csv

  printf 'lat,lon\\n48.852,2.348\\n48.859,2.294\\n' > public.csv
  python -m dp_accounting_ext wpm plan --num-places 200 --epsilon 2
  python -m dp_accounting_ext wpm plan --points places.csv --epsilon 2 \\
      --metric haversine --public-trace public.csv

Files are CSV, of cells between commas, semicolons (with decimal commas, as
well), tabs or blanks; JSON, a value a line or not, as GeoJSON and Takeout;
Parquet, .npy or .npz; each may be gzipped. They need pandas: pip install
'.[files]'.
Names decide what is what. Latitudes and longitudes are in columns whose names
have these words (lat, start_lng, pickup_longitude), or in a column of points
(POINT (x y)); where several are, or none, --columns and --data-columns must
name them. A trace is binned to its nearest points. Masses have columns that are
named as the places, with a row for each user, or a column of names beside one
of counts, as value_counts().to_csv() writes them; a place that is not named has
none. Without any names, they are in the order of the places.
What is printed is one draw: the number of a column of costs or of a line of
points, from zero, with its name and coordinates; of a distribution with a row
for each user, a table with a draw for each row. With --user each user of the
column has one draw, which is added to --output as soon as it is drawn: a
stopped run goes on where it stopped when it is started again. The law that it
is drawn from is as private as the input: --show-law is for tests.
"""
_WARNING = (
    "the law is as private as the input, and not for release: release the draw alone."
)
_PLAN = """\
{places} places, ε = {epsilon:g}
  probability that a user's only place is drawn, for the likeliest place
    by this mechanism   {most_that_stays:.4g} at most
    at every place, by any ε-private draw   {most_that_stays_with_any_draw:.4g} at most
    for one half at every place, ε must be   {epsilon_for_half_to_stay:.4g} at least
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
    parser.add(places, "cost", pathlib.Path, "a row of costs for each input; public")
    parser.add(places, "points", pathlib.Path, "rows of coordinates; public")
    parser.add(places, "num-places", int, "for a plan: so many places in a square")
    masses = command.add_mutually_exclusive_group()
    words = "masses or counts of the inputs, or a row of them a user; private"
    parser.add(masses, "distribution", pathlib.Path, words)
    words = "rows of coordinates, with --points; private"
    parser.add(masses, "trace", pathlib.Path, words)
    words = "for a plan, with --points: a trace that is public"
    parser.add(masses, "public-trace", pathlib.Path, words)
    words = "coordinates of the points, by names or numbers, as lat,lon or 3,4"
    parser.add(command, "columns", str, words)
    words = "coordinates of a trace; or names, and counts, of a distribution"
    parser.add(command, "data-columns", str, words)
    words = "the column of users, each of whom has a draw in --output"
    parser.add(command, "user", str, words)
    words = "with --user: a CSV file, to which draws are added"
    parser.add(command, "output", pathlib.Path, words)
    words = "leave out rows that lack a cell, and say how many"
    parser.add(command, "drop-missing", bool, words)
    words = "of texts without a mark, such as cp1252"
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
    parser.refuse(options, "of a draw; it is for a plan", "num_places", "public_trace")
    if options.distribution is None and options.trace is None:
        raise ValueError(
            "distribution must be a file of masses, or --trace one of coordinates. "
            "Found neither."
        )
    for name, other in (("output", "user"), ("user", "output")):
        if getattr(options, name) is not None and getattr(options, other) is None:
            raise ValueError(
                f"{name} must come with --{other}: each user of the column has a draw, "
                f"which is added to the file. Found no --{other}."
            )
    if options.user is not None and options.show_law:
        raise ValueError("show_law must be left out with --user. Found both.")
    with text.Progress("finding the base measure"):
        mechanism, inputs, places = _mechanism(options)
    private, names = _private(options, inputs)
    private = _counted(private)
    # An error names the option, and not the argument of a function.
    users = private_rows.read("distribution", private, mechanism.cost.shape[0])
    if options.user is not None:
        return _draws_of_users(options, mechanism, places, private, names)
    laws: list[FloatArray | None] = [None] * len(users)
    if options.show_law:
        laws = list(np.atleast_2d(np.asarray(mechanism.project(private))))
        warnings.warn(_WARNING, stacklevel=1)
    draws: Iterable[int] = map(mechanism.sample, [private])
    # The time of a single draw would reveal something about that user.
    if users.is_batch:
        draws = text.counted(map(mechanism.sample, private), len(users), "draws")
    drawn = [_drawn(place, places, law) for place, law in zip(draws, laws, strict=True)]
    if users.is_batch:
        lines = [[name for name, _ in _cells(drawn[0], places)]]
        lines += [[cell for _, cell in _cells(row, places)] for row in drawn]
        return {"draws": drawn}, "".join(map(result_file.line, lines)).rstrip("\n")
    (one,) = drawn
    return one, "\n".join(
        f"{name}: {','.join(map(repr, value)) if isinstance(value, list) else value}"
        for name, value in one.items()
    )


def _drawn(
    place: int, places: columns.Places, law: FloatArray | None
) -> dict[str, Any]:
    """Returns the values of one draw that are printed."""
    drawn: dict[str, Any] = {"sample": place}
    if places.names:
        drawn["name"] = places.names[place]
    if places.numbers is not None:
        drawn["coordinates"] = places.numbers[place].tolist()
    if law is not None:
        drawn["distribution"] = law.tolist()
    return drawn


def _cells(
    drawn: Mapping[str, Any], places: columns.Places
) -> Iterator[tuple[str, Any]]:
    """Yields the names of columns, and the cells, of a table that shows a draw."""
    for name, value in drawn.items():
        if not isinstance(value, list):
            yield name, value
            continue
        names = [f"{name}_{number}" for number in range(len(value))]
        is_named = name == "coordinates" and all(places.header)
        yield from zip((is_named and places.header) or names, value, strict=True)


def _draws_of_users(
    options: argparse.Namespace,
    mechanism: wpm.WassersteinProjectionMechanism,
    places: columns.Places,
    private: Any,
    users: Sequence[str],
) -> parser.Printed:
    """Adds a draw of each user to a file, unless it has one, as soon as it is drawn."""

    def cells_of(place: int) -> list[tuple[str, Any]]:
        epsilon = ("epsilon", options.epsilon)
        return [*_cells(_drawn(place, places, None), places), epsilon]

    def is_whole(row: dict[str, str]) -> bool:
        place, (_, *cells) = row["sample"], row.values()
        if place not in map(str, range(mechanism.cost.shape[1])) or cells != [
            str(cell) for _, cell in cells_of(int(place))
        ]:
            raise ValueError("a row of other places or of another ε")
        return True

    header = ["user", *(name for name, _ in cells_of(0))]
    words = f"the columns {', '.join(header)} of the same places and ε"
    rows = result_file.resumed(options.output, header, words, is_whole)
    done = {row["user"] for row in rows}
    # The order of a file may be that in which users came.
    left = [at for at in np.argsort(users, kind="stable") if users[at] not in done]
    try:
        with result_file.appended(options.output) as add:
            draws = (mechanism.sample(private[[at]])[0] for at in left)
            shown = text.counted(draws, len(left), "draws")
            for at, place in zip(left, shown, strict=True):
                add([users[at], *(cell for _, cell in cells_of(int(place)))])
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run it again to go on.") from None
    counts = {"kept": len(users) - len(left), "added": len(left)}
    words = "{output}: {kept} users kept, {added} added"
    printed = {"output": str(options.output), **counts}
    return printed, words.format(**printed)


def _plan(options: argparse.Namespace) -> parser.Printed:
    """Returns the expected cost of draws, from public values."""
    where = "of a plan, which is public; a public trace is --public-trace"
    parser.refuse(options, where, "distribution", "trace", "user", "output")
    with text.Progress("finding the base measure"):
        mechanism, places, _ = _mechanism(options)
        distance = None
        if options.public_trace is not None:
            trace, _ = _trace(options, "public_trace", places)
            metric = options.metric or "euclidean"
            distance = wpm.check_public_trace(places.numbers, trace, metric=metric)
        expected = mechanism.expected_cost()
    inputs, outputs = mechanism.cost.shape
    sample = np.linspace(0, inputs - 1, min(inputs, 200)).astype(np.intp)
    numbers = {
        "places": outputs,
        "epsilon": options.epsilon,
        "most_that_stays": expected.most_likely,
        # No private draw does better than randomized response.
        "most_that_stays_with_any_draw": 1
        / (1 + (outputs - 1) * math.exp(-options.epsilon)),
        "epsilon_for_half_to_stay": math.log(max(outputs - 1, 1)),
        "cost_of_average_user": expected.average,
        "cost_of_worst_user": expected.worst,
        "cost_of_a_place_at_random": float(mechanism.cost.rows(sample).mean()),
    }
    unit = "cost of a draw"
    if options.num_places is not None:
        unit = "distance of a draw, in sides of the square"
    elif options.points is not None:
        unit = "distance of a draw" + ", in km" * (options.metric == "haversine")
        if options.order not in (None, 1.0):
            unit += f", to the power {options.order:g}"
    printed = _PLAN.format(unit=unit, **numbers)
    if distance is not None:
        numbers["distance_of_public_trace"] = distance
        printed += "\n  from half of the public trace to the nearest point, at least"
        printed += f"   {distance:.4g}"
    return numbers, printed


def _trace(
    options: argparse.Namespace, option: str, places: columns.Places
) -> columns.Data:
    """Returns the places in the file that an option names, and their users.

    Coordinates are in the order of those of the points.
    """
    table = _table(options, option, is_private=option == "trace")
    is_haversine = options.metric == "haversine"
    return columns.trace(
        table, places, options.data_columns, options.user, is_haversine
    )


def _mechanism(
    options: argparse.Namespace,
) -> tuple[wpm.WassersteinProjectionMechanism, columns.Places, columns.Places]:
    """Returns the mechanism, and the public places of its inputs and its outputs."""
    base_measure = options.base_measure
    is_file = base_measure not in ("uniform", "minimax")
    if is_file and not os.path.exists(base_measure):
        raise ValueError(
            "base_measure must be uniform, minimax, or a file of masses. "
            f"Found {base_measure!r}."
        )
    inputs, outputs, cost = _places(options)
    if is_file:
        table = _table(options, "base_measure", names=outputs.names)
        base_measure, _ = columns.masses(table, outputs)
    if cost is not None:
        made = wpm.WassersteinProjectionMechanism(cost, options.epsilon, base_measure)
        return made, inputs, outputs
    order = 1.0 if options.order is None else options.order
    shape = outputs.numbers, options.epsilon, options.metric, order
    return wpm.from_points(*shape, base_measure), inputs, outputs


def _places(
    options: argparse.Namespace,
) -> tuple[columns.Places, columns.Places, FloatArray | None]:
    """Returns the places of inputs and of outputs, and costs if these are given."""
    if options.points is not None:
        table = _table(options, "points")
        is_haversine = options.metric == "haversine"
        places = columns.points(table, options.columns, is_haversine)
        return places, places, None
    of_points = "trace", "public_trace", "metric", "order", "columns"
    parser.refuse(options, "without --points, which it is about", *of_points)
    if options.cost is not None:
        return columns.costs(_table(options, "cost"))
    if options.num_places < 2:
        raise ValueError(f"num_places must be at least 2. Found {options.num_places}.")
    spread = np.random.default_rng(0).random((options.num_places, 2))
    places = columns.Places(spread)
    return places, places, None


def _table(options: argparse.Namespace, option: str, **more: Any) -> tables.Table:
    path, encoding = getattr(options, option), options.encoding
    if option not in ("cost", "base_measure"):
        more["drop_missing"] = options.drop_missing
    return tables.read(option, path, encoding=encoding, **more)


def _private(options: argparse.Namespace, inputs: columns.Places) -> columns.Data:
    """Returns masses or counts of one user, or a row for each; and the users' names."""
    if options.trace is not None:
        visits, users = _trace(options, "trace", inputs)
        metric = options.metric or "euclidean"
        if not users:
            return wpm.counts_at(inputs.numbers, visits, metric=metric), []
        cost = wpm.PointCost(inputs.numbers, metric=metric)
        nearest, _ = cost.nearest("trace", visits)
        return columns.per_user(users, nearest.tolist(), len(inputs.numbers), 1.0)
    table = _table(options, "distribution", is_private=True, names=inputs.names)
    return columns.masses(table, inputs, options.data_columns, options.user)


def _counted(masses: Any) -> Any:
    """Returns numbers; as counts, if all are whole and a row sums to more than one."""
    entries = masses if isinstance(masses, np.ndarray) else masses.data
    whole = bool((entries == np.floor(entries)).all())
    largest = masses.sum(axis=masses.ndim - 1).max()
    return masses.astype(np.int64) if whole and 1 < largest < 2.0**53 else masses
