"""The outputs of mechanisms, drawn from the definitions of events, with their losses.

A *law* is that of the outputs if some members of a group of records are in the dataset,
each of which contributes the same value where it takes part: 1, −1, or any other. The
loss of an output under a law is the logarithm of its density over that without any
member. Participations are summed over by their definition, so that the loss is that of
the mixture. The laws of larger values, and of more participations than the event has,
are those from which rare outputs can be drawn.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import Protocol

import numpy as np
from scipy import signal
from scipy import special

from dp_accounting_ext.verify import channels

Array = np.ndarray
EVERYWHERE = math.inf  # A boost with which members take part in every step.
_MOST_BANDS = 32  # Tuning: more are applied by Fourier transforms.


class Mechanism(Protocol):
    """Outputs can be drawn, and their losses computed."""

    @property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, not estimates of them."""

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        """Returns an output for each number of members.

        Args:
            rng: The source of randomness.
            members: The number of members in the dataset, for each output.
            value: What each member contributes where it takes part.
            boost: The factor by which each member is likelier to take part.
        """

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        """Returns the loss of each output under the law of these arguments."""


@dataclasses.dataclass(frozen=True)
class Noise:
    """Gaussian or Laplace noise around the sum of what the members contribute."""

    kind: str
    scale: float
    is_exact: bool = True

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        drawn = rng.laplace if self.kind == "laplace" else rng.normal
        return drawn(members * value, self.scale)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        shift = members * value
        if self.kind == "laplace":
            further = np.abs(outputs) - np.abs(outputs - shift)
            return np.asarray(further / self.scale)
        return np.asarray((outputs - shift / 2) * (shift / self.scale**2))


@dataclasses.dataclass(frozen=True)
class Table:
    """A mechanism of few outputs, by their masses in two datasets.

    Other values stand for laws whose logarithms lie on the line through those of the
    two datasets.

    Attributes:
        losses: The logarithm of the ratio of each output's masses.
        q: The masses in the second dataset.
        lowest: The value of the members in the second dataset: 0 if there are none.
    """

    losses: Array
    q: Array
    lowest: float
    is_exact: bool = True

    @classmethod
    def of(cls, q: Array, p: Array, lowest: float) -> "Table":
        """Returns the table of two laws, of which one output each may be impossible.

        Such outputs are merged with those of the next ratio, and all missing mass with
        the likeliest output: a post-processing of the mechanism.
        """
        finite = (q > 0) & (p > 0)
        kept_q, kept_p = q[finite], p[finite]
        if not kept_q.size:
            raise channels.NoTheoremError("no theorem for a part that reveals all")
        ratios = kept_p / kept_q
        for row, law in ((kept_q, q), (kept_p, p)):
            row[ratios.argmax()] += law[q <= 0].sum()
            row[ratios.argmin()] += law[(p <= 0) & (q > 0)].sum()
            row[kept_q.argmax()] += max(1 - row.sum(), 0.0)
        return cls(np.log(kept_p / kept_q), kept_q, lowest)

    def _share(self, members: Any, value: float) -> float:
        return (value - self.lowest) / (1 - self.lowest) if members else 0.0

    def _tilted(self, share: float) -> tuple[Array, float]:
        logs = np.log(self.q) + share * self.losses
        total = float(special.logsumexp(logs))
        return np.exp(logs - total), total

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        outputs = np.empty(members.shape, dtype=np.intp)
        for inside in (True, False):
            chosen = (members > 0) == inside
            ends = np.cumsum(self._tilted(self._share(inside, value))[0])
            drawn = rng.random(np.count_nonzero(chosen)) * ends[-1]
            outputs[chosen] = np.searchsorted(ends, drawn, side="right")
        return np.minimum(outputs, self.q.size - 1)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        share = self._share(members, value)
        return np.asarray(share * self.losses[outputs] - self._tilted(share)[1])


