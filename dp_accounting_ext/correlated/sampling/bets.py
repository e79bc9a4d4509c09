"""Tests by betting on means of samples: a pilot plans them, the main run proves ε.

Source: Waudby-Smith and Ramdas 2020, https://arxiv.org/abs/2010.09686, Section 4.
"""

import abc
from collections.abc import Sequence
import dataclasses
import functools
import math
import time
from typing import ClassVar

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified, except with probability α: a bound on the rounding error of the exponents
# of samples. It is far below the width of brackets.
_ROUNDING = 1e-7
# A bound on the error of the logarithm of a capital. A million factors have far less.
_LOG_ROUNDING = 1e-6
# Tuning.
# Values of ε relative to the estimate, in units of the requested width. They are dense
# where the ends are expected, as the error of a pilot is up to about one width.
_GRID = np.concatenate([[-8.0, -4.0], np.arange(-2.5, 2.51, 0.04), [4.0, 8.0]])
_PILOT = 2_000_000  # The total size of a pilot's draws of noise, for one m.
_FEWEST_OF_PILOT, _MOST_OF_PILOT = 2000, 8000
_FEWEST = 1_000
_SHARE, _MOST_REFINED = 0.15, 20_000  # A second pilot's share of the work; samples.
_SPARE, _OF_WIDTH = 1.1, 0.96  # Factors on the planned samples, and on the width.
_MOST_OF_STAKE = 0.95  # The share of the capital that one sample may lose.
LARGEST_EXPONENT = 600.0
_LEAST_EPSILON = 0.05  # Below this ε, widths are relative to this ε.


class BudgetError(RuntimeError):
    """Raised if the samples that are needed would take too long."""


@dataclasses.dataclass(frozen=True)
class Aim:
    """The goal: δ, the relative width, and ln(1 / α) for each end of the bracket."""

    delta: float
    relative_width: float
    logs: float

    def width(self, epsilon: float) -> float:
        """Returns the largest allowed width of a bracket around such an ε."""
        return self.relative_width * max(epsilon, _LEAST_EPSILON)


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Samples h = w (Z − κ)₊ / Z^m for one power m, whose mean is a divergence.

    Attributes:
        moment: The power m, at least 2.
        log_ratios: (n,) values of ln Z.
        log_weights: (n,) values of ln w.
        log_largest: An upper bound on the latter.
    """

    moment: int
    log_ratios: FloatArray
    log_weights: FloatArray
    log_largest: float

    @functools.cached_property
    def _factors(self) -> tuple[FloatArray, FloatArray]:
        """For each sample, h at κ = 0 and 1 / Z, where Z counts as at least 1 / e."""
        logs = np.maximum(self.log_ratios, -1.0)
        return np.exp(self.log_weights + (1 - self.moment) * logs), np.exp(-logs)

    def values(self, epsilon: float) -> FloatArray:
        """Returns (n,) values of h at κ = e^ε, for ε ≥ −1."""
        weights, inverses = self._factors
        return np.asarray(weights * np.maximum(1 - math.exp(epsilon) * inverses, 0.0))

    def largest(self, epsilon: float) -> float:
        """Returns a bound on h. (z − κ) / z^m is largest at z = κ m / (m − 1)."""
        m = self.moment
        exponent = self.log_largest - (m - 1) * epsilon
        exponent += (m - 1) * math.log1p(-1 / m) - math.log(m)
        return floats.raised(floats.exponential(exponent))


class Source(abc.ABC):
    """A mixture from which samples are drawn.

    Attributes:
        worse: The search for m stops at a plan with this many times the work of the
            best plan.
    """

    worse: ClassVar[float]

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of random numbers in a draw of noise."""

    @property
    @abc.abstractmethod
    def moments(self) -> Sequence[int]:
        """The powers m that are tried, in increasing order."""

    @abc.abstractmethod
    def work(self, moment: int) -> float:
        """Returns about the cost of a sample, in a unit that does not depend on m."""

    @abc.abstractmethod
    def draw(self, moment: int, count: int, generator: np.random.Generator) -> Samples:
        """Returns `count` samples."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of a pilot: it decides how tight a bracket is, not whether it holds.

    Attributes:
        moment: The order m of the moment that is sampled.
        epsilon: An estimate of ε.
        pilot: The samples of the pilot, which fix the bets of the main run.
        samples: The number of samples of the main run.
        work: The cost of the main run, in units of the source.
        seconds: The cost of the main run, in CPU seconds.
    """

    moment: int
    epsilon: float
    pilot: Samples
    samples: int
    work: float
    seconds: float


def check_budget(aim: Aim, plan: Plan, most_seconds: float) -> None:
    """Raises BudgetError if the plan takes longer than allowed."""
    if plan.seconds > most_seconds:
        raise BudgetError(
            f"relative_width {aim.relative_width:g} at delta {aim.delta:g} needs about "
            f"{plan.samples:.2g} samples and {plan.seconds:.2g} CPU s, more than "
            f"most_seconds, {most_seconds:g}. A wider bracket, a larger delta or "
            "failure_probability, or more seconds would do; "
            "PLDAccountant.get_epsilon_bounds needs no samples."
        )


