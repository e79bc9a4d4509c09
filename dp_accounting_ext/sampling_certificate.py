"""Brackets of ε that hold with probability 1 − α: tight where certain ones are wide.

They are apart from the accountants, which never sample: what is returned here is wrong
with probability α, over the draws of this program alone.
"""

from collections.abc import Callable
import dataclasses
import itertools
import math
import numbers
import time
from typing import Any

from dp_accounting import privacy_accountant
import numpy as np
import numpy.typing as npt
from scipy import optimize

from dp_accounting_ext import dp_event
from dp_accounting_ext.amplification.matrix import moment_tilts
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import matrix_allocation
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import extension_events
from dp_accounting_ext.validation import fields
from dp_accounting_ext.validation import strategies

FloatArray = npt.NDArray[np.float64]
Direction = dominating_pair.Direction
Bound = dominating_pair.Bound

# Certified but for α: what rounding may move in the exponents of samples, far below
# what the samples themselves leave open.
_ROUNDING = 1e-7
# Of the logarithm of a capital: a million factors have far less.
_LOG_ROUNDING = 1e-6
# Tuning.
# Values of ε, in units of the width that is asked for: close where ends are to be. A
# pilot errs by up to about one width.
_GRID = np.concatenate([[-8.0, -4.0], np.arange(-2.5, 2.51, 0.04), [4.0, 8.0]])
_PILOT = 2_000_000  # Numbers in a pilot's draws of noise for one m.
_FEWEST_OF_PILOT, _MOST_OF_PILOT = 2000, 8000
_MOST_MOMENTS = 40
_WORSE = 3.0  # Of the work: m is not raised further.
_FEWEST = 1_000
_SHARE, _MOST_REFINED = 0.15, 20_000  # Of the work that a plan asks for.
_SPARE, _OF_WIDTH = 1.1, 0.96  # More samples than planned, for a part of the width.
_MOST_OF_STAKE = 0.95  # Of the capital, that a sample may lose.
_LARGEST_EXPONENT = 600.0
_ASYMMETRY = 1e-12  # Of a Gram matrix, over its largest entry: far below `_ROUNDING`.
_LEAST_EPSILON = 0.05  # Widths are relative to no less.
_TAIL_SHARE = 1e-6


class BudgetError(RuntimeError):
    """Raised where as many samples as are needed take too long."""


@dataclasses.dataclass(frozen=True)
class SampledBounds:
    """A bracket of ε that holds with probability at least 1 − α.

    Attributes:
        lower: Lower bound on ε.
        upper: Upper bound on ε, in both directions.
        remove_upper: Upper bound where a record is removed, by samples.
        add_upper: Upper bound where one is added: certain, by no samples.
        delta: δ.
        failure_probability: α, that any of these is wrong.
        samples: Number of samples.
        moment: m: samples are tilted by the m-th power of the likelihood ratio.
        seed: What gives the same samples again.
        seconds: CPU time.
    """

    lower: float
    upper: float
    remove_upper: float
    add_upper: float
    delta: float
    failure_probability: float
    samples: int
    moment: int
    seed: int
    seconds: float


def certify_by_sampling(
    event: dp_event.MatrixAllocationEvent | dp_event.RandomAllocationEvent,
    delta: float,
    failure_probability: float = 1e-9,
    relative_width: float = 0.01,
    seed: int | None = None,
    *,
    most_seconds: float = 120.0,
) -> SampledBounds:
    """Returns a bracket of ε that holds with probability at least 1 − α.

    Args:
        event: One run of a matrix mechanism, or one epoch of k out of t steps of
            Gaussian noise, of at most 4096 sets of k steps.
        delta: δ, in (0, 1).
        failure_probability: α, in (0, 1).
        relative_width: How far either end may be from the estimate, relatively: an
            aim, met unless the pilot was misled.
        seed: A non-negative integer; a random one if None.
        most_seconds: CPU time that it may take, by its own forecast.

    Raises:
        TypeError, ValueError: If an argument is not what it must be.
        BudgetError: If it would take longer; nothing is concluded then.

    Guarantees:
        With probability at least 1 − α over its draws, lower ≤ ε ≤ upper. The
        direction ADD has no samples: its upper bound is the accountant's, and widens
        the bracket where it is above that of REMOVE.
    """
    began = time.process_time()
    found = certify_mixture(
        _gram(event),
        delta,
        failure_probability,
        relative_width,
        seed,
        most_seconds=most_seconds,
    )
    mechanism = _reader().mechanism(event)
    pairs = interface.pairs_of(mechanism, Bound.UPPER, delta * _TAIL_SHARE)
    add = pairs.add.epsilon(delta, Direction.ADD)
    return dataclasses.replace(
        found,
        upper=max(found.remove_upper, add),
        add_upper=add,
        seconds=time.process_time() - began,
    )


