"""Lower bounds on ε, δ and true positive rates that hold with probability 1 − 1e-6.

With p and q the densities of an output in two datasets and L = ln(p/q),

    δ(ε) = E_P (1 − e^{ε−L})₊.

Outputs are drawn from a mixture R of P and of laws under which large losses are usual,
and each counts dP/dR times, at most 1 over the share of P. The weighted values are cut
off at a number, which makes their mean smaller, and so a lower bound on it is one on δ.
The number, the laws and the ε to ask about come from other draws than the bound.

For n independent values in [0, c] of mean m and sample variance v, the true mean is at
least m − √(2 v ln(2/η) / n) − 7 c ln(2/η) / (3 (n − 1)) with probability 1 − η
(Maurer and Pontil, https://arxiv.org/abs/0907.3740, Theorem 4).

Where the loss is only estimated, the outputs of either dataset whose estimate exceeds a
number are counted. Whatever the estimate, this is a test: P(T > c) − e^ε Q(T > c) ≤ δ.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
import time
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import special

from dp_accounting_ext.verify import draws

Array = np.ndarray
FAILURE = 1e-6
_EVALUATIONS = 200  # The failure probability is shared among so many bounds.
_LOG = math.log(2 * _EVALUATIONS / FAILURE)
_SLACK = 1e-9  # Losses are rounded by much less.
# Tuning: draws to search for laws and to compare them; the most draws; the shares of P
# and of the two best laws; the share of time for the first draws.
_FEW, _SOME, _MOST = 200, 8000, 1_500_000
_SHARES = (0.25, 0.25, 0.25, 0.25)
_GOALS = (0.2, 0.5, 1.0)
_FIRST = 0.2
_ENTRIES = 1_000_000
_BOOSTS = (1.0, 3.0, 10.0, 100.0, draws.EVERYWHERE)
_LARGEST_VALUE = 64.0
_MARGINS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)
_CUTS = (0.5, 0.9, 0.97, 0.99, 0.997, 0.999, 0.9997, 1.0)


class Question(NamedTuple):
    """A number that an accountant bounds.

    Attributes:
        kind: "ε", "δ" or "true positive rate".
        at: δ, ε or the false positive rate.
        claimed: The accountant's upper bound.
    """

    kind: str
    at: float
    claimed: float


class Law(NamedTuple):
    """The arguments of a mechanism's draws and losses."""

    members: int
    value: float
    boost: float = 1.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """A mechanism and two laws of its outputs, P and Q."""

    mechanism: draws.Mechanism
    p: Law
    q: Law

    def draw(self, rng: np.random.Generator, law: Law, size: int) -> Any:
        """Returns outputs of a law."""
        members = np.full(size, law.members)
        return self.mechanism.draw(rng, members, law.value, law.boost)

    def loss(self, outputs: Any) -> Array:
        """Returns ln(p/q) of each output."""
        loss = self.mechanism.loss
        return np.asarray(loss(outputs, *self.p) - loss(outputs, *self.q))


def lower_bounds(
    mechanism: draws.Mechanism,
    members: int,
    *,
    replaced: bool,
    questions: Sequence[Question],
    seconds: float,
    seed: int,
) -> list[float]:
    """Returns a lower bound on the answer to each question; 0 if there is none.

    All of them hold with probability 1 − `FAILURE`. An upper bound that is claimed is
    refuted if a lower bound is larger.

    Args:
        mechanism: The mechanism.
        members: The number of members of the group.
        replaced: Whether they have the value −1 in the second dataset.
        questions: The questions, of which the first is about ε.
        seconds: CPU time after which no more outputs are drawn.
        seed: The seed of the draws.
    """
    rng = np.random.default_rng(seed)
    with_record = Law(members, 1.0)
    without = Law(members, -1.0) if replaced else Law(0, 0.0)
    found = [0.0] * len(questions)
    ways = [(with_record, without, 1.0), (without, with_record, -1.0)]
    for p, q, sign in ways:
        pair = Pair(mechanism, p, q)
        end = time.process_time() + seconds / len(ways)
        if mechanism.is_exact:
            laws = _laws(rng, pair, members, sign, questions[0])
            bound = functools.partial(_by_losses, *_drawn(rng, pair, laws, end))
        else:
            bound = functools.partial(_by_counts, *_counted(rng, pair, end))
        for i, question in enumerate(questions):
            mirrored = question.kind == "δ" and question.at < 0
            if mirrored:
                # E_P (1 − e^{ε−L})₊ is 1 − e^ε and e^ε times the other way's δ at −ε.
                question = question._replace(at=-question.at)
            value = max(bound(question), 0.0)
            if mirrored:
                share = math.exp(-question.at)
                value = (1 - share + share * value) * (1 - _SLACK)
            found[i] = max(found[i], value)
    return found


