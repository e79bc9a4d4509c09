"""Tests by betting on means of samples: a pilot plans them, the main run proves ε.

Source: Waudby-Smith and Ramdas 2020, https://arxiv.org/abs/2010.09686, Section 4.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import time
from typing import ClassVar
from typing import Protocol

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.sampling import moment_tilts

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


class Source(Protocol):
    """A mixture from which samples are drawn.

    Attributes:
        worse: The search for m stops at a plan with this many times the work of the
            best plan.
    """

    worse: ClassVar[float]

    @property
    def size(self) -> int:
        """The number of random numbers in a draw of noise."""

    @property
    def moments(self) -> Sequence[int]:
        """The orders m that are tried, in increasing order."""

    @property
    def largest_product(self) -> float:
        """The largest factor by which m is multiplied in exponents."""

    def crossing(self, moment: int) -> tuple[int, int]:
        """Returns the largest numbers of draws of noise, and of tuples, in a sample."""

    def work(self, moment: int, crossing: tuple[int, int]) -> float:
        """Returns the approximate cost of a sample, in units that fit every machine."""

    def draw(
        self,
        moment: int,
        count: int,
        generator: np.random.Generator,
        crossing: tuple[int, int],
    ) -> moment_tilts.Samples:
        """Returns `count` samples."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of a pilot: it decides how tight a bracket is, not whether it holds.

    Attributes:
        moment: The order m of the moment that is sampled.
        crossing: The numbers of draws of noise and of tuples in one sample.
        epsilon: An estimate of ε.
        pilot: The samples of the pilot, which fix the bets of the main run.
        samples: The number of samples of the main run.
        work: The cost of the main run, in units that do not depend on the machine.
        seconds: The cost of the main run, in CPU seconds.
    """

    moment: int
    crossing: tuple[int, int]
    epsilon: float
    pilot: moment_tilts.Samples
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


def bracket(samples: moment_tilts.Samples, aim: Aim, plan: Plan) -> tuple[float, float]:
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
    more, less = (
        _Bet.of(plan.pilot, plan.epsilon - sign * width, aim.delta, sign).best(
            plan.crossing
        )[0]
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
    """Returns ln Π (1 + λ gain), up to the rounding that `_LOG_ROUNDING` covers."""
    return float(np.log1p(stake * gains).sum()) - _LOG_ROUNDING


def planned(source: Source, aim: Aim, generator: np.random.Generator) -> Plan:
    """Returns the plan of the least work, from a pilot and a second, larger pilot."""
    return _refined(source, aim, _plan(source, aim, generator), generator)


def _plan(source: Source, aim: Aim, generator: np.random.Generator) -> Plan:
    """Returns the plan whose m needs the least work."""
    count = max(_PILOT // source.size, _FEWEST_OF_PILOT)
    count = min(count, _MOST_OF_PILOT)
    best: Plan | None = None
    for moment in source.moments:
        if best and moment * source.largest_product > LARGEST_EXPONENT:
            break
        found = _trial(source, aim, moment, count, generator)
        if found is None:
            continue
        if best is None or found.work < best.work:
            best = found
        elif found.work > source.worse * best.work:
            break
    if best is None:
        raise BudgetError(
            f"delta {aim.delta:g} was met by no sample of the pilot: a larger one "
            "would do; PLDAccountant.get_epsilon_bounds needs no samples."
        )
    return best


def _refined(
    source: Source,
    aim: Aim,
    plan: Plan,
    generator: np.random.Generator,
) -> Plan:
    """Returns a plan for the same m from more samples, a share of its own work."""
    each = source.work(plan.moment, source.crossing(plan.moment))
    count = min(math.ceil(plan.work * _SHARE / each), _MOST_REFINED)
    count *= max(source.crossing(plan.moment))
    return _trial(source, aim, plan.moment, count, generator) or plan


def _trial(
    source: Source,
    aim: Aim,
    moment: int,
    count: int,
    generator: np.random.Generator,
) -> Plan | None:
    """Returns the plan of the cheapest crossing, or None if no sample meets δ."""
    began = time.process_time()
    whole = source.crossing(moment)
    count = math.ceil(count / max(whole))
    samples = source.draw(moment, count, generator, whole)
    speed = (time.process_time() - began) / count / source.work(moment, whole)
    epsilon = _estimate(samples, aim.delta)
    if epsilon is None:
        return None
    best, least = (1, 1), (math.inf, 0)
    bets = _bets_around(samples, epsilon, aim)
    sizes = [[2**power for power in range(size.bit_length())] for size in whole]
    for crossing in itertools.product(*sizes):
        needed = _samples_needed(bets, crossing, aim)
        work = needed * source.work(moment, crossing)
        if work < least[0]:
            best, least = crossing, (work, needed)
    work, needed = least
    return Plan(moment, best, epsilon, samples, needed, work, work * speed)


def _means_of(pairs: FloatArray, crossing: tuple[int, int]) -> FloatArray:
    """Returns means over crossings of draws of noise with tuples."""
    count, noises, tuples = pairs.shape
    (s, t) = crossing
    if crossing == (1, 1):
        return pairs
    parts = pairs.reshape(count, noises // s, s, tuples // t, t)
    return np.asarray(parts.mean(axis=(2, 4)))


def _estimate(samples: moment_tilts.Samples, delta: float) -> float | None:
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


@dataclasses.dataclass(frozen=True)
class _Bet:
    """A bet on E h > δ, or on E h < δ, at one ε.

    Attributes:
        pairs: (n, s, t) values of h, of the samples of a pilot.
        largest: The largest gain, or loss, of a stake of one.
        sign: 1 for a bet on E h > δ, −1 for one on E h < δ.
        delta: δ.
    """

    pairs: FloatArray
    largest: float
    sign: int
    delta: float

    @classmethod
    def of(
        cls, samples: moment_tilts.Samples, epsilon: float, delta: float, sign: int
    ) -> "_Bet":
        largest = delta if sign > 0 else samples.largest(epsilon)
        return cls(samples.pairs(epsilon), largest, sign, delta)

    def best(self, crossing: tuple[int, int]) -> tuple[float, float]:
        """Returns an approximately best stake, and its gain.

        Args:
            crossing: The numbers of draws and of tuples in a sample of the main run.

        Returns:
            The stake λ, and the mean of ln(1 + λ gain).
        """
        gains = self.sign * (_means_of(self.pairs, crossing) - self.delta)
        stake = float(gains.mean()) / max(float((gains**2).mean()), 1e-300)
        stake = min(max(stake, 0.0), _MOST_OF_STAKE / self.largest)
        return stake, float(np.log1p(stake * gains).mean())


def _bets_around(
    samples: moment_tilts.Samples, epsilon: float, aim: Aim
) -> Sequence[_Bet]:
    """Returns the bets on either side of ε; below 0 there is none."""
    width = _OF_WIDTH * aim.width(epsilon)
    bets = [_Bet.of(samples, epsilon + width, aim.delta, -1)]
    if epsilon > 0:
        bets.append(_Bet.of(samples, epsilon - width, aim.delta, 1))
    return bets


def _samples_needed(bets: Sequence[_Bet], crossing: tuple[int, int], aim: Aim) -> int:
    """Returns the number of samples after which all capitals are large enough."""
    growth = min(bet.best(crossing)[1] for bet in bets)
    needed = _SPARE * aim.logs / max(growth, 1e-300)
    return math.ceil(min(max(needed, _FEWEST), 1e15))