def _gram(event: Any) -> FloatArray:
    """Returns the inner products of the means of what a record may move noise to."""
    if isinstance(event, dp_event.RandomAllocationEvent):
        return _gram_of_sets(event)
    if not isinstance(event, dp_event.MatrixAllocationEvent):
        raise TypeError(
            "event must be a MatrixAllocationEvent, or a RandomAllocationEvent of "
            f"Gaussian noise. Found a {type(event).__name__}. "
            "sampling_certificate.certify_mixture takes other mixtures of Gaussians."
        )
    strategy, noise, bins, epochs = extension_events.matrix_fields(event)
    if not noise:
        raise ValueError("noise_multiplier must be positive. Found 0.")
    run = matrix_allocation.MatrixAllocation(strategy, noise, bins, epochs)
    return run.gram(Bound.UPPER)


def _gram_of_sets(event: dp_event.RandomAllocationEvent) -> FloatArray:
    """Returns |S ∩ S′| / σ² of all sets of k out of t steps.

    An adversary who chooses step by step gains nothing: the ratio is the mean over the
    sets of products of ratios of steps, and so convex in each of these.
    """
    selected, steps = fields.steps(event.num_selected, event.num_steps)
    step = _reader().mechanism(event.event)
    if not isinstance(step, additive_noise.Gaussian):
        raise ValueError(
            "event must be a RandomAllocationEvent of Gaussian noise, not 0, to be "
            f"certified by sampling. Found steps of {type(event.event).__name__}."
        )
    # Few draws, or few steps left out: others have far too many sets to count them.
    few = min(selected, steps - selected) <= strategies.MOST_BINS.bit_length()
    number = math.comb(steps, selected) if few else math.inf
    if max(number, steps) > strategies.MOST_BINS:
        raise ValueError(
            f"num_selected out of num_steps must have at most {strategies.MOST_BINS} "
            "sets, and steps, to be certified by sampling. "
            f"Found {selected} of {steps}."
        )
    sets = np.array(list(itertools.combinations(range(steps), selected)))
    holds = np.zeros((len(sets), steps))
    np.put_along_axis(holds, sets, 1.0, axis=1)
    return np.asarray(holds @ holds.T / step.noise_multiplier**2)


def _reader() -> event_reader.Reader:
    return event_table.reader(privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE)


def certify_mixture(
    gram: FloatArray,
    delta: float,
    failure_probability: float = 1e-9,
    relative_width: float = 0.01,
    seed: int | None = None,
    *,
    most_seconds: float = 120.0,
) -> SampledBounds:
    """Returns a bracket of ε where a record is removed, for any even mixture.

    P is the mean of N(m_i, I) over i, and Q is N(0, I).

    Args:
        gram: (b, b) inner products of the means m_i, all at least 0, for b up to 4096.
        delta: As for `certify_by_sampling`, as are all others.
        failure_probability: α.
        relative_width: The aim.
        seed: A non-negative integer, or None.
        most_seconds: The budget.

    Returns:
        The bracket, whose add_upper is infinite: nothing is said about ADD.

    Raises:
        TypeError: If the matrix is not one of real numbers.
        ValueError: If a number or the matrix is not as it must be.
        BudgetError: If as many samples as are needed take too long.

    Source:
        Waudby-Smith and Ramdas 2020, https://arxiv.org/abs/2010.09686, Section 4:
        capitals of bets, here with stakes that a pilot fixed.
    """
    began = time.process_time()
    _check(delta, failure_probability, relative_width)
    if not fields.real_number("most_seconds", most_seconds) > 0:
        raise ValueError(f"most_seconds must be positive. Found {most_seconds}.")
    _check_seed(seed)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    pilot, main = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    means = moment_tilts.Means(_checked_gram(gram))
    logs = math.log(2 / failure_probability)
    aim = _Aim(delta, relative_width, logs)
    plan = _refined(means, aim, _plan(means, aim, pilot), pilot)
    _check_budget(aim, plan, most_seconds)
    samples = moment_tilts.draw(means, plan.moment, plan.samples, main, plan.crossing)
    lower, upper = _bracket(samples, aim, plan)
    return SampledBounds(
        lower=lower,
        upper=upper,
        remove_upper=upper,
        add_upper=math.inf,
        delta=delta,
        failure_probability=failure_probability,
        samples=plan.samples,
        moment=plan.moment,
        seed=seed,
        seconds=time.process_time() - began,
    )