class _Weighted(NamedTuple):
    """Draws from a mixture: their losses, and the logarithms of dP/dR."""

    losses: Array
    logs: Array


def _laws(
    rng: np.random.Generator, pair: Pair, members: int, sign: float, question: Question
) -> list[Law]:
    """Returns P, and the laws from which losses about ε are best drawn.

    ε is first what is claimed, and then what the draws for it say.
    """
    laws, goal = [pair.p], question.claimed
    for _ in range(2):
        goal = min(max(goal, 1e-3), 1e3)
        laws += _of_mean(rng, pair, members, sign, goal)
        shares = np.full(len(laws), 1 / len(laws))
        losses, logs, of_laws = _mixture(rng, pair, laws, shares, _SOME)
        # Of the estimate by any mixture, E (dP/dR)² v², by draws from the mixture of
        # all. Laws are added one by one, each where it helps most: at ε, or at ε / 2.
        known = []
        for epsilon in (goal, goal / 2):
            values = np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 1e-300)
            known.append(2 * np.log(values) + logs + of_laws[0])
        chosen = [0]
        for turn in range(min(len(_SHARES), len(laws)) - 1):
            parts = _shares(len(chosen) + 1)
            moments = {
                k: special.logsumexp(
                    known[turn % 2]
                    - special.logsumexp(of_laws[[*chosen, k]], axis=0, b=parts)
                )
                for k in range(1, len(laws))
                if k not in chosen
            }
            chosen.append(min(moments, key=moments.__getitem__))
        laws = [laws[k] for k in chosen]
        goal = _about(_Weighted(losses, logs), question.at)
    return laws


def _shares(number: int) -> Array:
    """Returns the shares of P and of other laws in a mixture of so many."""
    shares = np.array(_SHARES[:number])
    return np.asarray(shares[:, None] / shares.sum())


def _of_mean(
    rng: np.random.Generator, pair: Pair, members: int, sign: float, goal: float
) -> list[Law]:
    """Returns laws under which the mean loss is a share of ε, some for each boost."""
    found = []
    for boost, share in itertools.product(_BOOSTS, _GOALS):

        def falls_short(
            size: float, boost: float = boost, share: float = share
        ) -> bool:
            law = Law(members, sign * size, boost)
            losses = pair.loss(pair.draw(rng, law, _FEW))
            return bool(np.clip(losses, -1e6, 1e6).mean() < share * goal)

        low, high = 0.0, 1 / 16
        while high < _LARGEST_VALUE and falls_short(high):
            low, high = high, 2 * high
        if high >= _LARGEST_VALUE:
            continue
        for _ in range(4):
            middle = (low + high) / 2
            low, high = (middle, high) if falls_short(middle) else (low, middle)
        found.append(Law(members, sign * high, boost))
    return found


