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

from collections.abc import Callable
from collections.abc import Sequence
import math
import time
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import special

from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import verification

Array = np.ndarray
FAILURE = 1e-6
_EVALUATIONS = 200  # The failure probability is shared among so many bounds.
_LOG = math.log(2 * _EVALUATIONS / FAILURE)
_SLACK = 1e-9  # Losses are rounded by much less.
LARGEST = 1e6  # The search for ε ends here.
_LARGEST_LOSS = 1e3  # No law is for larger losses.
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


class Law(NamedTuple):
    """The law of a mechanism's outputs.

    Attributes:
        mechanism: The mechanism.
        members: The number of members that are in the dataset.
        value: What each of them contributes where it takes part.
    """

    mechanism: mechanisms.Mechanism
    members: int
    value: float

    def draw(self, rng: np.random.Generator, size: int) -> Any:
        """Returns outputs."""
        return self.mechanism.draw(rng, np.full(size, self.members), self.value)

    def loss(self, outputs: Any) -> Array:
        """Returns the logarithm of the density over that without any member."""
        return self.mechanism.loss(outputs, self.members, self.value)


def lower_bounds(
    mechanism: mechanisms.Mechanism,
    members: int,
    *,
    replaced: bool,
    claims: Sequence[verification.Answer],
    seconds: float,
    seed: int,
) -> list[float]:
    """Returns a lower bound on each answer, the first about ε; 0 if there is none.

    All of them hold with probability 1 − `FAILURE`. An upper bound that is claimed is
    refuted if a lower bound is larger.

    Args:
        mechanism: The mechanism.
        members: The number of members of the group.
        replaced: Whether they have the value −1 in the second dataset.
        claims: What is claimed of the answers.
        seconds: CPU time after which no more outputs are drawn.
        seed: The seed of the draws.
    """
    rng = np.random.default_rng(seed)
    with_record = Law(mechanism, members, 1.0)
    without = Law(mechanism, members * replaced, -1.0)
    bounds = [0.0] * len(claims)
    for p, q, value in ((with_record, without, 1.0), (without, with_record, -1.0)):
        end = time.process_time() + seconds / 2
        far = Law(mechanism, members, value)
        laws = _laws(rng, p, q, far, min(claims[0].claimed_upper, _LARGEST_LOSS))
        delta = _Delta(*_drawn(rng, laws, q, end))
        for i, claim in enumerate(claims):
            if claim.kind == "ε":
                value = delta.epsilon(claim.at, claim.claimed_upper)
            elif claim.kind != "δ":
                value = delta.power(claim.at)
            elif (at := claim.at) >= 0:
                value = delta(at)
            else:
                # E_P (1 − e^{ε−L})₊ is 1 − e^ε and e^ε times the other way's δ at −ε.
                value = (-math.expm1(at) + math.exp(at) * delta(-at)) * (1 - _SLACK)
            bounds[i] = max(bounds[i], value)
    return bounds


def _laws(
    rng: np.random.Generator, p: Law, q: Law, far: Law, epsilon: float
) -> list[Law]:
    """Returns P, and laws under which the mean of ln(p/q) is about a share of ε.

    These are multiples of a law, also with members that take part in every step.
    """
    laws = [p]
    for mechanism in (far.mechanism, far.mechanism.everywhere()):
        tried = [Law(mechanism, far.members, far.value * size) for size in _VALUES]
        means = []
        for law in tried:
            outputs = law.draw(rng, _FEW)
            losses = p.loss(outputs) - q.loss(outputs)
            means.append(float(np.clip(losses, -1e6, 1e6).mean()))
        means = np.maximum.accumulate(means).tolist()
        goals = [share * epsilon for share in _GOALS if 0 < share * epsilon < means[-1]]
        values = np.interp(goals, means, [law.value for law in tried]).tolist()
        laws += [Law(mechanism, far.members, value) for value in values]
    return laws


