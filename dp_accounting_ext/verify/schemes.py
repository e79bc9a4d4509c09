"""Draws of training with correlated noise, whatever way a record's steps are drawn."""

import dataclasses
from typing import Any
from typing import Protocol

import numpy as np
from scipy import signal

from dp_accounting_ext.verify import draws

Array = np.ndarray
_MOST_BANDS = 32  # Tuning: more are applied by Fourier transforms.


class Scheme(Protocol):
    """How a member's steps are drawn, in training with correlated noise."""

    @property
    def is_exact(self) -> bool:
        """Whether losses are those of the mechanism, not estimates of them."""

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        """Returns the steps of each of several members, one row of bits for each."""

    def loss(self, outputs: Array, value: float, boost: float) -> Array:
        """Returns log P(y) / Q(y) for outputs y, in the form that `Correlated` keeps.

        P is the law of outputs if the member's records are used, and Q if they are not.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class Correlated(draws.Mechanism):
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
        everywhere = boost == draws.EVERYWHERE
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
        if boost != draws.EVERYWHERE:
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
class Listed(Scheme):
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
        return draws.log_mean(logs, np.full(len(self.sets), 1 / len(self.sets)))


@dataclasses.dataclass(frozen=True, eq=False)
class Windowed(Scheme):
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
        return np.asarray(draws.log_mean(logs, weights).sum(axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class Separated(Scheme):
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
        return draws.log_mean(found[: starts.size].T, starts)


@dataclasses.dataclass(frozen=True, eq=False)
class Chained(Scheme):
    """Schemes in which noise may be shared by the steps in which a member takes part.

    A member draws one walk i, the steps i, i + s, i + 2s, …, uniformly. It takes part
    in each step of its walk independently; or, with `selected`, in a fixed number
    of steps of each period, drawn uniformly.

    Attributes:
        products: Entry (d, i) is the product of columns i and i + d of C, over σ².
        stride: The number of walks s.
        rate: The probability of taking part in a step of the walk.
        selected: The number of steps of a period in which a member takes part, or 0.
        period: The number of steps of a period.
        memory: How many steps back, along a walk, products are counted.
        is_whole: Whether all other products are zero.
    """

    products: Array
    stride: int
    rate: float
    selected: int
    period: int
    memory: int
    is_whole: bool

    @property
    def is_exact(self) -> bool:
        return self.is_whole

    def steps(self, rng: np.random.Generator, size: int, boost: float) -> Array:
        number = self.products.shape[1]
        if self.selected:
            periods = size * number // self.period
            sets = draws.subsets(rng, periods, self.period, self.selected)
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
        return draws.log_mean(
            np.stack(found, axis=-1), np.full(len(found), 1 / len(found))
        )

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
                base -= draws.log_choices(self.period, self.selected)
            largest = found.max(axis=(0, 1))
            found, base = found / largest, base + np.log(largest)
        return np.asarray(np.log(found[0].sum(axis=0)) + base)
