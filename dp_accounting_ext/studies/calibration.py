"""The least noise that meets a privacy target, for each way of drawing batches."""

from collections.abc import Callable
import dataclasses
import decimal
import functools
import math
import time

from scipy import optimize

from dp_accounting_ext import budget
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

# Certified: ε is asked for again at the rounded noise, so that rounding it costs none.
DIGITS = 6
_UPWARDS = decimal.Context(prec=DIGITS, rounding=decimal.ROUND_CEILING)
# Tuning: of the search, which ends with the certified bounds of what it found.
_WIDENING = 3.0
_LOGARITHMIC_TOLERANCE = 1e-6
# Tuning: beyond it ratios do not fit a float, bounds jump, and a lower one may take
# minutes. It promises nothing: e^ε is above 1e299.
LARGEST_EPSILON = 690.0
# Tuning: where the search ends. A step with the record in it loses 50,000 nats there:
# only a record that is hardly ever sampled is private then, at any noise.
_SMALLEST_NOISE = 0.003

Question = Callable[[training_run.TrainingRun], float]


def calibrate(
    run: training_run.TrainingRun,
    epsilon: float,
    *,
    progress: comparison.Progress | None = None,
) -> list[comparison.Row]:
    """Returns the noise that each way of drawing batches needs.

    Args:
        run: The run, whose noise is not looked at; of one way of drawing batches alone
            where its `sampling` is given.
        epsilon: ε that must not be exceeded at the run's δ, in nats; positive, and at
            most `LARGEST_EPSILON`.
        progress: Called with the number of rows done, and of all, after each.

    Raises:
        TypeError, ValueError: If epsilon is not what it should be, δ is not given, the
            group is too large, or no noise that fits a float is enough.

    Guarantees:
        ε is certified to be at most the target at the noise that is returned, and
        is not at the next smaller number of six digits: what is lost is less than
        1e-5 of the noise, and the width of the bracket.
    """
    found = fields.real_number("epsilon", epsilon)
    if not 0 < found <= LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be positive and at most {LARGEST_EPSILON:g}. "
            f"Found {epsilon:g}."
        )
    delta = training_run.given("delta", run.delta)

    def epsilon_of(noisy: training_run.TrainingRun) -> float:
        return noisy.accountant().get_epsilon(delta)

    def row(each: training_run.TrainingRun) -> comparison.Row:
        begin = time.process_time()
        noise, note = least_noise(each, epsilon_of, found, _guess(each, found))
        bounded = comparison.bracket(dataclasses.replace(each, noise_multiplier=noise))
        seconds = time.process_time() - begin
        return dataclasses.replace(bounded, seconds=seconds, note=note or bounded.note)

    return comparison.tracked(row, training_run.schemes_of(run), progress)


def calibrate_risk(
    run: training_run.TrainingRun,
    measure: budget.Measure,
    target: float,
    *,
    progress: comparison.Progress | None = None,
) -> list[comparison.Row]:
    """Returns the noise with which a risk is at most a target, and ε at the run's δ.

    Args:
        run: As in `calibrate`.
        measure: From an accountant to bounds on the risk: a function of
            `dp_accounting_ext.risk`.
        target: What the risk must not exceed, in (0, 1).
        progress: As in `calibrate`.

    Raises:
        TypeError, ValueError: If target is not what it should be, δ is not given, the
            group is too large, or no noise that fits a float is enough.

    Guarantees:
        The upper bound on the risk is at most the target at the noise that is returned.
    """
    limit = fields.real_number("target", target)
    if not 0 < limit < 1:
        raise ValueError(f"target must be in (0, 1). Found {target}.")

    def risk_of(noisy: training_run.TrainingRun) -> float:
        return measure(noisy.accountant())[1]

    def row(each: training_run.TrainingRun) -> comparison.Row:
        begin = time.process_time()
        noise, note = least_noise(each, risk_of, limit, 1.0, name="target")
        bounded = comparison.bracket(dataclasses.replace(each, noise_multiplier=noise))
        seconds = time.process_time() - begin
        return dataclasses.replace(bounded, seconds=seconds, note=note or bounded.note)

    return comparison.tracked(row, training_run.schemes_of(run), progress)


def least_noise(
    run: training_run.TrainingRun,
    question: Question,
    target: float,
    guess: float,
    *,
    name: str = "epsilon",
) -> tuple[float, str]:
    """Returns the least noise of six digits that is enough, and a note on it.

    Args:
        run: A run with a way of drawing batches.
        question: Bounds what must not be above the target, of a run with noise; more
            noise makes it smaller.
        target: Positive.
        guess: Where the search begins.
        name: Of the target, in errors.

    Raises:
        ValueError: If no noise that fits a float is enough.
    """

    @functools.cache
    def answer(noise: float) -> float:
        return question(dataclasses.replace(run, noise_multiplier=noise))

    enough = guess
    while answer(enough) > target:
        enough *= _WIDENING
        if enough > training_run.LARGEST_NOISE:
            raise ValueError(
                f"{name} must be such as a noise_multiplier of at most "
                f"{training_run.LARGEST_NOISE:g} can meet. Found {target:g} at delta "
                f"{run.delta}."
            )
    while answer(enough / _WIDENING) <= target:
        enough /= _WIDENING
        if enough < _SMALLEST_NOISE:
            return _rounded_up(enough), "less noise is enough, too"
    low, high = _next_below(_rounded_up(enough / _WIDENING)), _rounded_up(enough)
    root = _rounded_up(_root(answer, target, enough))
    neighbours = [_next_below(root), _next_above(root)]  # Which mostly end the search.
    for noise in (root, *neighbours):
        if low < noise < high:
            low, high = (low, noise) if answer(noise) <= target else (noise, high)
    while (noise := _next_above(low)) < high:
        noise = max(noise, _rounded_up(math.sqrt(low * high) * (1 - 1e-6)))
        low, high = (low, noise) if answer(noise) <= target else (noise, high)
    return high, ""


def _guess(run: training_run.TrainingRun, epsilon: float) -> float:
    """Returns about the noise that is needed without amplification."""
    # Of a Gaussian of mean m, ε is about m² / 2 + m √(2 log(1/δ)).
    slope = math.sqrt(-2 * math.log(training_run.given("delta", run.delta)))
    mean = 2 * epsilon / (slope + math.hypot(slope, math.sqrt(2 * epsilon)))
    runs = run.batches_per_record * math.ceil(run.epochs)
    enough = run.group_size * math.sqrt(runs) / max(mean, 1e-200)
    return min(enough, training_run.LARGEST_NOISE)


def _root(answer: Callable[[float], float], target: float, enough: float) -> float:
    """Returns about the noise at which the target is met, below what is enough."""

    def excess(power: float) -> float:
        # In logarithms ε is nearly straight, so that a few steps find the root.
        found = answer(enough / math.pow(_WIDENING, power))
        return math.log(min(max(found, 5e-324), 1e300)) - math.log(target)

    power = optimize.brentq(excess, 0.0, 1.0, xtol=_LOGARITHMIC_TOLERANCE)
    return enough / math.pow(_WIDENING, power)


def _rounded_up(noise: float) -> float:
    return float(_UPWARDS.create_decimal_from_float(noise))


def _next_above(noise: float) -> float:
    return float(decimal.Decimal(repr(noise)).next_plus(_UPWARDS))


def _next_below(noise: float) -> float:
    return float(decimal.Decimal(repr(noise)).next_minus(_UPWARDS))
