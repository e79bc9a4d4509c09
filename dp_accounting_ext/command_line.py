"""The command line: dp-accounting-ext, or python -m dp_accounting_ext."""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import json
import math
import sys
from typing import Any
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import comparison
from dp_accounting_ext import wpm

_BAD_INPUT = 2

_COMPARE_EPILOG = """\
example:
  python -m dp_accounting_ext compare --noise-multiplier 1 --steps 1000 \\
      --selected 1 --epochs 10 --delta 1e-6

Each record is in `selected` steps of each epoch's `steps`. The schemes differ in
how these steps are drawn:
  random allocation  uniformly at random (balls-and-bins for --selected 1)
  - block reduction  for --selected > 1: the composition of blocks that dominates;
                     only its upper end bounds the mechanism
  Poisson sampling   each step with probability selected / steps, on its own
  no amplification   known to the adversary

Both ends of ε are certified; the truth lies between them.
"""


_WPM_EPILOG = """\
example:
  python -m dp_accounting_ext wpm --cost cost.csv --distribution mu.csv \\
      --epsilon 5 --sample

The files are plain: numbers separated by commas, no header. The distribution that is
printed is what the draw is from, and as private as the input: release the draw alone.
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_BAD_INPUT, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, or 2 for bad input."""
    parser = _Parser(
        prog="dp-accounting-ext",
        description="Certified privacy accounting, and private draws.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    chosen = {
        "compare": _add_compare(commands),
        "wpm": _add_wpm(commands),
    }
    options = parser.parse_args(arguments)
    try:
        print(options.run(options))
    except (TypeError, ValueError, OSError) as error:
        print(f"{chosen[options.command].prog}: error: {error}", file=sys.stderr)
        return _BAD_INPUT
    return 0


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], str], **texts: str
) -> argparse.ArgumentParser:
    """Adds a command that prints what `run` returns of its options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **texts,
    )
    command.set_defaults(run=run)
    command.add_argument("--json", action="store_true", help="print JSON, no table")
    return command


def _add_compare(commands: Any) -> argparse.ArgumentParser:
    compare = _command(
        commands,
        "compare",
        _compare,
        help="ε of random allocation, Poisson sampling and no amplification",
        epilog=_COMPARE_EPILOG,
    )
    compare.add_argument("--noise-multiplier", type=float, required=True)
    compare.add_argument("--steps", type=int, required=True, help="steps of an epoch")
    compare.add_argument(
        "--selected", type=int, default=1, help="steps of an epoch with each record"
    )
    compare.add_argument("--epochs", type=int, default=1)
    compare.add_argument("--delta", type=float, required=True)
    return compare


def _compare(options: argparse.Namespace) -> str:
    setting = comparison.Setting(
        noise_multiplier=options.noise_multiplier,
        num_steps=options.steps,
        num_selected=options.selected,
        num_epochs=options.epochs,
        delta=options.delta,
    )
    rows = comparison.compare(setting)
    return _as_json(setting, rows) if options.json else _as_table(setting, rows)


def _add_wpm(commands: Any) -> argparse.ArgumentParser:
    command = _command(
        commands,
        "wpm",
        _wpm,
        help="one draw of a private distribution, close in a metric",
        epilog=_WPM_EPILOG,
    )
    command.add_argument("--cost", required=True, help="k rows of k_v costs")
    command.add_argument("--distribution", required=True, help="k masses; private")
    command.add_argument("--epsilon", type=float, required=True)
    command.add_argument(
        "--base-measure",
        default="uniform",
        help='"uniform", "minimax", or a file of k_v masses; public',
    )
    command.add_argument("--sample", action="store_true", help="print one draw, too")
    return command


def _wpm(options: argparse.Namespace) -> str:
    cost = _numbers("cost", options.cost)
    masses = _numbers("distribution", options.distribution).ravel()
    base_measure = options.base_measure
    if base_measure not in ("uniform", "minimax"):
        base_measure = _numbers("base-measure", base_measure).ravel()
    mechanism = wpm.WassersteinProjectionMechanism(
        cost, options.epsilon, base_measure=base_measure
    )
    law = mechanism.project(masses).tolist()
    drawn = mechanism.sample(masses) if options.sample else None
    if options.json:
        whole = {"distribution": law}
        return json.dumps(whole if drawn is None else {**whole, "sample": drawn})
    lines = ["distribution: " + ",".join(f"{share!r}" for share in law)]
    if drawn is not None:
        lines.append(f"sample: {drawn}")
    return "\n".join(lines)


def _numbers(name: str, path: str) -> npt.NDArray[np.float64]:
    """Returns the numbers of a plain file of comma-separated values.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds anything but numbers; what, is not told.
    """
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    try:
        return np.array(
            [[float(field) for field in line.split(",")] for line in lines], ndmin=2
        )
    except ValueError:
        raise ValueError(
            f"{name} must be a file of rows of numbers separated by commas, all of one "
            f"length. Found something else in {path}."
        ) from None


def _as_json(setting: comparison.Setting, rows: Sequence[comparison.Row]) -> str:
    """Returns one object; an infinite ε is the string "inf"."""
    results = []
    for row in rows:
        result = dataclasses.asdict(row)
        for name in ("epsilon_lower", "epsilon_upper"):
            if math.isinf(result[name]):
                result[name] = "inf"
        results.append({**result, "note": row.note()})
    whole = {"setting": dataclasses.asdict(setting), "results": results}
    return json.dumps(whole, indent=2)


def _as_table(setting: comparison.Setting, rows: Sequence[comparison.Row]) -> str:
    """Returns lines of plain text."""
    lines = [
        f"ε at δ = {setting.delta:g}, noise multiplier {setting.noise_multiplier:g}, "
        f"{setting.num_selected} of {setting.num_steps} steps, "
        f"{setting.num_epochs} epoch{'s' if setting.num_epochs > 1 else ''}",
        "",
        f"{'scheme':<20}{'lower':>14}{'upper':>14}{'CPU s':>9}",
    ]
    for row in rows:
        line = f"{row.scheme:<20}{_digits(row.epsilon_lower, math.floor):>14}"
        line += f"{_digits(row.epsilon_upper, math.ceil):>14}{row.seconds:>9.2f}"
        note = row.note()
        lines.append(f"{line}  {note}" if note else line)
    return "\n".join(lines)


def _digits(value: float, rounding: Callable[[float], int]) -> str:
    """Returns seven significant digits, rounded to the safe side."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    decimals = 6 - math.floor(math.log10(value))
    return f"{rounding(value * 10.0**decimals) / 10.0**decimals:.{max(decimals, 0)}f}"
