"""The least noise that meets a privacy target, for each way of drawing batches."""

from collections.abc import Callable
import dataclasses
import decimal
import functools
import math
import time

from scipy import optimize

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

Epsilon = Callable[[float], float]


@dataclasses.dataclass(frozen=True)
class Row:
    """One scheme's noise, and the certified bounds on ε that it gives.

    Attributes:
        scheme: How batches are drawn.
        noise_multiplier: A number of six digits.
        epsilon_lower: Lower bound on ε, in nats.
        epsilon_upper: Upper bound on ε, at most the target.
        seconds: CPU time of the search.
        note: What a reader must know beside these.
    """

    scheme: str
    noise_multiplier: float
    epsilon_lower: float
    epsilon_upper: float
    seconds: float
    note: str = ""


def calibrate(
    setting: training_run.TrainingRun,
    epsilon: float,
    *,
    progress: comparison.Progress | None = None,
) -> list[Row]:
    """Returns the noise that each scheme needs.

    Args:
        setting: The run; its noise is not looked at, nor its way of drawing batches.
        epsilon: ε that must not be exceeded at the run's δ, in nats; positive, and at
            most `LARGEST_EPSILON`.
        progress: Called with the number of schemes done, and of all, after each.

    Raises:
        TypeError, ValueError: If epsilon is not what it should be, δ is not given, the
            group is too large, or no noise that fits a float is enough.

    Guarantees:
        ε is certified to be at most the target at the noise that is returned, and
        is not at the next smaller number of six digits: what is lost is less than
        1e-5 of the noise, and the width of the bracket.
    """
    if not 0 < fields.real_number("epsilon", epsilon) < math.inf:
        raise ValueError(f"epsilon must be positive and finite. Found {epsilon}.")
    if epsilon > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be at most {LARGEST_EPSILON:g}, which promises nothing. "
            f"Found {epsilon:g}."
        )
    delta = training_run.given("delta", setting.delta)
    target = _Target(float(epsilon), delta, setting)
    rows = []
    for scheme in training_run.SCHEMES:
        rows.append(_row(scheme, target))
        if progress:
            progress(len(rows), len(training_run.SCHEMES))
    return rows


@dataclasses.dataclass(frozen=True)
class _Target:
    """The ε and δ that a run must have."""

    epsilon: float
    delta: float
    setting: training_run.TrainingRun

    def with_noise(self, noise_multiplier: float) -> training_run.TrainingRun:
        """Returns the training run with noise."""
        return dataclasses.replace(self.setting, noise_multiplier=noise_multiplier)


def _row(scheme: str, target: _Target) -> Row:
    begin = time.process_time()
    noise, note = _least_noise(_epsilon_of(scheme, target), target)
    bracket = comparison.bracket(scheme, target.with_noise(noise))
    return Row(
        scheme,
        noise,
        bracket.epsilon_lower,
        bracket.epsilon_upper,
        time.process_time() - begin,
        note or bracket.note,
    )


def _epsilon_of(scheme: str, target: _Target) -> Epsilon:
    """Returns the upper bound on ε as a function of noise; it keeps its answers."""

    @functools.cache
    def epsilon(noise: float) -> float:
        accountant = training_run.accountant(scheme, target.with_noise(noise))
        return accountant.get_epsilon(target.delta)

    return epsilon


def _least_noise(epsilon: Epsilon, target: _Target) -> tuple[float, str]:
    """Returns the least noise of six digits that is enough, and a note on it."""
    enough = _guess(target)
    while epsilon(enough) > target.epsilon:
        enough *= _WIDENING
        if enough > training_run.LARGEST_NOISE:
            raise ValueError(
                f"epsilon must be such as a noise_multiplier of at most "
                f"{training_run.LARGEST_NOISE:g} can meet. Found {target.epsilon:g} at "
                f"delta {target.delta:g}."
            )
    while epsilon(enough / _WIDENING) <= target.epsilon:
        enough /= _WIDENING
        if enough < _SMALLEST_NOISE:
            return _rounded_up(enough), "less noise is enough, too"
    noise = _rounded_up(_root(epsilon, target.epsilon, enough))
    while epsilon(noise) > target.epsilon:
        noise = _next(noise, 1)
    while epsilon(_next(noise, -1)) <= target.epsilon:
        noise = _next(noise, -1)
    return noise, ""


def _guess(target: _Target) -> float:
    """Returns about the noise that is needed without amplification."""
    # Of a Gaussian of mean m, ε is about m² / 2 + m √(2 log(1/δ)).
    slope = math.sqrt(-2 * math.log(target.delta))
    root = math.hypot(slope, math.sqrt(2 * target.epsilon))
    mean = 2 * target.epsilon / (slope + root)
    setting = target.setting
    runs = setting.num_selected * math.ceil(setting.epochs)
    noise = setting.group_size * math.sqrt(runs) / mean
    return min(noise, training_run.LARGEST_NOISE)


def _root(epsilon: Epsilon, target: float, enough: float) -> float:
    """Returns about the noise at which ε is the target, below what is enough."""

    def excess(power: float) -> float:
        # In logarithms ε is nearly straight, so that a few steps find the root.
        found = epsilon(enough / math.pow(_WIDENING, power))
        return math.log(min(max(found, 1e-300), 1e300)) - math.log(target)

    power = optimize.brentq(excess, 0.0, 1.0, xtol=_LOGARITHMIC_TOLERANCE)
    return enough / math.pow(_WIDENING, power)


def _rounded_up(noise: float) -> float:
    return float(_UPWARDS.create_decimal_from_float(noise))


def _next(noise: float, direction: int) -> float:
    """Returns the next number of six digits."""
    digits = decimal.Decimal(repr(noise))
    if direction > 0:
        return float(digits.next_plus(_UPWARDS))
    return float(digits.next_minus(_UPWARDS))
