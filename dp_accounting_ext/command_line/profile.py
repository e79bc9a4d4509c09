"""The subcommand profile: δ(ε) as a table or a picture, and the papers' figures."""

import argparse
from collections.abc import Sequence
import dataclasses
import math
import pathlib
import textwrap
from typing import Any

import numpy as np

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.papers import catalogue
from dp_accounting_ext.studies import delta_profile
from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import profile_picture
from dp_accounting_ext.studies import training_run

_NAMES = textwrap.indent(textwrap.fill(", ".join(catalogue.FIGURES), 74), "  ")
_EPILOG = f"""\
examples:
  python -m dp_accounting_ext profile --noise-multiplier 1 --steps 1000 \\
      --selected 1 --epochs 10 --output profile.png
  python -m dp_accounting_ext profile --figures figures --only paper3-figure1

The schemes are those of compare. Both ends of δ are certified; the truth lies
between them. Pictures need matplotlib.

--figures computes the papers' figures again, with a table beside each picture:
{_NAMES}
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "profile",
        _run,
        help="δ as a function of ε, as a table or a picture; the papers' figures",
        epilog=_EPILOG,
    )
    command.add_argument("--noise-multiplier", type=float)
    parser.add_batches(command)
    command.add_argument(
        "--group-size",
        type=int,
        nargs="+",
        default=[1],
        metavar="N",
        help="records protected together; several make several curves",
    )
    command.add_argument(
        "--smallest-delta",
        type=float,
        default=1e-12,
        help="where curves end; default: %(default)g",
    )
    command.add_argument(
        "--epsilons",
        type=float,
        nargs=2,
        metavar=("FIRST", "LAST"),
        help="range of ε; default: of each curve, down to the smallest δ",
    )
    command.add_argument(
        "--points", type=int, default=21, help="ε of a curve; default: %(default)d"
    )
    command.add_argument("--output", help="picture to write: .pdf, .png or .svg")
    command.add_argument(
        "--dpi",
        type=int,
        default=drawing.DPI,
        help="dots of an inch of a .png; default: %(default)d",
    )
    command.add_argument("--figures", metavar="DIR", help="draw the papers' figures")
    command.add_argument(
        "--only", nargs="+", metavar="NAME", help="names of figures; default: all"
    )


def _run(options: argparse.Namespace) -> str:
    if options.figures is not None:
        of_a_run = options.noise_multiplier, options.steps, options.dataset_size
        if (*of_a_run, options.output) != (None, None, None, None):
            raise ValueError(
                "--figures takes --only and --json alone: the papers tell the rest."
            )
        return _figures(options)
    if options.only:
        raise ValueError("--only needs --figures.")
    if options.noise_multiplier is None:
        raise ValueError("--noise-multiplier or --figures is required.")
    return _profiles(options)


def _figures(options: argparse.Namespace) -> str:
    with progress_line.Progress("figures") as progress:
        drawn = catalogue.redraw(
            pathlib.Path(options.figures),
            options.only,
            dpi=options.dpi,
            progress=progress.show,
        )
    if options.json:
        return text.as_json({"figures": [dataclasses.asdict(each) for each in drawn]})
    lines = [f"{each.picture}, .csv: {each.seconds:.1f} CPU s" for each in drawn]
    return "\n".join(lines)


def _profiles(options: argparse.Namespace) -> str:
    if options.output is not None:
        drawing.check_output(pathlib.Path(options.output), dpi=options.dpi)
    if not 0 < options.smallest_delta < 1:
        raise ValueError(
            f"smallest_delta must be in (0, 1). Found {options.smallest_delta:g}."
        )
    setting = parser.training_run(
        options,
        noise_multiplier=options.noise_multiplier,
        delta=options.smallest_delta,
    )
    with progress_line.Progress("points") as progress:
        found = delta_profile.profiles(
            setting,
            group_sizes=options.group_size,
            epsilons=_range(options),
            num_points=options.points,
            progress=progress.show,
        )
    title = f"δ(ε), noise multiplier {setting.noise_multiplier:g}, "
    title += text.training(setting)
    if options.output is not None:
        picture = profile_picture.picture(
            found, title=title, smallest_delta=options.smallest_delta
        )
        drawing.draw(picture, pathlib.Path(options.output), dpi=options.dpi)
    if options.json:
        results = [dataclasses.asdict(each) for each in found]
        return text.as_json({"setting": _of_all(setting), "results": results})
    if options.output is not None:
        notes = map(text.wrapped, profile_picture.notes(found))
        return "\n".join([f"wrote {options.output}", *notes])
    return "\n\n".join([text.wrapped(title), *map(_table, found)])


def _range(options: argparse.Namespace) -> Sequence[float] | None:
    """Returns evenly spaced ε of the range that was given, if one was."""
    if options.epsilons is None:
        return None
    first, last = options.epsilons
    if not 0 <= first < last < math.inf:
        raise ValueError(
            f"epsilons must be two numbers, 0 ≤ first < last. Found {first:g} {last:g}."
        )
    if options.points < 2:
        raise ValueError(f"points must be at least 2. Found {options.points}.")
    return [float(epsilon) for epsilon in np.linspace(first, last, options.points)]


def _of_all(setting: training_run.TrainingRun) -> dict[str, Any]:
    """Returns the fields that all curves have in common, by their options' names."""
    fields = text.fields(setting)
    del fields["group_size"]
    fields["smallest_delta"] = fields.pop("delta")
    return fields


def _table(profile: delta_profile.Profile) -> str:
    """Returns lines of plain text."""
    name = profile_picture.label(profile)
    if profile.note:
        return text.wrapped(f"{name}: {profile.note}")
    lines = [f"{name}, {profile.seconds:.2f} CPU s"]
    lines.append(f"{'ε':>14}{'δ lower':>16}{'δ upper':>16}")
    for epsilon, low, high in zip(
        profile.epsilons, profile.delta_lower, profile.delta_upper, strict=True
    ):
        lines.append(
            f"{epsilon:>14.7g}{text.rounded_down(low):>16}{text.rounded_up(high):>16}"
        )
    return "\n".join(lines)
