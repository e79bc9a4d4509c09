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
"""

from collections.abc import Sequence
import dataclasses
import math
import time
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import special

from dp_accounting_ext.verify import mechanisms

Array = np.ndarray
FAILURE = 1e-6
_EVALUATIONS = 200  # The failure probability is shared among so many bounds.
_LOG = math.log(2 * _EVALUATIONS / FAILURE)
_SLACK = 1e-9  # Losses are rounded by much less.
_LARGEST = 1e3  # No law is for larger losses.
# Tuning: draws for the mean loss of a law; the most draws; the share of P among them;
# the mean losses of others, relative to ε; the share of the first draws.
_FEW, _MOST = 200, 3_000_000
_OWN = 0.25
_GOALS = (0.4, 1.0)
_FIRST = 0.2
_ENTRIES = 1_000_000
_VALUES = np.geomspace(1 / 16, 64.0, 8)
_FINEST = 0.02
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
    everywhere: bool = False


@dataclasses.dataclass(frozen=True)
class Pair:
    """A mechanism and two laws of its outputs, P and Q."""

    mechanism: mechanisms.Mechanism
    p: Law
    q: Law

    def draw(self, rng: np.random.Generator, law: Law, size: int) -> Any:
        """Returns outputs of a law."""
        members = np.full(size, law.members)
        return self.mechanism.draw(rng, members, law.value, law.everywhere)

    def loss(self, outputs: Any) -> Array:
        """Returns ln(p/q) of each output."""
        loss = self.mechanism.loss
        return np.asarray(loss(outputs, *self.p) - loss(outputs, *self.q))


def lower_bounds(
    mechanism: mechanisms.Mechanism,
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
        laws = _laws(rng, pair, members, sign, min(questions[0].claimed, _LARGEST))
        delta = _Delta(*_drawn(rng, pair, laws, end))
        for i, (kind, at, claimed) in enumerate(questions):
            if kind == "ε":
                value = delta.epsilon(at, claimed)
            elif kind != "δ":
                value = delta.power(at)
            elif at >= 0:
                value = delta(at)
            else:
                # E_P (1 − e^{ε−L})₊ is 1 − e^ε and e^ε times the other way's δ at −ε.
                value = (-math.expm1(at) + math.exp(at) * delta(-at)) * (1 - _SLACK)
            found[i] = max(found[i], value)
    return found


class _Weighted(NamedTuple):
    """Draws from a mixture: their losses, and the logarithms of dP/dR."""

    losses: Array
    logs: Array


def _laws(
    rng: np.random.Generator, pair: Pair, members: int, sign: float, epsilon: float
) -> list[Law]:
    """Returns P, and laws under which the mean loss is about a share of ε."""
    laws = [pair.p]
    for everywhere in (False, True):
        means = _means(rng, pair, members, sign, everywhere)
        for share in _GOALS:
            if 0 < share * epsilon < means[-1]:
                size = float(np.interp(share * epsilon, means, _VALUES))
                laws.append(Law(members, sign * size, everywhere))
    return laws


def _means(
    rng: np.random.Generator, pair: Pair, members: int, sign: float, everywhere: bool
) -> Array:
    """Returns the mean loss under the laws of each of `_VALUES`, made increasing."""
    found = []
    for size in _VALUES:
        losses = pair.loss(pair.draw(rng, Law(members, sign * size, everywhere), _FEW))
        found.append(float(np.clip(losses, -1e6, 1e6).mean()))
    return np.asarray(np.maximum.accumulate(found))


def _mixture(
    rng: np.random.Generator, pair: Pair, laws: Sequence[Law], shares: Array, size: int
) -> tuple[Array, Array]:
    """Returns losses of outputs drawn from a mixture of laws, and ln dP/dR of them."""
    numbers = rng.multinomial(size, shares).tolist()
    losses, logs = [], []
    for law, number in zip(laws, numbers, strict=True):
        if number:
            outputs = pair.draw(rng, law, number)
            of_laws = [pair.mechanism.loss(outputs, *each) for each in laws]
            every = np.stack(np.broadcast_arrays(*of_laws, np.zeros(number))[:-1])
            losses.append(every[0] - pair.mechanism.loss(outputs, *pair.q))
            logs.append(every[0] - special.logsumexp(every, axis=0, b=shares[:, None]))
    return np.concatenate(losses), np.concatenate(logs)


def _drawn(
    rng: np.random.Generator, pair: Pair, laws: Sequence[Law], end: float
) -> tuple[_Weighted, _Weighted]:
    """Returns the first draws, and all others until the time is over."""
    shares = np.full(len(laws), (1 - _OWN) / max(len(laws) - 1, 1))
    shares[0] = 1 - shares[1:].sum()
    entries = _entries(pair.draw(rng, pair.p, 8))
    size = int(np.clip(8 * _ENTRIES // entries, 50, 20_000))
    parts: list[list[tuple[Array, Array]]] = [[], []]
    begin, done = time.process_time(), 0.0
    while done < 1 or not all(parts):
        is_other = bool(parts[0]) and done > _FIRST
        parts[is_other].append(_mixture(rng, pair, laws, shares, size))
        # The share of the time, or of the draws, that is used up.
        done = max(
            (time.process_time() - begin) / max(end - begin, 1e-9),
            size * sum(map(len, parts)) / _MOST,
        )
    first, others = (
        _Weighted(*map(np.concatenate, zip(*part, strict=True))) for part in parts
    )
    return first, others


def _entries(outputs: Any) -> int:
    if isinstance(outputs, list):
        return sum(map(_entries, outputs)) + 1
    return int(outputs.size)


class _Delta:
    """Lower bounds on δ, from draws."""

    def __init__(self, first: _Weighted, others: _Weighted) -> None:
        self._first, self._others = first, others

    def __call__(self, epsilon: float) -> float:
        first, others = (_values(x, epsilon) for x in (self._first, self._others))
        # Where values are best cut off is judged by the first draws.
        cuts = np.quantile(first[first > 0], _CUTS) if first.any() else [1e-300]
        best = max(cuts, key=lambda cut: _at_least(first, cut, others.size))
        return _at_least(others, float(best), others.size)

    def epsilon(self, delta: float, claimed: float) -> float:
        """Returns the largest of a few ε at which δ is certainly larger than it may be.

        Args:
            delta: δ.
            claimed: The claimed upper bound on ε, which is one of the few.
        """
        about = _about(self._first, delta)
        asked = [about * (1 - margin) for margin in _MARGINS]
        asked.append(math.nextafter(claimed, math.inf))
        sure = [each for each in asked if 0 < each < math.inf and self(each) > delta]
        return max(sure, default=0.0)

    def power(self, rate: float) -> float:
        """Returns a lower bound on the true positive rate at a false positive rate α.

        It is the least of δ(ln κ) + κ α. As δ decreases, it is at least δ(ln κ') + κ α
        between κ and κ'.
        """

        def about(epsilon: float) -> float:
            mean = float(_values(self._first, epsilon).mean())
            return mean + math.exp(epsilon) * rate

        center = min(np.linspace(-5.0, 40.0, 181), key=about)
        # Finer where the least is.
        epsilons = center + _FINEST * np.sinh(np.linspace(-6.5, 6.5, 60))
        deltas = [*map(self, epsilons.tolist()), 0.0]
        kappas = [0.0, *np.exp(epsilons).tolist()]
        least = min(d + k * rate for d, k in zip(deltas, kappas, strict=True))
        return float(least) * (1 - _SLACK)


def _values(drawn: _Weighted, epsilon: float) -> Array:
    epsilon += _SLACK * (1 + abs(epsilon))
    gains = -np.expm1(np.minimum(epsilon - drawn.losses, 0.0))
    return np.asarray(np.exp(drawn.logs) * gains)


def _at_least(values: Array, cut: float, size: int) -> float:
    """Returns a lower bound on the mean of nonnegative values, from so many draws."""
    cut_off = np.minimum(values, cut)
    error = math.sqrt(2 * float(cut_off.var(ddof=1)) * _LOG / size)
    error += 7 * cut * _LOG / (3 * (size - 1))
    return max((float(cut_off.mean()) - error) * (1 - _SLACK), 0.0)


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
