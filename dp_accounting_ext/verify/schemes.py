"""Who takes part in which steps, as walks through states, and sums over all walks.

One of several tracks is drawn uniformly. Track i has the steps i, i + s, i + 2s, …
where s is the number of tracks. From each step of it to the next the members move from
state to state, and take part or not.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy import special

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import mechanisms

Array = np.ndarray
# Tuning: the most states of a sum over walks. Where there are more, members contribute
# in so many steps in a row, and then in none until these share no noise with the next.
_MOST_STATES, _IN_A_ROW = 64, (math.inf, 5, 3, 1)
# For each number of members that may take part in a step: the probability, and the
# state after the step.
Moves = Sequence[tuple[float, Hashable]]


@dataclasses.dataclass(frozen=True, eq=False)
class Scheme:
    """The law of the steps in which members take part.

    Attributes:
        number: The number of steps.
        moves: Returns the moves at a step, from its place on the track and the state
            before it.
        starts: The first states and their probabilities.
        tracks: The number of tracks.
        products: Entry (d, i) is the product of columns i and i + d of the matrix of
            correlated noise, over the variance of the noise; empty if it is not
            correlated.
    """

    number: int
    moves: Callable[[int, Any], Moves]
    starts: Sequence[tuple[Hashable, float]] = ((0, 1.0),)
    tracks: int = 1
    products: Array = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Returns how many members take part in each step; one row for each draw."""
        takes = np.zeros((size, self.number), dtype=np.int64)
        track_of = rng.integers(self.tracks, size=size)
        weights = np.array([weight for _, weight in self.starts])
        for track, stages in enumerate(self.stages):
            rows = np.flatnonzero(track_of == track)
            states = rng.choice(weights.size, size=rows.size, p=weights)
            for stage in stages:
                ends = np.cumsum(stage.weights, axis=0)[:-1]
                ways = (rng.random(rows.size) >= ends[:, states]).sum(axis=0)
                takes[rows, stage.step] = stage.numbers[ways]
                states = stage.after[ways, states]
        return takes

    def log_mean(self, gains: Callable[["Stage"], Sequence[Array]], size: int) -> Array:
        """Returns the logarithm of the mean of exp(sum of gains), for each output.

        The function `gains` returns a step's gains if one member takes part in it, if
        two do, and so on: for each of `size` outputs, or a row of them for each state.
        """
        totals = []
        for stages in self.stages:
            logs = np.log([[weight] for _, weight in self.starts]) + np.zeros(size)
            for stage in stages:
                of_step = [np.zeros(1), *gains(stage)]
                with np.errstate(divide="ignore"):
                    weights = np.log(stage.weights)
                    ways = [
                        logs + weight[:, None] + of_step[number]
                        for number, weight in zip(stage.numbers, weights, strict=True)
                    ]
                    top = np.max([way.max(axis=0) for way in ways], axis=0)
                    moved = map(np.matmul, stage.moves, np.exp(ways - top))
                    logs = np.log(sum(moved)) + top
            totals.append(special.logsumexp(logs, axis=0))
        return np.asarray(special.logsumexp(totals, axis=0, b=1 / self.tracks))

    @functools.cached_property
    def stages(self) -> list[list["Stage"]]:
        """The stages of each track. Where steps share noise, states remember."""
        for in_a_row in _IN_A_ROW:
            try:
                tracks = range(self.tracks)
                return [self._of_track(track, in_a_row) for track in tracks]
            except channels.TooLargeError:
                continue
        raise channels.NoTheoremError("no sum over so many states")

    def _of_track(self, track: int, in_a_row: float) -> list["Stage"]:
        """Returns the stages of a track, or raises `TooLargeError`.

        After `in_a_row` steps, members contribute nothing until the noise is fresh.
        """
        lags = np.flatnonzero(self.products.any(axis=1))
        memory = int(lags.max(initial=0)) // self.tracks
        states: dict[tuple[Hashable, tuple[int, ...]], int]
        states = {(state, ()): i for i, (state, _) in enumerate(self.starts)}
        stages = []
        for place, step in enumerate(range(track, self.number, self.tracks)):
            is_silent = place % (memory + in_a_row) >= in_a_row
            after: dict[tuple[Hashable, tuple[int, ...]], int] = {}
            rows, squares = [], []
            for state, past in states:
                row = []
                for joining, (weight, then) in enumerate(self.moves(place, state)):
                    steps = (*past, step) if joining and not is_silent else past
                    # These steps share noise with the next step of the track.
                    near = tuple(s for s in steps if step - s < memory * self.tracks)
                    index = after.setdefault((then, near), len(after)) if weight else 0
                    row.append((weight, index))
                rows.append(row)
                with_past = sum(self.products[step - s, s] for s in past)
                own = self.products[0, step] if self.products.size else 0.0
                squares.append(own / 2 + with_past)
            if len(after) > _MOST_STATES:
                raise channels.TooLargeError
            most = max(map(len, rows))
            rows = [[*row, *[(0.0, 0)] * (most - len(row))] for row in rows]
            weights, then = np.array(rows).T
            numbers = np.arange(most) * (not is_silent)
            states = after
            stages.append(
                Stage(step, numbers, weights, then.astype(int), np.array(squares))
            )
        return stages


