"""The subcommands of one training run: bounds on ε, noise, a statement, curves."""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
import pathlib
import textwrap
from typing import Any
from typing import cast

import numpy as np

from dp_accounting_ext.accountants import budget
from dp_accounting_ext.accountants import risk
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.correlated import events
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import second_opinion
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import strategy_comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

_COMPARE = """\
example:
  python -m dp_accounting_ext compare --noise-multiplier 1 \\
      --dataset-size 60000 --batch-size 60 --epochs 10 --delta 1e-6
  python -m dp_accounting_ext compare --noise-multiplier 1 \\
      --sampling-rate 0.004 --num-steps 14062 --delta 1e-6

Each record is in one batch of each epoch, or in --batches-per-record; at a
sampling rate q, epochs have 1 / q steps, rounded down. The ways of drawing
batches, and their names for --sampling:
  random allocation  each record draws its batch on its own, uniformly
                     (random-allocation; balls and bins)
  Poisson sampling   each batch draws its records, each with one probability
                     (poisson-sampling)
  no amplification   the adversary knows each record's batch (no-amplification)
  shuffled or fixed batches
                     the dataset is cut into batches, as plain data loaders do
                     (shuffled): ε holds if a record is replaced by another

Both ends of ε are certified; the truth lies between them. With --group-size
they hold for a group of records, who join or leave as they like.

With --strategy the noise is correlated, C x + z with the matrix C: its bins are
the steps of an epoch, in which records stay for all epochs, and the noise is in
units of a contribution's clip, whatever the norm of a column of C. Compared are
balls in bins and no amplification; and, where bands are at most the steps, at
equal participation: fresh windows, b-min-sep sampling, and cyclic Poisson
sampling, in turn from as many groups as there are bands. --sampling takes one:
balls-in-bins, fresh-windows, b-min-sep, cyclic-poisson, no-amplification:
  python -m dp_accounting_ext compare --noise-multiplier 4 \\
      --steps-per-epoch 20 --epochs 5 --delta 1e-5 --strategy 0.8,0.4,0.3
"""
_CALIBRATE = """\
example:
  python -m dp_accounting_ext calibrate --dataset-size 60000 --batch-size 256 \\
      --epochs 30 --epsilon 2 --delta 1e-6

The least noise multiplier, to six digits, at which ε is certified to be at
most the target; and the certified bounds on ε that it gives. The ways of
drawing batches are those of compare.

In place of ε, a risk: --advantage 0.1, or --tpr 0.05 --fpr 0.01 (what the best
membership test finds), or --ppv 0.8 --fpr 0.01 (how many of those whom it names
are members, where --prior of those tested are). The risk that is reached is
printed; --delta only adds ε, with --json both bounds on it.
"""
_STATEMENT = """\
example:
  python -m dp_accounting_ext statement --dataset-size 60000 --batch-size 256 \\
      --epochs 30 --noise-multiplier 1.1 --delta 1e-6 --group-size 3

A text to publish beside a model. It has ε for one example and, with
--group-size, for a user with that many; if an example is added or removed, and
if it is replaced; for each way of drawing batches, with what would break it.
Numbers are certified upper bounds, rounded up; --json has both bounds in full.
"""
_PROFILE = """\
example:
  python -m dp_accounting_ext profile --noise-multiplier 1 \\
      --dataset-size 60000 --batch-size 60 --epochs 10 --output profile.png

The ways of drawing batches are those of compare. Both ends are certified; in a
picture, which needs matplotlib, the truth is on the line or in its shade.
"""
_TRADE_OFF = f"""\
{_PROFILE.replace("profile", "trade-off")}
At each false positive rate of a membership test it has the largest true
positive rate of any test. A curve is that of the worse direction: whether the
record was there, or was not. The advantage is the largest difference of both
rates.
"""
_POINTS, _POINTS_OF_PICTURES = 21, 81
# The size of a picture in inches, and the number of dots in an inch.
_SIZE, _DOTS = (8.0, 4.2), 150
_TARGETS = {
    "epsilon": "ε at most, with --delta",
    "advantage": "true less false positive rate at most",
    "tpr": "true positive rate at most, with --fpr",
    "ppv": "share of members among the named at most, with --fpr",
}


