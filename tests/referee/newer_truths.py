"""What the events of newer versions of dp_accounting reveal, and selections.

Of each there are mechanisms that the event describes; where one of them is the worst,
a `HIGH` channel is known as well. Selections and zCDP mechanisms have none.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import channels
from dp_accounting import dp_event as stock
import mpmath
import newer_events
import numpy as np
import truths

import dp_accounting_ext as ext
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import renyi_events

Channel = channels.Channel
Side = channels.Side
_ROUNDING = 2.0**-51
_DIGITS = 700  # What is as rare as a float can be is the difference of two chances.

event_table.register_stock_events(newer_events.MODULE)
renyi_events.register_stock_events(newer_events.MODULE)


def _response(epsilon: Any, delta: Any) -> Channel:
    """Returns a truth that is a lie with odds e^−ε, and known to be one or the other.

    Every (ε, δ)-private mechanism is a function of its outcome.
    """
    epsilon, delta = mpmath.mpf(float(epsilon)), mpmath.mpf(float(delta))
    lie = (1 - delta) / (1 + mpmath.exp(epsilon))
    truth = (1 - delta) - lie
    return channels.exact([delta, truth, lie, 0], [0, lie, truth, delta])


def _epsilon_delta(event: Any, referee: truths.Referee) -> list[Channel]:
    return [_response(event.epsilon, event.delta)]


def _exponential(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns choices of two candidates, whose losses are t and t − ε."""
    if referee.side is Side.HIGH:
        return [_response(event.epsilon, 0.0)]
    epsilon = mpmath.mpf(float(event.epsilon))
    found = []
    for share in (0.5, 0.9, 0.1):
        odds = mpmath.exp(epsilon * (mpmath.mpf(share) - mpmath.mpf(1) / 2) * 4)
        laws = []
        for move in (-1, 1):
            moved = odds * mpmath.exp(move * epsilon / 2)
            laws.append([moved / (1 + moved), 1 / (1 + moved)])
        found.append(channels.exact(*laws))
    return found


def _permute_and_flip(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns choices of two candidates: the worse one wins with chance e^−gap / 2."""
    epsilon = float(event.epsilon)
    if referee.side is Side.HIGH:
        noise = stock.LaplaceDpEvent(1 / epsilon) if epsilon else None
        one = ((1.0, truths.ONE),)
        return [referee.noise(noise, one, truths.UNSHIFTED)] if noise else []

    def chances(gap: Any) -> list[Any]:
        behind = mpmath.exp(-abs(gap)) / 2
        return [behind, 1 - behind] if gap >= 0 else [1 - behind, behind]

    whole = mpmath.mpf(epsilon)
    gaps = (whole / 2, whole, whole / 5)
    return [channels.exact(chances(gap - whole), chances(gap)) for gap in gaps]


def _discrete_gaussian(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns one coordinate moved by all that it can, and many moved by one."""
    sigma, sensitivity = float(event.sigma), float(event.sensitivity)
    steps, dimension = math.floor(sensitivity), event.dimension
    if not steps:
        # It is read as if it could move; in truth nothing does.
        return [channels.NO_OP] if referee.side is Side.LOW else []
    if sigma == 0:
        return [channels.EVERYTHING]
    whole = _shifted_integers(sigma, steps, referee)
    several = min(dimension or 4, math.floor(sensitivity**2))
    if several == 1:
        return [whole]
    if referee.side is Side.HIGH:
        return []
    one = _shifted_integers(sigma, 1, referee)
    return [whole, channels.power(one, min(several, 4), referee.most)]


def _shifted_integers(sigma: float, shift: int, referee: truths.Referee) -> Channel:
    """Returns discrete Gaussian noise on 0 or a shift, with the tails at the ends.

    At the ends there is what can be told of the tails: of which side they are, or all.
    """
    reach = math.ceil(9 * sigma) + shift
    half = 2 * mpmath.mpf(sigma) ** 2
    places = range(-reach, reach + shift + 1)
    far = range(-3 * reach - 9, 3 * reach + 9)
    weights = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / half) for x in far}
    total = sum(weights.values())
    laws = [[weights[x - move] / total for x in places] for move in (0, shift)]
    ends = [
        (sum(w for x, w in weights.items() if test(x + move)) / total)
        for test in (lambda x: x < places[0], lambda x: x > places[-1])
        for move in (0, shift)
    ]
    if referee.side is Side.HIGH:
        laws[0] += [ends[0] + ends[2], 0]
        laws[1] += [0, ends[1] + ends[3]]
    else:
        laws[0] += [ends[0], ends[2]]
        laws[1] += [ends[1], ends[3]]
    found = channels.exact(*laws)
    return channels.reduced(channels.floats(found, referee.side), referee.most)