@dataclasses.dataclass(frozen=True)
class _Aim:
    """What is asked for: δ, the width, and ln of one over each end's failure."""

    delta: float
    relative_width: float
    logs: float

    def width(self, epsilon: float) -> float:
        """Returns how far ends may be from such an ε."""
        return self.relative_width * max(epsilon, _LEAST_EPSILON)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What a pilot found: it decides how tight a bracket is, never whether it holds.

    Attributes:
        moment: m.
        crossing: Draws of noise, and tuples, of a sample.
        epsilon: About ε.
        pilot: What this is known from, and what fixes the bets of the main run.
        samples: Number of samples.
        work: What they cost, in units that are the same in every run.
        seconds: What they cost, in CPU time.
    """

    moment: int
    crossing: tuple[int, int]
    epsilon: float
    pilot: moment_tilts.Samples
    samples: int
    work: float
    seconds: float


def _check_budget(aim: _Aim, plan: _Plan, most_seconds: float) -> None:
    if plan.seconds > most_seconds:
        raise BudgetError(
            f"relative_width {aim.relative_width:g} at delta {aim.delta:g} needs about "
            f"{plan.samples:.2g} samples and {plan.seconds:.2g} CPU s, more than "
            f"most_seconds, {most_seconds:g}. A wider bracket, a larger delta or "
            "failure_probability, or more seconds would do; "
            "PLDAccountant.get_epsilon_bounds needs no samples."
        )


def _bracket(
    samples: moment_tilts.Samples, aim: _Aim, plan: _Plan
) -> tuple[float, float]:
    """Returns bounds on ε by the main run, at values that the plan fixed.

    Of E h ≤ δ, or E h ≥ δ, each value is a hypothesis, and rejected where the capital
    of who bets against it is above 2 / α: its mean is at most one. E h falls with ε:
    where one is wrong all those before it, in the order of the tests, are right to be
    rejected. So the first that stands ends the tests, and there is no union.
    """
    lower, upper = 0.0, math.inf
    width = aim.width(plan.epsilon)
    epsilons = [plan.epsilon + width * step for step in _GRID.tolist()]
    more, less = (
        _bet(plan.pilot, plan.crossing, plan.epsilon - sign * width, aim.delta, sign)[0]
        for sign in (1, -1)
    )
    for epsilon in epsilons:
        gains = samples.values(epsilon) - aim.delta
        if not _capital(gains, more) > aim.logs:
            break
        lower = max(epsilon - _ROUNDING, 0.0)
    for epsilon in reversed(epsilons):
        gains = aim.delta - samples.values(epsilon)
        most = _MOST_OF_STAKE / samples.largest(epsilon)
        if not _capital(gains, min(less, most)) > aim.logs:
            break
        upper = max(epsilon, 0.0) + _ROUNDING
    return lower, upper


def _capital(gains: FloatArray, stake: float) -> float:
    """Returns ln Π (1 + λ gain), but for rounding, which `_LOG_ROUNDING` is above."""
    return float(np.log1p(stake * gains).sum()) - _LOG_ROUNDING


def _plan(
    means: moment_tilts.Means, aim: _Aim, generator: np.random.Generator
) -> _Plan:
    """Returns the m with which the fewest samples do."""
    count = max(_PILOT // len(means.gram), _FEWEST_OF_PILOT)
    count = min(count, _MOST_OF_PILOT)
    best: _Plan | None = None
    for moment in range(2, _MOST_MOMENTS):
        if best and moment * float(means.gram.max()) > _LARGEST_EXPONENT:
            break
        found = _trial(means, aim, moment, count, generator)
        if found is None:
            continue
        if best is None or found.work < best.work:
            best = found
        elif found.work > _WORSE * best.work:
            break
    if best is None:
        raise BudgetError(
            f"delta {aim.delta:g} was met by no sample of the pilot: a larger one "
            "would do; PLDAccountant.get_epsilon_bounds needs no samples."
        )
    return best


def _refined(
    means: moment_tilts.Means,
    aim: _Aim,
    plan: _Plan,
    generator: np.random.Generator,
) -> _Plan:
    """Returns the plan anew from more samples, a share of the work it asks for."""
    each = means.work(plan.moment, means.crossing(plan.moment))
    count = min(math.ceil(plan.work * _SHARE / each), _MOST_REFINED)
    count *= max(means.crossing(plan.moment))
    return _trial(means, aim, plan.moment, count, generator) or plan


def _trial(
    means: moment_tilts.Means,
    aim: _Aim,
    moment: int,
    count: int,
    generator: np.random.Generator,
) -> _Plan | None:
    """Returns the crossing that costs least, or None where δ is met by no sample."""
    began = time.process_time()
    whole = means.crossing(moment)
    count = math.ceil(count / max(whole))
    samples = moment_tilts.draw(means, moment, count, generator, whole)
    speed = (time.process_time() - began) / count / means.work(moment, whole)
    epsilon = _estimate(samples, aim.delta)
    if epsilon is None:
        return None
    best, least = (1, 1), (math.inf, 0)
    sizes = [[2**power for power in range(size.bit_length())] for size in whole]
    for crossing in itertools.product(*sizes):
        needed = _samples_needed(samples, crossing, epsilon, aim)
        work = needed * means.work(moment, crossing)
        if work < least[0]:
            best, least = crossing, (work, needed)
    work, needed = least
    return _Plan(moment, best, epsilon, samples, needed, work, work * speed)


def _means_of(pairs: FloatArray, crossing: tuple[int, int]) -> FloatArray:
    """Returns means over so many draws of noise with so many tuples."""
    count, noises, tuples = pairs.shape
    (s, t) = crossing
    parts = pairs.reshape(count, noises // s, s, tuples // t, t)
    return np.asarray(parts.mean(axis=(2, 4)))


def _estimate(samples: moment_tilts.Samples, delta: float) -> float | None:
    """Returns ε where the samples' mean is δ, at least 0."""

    def excess(epsilon: float) -> float:
        return float(samples.values(epsilon).mean()) - delta

    highest = float(samples.log_ratios.max())
    if not math.isfinite(highest) or highest <= 0:
        return None
    if excess(0.0) <= 0:
        return 0.0 if samples.values(0.0).any() else None
    # Rounding leaves a little of the highest ratio, which may be above a small δ.
    return float(optimize.brentq(excess, 0.0, highest + _ROUNDING))


