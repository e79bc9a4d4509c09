"""Bounds on ε, δ and true positive rates from the definition of an event."""

from collections.abc import Sequence
import itertools
import math
import time
from typing import Any

from dp_accounting import dp_event as stock
from flint import ctx
import numpy as np

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import sampling

NeighborRel = mechanisms.NeighborRel
Channel = channels.Channel
Question = sampling.Question
Side = channels.Side
# Tuning: for each attempt the number of cells of noise and of outputs of channels. The
# second attempt takes about four times as long as the first.
_ATTEMPTS = ((1500, 1000), (5000, 4000))
_GROWTH = 4
_NARROW = 0.005  # No further attempt is made once the relative width is at most this.
_RARE = 1e-7  # Probability of tails that may be truncated, relative to δ.
_LARGEST = 1e6  # The search for ε ends here.
_COARSER = 5  # Tuning: of lower bounds alone.
_MARGINS = (0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3)  # Until an estimate of ε is certified.


def opinion(
    event: stock.DpEvent,
    relation: NeighborRel,
    asked: Sequence[tuple[str, float, float]],
    *,
    seconds: float,
    seed: int,
) -> tuple[list[float], list[float], str, bool]:
    """Returns lower and upper bounds on the answers to questions about a tree.

    Args:
        event: The tree of events.
        relation: The neighboring relation.
        asked: The fields of the questions, of which the first is about ε.
        seconds: CPU time after which no finer attempt is begun, and no more outputs are
            drawn.
        seed: The seed of the draws.

    Returns:
        The bounds; the reason why there is no upper bound, empty if there is one; and
        whether lower bounds hold with probability 1 − 1e-6 only.
    """
    questions = [Question(*each) for each in asked]
    begin, rare = time.process_time(), _RARE * questions[0].at
    lower, upper = [0.0] * len(questions), [math.inf] * len(questions)
    reason, drawn = "", [0.0]
    with ctx.workprec(channels.BITS):
        try:
            for sizes in _ATTEMPTS:
                before = time.process_time()
                ends = brackets(event, relation, questions, *sizes, rare=rare)
                # The brackets of every attempt hold, and so do their intersections.
                lower = [*map(max, lower, ends[0])]
                upper = [*map(min, upper, ends[1])]
                now = time.process_time()
                is_late = now - begin + _GROWTH * (now - before) > seconds
                if upper[0] - lower[0] <= _NARROW * upper[0] or is_late:
                    break
                if lower[0] == upper[0] or upper[0] == math.inf:
                    break
        except channels.NoTheoremError as error:
            reason = str(error)
        if math.inf == upper[0] != lower[0] and not reason:
            name = type(event).__name__
            reason = f"no theorem for an upper bound of {name} as it is"
        if reason:
            left = max(seconds - (time.process_time() - begin), seconds / 2)
            every: dict[str, Any] = {"rare": rare, "seconds": left, "seed": seed}
            try:
                drawn = sampled(event, relation, questions, *_ATTEMPTS[0], **every)
                lower = [*map(max, lower, drawn)]
            except channels.NoTheoremError as error:
                reason = str(error)
    noises.cached.cache_clear()
    return lower, upper, reason, any(drawn)


def brackets(
    event: stock.DpEvent,
    relation: NeighborRel,
    questions: Sequence[Question],
    cells: int,
    most: int,
    *,
    rare: float,
) -> tuple[list[float], list[float]]:
    """Returns lower and upper bounds in ball arithmetic, by channels of these sizes.

    An upper bound is infinite if the verification knows none for the event.

    Raises:
        NoTheoremError: If the verification knows no bound for the event.
    """
    high = kinds.cases(event, relation, channels.Sizes(Side.HIGH, cells, most, rare))
    if not high:  # Nothing is confirmed.
        cells, most = cells // _COARSER, most // _COARSER
    low = kinds.cases(event, relation, channels.Sizes(Side.LOW, cells, most, rare))
    lower, upper = (
        [
            max(
                (_bound(case, remove, kind, at, side) for case, remove in cases),
                default=none,
            )
            for kind, at, _ in questions
        ]
        for side, found, none in ((Side.LOW, low, 0.0), (Side.HIGH, high, math.inf))
        for cases in [list(itertools.product(found, (True, False)))]
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
    """Returns lower bounds that hold with probability 1 − 1e-6.

    They are 0 if every part of the event has a better bound in ball arithmetic. Parts
    that have one are drawn from their channels of these sizes.

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
    epsilon = min(questions[0].claimed, 100.0)
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

    return sampling.lower_bounds(
        mechanisms.drawable(mechanism, table, several=several),
        members if mechanism.takes_groups() else 1,
        replaced=replaced,
        questions=questions,
        seconds=seconds,
        seed=seed,
    )


def _bound(channel: Channel, remove: bool, kind: str, at: float, side: Side) -> float:
    """Returns a bound on the answer to a question by a channel, in one direction."""
    if kind == "ε":
        return _epsilon(channel, remove, at, side)
    ask = channel.delta if kind == "δ" else channel.true_positives
    low, high = ask(at, remove=remove)
    if side is Side.LOW:
        return max(math.nextafter(float(low), -math.inf), 0.0)
    return min(math.nextafter(float(high), math.inf), 1.0)


def _epsilon(channel: Channel, remove: bool, delta: float, side: Side) -> float:
    """Returns a bound on ε: a number at which δ is certainly larger, or at most δ."""
    q, p = channel.rows if remove else channel.rows[::-1]
    alone = sum((b for a, b in zip(q, p, strict=True) if a == 0), channels.ZERO)
    if side is Side.LOW and alone > delta:
        return math.inf
    about = _about(channel, remove, delta)
    for margin in _MARGINS:
        if side is Side.LOW:
            epsilon = about * (1 - margin)
            if channel.delta(epsilon, remove=remove)[0] > delta:
                return epsilon
        elif about < _LARGEST:
            epsilon = about * (1 + margin) + margin * 1e-9
            if channel.delta(epsilon, remove=remove)[1] <= delta:
                return epsilon
    return 0.0 if side is Side.LOW else math.inf


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
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high
