"""Who takes part in which steps, as walks through states, and sums over all walks."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import special

from dp_accounting_ext.verify import channels

Array = np.ndarray
# Tuning: the most states of a sum over walks. Where there are more, members contribute
# in so many steps in a row, and then in none until these share no noise with the next.
_MOST_STATES, _IN_A_ROW = 64, (math.inf, 5, 3, 1)
# For each number of members that may take part in a step: the probability, and the
# state after the step.
Moves = Sequence[tuple[float, Hashable]]
UNSHARED = np.zeros((0, 0))  # The products of steps that share no noise.


@dataclasses.dataclass(frozen=True, eq=False)
class Scheme:
    """The law of the steps in which members take part.

    One of several tracks is drawn uniformly. Track i has the steps i, i + s, i + 2s, …
    where s is the number of tracks. From each step of it to the next the members move
    from state to state.

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
    products: Array = dataclasses.field(default_factory=lambda: UNSHARED)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Returns how many members take part in each step; one row for each draw."""
        takes = np.zeros((size, self.number), dtype=np.int64)
        track_of = rng.integers(self.tracks, size=size)
        weights = np.array([weight for _, weight in self.starts])
        for track, stages in enumerate(self.stages):
            rows = np.flatnonzero(track_of == track)
            states = rng.choice(weights.size, size=rows.size, p=weights)
            taken = np.zeros((len(stages), rows.size), dtype=np.int64)
            for place, stage in enumerate(stages):
                ends = np.cumsum(stage.weights, axis=0)[:-1]
                ways = (rng.random(rows.size) >= ends[:, states]).sum(axis=0)
                taken[place] = stage.numbers[ways]
                states = stage.after[ways, states]
            takes[rows, track :: self.tracks] = taken.T
        return takes

    def log_mean(self, gains: Callable[["Stage"], Sequence[Array]], size: int) -> Array:
        """Returns the logarithm of the mean of exp(sum of gains), for each output.

        Args:
            gains: Returns a step's gains if one member takes part in it, if two do, and
                so on: for each output, or a row of them for each state.
            size: The number of outputs.
        """
        totals = []
        for stages in self.stages:
            logs = np.log([[weight] for _, weight in self.starts]) + np.zeros(size)
            for stage in stages:
                of_step = [np.zeros(1), *gains(stage)]
                ways = [
                    logs + weights[:, None] + of_step[number]
                    for number, weights in zip(
                        stage.numbers, stage.log_weights, strict=True
                    )
                ]
                top = np.max([way.max(axis=0) for way in ways], axis=0)
                total = sum(
                    move @ np.exp(way - top)
                    for way, move in zip(ways, stage.moves, strict=True)
                )
                with np.errstate(divide="ignore"):
                    logs = np.log(total) + top
            totals.append(special.logsumexp(logs, axis=0))
        return log_mean(
            np.stack(totals, axis=-1), np.full(self.tracks, 1 / self.tracks)
        )

    @functools.cached_property
    def stages(self) -> list[list["Stage"]]:
        """The stages of each track. Where steps share noise, states remember.

        Raises:
            NoTheoremError: If there are too many states.
        """
        for in_a_row in _IN_A_ROW:
            try:
                tracks = range(self.tracks)
                return [self._of_track(track, in_a_row) for track in tracks]
            except channels.TooLargeError:
                continue
        raise channels.NoTheoremError("no sum over so many states")

    def _of_track(self, track: int, in_a_row: float) -> list["Stage"]:
        lags = np.flatnonzero(self.products.any(axis=1))
        memory = int(lags.max(initial=0)) // self.tracks
        states: dict[tuple[Hashable, tuple[int, ...]], int]
        states = {(state, ()): i for i, (state, _) in enumerate(self.starts)}
        found = []
        for place, step in enumerate(range(track, self.number, self.tracks)):
            is_silent = place % (memory + in_a_row) >= in_a_row
            after: dict[tuple[Hashable, tuple[int, ...]], int] = {}
            rows, squares = [], []
            for state, past in states:
                moves = self.moves(place, state)
                row = []
                for joining, (weight, then) in enumerate(moves):
                    steps = (*past, step) if joining and not is_silent else past
                    kept = tuple(s for s in steps if step - s < memory * self.tracks)
                    index = after.setdefault((then, kept), len(after)) if weight else 0
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
            found.append(
                Stage(step, numbers, weights, then.astype(int), np.array(squares))
            )
        return found


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
    def log_weights(self) -> Array:
        """The logarithms of `weights`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights))

    @functools.cached_property
    def moves(self) -> Array:
        """Whether each state before (a column) is left for each state (a row)."""
        states = np.arange(int(self.after.max()) + 1)
        return np.asarray(self.after[:, None, :] == states[:, None], dtype=np.float64)


def log_mean(logs: Array, weights: Array) -> Array:
    """Returns the logarithm of a weighted sum of exponentials along the last axis."""
    top = logs.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - top) @ weights) + top[..., 0])


def independent(number: int, rate: float, tracks: int, products: Array) -> Scheme:
    """Returns the scheme of steps of one track that are drawn independently."""

    def moves(place: int, state: Any) -> Moves:
        return (1 - rate, 0), (rate, 0)

    return Scheme(number, moves, tracks=tracks, products=products)


def windows(
    window: int, cycle: int, number: int, rate: float, products: Array
) -> Scheme:
    """Returns the scheme of at most one step from the window of each cycle."""

    def moves(place: int, state: Any) -> Moves:
        at = place % cycle
        if at >= window or (state and at):
            return ((1.0, state),)
        share = rate / window
        joins = min(share / (1 - at * share), 1.0)
        return (1 - joins, False), (joins, True)

    return Scheme(number, moves, products=products)


def apart(
    number: int, rate: float, separation: int, is_warm: bool, products: Array
) -> Scheme:
    """Returns the scheme in which a member that took part is out for some steps.

    Its state is the number of steps until it is ready.
    """

    def moves(place: int, state: Any) -> Moves:
        if state:
            return ((1.0, state - 1),)
        return (1 - rate, 0), (rate, separation - 1)

    shares = [1.0, *[rate] * (separation - 1)] if is_warm else [1.0]
    starts = [(state, share / sum(shares)) for state, share in enumerate(shares)]
    return Scheme(number, moves, starts, products=products)


def selected(
    number: int, period: int, chosen: int, members: int, products: Array = UNSHARED
) -> Scheme:
    """Returns the scheme of a set of steps of each period, drawn uniformly.

    The state is how often members are still to take part in the period. One member
    takes part in `chosen` steps, or each of several members in one of them.
    """

    def moves(place: int, state: Any) -> Moves:
        at = place % period
        left = state if at else chosen * members
        share = 1 / (period - at)
        if members == 1:
            joins = left / (period - at)
            return (1 - joins, left), (joins, left - 1)
        return [
            (
                math.comb(left, joining)
                * share**joining
                * (1 - share) ** (left - joining),
                left - joining,
            )
            for joining in range(left + 1)
        ]

    return Scheme(number, moves, products=products)