@dataclasses.dataclass(frozen=True)
class Runs:
    """Several mechanisms on the same records, each of which is run a number of times.

    Attributes:
        parts: The mechanisms and how often each of them is run.
    """

    parts: Sequence[tuple[Mechanism, int]]

    @property
    def is_exact(self) -> bool:
        return all(part.is_exact for part, _ in self.parts)

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        return [
            part.draw(rng, np.repeat(members, count), value, boost)
            for part, count in self.parts
        ]

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        found = [
            part.loss(each, members, value, boost).reshape(-1, count).sum(axis=1)
            for each, (part, count) in zip(outputs, self.parts, strict=True)
        ]
        return np.asarray(np.sum(found, axis=0))


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A mechanism on one Poisson sample of the records."""

    rate: float
    inner: Mechanism

    @property
    def is_exact(self) -> bool:
        return self.inner.is_exact

    def _rate(self, boost: float) -> float:
        return min(boost * self.rate, 1.0) if self.rate else 0.0

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        inside = rng.binomial(members, self._rate(boost))
        return self.inner.draw(rng, inside, value, boost)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        weights = _binomial(members, self._rate(boost))
        losses = [
            self.inner.loss(outputs, number, value, boost)
            for number in range(members + 1)
        ]
        return _log_mean(np.stack(losses, axis=-1), weights)


@dataclasses.dataclass(frozen=True)
class Allocated:
    """Steps of which each member takes part in some, drawn uniformly at random.

    Attributes:
        steps: The mechanism of each step that is run, and the number of such steps.
        selected: The number of steps in which a member takes part. If it is more than
            one, there may be one member only.
        total: The number of all steps, those that are not run among them.
    """

    steps: Sequence[tuple[Mechanism, int]]
    selected: int
    total: int

    @property
    def is_exact(self) -> bool:
        return all(step.is_exact for step, _ in self.steps)

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        shape = (members.size, self.total)
        if boost != 1:
            rate = min(boost * self.selected / self.total, 1.0)
            takes = rng.binomial(members[:, None], rate, shape)
        else:
            takes = np.zeros(shape, dtype=np.int64)
            for member in range(int(members.max(initial=0))):
                there = np.flatnonzero(members > member)
                sets = _subsets(rng, there.size, self.total, self.selected)
                np.add.at(takes, (there[:, None], sets), 1)
        outputs, first = [], 0
        for step, count in self.steps:
            inside = takes[:, first : first + count].ravel()
            outputs.append(step.draw(rng, inside, value, 1.0))
            first += count
        return outputs

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        if not members:
            return np.zeros(1)
        ratios = [
            np.concatenate(
                [
                    step.loss(each, number, value, 1.0).reshape(-1, count)
                    for each, (step, count) in zip(outputs, self.steps, strict=True)
                ],
                axis=1,
            )
            for number in range(1, members + 1)
        ]
        idle = self.total - ratios[0].shape[1]
        logs = np.stack([np.zeros_like(ratios[0]), *ratios])
        if boost != 1:
            rate = min(boost * self.selected / self.total, 1.0)
            weights = _binomial(members, rate)[:, None, None]
            return np.asarray(_log_mean(logs, weights, axis=0).sum(axis=1))
        if members == self.selected == 1:
            every = np.pad(logs[1], ((0, 0), (0, min(idle, 1))))
            weights = np.ones(every.shape[1]) / self.total
            weights[logs.shape[2] :] *= idle
            return _log_mean(every, weights)
        # The sum over all ways is a coefficient of a product of polynomials, one for
        # each step: the power is the number of participations.
        logs -= special.gammaln(np.arange(members + 1) + 1)[:, None, None]
        order = members if self.selected == 1 else self.selected
        per_step = members if self.selected == 1 else 1
        tops = np.maximum(logs.max(axis=0), 0.0)
        scaled = np.exp(logs - tops)
        size = (order + 1, scaled.shape[1])
        found, base = np.zeros(size), tops.sum(axis=1)
        found[0] = 1.0
        for step in range(scaled.shape[2]):
            after = found * scaled[0, :, step]
            for number in range(1, min(per_step, order) + 1):
                after[number:] += found[: order + 1 - number] * scaled[number, :, step]
            largest = after.max(axis=0)
            found, base = after / largest, base + np.log(largest)
        rest = [_idle(idle, number, self.selected) for number in range(order + 1)]
        total = np.einsum("i,in->n", np.array(rest[::-1]), found)
        with np.errstate(divide="ignore"):
            found = np.log(total) + base
        if self.selected == 1:
            ways = order * math.log(self.total) - math.lgamma(order + 1)
        else:
            ways = _log_choices(self.total, self.selected)
        return np.asarray(found - ways)


def _idle(steps: int, number: int, selected: int) -> float:
    """Returns the weight of so many participations in steps that do not run."""
    if selected > 1:
        return float(special.comb(steps, number))
    return float(steps) ** number / math.factorial(number)


@dataclasses.dataclass(frozen=True)
class OneMember:
    """A mechanism of whose group one member at most contributes anything.

    Attributes:
        inner: The mechanism.
        leaves: Whether a member of a negative value does not contribute, either.
    """

    inner: Mechanism
    leaves: bool

    @property
    def is_exact(self) -> bool:
        return self.inner.is_exact

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        gone = self.leaves and value < 0
        one = np.minimum(members, 0 if gone else 1)
        return self.inner.draw(rng, one, value, boost)

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        gone = self.leaves and value < 0
        return self.inner.loss(outputs, min(members, 0 if gone else 1), value, boost)


class Scheme(Protocol):
    """How a member's steps are drawn, in training with correlated noise."""

    @property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, not estimates of them."""

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        """Returns the steps of each of several members, one row of bits for each."""

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        """Returns the loss if a member takes part, from `Correlated` outputs."""


@dataclasses.dataclass(frozen=True, eq=False)
class Correlated:
    """Correlated noise: C x + σ z is released, and x has what a member contributes.

    The outputs are kept as Cᵀ (C x + σ z) / σ², on which every loss depends.

    Attributes:
        strategy: The first column of the Toeplitz matrix C, or its rows.
        deviation: σ.
        number: The number of steps.
        scheme: How a member's steps are drawn.
    """

    strategy: Array
    deviation: float
    number: int
    scheme: Scheme

    @property
    def is_exact(self) -> bool:
        return self.scheme.is_exact

    def draw(
        self, rng: np.random.Generator, members: Array, value: float, boost: float
    ) -> Any:
        takes = np.zeros((members.size, self.number))
        inside = members > 0
        size = int(np.count_nonzero(inside))
        everywhere = boost == EVERYWHERE
        steps = True if everywhere else self.scheme.steps(rng, size, boost)
        takes[inside] = value * np.asarray(steps, dtype=np.float64)
        outputs = applied(self.strategy, takes)
        outputs += self.deviation * rng.standard_normal(outputs.shape)
        # The transpose of a Toeplitz matrix is the matrix itself, in reversed time.
        if self.strategy.ndim == 1:
            outputs = applied(self.strategy, outputs[:, ::-1])[:, ::-1]
        else:
            outputs = outputs @ self.strategy
        return outputs / self.deviation**2

    def loss(self, outputs: Any, members: int, value: float, boost: float) -> Array:
        if not members:
            return np.zeros(outputs.shape[0])
        if boost != EVERYWHERE:
            return self.scheme.loss(outputs, value, boost)
        square = squares(self.strategy, np.ones((1, self.number)), self.deviation)
        return np.asarray(value * outputs.sum(axis=1) - value**2 * square[0] / 2)


def applied(strategy: Array, rows: Array) -> Array:
    """Returns C x for each row x of an array."""
    if strategy.ndim == 2:
        return np.asarray(rows @ strategy.T)
    size = rows.shape[1]
    if strategy.size > _MOST_BANDS:
        found = signal.oaconvolve(rows, strategy[None, :size], axes=1)
        return np.array(found[:, :size])
    result = np.asarray(strategy[0] * rows)
    for lag in range(1, min(strategy.size, size)):
        result[:, lag:] += strategy[lag] * rows[:, :-lag]
    return result


def products(strategy: Array, number: int, deviation: float, lags: int) -> Array:
    """Returns the products of columns i and i + d of C, over σ², in row d < `lags`."""
    found = np.zeros((lags, number))
    gram = strategy.T @ strategy if strategy.ndim == 2 else None
    for lag in range(min(lags, number)):
        if gram is not None:
            found[lag, : number - lag] = np.diagonal(gram, lag)
            continue
        column = np.zeros(number)
        column[: strategy.size] = strategy[:number]
        # Column i + d ends after n − i − d entries.
        ends = np.cumsum(column[lag:] * column[: number - lag])
        found[lag, : number - lag] = ends[::-1]
    return found / deviation**2


def squares(strategy: Array, takes: Array, deviation: float) -> Array:
    """Returns the squared norm of C x over σ², for each row x of an array."""
    return np.asarray((applied(strategy, takes) ** 2).sum(axis=1) / deviation**2)


@dataclasses.dataclass(frozen=True, eq=False)
class Listed:
    """One of a list of sets of steps, drawn uniformly.

    Attributes:
        sets: The steps of each set, one row for each.
        squares: The squared norm of what each of them contributes, over σ².
        number: The number of steps.
    """

    sets: Array
    squares: Array
    number: int
    is_exact: bool = True

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        drawn = self.sets[rng.integers(len(self.sets), size=size)]
        takes = np.zeros((size, self.number), dtype=bool)
        takes[np.arange(size)[:, None], drawn] = True
        return takes

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        sums = outputs[:, self.sets].sum(axis=2)
        logs = value * sums - value**2 * self.squares / 2
        return _log_mean(logs, np.full(len(self.sets), 1 / len(self.sets)))


@dataclasses.dataclass(frozen=True, eq=False)
class Windowed:
    """In each cycle one step of its window, or none. Cycles share no noise.

    Attributes:
        window: The number of steps of which one is drawn.
        cycle: The number of steps of a cycle.
        rate: The probability of taking part in a cycle.
        squares: The squared norm of each column of C, over σ².
    """

    window: int
    cycle: int
    rate: float
    squares: Array
    is_exact: bool = True

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        cycles = self.squares.size // self.cycle
        takes = np.zeros((size, cycles, self.cycle), dtype=bool)
        inside = rng.random((size, cycles)) < min(boost * self.rate, 1.0)
        rows = np.nonzero(inside)
        takes[(*rows, rng.integers(self.window, size=rows[0].size))] = True
        return takes.reshape(size, self.squares.size)

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        logs = value * outputs - value**2 * self.squares / 2
        logs = logs.reshape(outputs.shape[0], -1, self.cycle)[:, :, : self.window]
        rate = min(boost * self.rate, 1.0)
        logs = np.concatenate([logs, np.zeros_like(logs[:, :, :1])], axis=2)
        weights = np.full(self.window + 1, rate / self.window)
        weights[-1] = 1 - rate
        return np.asarray(_log_mean(logs, weights).sum(axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class Separated:
    """A member that took part is out for some steps. Its steps share no noise.

    Attributes:
        rate: The probability of taking part in a step when ready.
        separation: The least distance of two steps.
        warm: Whether members start in their stationary state.
        squares: The squared norm of each column of C, over σ².
    """

    rate: float
    separation: int
    warm: bool
    squares: Array
    is_exact: bool = True

    @property
    def _starts(self) -> Array:
        """The probability that the member becomes ready at each of the first steps."""
        if not self.warm:
            return np.ones(1)
        weights = np.full(self.separation, self.rate)
        weights[0] = 1.0
        return np.asarray(weights / weights.sum())

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        takes = np.zeros((size, self.squares.size), dtype=bool)
        starts = self._starts
        ready = rng.choice(starts.size, size=size, p=starts)
        for step in range(self.squares.size):
            joins = rng.random(size) < min(self.rate * boost, 1.0)
            takes[:, step] = joins & (ready <= step)
            ready[takes[:, step]] = step + self.separation
        return takes

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        number, rate = self.squares.size, min(self.rate * boost, 1.0)
        logs = (value * outputs - value**2 * self.squares / 2).T
        with np.errstate(divide="ignore"):
            join, stay = np.log(rate), np.log1p(-rate)
        # Entry i is the loss of all steps from i on if the member is ready at i.
        found = np.zeros((number + self.separation, outputs.shape[0]))
        for step in range(number - 1, -1, -1):
            found[step] = np.logaddexp(
                stay + found[step + 1],
                join + logs[step] + found[step + self.separation],
            )
        starts = self._starts
        return _log_mean(found[: starts.size].T, starts)


@dataclasses.dataclass(frozen=True, eq=False)
class Chained:
    """Steps that may share noise: each of a walk, or so many of each period.

    A member draws one walk i, the steps i, i + s, i + 2s, …, uniformly. It takes part
    in each step of its walk independently; or, with `selected`, in so many steps of
    each period, drawn uniformly.

    Attributes:
        products: Entry (d, i) is the product of columns i and i + d of C, over σ².
        stride: The number of walks s.
        rate: The probability of taking part in a step of the walk.
        selected: The number of steps of a period in which a member takes part, or 0.
        period: The number of steps of a period.
        memory: How many steps back, along a walk, products are counted.
        is_exact: Whether all other products are zero.
    """

    products: Array
    stride: int
    rate: float
    selected: int
    period: int
    memory: int
    is_exact: bool

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        number = self.products.shape[1]
        if self.selected:
            periods = size * number // self.period
            sets = _subsets(rng, periods, self.period, self.selected)
            taken = np.zeros((periods, self.period), dtype=bool)
            taken[np.arange(periods)[:, None], sets] = True
            return taken.reshape(size, number)
        walks = rng.integers(self.stride, size=(size, 1))
        takes = rng.random((size, number)) < min(self.rate * boost, 1.0)
        return np.asarray(takes & (np.arange(number) % self.stride == walks))

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        number = self.products.shape[1]
        found = [
            self._of_walk(outputs, range(walk, number, self.stride), value, boost)
            for walk in range(self.stride)
        ]
        return _log_mean(np.stack(found, axis=-1), np.full(len(found), 1 / len(found)))

    def _of_walk(
        self, outputs: Array, walk: range, value: float, boost: float
    ) -> Array:
        """Returns the loss for one walk, by a sum over states, step by step.

        A state is how often the member took part in the period, and which of the last
        `memory` steps it took part in.
        """
        join = 1.0 if self.selected else min(self.rate * boost, 1.0)
        stay = 1.0 if self.selected else 1 - join
        size, pasts = outputs.shape[0], np.arange(1 << self.memory)
        found = np.zeros((self.selected + 1, pasts.size, size))
        found[0, 0] = 1.0
        base = np.zeros(size)
        for place, step in enumerate(walk):
            square = np.full(pasts.size, self.products[0, step] / 2)
            for back in range(1, min(self.memory, place) + 1):
                shared = self.products[back * self.stride, step - back * self.stride]
                square += shared * (pasts >> (back - 1) & 1)
            gains = value * outputs[:, step] - value**2 * square[:, None]
            top = np.maximum(gains.max(axis=0), 0.0)
            left = found * (stay * np.exp(-top))
            taken = found * (join * np.exp(gains - top))
            if self.memory:  # What is longest ago is forgotten.
                half = (self.selected + 1, 2, pasts.size // 2, size)
                left = left.reshape(half).sum(axis=1)
                taken = taken.reshape(half).sum(axis=1)
            if self.selected:
                taken = np.concatenate([np.zeros_like(taken[:1]), taken[:-1]])
            if self.memory:
                found = np.stack([left, taken], axis=2).reshape(found.shape)
            else:
                found = left + taken
            base += top
            if self.selected and (place + 1) % self.period == 0:
                found = np.concatenate([found[-1:], np.zeros_like(found[1:])])
                base -= _log_choices(self.period, self.selected)
            largest = found.max(axis=(0, 1))
            found, base = found / largest, base + np.log(largest)
        return np.asarray(np.log(found[0].sum(axis=0)) + base)


def _subsets(rng: np.random.Generator, size: int, total: int, selected: int) -> Array:
    """Returns sets of so many of all numbers below `total`, drawn uniformly."""
    if selected == 1:
        return rng.integers(total, size=(size, 1))
    keys = rng.random((size, total))
    return np.argpartition(keys, selected - 1, axis=1)[:, :selected]


def _binomial(number: int, rate: float) -> Array:
    return np.array(
        [
            math.comb(number, i) * rate**i * (1 - rate) ** (number - i)
            for i in range(number + 1)
        ]
    )


def _log_choices(total: int, selected: int) -> float:
    inside, outside = math.lgamma(selected + 1), math.lgamma(total - selected + 1)
    return math.lgamma(total + 1) - inside - outside


def _log_mean(logs: Array, weights: Array, axis: int = -1) -> Array:
    """Returns the logarithm of a weighted sum of exponentials along an axis."""
    top = logs.max(axis=axis, keepdims=True)
    if axis == -1:
        total = np.exp(logs - top) @ weights
    else:
        total = (np.exp(logs - top) * weights).sum(axis=axis)
    return np.asarray(np.log(total) + top.squeeze(axis))
