"""Bets on means of samples: a pilot that plans them, and the bracket they prove.

Source: Waudby-Smith and Ramdas 2020, https://arxiv.org/abs/2010.09686, Section 4.
"""

import dataclasses
import itertools
import math
import time

import numpy as np
from scipy import optimize

from dp_accounting_ext.amplification.matrix import moment_tilts
from dp_accounting_ext.common_types import FloatArray

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
LARGEST_EXPONENT = 600.0
_LEAST_EPSILON = 0.05  # Widths are relative to no less.


class BudgetError(RuntimeError):
    """Raised where as many samples as are needed take too long."""


@dataclasses.dataclass(frozen=True)
class Aim:
    """What is asked for: δ, the width, and ln of one over each end's failure."""

    delta: float
    relative_width: float
    logs: float

    def width(self, epsilon: float) -> float:
        """Returns how far ends may be from such an ε."""
        return self.relative_width * max(epsilon, _LEAST_EPSILON)


@dataclasses.dataclass(frozen=True)
class Plan:
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


def check_budget(aim: Aim, plan: Plan, most_seconds: float) -> None:
    """Raises BudgetError if the plan takes longer."""
    if plan.seconds > most_seconds:
        raise BudgetError(
            f"relative_width {aim.relative_width:g} at delta {aim.delta:g} needs about "
            f"{plan.samples:.2g} samples and {plan.seconds:.2g} CPU s, more than "
            f"most_seconds, {most_seconds:g}. A wider bracket, a larger delta or "
            "failure_probability, or more seconds would do; "
            "PLDAccountant.get_epsilon_bounds needs no samples."
        )


def bracket(samples: moment_tilts.Samples, aim: Aim, plan: Plan) -> tuple[float, float]:
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


def planned(
    means: moment_tilts.Means, aim: Aim, generator: np.random.Generator
) -> Plan:
    """Returns the plan that costs least, of a pilot and of a second, larger one."""
    return _refined(means, aim, _plan(means, aim, generator), generator)


def _plan(means: moment_tilts.Means, aim: Aim, generator: np.random.Generator) -> Plan:
    """Returns the m with which the fewest samples do."""
    count = max(_PILOT // len(means.gram), _FEWEST_OF_PILOT)
    count = min(count, _MOST_OF_PILOT)
    best: Plan | None = None
    for moment in range(2, _MOST_MOMENTS):
        if best and moment * float(means.gram.max()) > LARGEST_EXPONENT:
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
    aim: Aim,
    plan: Plan,
    generator: np.random.Generator,
) -> Plan:
    """Returns the plan anew from more samples, a share of the work it asks for."""
    each = means.work(plan.moment, means.crossing(plan.moment))
    count = min(math.ceil(plan.work * _SHARE / each), _MOST_REFINED)
    count *= max(means.crossing(plan.moment))
    return _trial(means, aim, plan.moment, count, generator) or plan


def _trial(
    means: moment_tilts.Means,
    aim: Aim,
    moment: int,
    count: int,
    generator: np.random.Generator,
) -> Plan | None:
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
    return Plan(moment, best, epsilon, samples, needed, work, work * speed)


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
    aim: Aim,
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