def add_to(commands: Any) -> None:
    """Adds the subcommands."""
    usage = "--noise-multiplier X --delta X"
    words = "bounds on ε for each way of drawing batches"
    command = parser.add_command(commands, "compare", _compare, words, _COMPARE, usage)
    parser.add_run(command)

    words = "the least noise with which a run is certain to meet a target"
    aim = "--epsilon X --delta X"
    run = "calibrate", _calibrate, words, _CALIBRATE, aim
    command = parser.add_command(commands, *run)
    targets = command.add_mutually_exclusive_group(required=True)
    for name, words in _TARGETS.items():
        parser.add(targets, name, float, words)
    parser.add(command, "fpr", float, "false positive rate of the test")
    words = "with --ppv: share of members among those tested; default: 0.5"
    parser.add(command, "prior", float, words)
    parser.add_run(command, "noise_multiplier")

    words = "what a training run promises, in words"
    command = parser.add_command(
        commands, "statement", _statement, words, _STATEMENT, usage
    )
    parser.add_run(command, "strategy")
    form = command.add_mutually_exclusive_group()
    parser.add(form, "markdown", bool, "a section for a model's card")
    parser.add(form, "brief", bool, "three sentences")
    parser.add(command, "risk", bool, "what an attacker can do, in words")
    words = "a sentence on a second computation of every ε (up to a minute each)"
    parser.add(command, "verify", bool, words)

    words = "bounds on δ at many ε, as a table or picture"
    profile = parser.add_command(
        commands, "profile", _profiles, words, _PROFILE, "--noise-multiplier X"
    )
    words = "what membership tests find at each rate of false alarms"
    trade_off = parser.add_command(
        commands, "trade-off", _trade_offs, words, _TRADE_OFF, "--noise-multiplier X"
    )
    for command in (profile, trade_off):
        parser.add_run(command, "delta", "group_size")
        words = "records protected together; of several numbers, several curves; "
        parser.add(command, "group-size", int, f"{words}default: 1", nargs="+")
        words = f"points of a curve; default: {_POINTS}, or {_POINTS_OF_PICTURES} of a "
        parser.add(command, "num-points", int, f"{words}picture")
        words = "picture to write: .pdf, .png or .svg"
        parser.add(command, "output", pathlib.Path, words)
    words = "the smallest δ, where curves end"
    parser.add(profile, "delta", float, words, default=1e-12)
    words = "first and last ε; default: of each curve, down to the smallest δ"
    parser.add(profile, "epsilons", float, words, nargs=2)
    words = "least false positive rate"
    parser.add(trade_off, "least-rate", float, words, default=1e-6)


def _compare(options: argparse.Namespace) -> parser.Printed:
    sampling = options.sampling
    # The schemes of a strategy have other names, which are checked later.
    run = parser.training_run(
        options, sampling=sampling if options.strategy is None else None
    )
    setting = run.to_dict()
    training_run.warn(run)
    if run.strategy is None:
        rows = [comparison.bracket(way) for _, way in text.counted_ways(run)]
    else:
        setting |= {"strategy": options.strategy, "sampling": sampling}
        event = cast(events.MatrixAllocationEvent, run.event)
        delta = training_run.given("delta", run.delta)
        with text.Progress("bounds") as progress:
            rows = strategy_comparison.compare(
                event, delta, progress, sampling=sampling
            )
    title = text.title(f"ε at δ = {run.delta:g}", run)
    table = text.table(title, ("sampling", "ε lower", "ε upper", "CPU s"), rows)
    if run.strategy is not None:
        table += "\n\n" + _rests_on(event, [row.sampling for row in rows])
    return {"setting": setting, "results": rows}, table


def _rests_on(event: events.MatrixAllocationEvent, names: Sequence[str]) -> str:
    """Returns sentences on the assumptions of schemes, and on their violations."""
    schemes = strategy_comparison.schemes(event)
    sentences = []
    for name in names:
        run, words = schemes[name][1], f"{name}:"
        if isinstance(run, events.WindowedAllocationEvent):
            words += f" {run.num_cycles} windows of {run.window} steps, with a guard"
            words += f" of {run.separation - 1}, in each with probability "
            words += f"{run.sampling_probability:.6g};"
        elif isinstance(run, events.MinSepSamplingEvent):
            words += f" in a step with probability {run.sampling_probability:.6g}, and"
            words += f" then out until {run.separation} steps later;"
        words += f" broken by {strategy_comparison.BROKEN_BY[name]}."
        sentences.append(textwrap.fill(words, text.WIDTH, subsequent_indent="  "))
    return "\n".join(sentences)


