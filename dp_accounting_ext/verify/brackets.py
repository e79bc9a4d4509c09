"""Bounds on ε, δ and true positive rates from the definition of an event."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
import math
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import sampling

NeighborRel = privacy_accountant.NeighboringRelation
Channel = channels.Channel
Side = channels.Side
Bound = Callable[[Channel, bool, float], float]
Question = tuple[str, float, float]
_WAYS = (True, False)  # Whether the record is removed.
_LARGEST = 1e6  # The search for ε ends here.
_HALVINGS = 60
_COARSER = 5  # Tuning: of lower bounds alone.


def brackets(
    event: stock.DpEvent,
    relation: NeighborRel,
    questions: Sequence[Question],
    cells: int,
    most: int,
    *,
    rare: float,
) -> tuple[list[float], list[float]]:
    """Returns lower and upper bounds on the answers to questions about a tree.

    An upper bound is infinite if the verification knows none for the event.

    Args:
        event: The tree of events.
        relation: The neighboring relation.
        questions: Each a kind of answer, where, and the claimed upper bound.
        cells: The number of cells into which continuous noise is discretized.
        most: The largest number of outputs of a channel.
        rare: Probability of tails that may be truncated, as in `runs.power`.

    Raises:
        NoTheoremError: If the verification knows no bound for the event.
    """
    sizes = channels.Sizes(Side.HIGH, cells, most, rare)
    high = kinds.cases(event, relation, sizes)
    if not high:  # Nothing is confirmed.
        cells, most = cells // _COARSER, most // _COARSER
    low = kinds.cases(event, relation, channels.Sizes(Side.LOW, cells, most, rare))
    lower, upper = (
        [
            max((_BOUNDS[kind][i](*case, at) for case in cases), default=none)
            for kind, at, _ in questions
        ]
        for i, (channels_of, none) in enumerate(((low, 0.0), (high, math.inf)))
        for cases in [list(itertools.product(channels_of, _WAYS))]
    )
    return lower, upper


def sampled(
    event: stock.DpEvent,
    relation: NeighborRel,
    questions: Sequence[Question],
    cells: int,
    most: int,
    *,
    rare: float,
    seconds: float,
    seed: int,
) -> list[float]:
    """Returns lower bounds on the answers that hold with probability 1 − 1e-6.

    They are 0 if every part of the event has a better bound in ball arithmetic.

    Args:
        event: As for `brackets`, as are all arguments up to `rare`.
        relation: The neighboring relation.
        questions: The questions, of which the first is about ε.
        cells: The number of cells.
        most: The largest number of outputs.
        rare: Probability of tails that may be truncated.
        seconds: CPU time for the draws.
        seed: The seed of the draws.

    Raises:
        NoTheoremError: If an event in the tree has no definition here.
    """
    mechanism, members = kinds.mechanism_of(event), kinds.group_size(event)
    replaced = relation is NeighborRel.REPLACE_ONE
    if any(g.num_removed not in (None, 0, members) for g in kinds.groups(event)):
        raise channels.NoTheoremError("no draws where some leave and others join")
    several = replaced or members > 1
    if not mechanism.is_drawn(several=several):
        return [0.0] * len(questions)
    epsilon = min(questions[0][2], 100.0)
    sizes = channels.Sizes(Side.LOW, cells, most, rare)
    whole = mechanisms.Reading(relation, sizes, (members, members * replaced))
    absent = NeighborRel.ADD_OR_REMOVE_ONE if replaced else relation
    single = mechanisms.Reading(absent, sizes)

    def table(part: mechanisms.Mechanism, of_all: bool) -> mechanisms.Table:
        found = (whole if of_all else single).cases(part)
        if not found:
            raise channels.NoTheoremError("no theorem for a part")
        best = max(found, key=lambda c: float(c.delta(epsilon, remove=True)[0]))
        return mechanisms.Table.of(best, -1.0 if replaced else 0.0)

    drawable = mechanisms.drawable(mechanism, table, several=several)
    return sampling.lower_bounds(
        drawable,
        members if mechanism.takes_groups else 1,
        replaced=replaced,
        questions=[sampling.Question(*each) for each in questions],
        seconds=seconds,
        seed=seed,
    )


def _at_least(channel: Channel, remove: bool, delta: float) -> float:
    """Returns a lower bound on ε: a number at which the privacy profile exceeds δ."""
    q, p = channel.rows if remove else channel.rows[::-1]
    alone = sum((b for a, b in zip(q, p, strict=True) if a == 0), channels.ZERO)
    if alone > delta:
        return math.inf
    for margin in _margins():
        epsilon = _about(channel, remove, delta) * (1 - margin)
        if channel.delta(epsilon, remove=remove)[0] > delta:
            return epsilon
    return 0.0


def _at_most(channel: Channel, remove: bool, delta: float) -> float:
    """Returns an upper bound on ε: the privacy profile there is at most δ."""
    about = _about(channel, remove, delta)
    for margin in (0.0, *_margins()) if about < _LARGEST else ():
        epsilon = about * (1 + margin) + margin * 1e-9
        if channel.delta(epsilon, remove=remove)[1] <= delta:
            return epsilon
    return math.inf


def _below(value: Any) -> float:
    return max(math.nextafter(float(value), -math.inf), 0.0)


def _above(value: Any) -> float:
    return min(math.nextafter(float(value), math.inf), 1.0)


def _margins() -> Iterator[float]:
    """Yields relative distances to move an estimate of ε until it is certified."""
    yield from (1e-12, 1e-9, 1e-7, 1e-5, 1e-3)


def _about(channel: Channel, remove: bool, delta: float) -> float:
    """Returns an estimate of ε at δ, by bisection in floats; it is not certified."""
    q, p = (
        np.array([float(x.mid()) for x in row])
        for row in (channel.rows if remove else channel.rows[::-1])
    )

    def exceeds(epsilon: float) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = np.where(q > 0, p - math.exp(min(epsilon, 700.0)) * q, p)
        return float(np.maximum(gaps, 0.0).sum()) > delta

    low, high = 0.0, 1.0
    if not exceeds(0.0):
        return 0.0
    while exceeds(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


# The lower and the upper bound by a channel, in one direction.
_BOUNDS: dict[str, tuple[Bound, Bound]] = {
    "ε": (_at_least, _at_most),
    "δ": (
        lambda c, way, at: _below(c.delta(at, remove=way)[0]),
        lambda c, way, at: _above(c.delta(at, remove=way)[1]),
    ),
    "true positive rate": (
        lambda c, way, at: _below(c.true_positives(at, remove=way)[0]),
        lambda c, way, at: _above(c.true_positives(at, remove=way)[1]),
    ),
}
