"""The least noise that meets a privacy target, for each way of drawing batches."""

import dataclasses
import time

from dp_accounting_ext.accountants import budget
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "LARGEST_EPSILON",
    "calibrate",
]
__dir__ = __all__.copy

# Tuning: beyond it ratios do not fit a float, bounds jump, and a lower one may take
# minutes. It promises nothing: e^ε is above 1e299.
LARGEST_EPSILON = 690.0


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
        run: The run, whose noise is not looked at; of one way of drawing batches alone
            where its `sampling` is given. Its δ may be missing where a risk is limited.
        target: ε that must not be exceeded at the run's δ, in nats, positive and at
            most `LARGEST_EPSILON`; with a measure, what it must not exceed, in (0, 1].
        measure: In place of ε, from an accountant to a risk or to bounds on it: a
            function of `dp_accounting_ext.risk`.
        name: Of the target, in errors; "epsilon" or "target" by default.

    Returns:
        A row for each way, with the risk that is reached where one is limited.

    Warns where δ is one over the dataset's size or more.

    Raises:
        TypeError, ValueError: If the target is not what it should be, δ is not given,
            the group is too large, or no noise up to 1e9 is enough.

    Guarantees:
        What is limited is certified to be at most the target at the noise that is
        returned, and is not at the next smaller number of six digits: what is lost is
        less than 1e-5 of the noise, and the width of the bracket.
    """
    name = name or ("epsilon" if measure is None else "target")
    limit = fields.real_number(name, target)
    most = LARGEST_EPSILON if measure is None else 1.0
    if not 0 < limit <= most:
        remedy = ": for 0 no noise is enough; 0.001 is hardly more" * (limit == 0)
        raise ValueError(
            f"{name} must be positive and at most {most:g}. Found {limit:g}{remedy}."
        )
    is_risk = measure is not None
    if measure is None:
        delta = training_run.given("delta", run.delta)

        def epsilon(accountant: pld_accountant.PLDAccountant) -> float:
            return accountant.get_epsilon(delta)

        measure = epsilon
    runs = training_run.schemes_of(run)
    training_run.warn(run)
    rows = comparison.Rows(_calibrated(each, measure, limit, name) for each in runs)
    if is_risk:
        rows = comparison.Rows(_with_risk(row, measure, run) for row in rows)
    return rows


def _with_risk(
    row: comparison.Row, measure: budget.Measure, run: training_run.TrainingRun
) -> comparison.Row:
    """Returns a row with what is reached of the risk."""
    found = measure(
        dataclasses.replace(
            run, sampling=row.sampling, noise_multiplier=row.noise_multiplier
        ).accountant()
    )
    lower, upper = found if isinstance(found, tuple) else (None, found)
    return dataclasses.replace(row, risk_lower=lower, risk_upper=upper)


def _calibrated(
    run: training_run.TrainingRun, measure: budget.Measure, target: float, name: str
) -> comparison.Row:
    begin = time.process_time()

    def noisy(noise: float) -> training_run.TrainingRun:
        return dataclasses.replace(run, noise_multiplier=noise)

    noise = budget.least_noise(
        lambda noise: measure(noisy(noise).accountant()), target, name=name
    )
    if run.delta is not None:
        row = comparison.bracket(noisy(noise))
    else:
        scheme = training_run.given("sampling", run.sampling)
        adjacency = comparison.ADJACENCIES[run.neighboring_relation]
        of = (scheme, adjacency, run.group_size, noise)
        row = comparison.Row(*of, None, None, None, 0.0)
    note = row.note if noise >= budget.LEAST_NOISE else "less noise is enough, too"
    return dataclasses.replace(row, note=note, seconds=time.process_time() - begin)