def _calibrate(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    (kind,) = (name for name in _TARGETS if getattr(options, name) is not None)
    target, prior = getattr(options, kind), options.prior
    asked, words = {kind: target}, {"epsilon": "ε"}.get(kind, kind)
    measure: budget.Measure | None = risk.advantage if kind == "advantage" else None
    if kind != "ppv":
        parser.refuse(options, f"with --{kind}", "prior")
    if kind in ("tpr", "ppv"):
        prior = 0.5 if prior is None else prior
        rate = fields.inner_probability("fpr", training_run.given("fpr", options.fpr))
        guessing, of = (rate, "--fpr") if kind == "tpr" else (prior, "--prior")
        if target <= guessing:
            raise ValueError(
                f"{kind} must be above {of}, which is reached by guessing, at any "
                f"noise. Found {target:g} with {of} {guessing:g}."
            )
        asked["fpr"] = rate
        words = f"{kind.upper()} at FPR {rate:g}"
        measure = functools.partial(risk.attack_success, baseline=rate)
        if kind == "ppv":
            asked["prior"] = prior
            words += f", prior {prior:g}"
            measure = functools.partial(
                risk.positive_predictive_value, false_positive_rate=rate, prior=prior
            )
    else:
        parser.refuse(options, f"with --{kind}", "fpr")
    rows = [
        calibration.calibrate(way, target, measure, name=kind)[0]
        for _, way in text.counted_ways(run)
    ]
    title = f"noise multiplier for {words} ≤ {target:g}"
    heads = ["sampling", "noise", "ε lower", "ε upper", "CPU s"]
    if measure is not None:  # More columns would not fit a terminal.
        heads[2:] = ["risk lower", "risk upper", "ε upper"][: 2 + bool(run.delta)]
    if run.delta is not None:
        at = "at δ = {}" if kind == "epsilon" else "(ε at δ = {})"
        title += f" {at.format(f'{run.delta:g}')}"
    table = text.table(f"{title}, {run.in_words}", heads, rows)
    return {"target": {**asked, **run.to_dict()}, "results": rows}, table


def _statement(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    with text.Progress("bounds") as progress:
        rows = statement.claims(run, progress)
    risks = {}
    if options.risk:
        group = f", {run.group_size} records in place of the one record"
        for name, way in text.counted_ways(run):
            name += group * (run.group_size > 1)
            risks[name] = risk.in_words(way.accountant())
    printed_fields: dict[str, Any] = {"setting": run.to_dict()}
    printed_fields["warnings"] = statement.warnings(run, rows)
    if options.risk:
        printed_fields["risk"] = risks
    parts = ["## Differential privacy"] * options.markdown
    in_words = statement.brief if options.brief else statement.privacy_statement
    parts.append(in_words(run, rows))
    for scheme, words in risks.items():
        # In Markdown, a table of plain text must be between fences.
        fenced = f"\n```text\n{words}\n```" if options.markdown else words
        parts.append(text.headed(scheme, fenced))
    if options.verify:
        with text.Progress("second opinions") as progress:
            opinions = second_opinion.of_claims(run, rows, progress)
        parts.append(textwrap.fill(second_opinion.sentence(opinions), text.WIDTH))
        printed_fields["verification"] = opinions
        if second_opinion.worst(opinions) is second_opinion.Verdict.DISAGREES:
            printed_fields["verdict"] = second_opinion.Verdict.DISAGREES.value
    printed = "\n\n".join(parts)
    return {**printed_fields, "results": rows}, printed


def _profiles(options: argparse.Namespace) -> parser.Printed:
    epsilons = options.epsilons
    if epsilons is not None:
        first, last = epsilons
        if not 0 <= first <= last < math.inf:
            raise ValueError(
                f"epsilons must be finite and not negative, the first ε and then the "
                f"last, which is no smaller. Found {first:g} and {last:g}."
            )
        number = min(max(_points(options), 0), curves.MOST_POINTS)
        epsilons = np.linspace(first, last, number)
    return _shown(options, "δ(ε)", curves.profiles, epsilons=epsilons)


def _trade_offs(options: argparse.Namespace) -> parser.Printed:
    least_rate = options.least_rate
    return _shown(options, "trade-off", curves.trade_offs, least_rate=least_rate)


def _points(options: argparse.Namespace) -> int:
    default = _POINTS_OF_PICTURES if options.output else _POINTS
    return default if options.num_points is None else int(options.num_points)


def _shown(
    options: argparse.Namespace,
    name: str,
    curves_of: Callable[..., list[curves.Curve]],
    **settings: Any,
) -> parser.Printed:
    """Prints the curves of a run, or draws them if the option `output` is given.

    The function `curves_of` returns the curves of runs, given also these settings. The
    title of the table or of the picture begins with `name`.
    """
    run = parser.training_run(options, group_size=1)
    sizes = options.group_size or [1]
    runs = [dataclasses.replace(run, group_size=size) for size in sizes]
    picture = _picture(options.output) if options.output else None
    with text.Progress("curves") as progress:
        drawn = curves_of(
            *runs, num_points=_points(options), progress=progress, **settings
        )
    title = text.title(name, run)
    if picture:
        curves.plot(drawn, picture.add_subplot(), title=title)
        picture.savefig(options.output, dpi=_DOTS)
    setting = {**run.to_dict(), "group_size": sizes}
    tables = (curve.table().text() for curve in drawn)
    printed = "\n\n".join([textwrap.fill(title, text.WIDTH), *tables])
    if picture:
        printed = f"wrote {options.output}"
    return {"setting": setting, "results": drawn}, printed


def _picture(path: pathlib.Path) -> Any:
    """Returns an empty figure, or raises an error before curves are computed."""
    from matplotlib import figure

    if path.suffix.lower() not in (".pdf", ".png", ".svg"):
        raise ValueError(f"output must end in .pdf, .png or .svg. Found {path}.")
    path.open("ab").close()
    return figure.Figure(figsize=_SIZE, layout="constrained")
