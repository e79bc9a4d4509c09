"""The subcommand profile: δ(ε) or trade-off curves, and the papers' figures."""

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
from dp_accounting_ext.studies import trade_off_curve
from dp_accounting_ext.studies import training_run

_NAMES = textwrap.indent(textwrap.fill(", ".join(catalogue.FIGURES), 74), "  ")
_EPILOG = f"""\
examples:
  python -m dp_accounting_ext profile --noise-multiplier 1 --steps 1000 \\
      --selected 1 --epochs 10 --output profile.png
  python -m dp_accounting_ext profile --noise-multiplier 1 --steps 1000 \\
      --trade-off --output roc.png
  python -m dp_accounting_ext profile --figures figures --only paper3-figure1

The schemes are those of compare. Both ends of δ, and of true positive rates,
are certified; the truth lies between them. A trade-off curve is that of the
worse direction: whether the record was there, or was not. Pictures need
matplotlib.

--figures computes the papers' figures again, with a table beside each picture:
{_NAMES}
"""
_OF_FIGURES = ("figures", "only", "format", "dpi", "json")


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "profile",
        _run,
        help="δ as a function of ε, as a table or a picture; the papers' figures",
        epilog=_EPILOG,
    )
    parser.add_noise(command, required=False)
    parser.add_batches(command)
    command.add_argument(
        "--group-size",
        type=int,
        nargs="+",
        default=[1],
        metavar="G",
        help="records protected together; several make several curves; default: 1",
    )
    command.add_argument(
        "--smallest-delta",
        type=float,
        default=1e-12,
        metavar="D",
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
        "--trade-off",
        action="store_true",
        help="true positive rates of the best membership tests, not δ",
    )
    command.add_argument(
        "--smallest-rate",
        type=float,
        default=1e-6,
        metavar="RATE",
        help="least false positive rate of --trade-off; default: %(default)g",
    )
    command.add_argument(
        "--points",
        type=int,
        default=21,
        metavar="N",
        help="points of a curve; default: %(default)d",
    )
    command.add_argument(
        "--output", metavar="FILE", help="picture to write: .pdf, .png or .svg"
    )
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
    command.add_argument(
        "--format",
        choices=[suffix[1:] for suffix in drawing.SUFFIXES],
        help="of --figures; default: png",
    )
    command.set_defaults(unset=vars(command.parse_args([])))


def _run(options: argparse.Namespace) -> str:
    if options.figures is not None:
        _check_figures_alone(options)
        return _figures(options)
    for name in ("only", "format"):
        if getattr(options, name):
            raise ValueError(f"--{name} needs --figures.")
    if options.noise_multiplier is None:
        raise ValueError("--noise-multiplier or --figures is required.")
    return _trade_offs(options) if options.trade_off else _profiles(options)


def _check_figures_alone(options: argparse.Namespace) -> None:
    for name, value in options.unset.items():
        if name not in _OF_FIGURES and getattr(options, name) != value:
            raise ValueError(
                "--figures must come with --only, --format, --dpi and --json alone: "
                f"the papers tell the rest. Found --{name.replace('_', '-')}."
            )


def _figures(options: argparse.Namespace) -> str:
    with progress_line.Progress("figures") as progress:
        drawn = catalogue.redraw(
            pathlib.Path(options.figures),
            options.only,
            suffix=f".{options.format or 'png'}",
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
    setting = _setting(options)
    with progress_line.Progress("curves") as progress:
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
        return f"wrote {options.output}"
    return "\n\n".join([text.wrapped(title), *map(_table, found)])


def _setting(options: argparse.Namespace) -> training_run.TrainingRun:
    return parser.training_run(options, delta=options.smallest_delta, group_size=1)


def _trade_offs(options: argparse.Namespace) -> str:
    if options.epsilons is not None:
        raise ValueError("--epsilons is of δ, and not of --trade-off.")
    if not 0 < options.smallest_rate < 1:
        raise ValueError(
            f"smallest_rate must be in (0, 1). Found {options.smallest_rate:g}."
        )
    if options.output is not None:
        drawing.check_output(pathlib.Path(options.output), dpi=options.dpi)
    setting = _setting(options)
    with progress_line.Progress("curves") as progress:
        found = trade_off_curve.trade_offs(
            setting,
            group_sizes=options.group_size,
            least_rate=options.smallest_rate,
            num_points=options.points,
            progress=progress.show,
        )
    title = f"trade-off, noise multiplier {setting.noise_multiplier:g}, "
    title += text.training(setting)
    if options.output is not None:
        drawn = trade_off_curve.picture(found, title=title)
        drawing.draw(drawn, pathlib.Path(options.output), dpi=options.dpi)
    if options.json:
        results = [dataclasses.asdict(each) for each in found]
        whole = _of_all(setting)
        whole["smallest_rate"] = options.smallest_rate
        del whole["smallest_delta"]
        return text.as_json({"setting": whole, "results": results})
    if options.output is not None:
        return f"wrote {options.output}"
    return "\n\n".join([text.wrapped(title), *map(_rates, found)])


def _rates(curve: trade_off_curve.TradeOff) -> str:
    """Returns lines of plain text."""
    heads = ("FPR", "TPR lower", "TPR upper")
    return _lines(curve, heads, curve.false_positive_rates, curve.lower, curve.upper)


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
    heads = ("ε", "δ lower", "δ upper")
    return _lines(
        profile, heads, profile.epsilons, profile.delta_lower, profile.delta_upper
    )


def _lines(
    curve: delta_profile.Profile | trade_off_curve.TradeOff,
    heads: Sequence[str],
    places: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
) -> str:
    name = profile_picture.label(curve)
    lines = [f"{name}, {curve.seconds:.2f} CPU s"]
    lines.append(f"{heads[0]:>14}{heads[1]:>16}{heads[2]:>16}")
    for place, low, high in zip(places, lower, upper, strict=True):
        lines.append(
            f"{place:>14.7g}{text.rounded_down(low):>16}{text.rounded_up(high):>16}"
        )
    return "\n".join(lines)
