"""The least noise that meets a privacy target, for each way of drawing batches."""

import dataclasses
import math
import time
from typing import Any

from dp_accounting_ext.accountants import budget
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "calibrate",
    "calibrated",
    "positive_target",
]
__dir__ = __all__.copy


def calibrate(
    run: training_run.TrainingRun,
    target: float,
    measure: budget.Measure | None = None,
    *,
    name: str | None = None,
) -> comparison.Rows:
    """Returns the noise that each way of drawing batches needs, and ε with it.

        calibrate(run, 2.0)
        calibrate(run, 0.1, risk.advantage)

    Args:
        run: The run, whose noise is ignored. If its `sampling` is given, only that way
            of drawing batches is calibrated. With a measure its δ may be None.
        target: The largest ε allowed at the run's δ, in nats, positive. With a measure,
            the largest risk allowed, in (0, 1].
        measure: The function from an accountant to a risk, or to bounds on it, that is
            limited in place of ε: a function of `dp_accounting_ext.risk`.
        name: The name of the target in errors; "epsilon" or "target" by default.

    Returns:
        A row for each way of drawing batches. With a measure it has bounds on the risk.

    A warning is issued if δ is at least one over the dataset's size.

    Raises:
        TypeError, ValueError: If the target has the wrong type or is out of range, δ is
            not given, the group is too large, or no noise up to 1e9 is enough.

    Guarantees:
        At the returned noise the upper bound on ε, or on the risk, is at most the
        target; at the next smaller number of six digits it is not. The noise is
        therefore too large by less than a relative 1e-5 and the width of the bracket.
    """
    runs = training_run.schemes_of(run)
    training_run.warn(run)
    return comparison.Rows(calibrated(way, target, measure, name) for way in runs)


def positive_target(name: str, value: Any, largest: float = math.inf) -> float:
    """Returns the value as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not positive and finite, and at most `largest`.
    """
    limit = fields.real_number(name, value)
    if not 0 < limit < math.inf or limit > largest:
        allowed = "finite" if largest == math.inf else f"at most {largest:g}"
        remedy = ": for 0 no noise is enough; 0.001 is hardly more" * (limit == 0)
        raise ValueError(
            f"{name} must be positive and {allowed}. Found {limit:g}{remedy}."
        )
    return limit


def calibrated(
    run: training_run.TrainingRun,
    target: float,
    measure: budget.Measure | None = None,
    name: str | None = None,
) -> comparison.Row:
    """Returns the row of `calibrate` for a run whose way of drawing batches is given.

    Its arguments, and its errors, are those of `calibrate`.
    """
    begin = time.process_time()
    name = name or ("epsilon" if measure is None else "target")
    limit = positive_target(name, target, math.inf if measure is None else 1.0)

    def noisy(noise: float) -> training_run.TrainingRun:
        return dataclasses.replace(run, noise_multiplier=noise)

    def reached(noise: float) -> float | tuple[float, float]:
        accountant = noisy(noise).accountant()
        if measure is not None:
            return measure(accountant)
        return accountant.get_epsilon(training_run.given("delta", run.delta))

    noise = budget.least_noise(reached, limit, name=name)
    if run.delta is not None:
        row = comparison.bracket(noisy(noise))
    else:
        adjacency = comparison.ADJACENCIES[run.neighboring_relation]
        setting = (run.scheme, adjacency, run.group_size, noise)
        row = comparison.Row(*setting, None, None, None, 0.0)
    if noise < budget.LEAST_NOISE:
        notes = filter(None, [row.note, "less noise is enough, too"])
        row = dataclasses.replace(row, note="; ".join(notes))
    if measure is not None:
        risk = reached(noise)
        lower, upper = risk if isinstance(risk, tuple) else (None, risk)
        row = dataclasses.replace(row, risk_lower=lower, risk_upper=upper)
    return dataclasses.replace(row, seconds=time.process_time() - begin)
