"""The least noise that meets a privacy target, for each way of drawing batches."""

from collections.abc import Callable
import dataclasses
import math
import time

from dp_accounting_ext import budget
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

# Tuning: beyond it ratios do not fit a float, bounds jump, and a lower one may take
# minutes. It promises nothing: e^ε is above 1e299.
LARGEST_EPSILON = 690.0


def calibrate(run: training_run.TrainingRun, epsilon: float) -> list[comparison.Row]:
    """Returns the noise that each way of drawing batches needs, and ε with it.

    Args:
        run: The run, whose noise is not looked at; of one way of drawing batches alone
            where its `sampling` is given.
        epsilon: ε that must not be exceeded at the run's δ, in nats; positive, and at
            most `LARGEST_EPSILON`.

    Raises:
        TypeError, ValueError: If epsilon is not what it should be, δ is not given, the
            group is too large, or no noise up to 1e9 is enough.

    Guarantees:
        ε is certified to be at most the target at the noise that is returned, and
        is not at the next smaller number of six digits: what is lost is less than
        1e-5 of the noise, and the width of the bracket.
    """
    target = fields.real_number("epsilon", epsilon)
    if not 0 < target <= LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be positive and at most {LARGEST_EPSILON:g}. "
            f"Found {epsilon:g}."
        )
    delta = training_run.given("delta", run.delta)
    return [
        _calibrated(
            each,
            lambda accountant: accountant.get_epsilon(delta),
            target,
            "epsilon",
            _guess(each, target, delta),
        )
        for each in training_run.schemes_of(run)
    ]


def calibrate_risk(
    run: training_run.TrainingRun,
    measure: budget.Measure,
    target: float,
    *,
    name: str = "target",
) -> list[comparison.Row]:
    """Returns the noise with which a risk is at most a target, and ε at the run's δ.

    Args:
        run: As in `calibrate`.
        measure: From an accountant to bounds on the risk: a function of
            `dp_accounting_ext.risk`.
        target: What the risk must not exceed, in (0, 1).
        name: Of the target, in errors.

    Raises:
        TypeError, ValueError: If target is not what it should be, δ is not given, the
            group is too large, or no noise up to 1e9 is enough.

    Guarantees:
        The upper bound on the risk is at most the target at the noise that is returned.
    """
    limit = fields.real_number(name, target)
    if not 0 < limit < 1:
        raise ValueError(f"{name} must be in (0, 1). Found {target}.")
    return [
        _calibrated(each, lambda accountant: measure(accountant)[1], limit, name, 1.0)
        for each in training_run.schemes_of(run)
    ]


def _calibrated(
    run: training_run.TrainingRun,
    question: Callable[[pld_accountant.PLDAccountant], float],
    target: float,
    name: str,
    guess: float,
) -> comparison.Row:
    begin = time.process_time()

    def bound(noise: float) -> float:
        noisy = dataclasses.replace(run, noise_multiplier=noise)
        return question(noisy.accountant())

    noise = budget.least_noise(bound, target, guess=guess, name=name)
    row = comparison.bracket(dataclasses.replace(run, noise_multiplier=noise))
    if noise < budget.LEAST_NOISE:
        row = dataclasses.replace(row, note="less noise is enough, too")
    return dataclasses.replace(row, seconds=time.process_time() - begin)


def _guess(run: training_run.TrainingRun, epsilon: float, delta: float) -> float:
    """Returns about the noise that is needed without amplification."""
    # Of a Gaussian of mean m, ε is about m² / 2 + m √(2 log(1/δ)).
    slope = math.sqrt(-2 * math.log(delta))
    mean = 2 * epsilon / (slope + math.hypot(slope, math.sqrt(2 * epsilon)))
    runs = run.batches_per_record * math.ceil(run.epochs)
    enough = run.group_size * math.sqrt(runs) / max(mean, 1e-200)
    return min(enough, training_run.LARGEST_NOISE)
