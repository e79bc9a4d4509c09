"""The subcommand wpm: one draw of a private distribution, or a plan of draws."""

import argparse
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
_PLAN = """\
{places} places, ε = {epsilon:g}
  stays where it was, of a user at one place   {most_that_stays:.4g} at most
    at every place, by any ε-private draw   {most_that_stays_with_any_draw:.4g} at most
    for half to stay at every place, ε must be   {epsilon_for_half_to_stay:.4g} at least
  mean {unit}
    average user   {cost_of_average_user:.4g}
    worst user   {cost_of_worst_user:.4g}
    a place at random, which tells nothing   {cost_of_a_place_at_random:.4g}"""

Floats = npt.NDArray[np.float64]


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
    words = "a mass or a count for each input; private"
    parser.add(masses, "distribution", pathlib.Path, words)
    words = "lines of coordinates, with --points; private"
    parser.add(masses, "trace", pathlib.Path, words)
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
    if options.distribution is None and options.trace is None:
        raise ValueError(
            "distribution must be a file of masses, or --trace one of coordinates. "
            "Found neither."
        )
    mechanism, places, names = _mechanism(options)
    private = _private(options, places)
    # An error names the option, and not the argument of a function.
    private_rows.read("distribution", private, mechanism.cost.shape[0])
    place = mechanism.sample(private)
    drawn: dict[str, Any] = {"sample": place}
    if names:
        drawn["name"] = names[place]
    if options.points is not None:
        drawn["coordinates"] = places[place].tolist()
    if options.show_law:
        drawn["distribution"] = np.asarray(mechanism.project(private)).tolist()
        warnings.warn(_WARNING, stacklevel=1)
    return drawn, "\n".join(
        f"{name}: {','.join(map(repr, value)) if isinstance(value, list) else value}"
        for name, value in drawn.items()
    )


def _plan(options: argparse.Namespace) -> parser.Printed:
    """Returns what draws will cost, from what is public."""
    for name in ("distribution", "trace"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} must be left out of a plan, which is public.")
    mechanism, _, _ = _mechanism(options)
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
    return found, _PLAN.format(unit=unit, **found)


def _mechanism(
    options: argparse.Namespace,
) -> tuple[wpm.WassersteinProjectionMechanism, Floats, list[str]]:
    """Returns the mechanism, the public places or costs, and names of outputs, if any.

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
        base_measure = number_file.read("base-measure", base_measure).numbers.ravel()
    if options.points is not None:
        order = 1.0 if options.order is None else options.order
        table = number_file.read("points", options.points)
        made = wpm.from_points(
            table.numbers, options.epsilon, options.metric, order, base_measure
        )
        return made, table.numbers, table.names
    for name in ("trace", "metric", "order"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} must come with --points. Found another source.")
    if options.cost is not None:
        table = number_file.read("cost", options.cost)
        costs = table.numbers
        made = wpm.WassersteinProjectionMechanism(costs, options.epsilon, base_measure)
        return made, costs, table.header
    if options.num_places < 2:
        raise ValueError(f"num-places must be at least 2. Found {options.num_places}.")
    spread = np.random.default_rng(0).random((options.num_places, 2))
    made = wpm.from_points(spread, options.epsilon, base_measure=base_measure)
    return made, spread, []


def _private(options: argparse.Namespace, places: Floats) -> npt.NDArray[Any]:
    """Returns the private masses or counts: whole numbers of more than one in all."""
    if options.trace is not None:
        trace = number_file.read("trace", options.trace, is_private=True).numbers
        return wpm.counts_at(places, trace, metric=options.metric or "euclidean")
    masses = number_file.read("distribution", options.distribution, is_private=True)
    found = masses.numbers.ravel()
    whole = bool((found == np.floor(found)).all()) and 1 < found.sum() < 2.0**53
    return found.astype(np.int64) if whole else found