@dataclasses.dataclass(frozen=True)
class Stage:
    """A step of a track.

    Attributes:
        step: The step.
        numbers: How many members contribute; the next attributes have a row for each.
        weights: The probabilities, with a column for each state before the step.
        after: The states after the step.
        squares: For each state, half the squared norm of what taking part contributes,
            and its products with what was contributed before; over the variance.
    """

    step: int
    numbers: Array
    weights: Array
    after: Array
    squares: Array

    @functools.cached_property
    def moves(self) -> Array:
        """Whether each state before (a column) is left for each state (a row)."""
        states = np.arange(int(self.after.max()) + 1)
        return np.asarray(self.after[:, None, :] == states[:, None], dtype=np.float64)


def independent(number: int, rate: float, tracks: int = 1) -> Scheme:
    """Returns the scheme of steps of one track that are drawn independently."""
    return Scheme(
        number, lambda place, state: ((1 - rate, 0), (rate, 0)), tracks=tracks
    )


def bins(number: int, epochs: int) -> Scheme:
    """Returns the scheme of a bin that is drawn once, for all epochs."""
    return independent(number * epochs, 1.0, number)


def windows(window: int, separation: int, cycles: int, rate: float) -> Scheme:
    """Returns the scheme of at most one step from the window of each cycle."""
    cycle, share = window + separation - 1, rate / window

    def moves(place: int, state: Any) -> Moves:
        at = place % cycle
        if at >= window or (state and at):
            return ((1.0, state),)
        joins = min(share / (1 - at * share), 1.0)
        return (1 - joins, False), (joins, True)

    return Scheme(cycle * cycles, moves)


def apart(number: int, rate: float, separation: int, is_warm: bool) -> Scheme:
    """Returns the scheme in which a member that took part is out for some steps.

    Its state is the number of steps until it is ready.
    """

    def moves(place: int, state: Any) -> Moves:
        if state:
            return ((1.0, state - 1),)
        return (1 - rate, 0), (rate, separation - 1)

    shares = [1.0, *[rate] * (separation - 1)] if is_warm else [1.0]
    starts = [(state, share / sum(shares)) for state, share in enumerate(shares)]
    return Scheme(number, moves, starts)


def selected(period: int, chosen: int, periods: int = 1, members: int = 1) -> Scheme:
    """Returns the scheme of a set of steps of each period, drawn uniformly.

    The state is how often members are still to take part in the period. One member
    takes part in `chosen` steps, or each of several members in one of them.
    """

    def moves(place: int, state: Any) -> Moves:
        at = place % period
        left = state if at else chosen * members
        if members == 1:
            joins = left / (period - at)
            return (1 - joins, left), (joins, left - 1)
        weights = mechanisms.binomial(left, 1 / (period - at))
        return [(weight, left - joining) for joining, weight in enumerate(weights)]

    return Scheme(period * periods, moves)