def _zero_concentrated(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns Gaussian noise beside randomized response: divergences ρα, and ξ."""
    rho, xi = float(event.rho), float(event.xi)
    if referee.side is Side.HIGH:
        return []
    parts = [channels.NO_OP]
    if rho:
        parts.append(_gaussian(1 / math.sqrt(2 * rho), referee))
    if xi:
        parts.append(_response(xi, 0.0))
    found = parts[0]
    for part in parts[1:]:
        found = channels.product(found, part, referee.most)
    return [found]


def _tree_aggregation(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns the noisy sums on the way from a leaf to the root of the tallest tree."""
    if referee.side is Side.HIGH:
        return []
    if float(event.noise_multiplier) == 0:
        return [channels.EVERYTHING]
    steps = event.step_counts
    tallest = max(steps) if isinstance(steps, list | tuple) else steps
    depth = math.ceil(math.log2(int(tallest) + 1))
    return [_gaussian(float(event.noise_multiplier) / math.sqrt(depth), referee)]


def _gaussian(noise_multiplier: float, referee: truths.Referee) -> Channel:
    """Returns Gaussian noise, a little more for the rounding of a square root."""
    noise = stock.GaussianDpEvent(noise_multiplier * (1 + 1e-12))
    return referee.noise(noise, ((1.0, truths.ONE),), truths.UNSHIFTED)


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The law of the number of runs, by its generating function.

    Attributes:
        at: E x^K.
        growth: Bound on how much faster than x the derivative of E x^K grows.
    """

    at: Callable[[Any], Any]
    growth: float


@functools.lru_cache(maxsize=64)
def _runs(mean: float, shape: float) -> _Runs:
    mean = mpmath.mpf(mean)
    if math.isinf(shape):
        return _Runs(lambda x: mpmath.exp(mean * (x - 1)), float(mean))
    shape = mpmath.mpf(shape)

    def mean_of(gamma: Any) -> Any:
        if shape == 0:
            return (1 / gamma - 1) / mpmath.log(1 / gamma)
        return shape * (1 / gamma - 1) / (1 - gamma**shape)

    low, high = mpmath.mpf(10) ** -30, 1 - mpmath.mpf(10) ** -20
    for _ in range(250):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(middle) > mean else (low, middle)
    gamma = high  # A mean that is no larger.

    def at(x: Any) -> Any:
        rest = 1 - (1 - gamma) * x
        if shape == 0:
            return mpmath.log(rest) / mpmath.log(gamma)
        return (rest**-shape - 1) / (gamma**-shape - 1)

    return _Runs(at, float((1 + shape) / gamma))


def _selection(event: Any, referee: truths.Referee) -> list[Channel]:
    """Returns the first of some runs, and the one of the largest ratio, or smallest."""
    if referee.side is Side.HIGH:
        return []
    runs = _runs(float(event.mean), float(event.shape))
    (inner, *_) = referee.cases(event.event)
    inner = channels.reduced(channels.floats(inner, Side.LOW), referee.most // 2)
    order = sorted(range(inner.size), key=lambda i: _ratio(inner.laws[:, i]))
    none = runs.at(mpmath.mpf(0))
    first = [[float(x) * float(1 - none) for x in law] for law in inner.laws]
    error = inner.error + 8 * _ROUNDING
    found = [_with_nothing(first, float(none), error)]
    for way in (order, order[::-1]):
        laws = [_best(law[way], runs) for law in inner.laws]
        error = (inner.error + 4 * _ROUNDING) * (2 + runs.growth)
        found.append(_with_nothing(laws, float(none), error))
    return found


def _ratio(column: Sequence[float]) -> float:
    without, with_record = column
    return math.inf if without == 0 else float(with_record) / float(without)


def _best(law: Sequence[float], runs: _Runs) -> list[float]:
    """Returns the law of the last outcome, in its order, that any run had."""
    found = []
    with mpmath.workdps(_DIGITS):
        whole = sum(map(mpmath.mpf, law))
        below, before = mpmath.mpf(0), runs.at(mpmath.mpf(0))
        for mass in law:
            below += mpmath.mpf(mass) / whole
            after = runs.at(below)
            found.append(float(after - before))
            before = after
    return found


def _with_nothing(laws: Sequence[list[float]], none: float, error: float) -> Channel:
    """Returns laws in floats beside the outcome of no run at all."""
    rows = np.array([[*law, none] for law in laws])
    kept = rows.max(axis=0) > 0
    return Channel(rows[:, kept], error, Side.LOW)


truths.READERS.update(
    {
        newer_events.EpsilonDelta: _epsilon_delta,
        newer_events.Exponential: _exponential,
        newer_events.PermuteAndFlip: _permute_and_flip,
        newer_events.DiscreteGaussian: _discrete_gaussian,
        newer_events.RandomAllocation: truths.READERS[ext.RandomAllocationEvent],
        stock.ZCDpEvent: _zero_concentrated,
        stock.SingleEpochTreeAggregationDpEvent: _tree_aggregation,
        stock.RepeatAndSelectDpEvent: _selection,
    }
)