def _mixture(
    rng: np.random.Generator, laws: Sequence[Law], q: Law, shares: Array, size: int
) -> Array:
    """Returns (2, n) ln(p/q) of outputs drawn from a mixture of laws, and ln dP/dR."""
    numbers = rng.multinomial(size, shares).tolist()
    losses, logs = [], []
    for law, number in zip(laws, numbers, strict=True):
        if number:
            outputs = law.draw(rng, number)
            of_laws = [law.loss(outputs) for law in laws]
            rows = np.stack(np.broadcast_arrays(*of_laws, np.zeros(number))[:-1])
            losses.append(rows[0] - q.loss(outputs))
            logs.append(rows[0] - special.logsumexp(rows, axis=0, b=shares[:, None]))
    return np.array([np.concatenate(losses), np.concatenate(logs)])


def _drawn(
    rng: np.random.Generator, laws: Sequence[Law], q: Law, end: float
) -> tuple[Array, Array]:
    """Returns the first draws, and all others until the time is over."""
    shares = np.full(len(laws), (1 - _OWN) / max(len(laws) - 1, 1))
    shares[0] = 1 - shares[1:].sum()
    entries = _entries(laws[0].draw(rng, 8))
    size = int(np.clip(8 * _ENTRIES // entries, 50, 20_000))
    parts: list[list[Array]] = [[], []]
    begin, done = time.process_time(), 0.0
    while done < 1 or not all(parts):
        is_other = bool(parts[0]) and done > _FIRST
        parts[is_other].append(_mixture(rng, laws, q, shares, size))
        # The share of the time, or of the draws, that is used up.
        done = max(
            (time.process_time() - begin) / max(end - begin, 1e-9),
            size * sum(map(len, parts)) / _MOST,
        )
    return np.concatenate(parts[0], axis=1), np.concatenate(parts[1], axis=1)


def _entries(outputs: Any) -> int:
    if isinstance(outputs, list):
        return sum(map(_entries, outputs)) + 1
    return int(outputs.size)


class _Delta:
    """Lower bounds on δ, from draws."""

    def __init__(self, first: Array, others: Array) -> None:
        self._first, self._others = first, others

    def __call__(self, epsilon: float) -> float:
        first, others = (_values(x, epsilon) for x in (self._first, self._others))
        # Where values are best cut off is judged by the first draws.
        cuts = np.quantile(first[first > 0], _CUTS) if first.any() else [1e-300]
        best = max(cuts, key=lambda cut: _at_least(first, cut, others.size))
        return _at_least(others, float(best), others.size)

    def epsilon(self, delta: float, claimed: float) -> float:
        """Returns the largest of a few ε at which δ is certainly larger; or zero."""
        about = crossing(lambda epsilon: _values(self._first, epsilon).mean() > delta)
        epsilons = [about * (1 - margin) for margin in _MARGINS]
        epsilons.append(math.nextafter(claimed, math.inf))
        proven = [e for e in epsilons if 0 < e < math.inf and self(e) > delta]
        return max(proven, default=0.0)

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


def _values(drawn: Array, epsilon: float) -> Array:
    """Returns the weighted values whose mean is δ(ε), slightly smaller."""
    epsilon += _SLACK * (1 + abs(epsilon))
    losses, logs = drawn
    gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
    return np.asarray(np.exp(logs) * gains)


def _at_least(values: Array, cut: float, size: int) -> float:
    """Returns a lower bound on the mean of nonnegative values, from `size` draws.

    Values are cut off at the number `cut`.
    """
    cut_off = np.minimum(values, cut)
    error = math.sqrt(2 * float(cut_off.var(ddof=1)) * _LOG / size)
    error += 7 * cut * _LOG / (3 * (size - 1))
    return max((float(cut_off.mean()) - error) * (1 - _SLACK), 0.0)


def crossing(exceeds: Callable[[float], bool]) -> float:
    """Returns about the largest number of which something that decreases is true.

    It is 0 if it is true of none, and at least `LARGEST` if it is true of that.
    """
    low, high = 0.0, 1.0
    if not exceeds(0.0):
        return 0.0
    while exceeds(high):
        low, high = high, 2 * high
        if high > LARGEST:
            return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high