def bracket(samples: Samples, aim: Aim, plan: Plan) -> tuple[float, float]:
    """Returns bounds on ε by the main run, from tests at values that the plan fixed.

    For each value of ε, E h ≤ δ (or E h ≥ δ) is a hypothesis. It is rejected if the
    capital of a gambler who bets against it exceeds 2 / α: under the hypothesis the
    mean of the capital is at most one. E h falls with ε, so if one hypothesis is false,
    all before it in the order of the tests are false. Test the ε grid in order and stop
    at the first hypothesis that is not rejected, so that no union bound is needed.
    """
    lower, upper = 0.0, math.inf
    width = aim.width(plan.epsilon)
    epsilons = [plan.epsilon + width * step for step in _GRID.tolist()]
    # Bets on E h > δ, and on E h < δ.
    stake_on_more, stake_on_less = (
        _bet(plan.pilot, plan.epsilon - sign * width, aim.delta, sign)[0]
        for sign in (1, -1)
    )
    for epsilon in epsilons:
        gains = samples.values(epsilon) - aim.delta
        if not _capital(gains, stake_on_more) > aim.logs:
            break
        lower = max(epsilon - _ROUNDING, 0.0)
    for epsilon in reversed(epsilons):
        gains = aim.delta - samples.values(epsilon)
        limit = _MOST_OF_STAKE / samples.largest(epsilon)
        if not _capital(gains, min(stake_on_less, limit)) > aim.logs:
            break
        upper = max(epsilon, 0.0) + _ROUNDING
    return lower, upper


def _capital(gains: FloatArray, stake: float) -> float:
    """Returns ln Π (1 + λ gain), up to the rounding that `_LOG_ROUNDING` covers."""
    return float(np.log1p(stake * gains).sum()) - _LOG_ROUNDING


def planned(source: Source, aim: Aim, generator: np.random.Generator) -> Plan:
    """Returns the plan of the least work, by a second pilot of a share of that work."""
    plan = _plan(source, aim, generator)
    count = min(math.ceil(plan.samples * _SHARE), _MOST_REFINED)
    return _trial(source, aim, plan.moment, count, generator) or plan


def _plan(source: Source, aim: Aim, generator: np.random.Generator) -> Plan:
    """Returns the plan whose m needs the least work."""
    count = max(_PILOT // source.size, _FEWEST_OF_PILOT)
    count = min(count, _MOST_OF_PILOT)
    best: Plan | None = None
    for moment in source.moments:
        plan = _trial(source, aim, moment, count, generator)
        if plan is None:
            continue
        if best is None or plan.work < best.work:
            best = plan
        elif plan.work > source.worse * best.work:
            break
    if best is None:
        raise BudgetError(
            f"delta {aim.delta:g} was met by no sample of the pilot: a larger one "
            "would do; PLDAccountant.get_epsilon_bounds needs no samples."
        )
    return best


def _trial(
    source: Source,
    aim: Aim,
    moment: int,
    count: int,
    generator: np.random.Generator,
) -> Plan | None:
    """Returns the plan of a pilot of so many samples, or None if none meets δ."""
    began = time.process_time()
    samples = source.draw(moment, count, generator)
    seconds = (time.process_time() - began) / count
    epsilon = _estimate(samples, aim.delta)
    if epsilon is None:
        return None
    # Both capitals must become large enough; below 0 there is only one bet.
    width = _OF_WIDTH * aim.width(epsilon)
    growth = min(
        _bet(samples, epsilon - sign * width, aim.delta, sign)[1]
        for sign in ((-1, 1) if epsilon > 0 else (-1,))
    )
    needed = max(_SPARE * aim.logs / max(growth, 1e-300), _FEWEST)
    number = math.ceil(min(needed, 1e15))
    work = number * source.work(moment)
    return Plan(moment, epsilon, samples, number, work, number * seconds)


def _estimate(samples: Samples, delta: float) -> float | None:
    """Returns the ε ≥ 0 at which the mean of the samples is δ."""

    def excess(epsilon: float) -> float:
        return float(samples.values(epsilon).mean()) - delta

    highest = float(samples.log_ratios.max())
    if not math.isfinite(highest) or highest <= 0:
        return None
    if excess(0.0) <= 0:
        return 0.0 if samples.values(0.0).any() else None
    # By rounding, the excess at the highest ratio may be above a small δ.
    return float(optimize.brentq(excess, 0.0, highest + _ROUNDING))


def _bet(
    samples: Samples, epsilon: float, delta: float, sign: int
) -> tuple[float, float]:
    """Returns an approximately best stake, and its gain.

    Args:
        samples: The samples of a pilot.
        epsilon: The ε of the hypothesis.
        delta: δ.
        sign: 1 for a bet on E h > δ, −1 for one on E h < δ.

    Returns:
        The stake λ, and the mean of ln(1 + λ gain).
    """
    gains = sign * (samples.values(epsilon) - delta)
    limit = _MOST_OF_STAKE / (delta if sign > 0 else samples.largest(epsilon))
    stake = float(gains.mean()) / max(float((gains**2).mean()), 1e-300)
    stake = min(max(stake, 0.0), limit)
    return stake, float(np.log1p(stake * gains).mean())