@dataclasses.dataclass(frozen=True)
class Allocated(mechanisms.Runs):
    """Steps of which each member takes part in some, drawn uniformly at random.

    Attributes:
        parts: The mechanism of each step that is run, and the number of such steps.
        selected: The number of steps in which a member takes part.
        total: The number of all steps, those that are not run among them.
    """

    selected: int
    total: int

    def takes_groups(self) -> bool:
        return self.selected == 1 and super().takes_groups()

    def is_drawn(self, *, several: bool) -> bool:
        return several or self.selected > 1 or super().is_drawn(several=several)

    def cases(self, reading: mechanisms.Reading) -> mechanisms.Cases | None:
        if reading.split != (1, 0):
            return None
        steps = []
        for part, count in self.parts:
            cases = reading.cases(part)
            if not cases or (reading.is_high and len(cases) > 1):
                return []
            steps.append((cases[0], count))
        # Steps that did not run release nothing, even of records allocated to them.
        left = self.total - sum(count for _, count in self.parts)
        steps += [(channels.NO_OP, left)] * bool(left)
        try:
            return [lattices.allocated(steps, self.selected, reading.sizes)]
        except channels.TooLargeError:
            return []

    @functools.cached_property
    def _scheme(self) -> Callable[[int], Scheme]:
        number = sum(count for _, count in self.parts)

        def of(members: int) -> Scheme:
            scheme = selected(self.total, self.selected, members=members)
            return dataclasses.replace(scheme, number=number)

        return functools.cache(of)

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        counts = [count for _, count in self.parts]
        takes = np.zeros((members.size, sum(counts)), dtype=np.int64)
        for number in np.unique(members[members > 0]).tolist():
            rows = np.flatnonzero(members == number)
            takes[rows] = self._scheme(number).draw(rng, rows.size)
        of_parts = np.split(takes, np.cumsum(counts)[:-1], axis=1)
        return [
            part.draw(rng, of_part.ravel(), value)
            for (part, _), of_part in zip(self.parts, of_parts, strict=True)
        ]

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        gains = [self.losses(outputs, n, value).T for n in range(members + 1)]
        if not members:
            return np.zeros(gains[0].shape[1])
        return self._scheme(members).log_mean(
            lambda stage: [gain[stage.step] for gain in gains[1:]], gains[0].shape[1]
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Correlated(mechanisms.Mechanism):
    """Correlated noise: C x + σ z is released, and x has what a member contributes.

    The outputs are kept as Cᵀ (C x + σ z) / σ², on which every loss depends.

    Attributes:
        matrix: The sparse matrix C.
        deviation: σ.
        scheme: Who takes part in which steps.
    """

    matrix: Any
    deviation: float
    scheme: Scheme

    @classmethod
    def of(cls, strategy: Any, deviation: float, scheme: Scheme) -> "Correlated":
        """Returns the mechanism, whose scheme gets the products of columns of C.

        A strategy is the first column of a Toeplitz matrix, or all rows of a matrix.
        """
        entries: Any = np.array(strategy, dtype=np.float64)
        number = scheme.number
        if entries.ndim == 1:
            entries = entries[:number]
            below = -np.arange(entries.size)
            entries = sparse.diags(entries, below, shape=(number, number))
        matrix = sparse.csr_array(entries)
        gram = (matrix.T @ matrix) / deviation**2
        products = np.zeros((min(number, np.shape(strategy)[0]), number))
        for lag, row in enumerate(products):
            row[: number - lag] = gram.diagonal(lag)
        scheme = dataclasses.replace(scheme, products=products)
        return cls(matrix, deviation, scheme)

    def cases(self, reading: mechanisms.Reading) -> mechanisms.Cases | None:
        raise channels.NoTheoremError("no theorem for correlated noise")

    def takes_groups(self) -> bool:
        return False

    def is_drawn(self, *, several: bool) -> bool:
        return True

    def drawable(
        self, reading: mechanisms.Reading, lowest: float
    ) -> mechanisms.Mechanism:
        return self

    def everywhere(self) -> mechanisms.Mechanism:
        always = independent(self.scheme.number, 1.0)
        scheme = dataclasses.replace(always, products=self.scheme.products)
        return dataclasses.replace(self, scheme=scheme)

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        takes = np.zeros((members.size, self.scheme.number))
        rows = np.flatnonzero(members)
        takes[rows] = value * self.scheme.draw(rng, rows.size)
        outputs = takes @ self.matrix.T
        outputs += self.deviation * rng.standard_normal(outputs.shape)
        return outputs @ self.matrix / self.deviation**2

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        if not members:
            return np.zeros(outputs.shape[0])

        def gains(stage: Stage) -> list[Array]:
            own = value * outputs[:, stage.step]
            return [own - value**2 * stage.squares[:, None]]

        return self.scheme.log_mean(gains, outputs.shape[0])