def _samples_needed(
    samples: moment_tilts.Samples,
    crossing: tuple[int, int],
    epsilon: float,
    aim: _Aim,
) -> int:
    """Returns with how many samples both capitals are large enough."""
    width = _OF_WIDTH * aim.width(epsilon)
    upper = _bet(samples, crossing, epsilon + width, aim.delta, -1)[1]
    growth = upper
    if epsilon > 0:
        growth = min(growth, _bet(samples, crossing, epsilon - width, aim.delta, 1)[1])
    needed = _SPARE * aim.logs / max(growth, 1e-300)
    return math.ceil(min(max(needed, _FEWEST), 1e15))


def _bet(
    samples: moment_tilts.Samples,
    crossing: tuple[int, int],
    epsilon: float,
    delta: float,
    sign: int,
) -> tuple[float, float]:
    """Returns about the best stake on E h > δ, or on E h < δ, and what it gains.

    Args:
        samples: A pilot's.
        crossing: What is a sample of the main run.
        epsilon: Where h is looked at.
        delta: δ.
        sign: 1 for a bet on E h > δ, −1 on E h < δ.

    Returns:
        λ, and the mean of ln(1 + λ gain).
    """
    gains = sign * (_means_of(samples.pairs(epsilon), crossing) - delta)
    stake = float(gains.mean()) / max(float((gains**2).mean()), 1e-300)
    most = delta if sign > 0 else samples.largest(epsilon)
    stake = min(max(stake, 0.0), _MOST_OF_STAKE / most)
    return stake, float(np.log1p(stake * gains).mean())


def _checked_gram(gram: Any) -> FloatArray:
    """Returns a Gram matrix of floats; `Means` says whether it has a root."""
    found = fields.number_array("gram", gram).astype(np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
        raise ValueError(f"gram must be a square matrix. Found shape {found.shape}.")
    if len(found) > strategies.MOST_BINS:
        raise ValueError(
            f"gram must have at most {strategies.MOST_BINS} rows. Found {len(found)}."
        )
    wrong = ~((found >= 0) & (found <= _LARGEST_EXPONENT))
    if wrong.any():
        raise ValueError(
            "gram, products of means over the noise's variance, must have entries in "
            f"[0, {_LARGEST_EXPONENT:g}]. Found {found[wrong][0]:g}."
        )
    if not found.any():
        raise ValueError("gram must have an entry above 0. Found none.")
    apart = np.abs(found - found.T).max()
    if apart > _ASYMMETRY * found.max():
        raise ValueError(
            f"gram must be symmetric. Found entries that differ by {apart:g}."
        )
    return found


def _check(delta: Any, failure_probability: Any, relative_width: Any) -> None:
    checks: list[tuple[str, Any, Callable[[float], bool]]] = [
        ("delta", delta, lambda x: 0 < x < 1),
        ("failure_probability", failure_probability, lambda x: 0 < x < 1),
        ("relative_width", relative_width, lambda x: 0 < x < 1),
    ]
    for name, value, holds in checks:
        if not holds(fields.real_number(name, value)):
            raise ValueError(f"{name} must be in (0, 1). Found {value}.")


def _check_seed(seed: Any) -> None:
    whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if seed is not None and not (whole and seed >= 0):
        raise TypeError(f"seed must be None or a non-negative integer. Found {seed!r}.")
