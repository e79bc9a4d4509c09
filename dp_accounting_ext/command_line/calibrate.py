"""The subcommand calibrate: the noise that a target needs."""

import argparse
from collections.abc import Callable
import functools
from typing import Any

from dp_accounting_ext import budget
from dp_accounting_ext import risk
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext calibrate --dataset-size 60000 --batch-size 60 \\
      --epochs 10 --epsilon 2 --delta 1e-6

The least noise multiplier, to six digits, at which ε is certified to be at
most the target; and the certified bounds on ε that it gives. The ways of
drawing batches are those of compare.

In place of ε, a risk: --advantage 0.1, or --tpr 0.05 --fpr 0.01 (what the best
membership test finds), or --ppv 0.8 --fpr 0.01 (how many of those whom it names
are members, where --prior of those tested are).
"""
_TARGETS = {
    "epsilon": ("E", "ε at most, to 690"),
    "advantage": ("A", "true less false positive rate at most"),
    "tpr": ("R", "true positive rate at most, with --fpr"),
    "ppv": ("P", "share of members among the named at most, with --fpr"),
}

Search = Callable[[training_run.TrainingRun], list[comparison.Row]]


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "the least noise with which a run is certain to meet a target"
    command = parser.add_command(commands, "calibrate", _run, words, _EPILOG)
    for name, (metavar, words) in _TARGETS.items():
        parser.add(command, name, float, metavar, words)
    parser.add(command, "fpr", float, "R", "false positive rate of the test")
    words = "with --ppv: share of members among those tested; default: %(default)g"
    parser.add(command, "prior", float, "P", words, default=0.5)
    parser.add_run(command, "delta", "group-size")


def _search(
    options: argparse.Namespace, kind: str, target: float
) -> tuple[str, Search]:
    """Returns what is limited, in words, and what finds the noise for it."""
    if options.fpr is not None and kind in ("epsilon", "advantage"):
        raise ValueError(f"fpr must be left out with {kind}. Found {options.fpr:g}.")
    if kind == "epsilon":
        return "ε", functools.partial(calibration.calibrate, epsilon=target)
    measure: budget.Measure = risk.advantage
    words, rate = kind, options.fpr
    if kind != "advantage":
        if rate is None:
            raise ValueError(f"fpr must be given with {kind}. Found it missing.")
        words = f"{kind.upper()} at FPR {rate:g}"
        measure = functools.partial(risk.attack_success, baseline=rate)
    if kind == "ppv":
        words += f", prior {options.prior:g}"
        measure = functools.partial(
            risk.positive_predictive_value,
            false_positive_rate=rate,
            prior=options.prior,
        )
    return words, functools.partial(
        calibration.calibrate_risk, measure=measure, target=target, name=kind
    )


def _run(options: argparse.Namespace) -> str:
    run = parser.training_run(options)
    asked = {name: getattr(options, name) for name in _TARGETS}
    asked = {name: value for name, value in asked.items() if value is not None}
    if len(asked) != 1:
        raise ValueError(
            f"epsilon must be given, or one of advantage, tpr and ppv in its place. "
            f"Found {' and '.join(asked) or 'none'}."
        )
    ((kind, target),) = asked.items()
    words, search = _search(options, kind, target)
    found = progress_line.mapped("rows", search, training_run.schemes_of(run))
    rows = [row for each in found for row in each]
    if options.fpr is not None:
        asked |= {"fpr": options.fpr, "prior": options.prior}
    if options.json:
        return text.json_of_rows({"target": {**asked, **run.to_dict()}}, rows)
    of_delta = (
        f" at δ = {run.delta:g}" if words == "ε" else f" (ε at δ = {run.delta:g})"
    )
    title = f"noise multiplier for {words} ≤ {target:g}{of_delta}, "
    heads = ("sampling", "noise", "ε lower", "ε upper", "CPU s")
    return text.table(title + text.training(run), heads, rows)