def _mixture(
    rng: np.random.Generator, pair: Pair, laws: Sequence[Law], shares: Array, size: int
) -> tuple[Array, Array, Array]:
    """Returns losses, ln dP/dR, and the log-densities under each law."""
    numbers = rng.multinomial(size, shares)
    losses, densities = [], []
    for law, number in zip(laws, numbers.tolist(), strict=True):
        if number:
            outputs = pair.draw(rng, law, number)
            of_laws = [pair.mechanism.loss(outputs, *each) for each in laws]
            of_q = pair.mechanism.loss(outputs, *pair.q)
            losses.append(of_laws[0] - of_q + np.zeros(number))
            densities.append(np.stack([each + np.zeros(number) for each in of_laws]))
    every = np.concatenate(densities, axis=1)
    logs = every[0] - special.logsumexp(every, axis=0, b=shares[:, None])
    return np.concatenate(losses), logs, every


def _chunk(rng: np.random.Generator, pair: Pair) -> int:
    """Returns how many outputs are drawn at a time."""
    outputs = pair.draw(rng, pair.p, 8)
    return int(np.clip(8 * _ENTRIES // _size(outputs), 50, 20_000))


def _size(outputs: Any) -> int:
    if isinstance(outputs, list):
        return sum(map(_size, outputs)) + 1
    return int(outputs.size)


def _rounds(end: float) -> Iterator[int]:
    """Yields 0 for the first draws and 1 for the others, until the time is over."""
    begin = time.process_time()
    yield from (0, 1)
    while (now := time.process_time()) < end:
        yield int(now - begin > _FIRST * (end - begin))


def _drawn(
    rng: np.random.Generator, pair: Pair, laws: Sequence[Law], end: float
) -> tuple[_Weighted, _Weighted]:
    """Returns the first draws, and all others."""
    shares = _shares(len(laws))[:, 0]
    size, total = _chunk(rng, pair), 0
    parts: list[list[tuple[Array, Array]]] = [[], []]
    for which in _rounds(end):
        parts[which].append(_mixture(rng, pair, laws, shares, size)[:2])
        total += size
        if total > _MOST:
            break
    first, others = (
        _Weighted(*map(np.concatenate, zip(*part, strict=True))) for part in parts
    )
    return first, others


def _values(drawn: _Weighted, epsilon: float) -> Array:
    epsilon += _SLACK * (1 + abs(epsilon))
    gains = -np.expm1(np.minimum(epsilon - drawn.losses, 0.0))
    return np.asarray(np.exp(drawn.logs) * gains)


def _at_least(values: Array, cut: float, size: int) -> float:
    """Returns a lower bound on the mean of nonnegative values, from so many draws."""
    cut_off = np.minimum(values, cut)
    error = math.sqrt(2 * float(cut_off.var(ddof=1)) * _LOG / size)
    error += 7 * cut * _LOG / (3 * (size - 1))
    return (float(cut_off.mean()) - error) * (1 - _SLACK)


def _best_cut(values: Array, size: int) -> float:
    """Returns where values are best cut off, judged by the first draws."""
    positive = values[values > 0]
    if not positive.size:
        return 1e-300
    cuts = np.quantile(positive, _CUTS)
    return float(max(cuts, key=lambda cut: _at_least(values, cut, size)))


def _mean_at_least(first: Array, others: Array) -> float:
    return _at_least(others, _best_cut(first, others.size), others.size)


def _by_losses(first: _Weighted, others: _Weighted, question: Question) -> float:
    kind, at, claimed = question

    def delta(epsilon: float) -> float:
        return _mean_at_least(_values(first, epsilon), _values(others, epsilon))

    if kind == "δ":
        return delta(at)
    if kind == "ε":
        return _best(delta, at, _about(first, at), claimed)
    return max(_power(first, others, at, at * (1 + margin)) for margin in _MARGINS[2:6])


def _best(
    delta: Callable[[float], float], at: float, about: float, claimed: float
) -> float:
    """Returns the largest of a few ε at which δ is certainly larger than it may be."""
    asked = [about * (1 - margin) for margin in _MARGINS]
    asked.append(math.nextafter(claimed, math.inf))
    sure = [each for each in asked if 0 < each < math.inf and delta(each) > at]
    return max(sure, default=0.0)


def _about(drawn: _Weighted, delta: float) -> float:
    """Returns an estimate of ε at δ."""
    low, high = 0.0, 1.0
    while _values(drawn, high).mean() > delta and high < 1e6:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        exceeds = _values(drawn, middle).mean() > delta
        low, high = (middle, high) if exceeds else (low, middle)
    return low


def _power(first: _Weighted, others: _Weighted, rate: float, goal: float) -> float:
    """Returns a lower bound on the power at a false positive rate α, by one test.

    The test rejects where L > c. If its rate a is in [α, A], its power is δ(c) + e^c a.
    Powers are concave in the rate, and at α there is one of at least the share α / a of
    this: α δ(c) / A + α e^c. The rate is the mean of e^−L dP/dR where L > c. Its values
    are at most e^−c over the share of P. The bound is 0 if a may be below α.
    """
    order = np.argsort(-first.losses)
    false = np.exp(first.logs - first.losses)[order]
    inside = np.searchsorted(np.cumsum(false) / false.size, goal)
    if not 0 < inside < false.size:
        return 0.0
    least = float(first.losses[order[inside]])
    rejected = others.losses > least
    values = np.exp(np.where(rejected, others.logs - others.losses, -np.inf))
    largest, size = math.exp(-least) / _SHARES[0], values.size
    error = math.sqrt(2 * float(values.var(ddof=1)) * _LOG / size)
    error += 7 * largest * _LOG / (3 * (size - 1)) + _SLACK
    low, high = float(values.mean()) - error, float(values.mean()) + error
    if low < rate:
        return 0.0
    delta = _mean_at_least(_values(first, least), _values(others, least))
    return rate * (max(delta, 0.0) / high + math.exp(least)) * (1 - _SLACK)


class _Estimates(NamedTuple):
    """Estimates of the losses of outputs of P, and of outputs of Q."""

    p: Array
    q: Array


def _counted(
    rng: np.random.Generator, pair: Pair, end: float
) -> tuple[_Estimates, _Estimates]:
    """Returns the first draws, and all others, of either law."""
    size = _chunk(rng, pair)
    parts: list[list[tuple[Array, Array]]] = [[], []]
    total = 0
    for which in _rounds(end):
        of_p, of_q = (pair.loss(pair.draw(rng, law, size)) for law in (pair.p, pair.q))
        parts[which].append((of_p, of_q))
        total += size
        if total > _MOST:
            break
    first, others = (
        _Estimates(*(np.sort(np.concatenate(each)) for each in zip(*part, strict=True)))
        for part in parts
    )
    return first, others


def _by_counts(first: _Estimates, others: _Estimates, question: Question) -> float:
    """Returns a lower bound by the test that the first draws find to be the best."""
    kind, at, _ = question

    def worth(power: Array, rate: Array) -> Array:
        if kind == "δ":
            return np.asarray(power - math.exp(at) * rate)
        if kind == "ε":
            return np.asarray(np.log(np.maximum(power - at, 1e-300) / rate))
        return np.where(rate <= at, power, 0.0)

    tests = np.concatenate([[-np.inf], np.quantile(first.p, np.linspace(0, 1, 400))])
    best = np.argmax(worth(*_limits(first, tests, others.p.size)))
    return max(float(worth(*_limits(others, tests[[best]], others.p.size))[0]), 0.0)


def _limits(drawn: _Estimates, tests: Array, size: int) -> tuple[Array, Array]:
    """Returns bounds on P(T > c) from below and on Q(T > c) from above.

    They are those of Clopper and Pearson for `size` draws of which as large a share is
    above c.
    """
    rare = FAILURE / _EVALUATIONS
    shares = [1 - np.searchsorted(x, tests, side="right") / x.size for x in drawn]
    of_p, of_q = (np.rint(share * size) for share in shares)
    low = special.betaincinv(np.maximum(of_p, 1), size - of_p + 1, rare)
    high = special.betaincinv(of_q + 1, np.maximum(size - of_q, 1), 1 - rare)
    return np.where(of_p > 0, low, 0.0), np.where(of_q < size, high, 1.0)
