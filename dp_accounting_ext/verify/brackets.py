"""Bounds on ε, δ and true positive rates from the definition of an event."""

from collections.abc import Sequence
import dataclasses
import math
import time

from dp_accounting import dp_event as stock
from flint import ctx
import numpy as np

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import sampling
from dp_accounting_ext.verify import verification

NeighborRel = mechanisms.NeighborRel
Answer = verification.Answer
Channel = channels.Channel
Side = channels.Side
_CELLS, _OUTPUTS = 1500, 1000  # Tuning: cells of noise, and outputs of channels.
_WAYS = (True, False)  # Whether the record is removed.
_RARE = 1e-7  # Probability of tails that may be truncated, relative to δ.
_MARGINS = (0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3)  # Until an estimate of ε is certified.


def opinion(
    event: stock.DpEvent,
    relation: NeighborRel,
    claims: Sequence[Answer],
    *,
    seconds: float,
    seed: int,
) -> tuple[list[Answer], str, bool]:
    """Returns the answers about a tree of events, the first about ε, with own bounds.

    With them it returns the reason why there is no upper bound, empty if there is one;
    and whether lower bounds hold with probability 1 − 1e-6 only. No outputs are drawn
    after so many seconds of CPU time.
    """
    begin, rare = time.process_time(), _RARE * claims[0].at
    answers, drawn, reason = [*claims], [0.0], ""
    with ctx.workprec(channels.BITS):
        try:
            answers = brackets(event, relation, claims, rare)
        except channels.NoTheoremError as error:
            reason = str(error)
        if math.inf == answers[0].upper != answers[0].lower and not reason:
            name = type(event).__name__
            reason = f"no theorem for an upper bound of {name} as it is"
        if reason:
            left = max(seconds - (time.process_time() - begin), seconds / 2)
            sizes = channels.Sizes(Side.LOW, _CELLS, _OUTPUTS, rare)
            try:
                drawn = sampled(event, relation, claims, sizes, left, seed)
            except channels.NoTheoremError as error:
                reason = str(error)
            else:
                answers = [
                    dataclasses.replace(answer, lower=max(answer.lower, low))
                    for answer, low in zip(answers, drawn, strict=True)
                ]
    return answers, reason, any(drawn)


def brackets(
    event: stock.DpEvent, relation: NeighborRel, claims: Sequence[Answer], rare: float
) -> list[Answer]:
    """Returns the answers with lower and upper bounds in ball arithmetic.

    Tails of probability `rare` are truncated. An upper bound is infinite if the
    verification knows none for the event, and it raises `NoTheoremError` if it knows no
    bound at all.
    """
    sizes = channels.Sizes(Side.HIGH, _CELLS, _OUTPUTS, rare)
    high = kinds.cases(event, relation, sizes)
    low = kinds.cases(event, relation, dataclasses.replace(sizes, side=Side.LOW))

    def worst(
        cases: Sequence[Channel], asked: Answer, side: Side, none: float
    ) -> float:
        every = (_bound(case, way, asked, side) for case in cases for way in _WAYS)
        return max(every, default=none)

    return [
        dataclasses.replace(
            claim,
            lower=worst(low, claim, Side.LOW, 0.0),
            upper=worst(high, claim, Side.HIGH, math.inf),
        )
        for claim in claims
    ]


def sampled(
    event: stock.DpEvent,
    relation: NeighborRel,
    claims: Sequence[Answer],
    sizes: channels.Sizes,
    seconds: float,
    seed: int,
) -> list[float]:
    """Returns lower bounds that hold with probability 1 − 1e-6.

    They are 0 if every part of the event has a better bound in ball arithmetic. Parts
    without a definition of their draws are drawn from their channels of these sizes.
    It raises `NoTheoremError` if an event in the tree has no definition here.
    """
    mechanism, members = kinds.mechanism_of(event), kinds.group_size(event)
    replaced = relation is NeighborRel.REPLACE_ONE
    if any(g.num_removed not in (None, 0, members) for g in kinds.groups(event)):
        raise channels.NoTheoremError("no draws where some leave and others join")
    several = replaced or members > 1
    if not mechanism.is_drawn(several=several):
        return [0.0] * len(claims)
    laws = mechanisms.certain(members), mechanisms.certain(members * replaced)
    reading = mechanisms.Reading(relation, sizes, laws)
    return sampling.lower_bounds(
        mechanisms.drawable(
            mechanism, reading, lowest=-1.0 * replaced, several=several
        ),
        members if mechanism.takes_groups() else 1,
        replaced=replaced,
        claims=claims,
        seconds=seconds,
        seed=seed,
    )


def _bound(channel: Channel, remove: bool, asked: Answer, side: Side) -> float:
    """Returns a bound on an answer by a channel, in one direction."""
    if asked.kind == "ε":
        return _epsilon(channel, remove, asked.at, side)
    ask = channel.delta if asked.kind == "δ" else channel.true_positives
    low, high = ask(asked.at, remove=remove)
    if side is Side.LOW:
        return max(math.nextafter(float(low), -math.inf), 0.0)
    return min(math.nextafter(float(high), math.inf), 1.0)


def _epsilon(channel: Channel, remove: bool, delta: float, side: Side) -> float:
    """Returns a bound on ε: a number at which δ is certainly larger, or at most δ."""
    q, p = channel.rows if remove else channel.rows[::-1]
    alone = sum((b for a, b in zip(q, p, strict=True) if a == 0), channels.ZERO)
    if side is Side.LOW and alone > delta:
        return math.inf
    numbers = np.array([[float(x.mid()) for x in row] for row in (q, p)])

    def exceeds(epsilon: float) -> bool:
        if epsilon > 700:
            return float(numbers[1, numbers[0] <= 0].sum()) > delta
        gaps = numbers[1] - math.exp(epsilon) * numbers[0]
        return float(np.maximum(gaps, 0.0).sum()) > delta

    about = sampling.crossing(exceeds)
    for margin in _MARGINS:
        if side is Side.LOW:
            epsilon = about * (1 - margin)
            if channel.delta(epsilon, remove=remove)[0] > delta:
                return epsilon
        elif about < sampling.LARGEST:
            epsilon = about * (1 + margin) + margin * 1e-9
            if channel.delta(epsilon, remove=remove)[1] <= delta:
                return epsilon
    return 0.0 if side is Side.LOW else math.inf
