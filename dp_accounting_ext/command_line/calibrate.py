"""The subcommand calibrate: the noise that a target needs."""

import argparse
import functools
from typing import Any

from dp_accounting_ext import budget
from dp_accounting_ext import risk
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import calibration

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
_TARGETS = ("epsilon", "advantage", "tpr", "ppv")


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "calibrate",
        _run,
        "the least noise with which a run is certain to meet a target",
        _EPILOG,
    )
    command.add_argument(
        "--epsilon", type=float, metavar="EPS", help="ε at most, to 690"
    )
    command.add_argument(
        "--advantage", type=float, metavar="A", help="true less false positives at most"
    )
    command.add_argument(
        "--tpr", type=float, metavar="R", help="true positive rate at most, with --fpr"
    )
    command.add_argument(
        "--ppv",
        type=float,
        metavar="P",
        help="share of members among the named at most, with --fpr",
    )
    command.add_argument(
        "--fpr", type=float, metavar="R", help="false positive rate of the test"
    )
    command.add_argument(
        "--prior",
        type=float,
        default=0.5,
        metavar="P",
        help="with --ppv: share of members among those tested; default: %(default)g",
    )
    parser.add_run(command, "delta", "group-size")


def _risk(options: argparse.Namespace) -> tuple[str, float, budget.Measure]:
    """Returns a risk's name, its target, and what bounds it."""
    if options.advantage is not None:
        return "advantage", options.advantage, risk.advantage
    if options.fpr is None:
        raise ValueError("fpr must be given with tpr, and with ppv. Found it missing.")
    at = f"at FPR {options.fpr:g}"
    if options.tpr is not None:
        bounds = functools.partial(risk.attack_success, baseline=options.fpr)
        return f"TPR {at}", options.tpr, bounds
    bounds = functools.partial(
        risk.positive_predictive_value,
        false_positive_rate=options.fpr,
        prior=options.prior,
    )
    return f"PPV {at}, prior {options.prior:g}", options.ppv, bounds


def _run(options: argparse.Namespace) -> str:
    run = parser.training_run(options)
    given = [name for name in _TARGETS if getattr(options, name) is not None]
    if len(given) != 1:
        raise ValueError(
            f"epsilon must be given, or one of advantage, tpr and ppv in its place. "
            f"Found {' and '.join(given) or 'none'}."
        )
    with progress_line.Progress("rows") as progress:
        if options.epsilon is not None:
            name, target = "ε", options.epsilon
            rows = calibration.calibrate(run, target, progress=progress.show)
        else:
            name, target, measure = _risk(options)
            rows = calibration.calibrate_risk(
                run, measure, target, progress=progress.show
            )
    if options.json:
        asked = {"epsilon": target} if name == "ε" else {"risk": name, "target": target}
        return text.json_of_rows({"target": {**asked, **run.to_dict()}}, rows)
    of_delta = f" at δ = {run.delta:g}" if name == "ε" else f" (ε at δ = {run.delta:g})"
    title = f"noise multiplier for {name} ≤ {target:g}{of_delta}, "
    heads = ("sampling", "noise", "ε lower", "ε upper", "CPU s")
    return text.table(title + text.training(run), heads, rows)
