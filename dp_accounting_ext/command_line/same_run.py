"""The commands and the Python code that compute the bounds of a training run."""

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.studies import training_run

_PROGRAM = "python -m dp_accounting_ext"
_NAMES = ("dataset_size", "batch_size", "epochs", "delta", "group_size")
_PYTHON = """\
import dataclasses
from dp_accounting_ext.studies import (
    calibration, comparison, curves, statement, training_run
)
run = training_run.TrainingRun({fields})
rows = {table}
quoted = dataclasses.replace(run, sampling={run.sampling!r}, {noise})
found = curves.trade_offs(quoted)
sentence = statement.brief(quoted, statement.claims(quoted))"""


def commands(run: training_run.TrainingRun, target: float | None) -> str:
    """Returns two commands: one prints the bounds on ε, and one the sentence to quote.

    The run has a dataset size, noise, and the way of drawing batches that is quoted.
    """
    typed = "".join(f" {parser.option(name)} {getattr(run, name)}" for name in _NAMES)
    noise = f" --noise-multiplier {run.noise_multiplier}"
    (way,) = (key for key, name in training_run.OPTIONS.items() if name == run.sampling)
    table = f"compare{noise}" if target is None else f"calibrate --epsilon {target}"
    quoted = f"statement --brief --sampling {way}{noise}"
    return f"{_PROGRAM} {table}{typed}\n{_PROGRAM} {quoted}{typed}"


def python(run: training_run.TrainingRun, target: float | None) -> str:
    """Returns Python code that computes `rows`, the curves `found`, and `sentence`."""
    fields = ", ".join(f"{name}={getattr(run, name)!r}" for name in _NAMES)
    noise = f"noise_multiplier={run.noise_multiplier!r}"
    table = f"calibration.calibrate(run, {target})"
    if target is None:
        table, fields = "comparison.compare(run)", f"{fields}, {noise}"
    return _PYTHON.format(fields=fields, table=table, run=run, noise=noise)
