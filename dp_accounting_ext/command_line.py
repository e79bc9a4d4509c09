"""The command line: dp-accounting-ext, or python -m dp_accounting_ext."""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import json
import math
import sys
from typing import NoReturn

from dp_accounting_ext import comparison

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


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_BAD_INPUT, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, or 2 for bad input."""
    parser = _Parser(
        prog="dp-accounting-ext",
        description="Privacy accounting for random allocation.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser(
        "compare",
        help="ε of random allocation, Poisson sampling and no amplification",
        epilog=_COMPARE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    compare.add_argument("--noise-multiplier", type=float, required=True)
    compare.add_argument("--steps", type=int, required=True, help="steps of an epoch")
    compare.add_argument(
        "--selected", type=int, default=1, help="steps of an epoch with each record"
    )
    compare.add_argument("--epochs", type=int, default=1)
    compare.add_argument("--delta", type=float, required=True)
    compare.add_argument("--json", action="store_true", help="print JSON, no table")
    options = parser.parse_args(arguments)
    try:
        setting = comparison.Setting(
            noise_multiplier=options.noise_multiplier,
            num_steps=options.steps,
            num_selected=options.selected,
            num_epochs=options.epochs,
            delta=options.delta,
        )
        rows = comparison.compare(setting)
    except (TypeError, ValueError) as error:
        print(f"{compare.prog}: error: {error}", file=sys.stderr)
        return _BAD_INPUT
    print(_as_json(setting, rows) if options.json else _as_table(setting, rows))
    return 0


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
