"""Compares every bound of the package with what the referee knows."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
import re
from typing import Any

import channels
from dp_accounting import privacy_accountant
import newer_truths
import numpy as np
import truths

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair

NeighborRel = privacy_accountant.NeighboringRelation
Side = channels.Side
_ROUNDING = 2.0**-51
_SMALLEST = 1e-60  # No smaller δ is judged.
_EITHER = (True, False)  # Ways: whether the record is removed.
assert newer_truths  # It adds readers to those of the truths.


@dataclasses.dataclass(frozen=True)
class Discrete(interface.Mechanism):
    """The pair of a `truths.DiscreteEvent`, as its user would write it."""

    without: tuple[int, ...]
    with_record: tuple[int, ...]

    def pairs(
        self, bound: dominating_pair.Bound, tail_mass: float
    ) -> dominating_pair.DirectedPairs:
        q = np.array(self.without) / sum(self.without)
        p = np.array(self.with_record) / sum(self.with_record)
        both = (p > 0) & (q > 0)
        ratios, masses = p[both] / q[both], q[both]
        order = np.argsort(ratios, kind="stable")
        side = 1 if bound is dominating_pair.Bound.UPPER else -1
        sinks = [
            min(float(law[other == 0].sum()) * (1 + side * _ROUNDING), 1.0)
            for law, other in ((p, q), (q, p))
        ]
        return dominating_pair.DirectedPairs.same(
            dominating_pair.DominatingPair(
                ratios[order], masses[order], *sinks, bound, _ROUNDING, _ROUNDING
            )
        )


ext.PLDAccountant.register(
    truths.DiscreteEvent,
    lambda event, reader: Discrete(
        tuple(int(w) for w in event.without), tuple(int(w) for w in event.with_record)
    ),
)


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of a tree.

    Attributes:
        event: The tree.
        relation: The neighbouring relation.
        delta: δ, at which ε is asked for.
        share: Of that ε, what δ is asked for at.
        interval: Of a privacy loss distribution over that ε; none where it is 0.
    """

    event: Any
    relation: NeighborRel
    delta: float
    share: float
    interval: float = 0.0


@dataclasses.dataclass
class Answer:
    """What came of a question.

    Attributes:
        checks: How many bounds were compared with the truth.
        violations: Bounds on the wrong side of it.
        gaps: Relative widths of the package's brackets.
        referee_gaps: Relative widths of the referee's, where it has two sides.
        refused: How often an accountant had no theorem for a tree, and said so.
    """

    checks: int = 0
    violations: list[str] = dataclasses.field(default_factory=list)
    gaps: list[float] = dataclasses.field(default_factory=list)
    referee_gaps: list[float] = dataclasses.field(default_factory=list)
    refused: int = 0

    def require(self, holds: bool, message: str) -> None:
        self.checks += 1
        if not holds:
            self.violations.append(message)


class Truth:
    """Certain bounds on the divergences of an event, of which some may be missing."""

    def __init__(self, question: Question, **sizes: int) -> None:
        arguments = question.event, question.relation
        self._low = truths.readings(*arguments, Side.LOW, **sizes)
        self._high = truths.readings(*arguments, Side.HIGH, **sizes)

    @property
    def has_upper(self) -> bool:
        return bool(self._high)

    def lower(self, epsilon: float, ways: Sequence[bool] = _EITHER) -> Any:
        """Returns what δ is at least."""
        return max(c.delta(epsilon, remove=r)[0] for c in self._low for r in ways)

    def upper(self, epsilon: float, ways: Sequence[bool] = _EITHER) -> Any:
        """Returns what δ is at most."""
        return max(c.delta(epsilon, remove=r)[1] for c in self._high for r in ways)


def judge(question: Question, **sizes: int) -> Answer:
    """Returns how a tree's bounds compare with the truth; an error is wrong, too."""
    return _judged(question, _judge_accountants, **sizes)


def judge_mixed(question: Question, **sizes: int) -> Answer:
    """Returns the same of both accountants, each of which may refuse by name."""
    return _judged(question, _judge_or_refused, **sizes)


def _judged(question: Question, judged: Callable[..., None], **sizes: int) -> Answer:
    answer = Answer()
    try:
        judged(question, answer, **sizes)
    except Exception as error:
        answer.require(False, f"{question}: {error!r}")
    return answer


def _judge_accountants(question: Question, answer: Answer, **sizes: int) -> None:
    accountant = ext.PLDAccountant(question.relation).compose(question.event)
    _judge(question, accountant, Truth(question, **sizes), answer)


def _judge_or_refused(question: Question, answer: Answer, **sizes: int) -> None:
    pld_accountant = ext.PLDAccountant(question.relation)
    rdp_accountant = ext.RdpAccountant(neighboring_relation=question.relation)
    taken = [
        _is_taken(accountant, question, answer)
        for accountant in (pld_accountant, rdp_accountant)
    ]
    answer.refused += taken.count(False)
    if not any(taken):
        return
    truth = Truth(question, **sizes)
    if taken[0]:
        _judge(question, pld_accountant, truth, answer)
    if taken[1]:
        _judge_renyi(question, rdp_accountant, truth, answer)


def _is_taken(accountant: Any, question: Question, answer: Answer) -> bool:
    """Tells whether a tree is composed; if it is not, the refusal names an event."""
    try:
        accountant.compose(question.event)
    except privacy_accountant.UnsupportedEventError as error:
        named = re.search(r"caused by subevent (\w+Event)\(", str(error))
        held = named is not None and named[1] in repr(question.event)
        answer.require(
            held and accountant.get_epsilon(1e-9) == 0, f"{question}: {error}"
        )
        return False
    return True


def _judge_renyi(
    question: Question, accountant: Any, truth: Truth, answer: Answer
) -> None:
    found = accountant.get_epsilon(question.delta)
    told = f"{question}: ε is {found!r} by Rényi divergences"
    answer.require(found >= 0, f"{told}, no number")
    if found < 600:
        least = truth.lower(found)
        answer.require(least <= question.delta, f"{told}, but δ is {float(least)!r}")
    for epsilon in {0.0, question.share * min(found, 600.0)}:
        delta = accountant.get_delta(epsilon)
        least = truth.lower(epsilon)
        answer.require(
            least <= max(delta, _SMALLEST),
            f"{question}: δ({epsilon!r}) is {delta!r} by Rényi divergences, but it is "
            f"at least {float(least)!r}",
        )


def _judge(question: Question, accountant: Any, truth: Truth, answer: Answer) -> None:
    low, high = accountant.get_epsilon_bounds(question.delta)
    _judge_epsilons(question, truth, answer, low, high)
    top = high if math.isfinite(high) else 1.0
    for epsilon in {0.0, question.share * top}:
        if epsilon > 600:
            continue
        bounds = accountant.get_delta_bounds(epsilon)
        _judge_deltas(question, truth, answer, epsilon, bounds)
        if question.interval:
            for ways, both in _distributions(question, epsilon, top):
                _judge_deltas(question, truth, answer, epsilon, both, ways)


def _judge_epsilons(
    question: Question, truth: Truth, answer: Answer, low: float, high: float
) -> None:
    told = f"{question}: ε in [{low!r}, {high!r}]"
    answer.require(0 <= low <= high, f"{told} out of order")
    if high < 600:
        least = truth.lower(high)
        answer.require(
            least <= question.delta, f"{told}, but δ is at least {float(least)!r}"
        )
        if high > 1e-6:
            answer.gaps.append((high - low) / high)
    if low > 600 or not truth.has_upper:
        return
    if low > 0:
        most = truth.upper(low)
        answer.require(
            most >= question.delta, f"{told}, but δ is at most {float(most)!r}"
        )


def _judge_deltas(
    question: Question,
    truth: Truth,
    answer: Answer,
    epsilon: float,
    bounds: tuple[float, float],
    ways: Sequence[bool] = _EITHER,
) -> None:
    low, high = bounds
    told = f"{question}: δ({epsilon!r}) in [{low!r}, {high!r}], ways {ways}"
    answer.require(0 <= low <= high <= 1, f"{told} out of order")
    least = truth.lower(epsilon, ways)
    answer.require(
        least <= max(high, _SMALLEST), f"{told}, but it is at least {float(least)!r}"
    )
    if truth.has_upper:
        most = truth.upper(epsilon, ways)
        answer.require(
            low <= max(most, _SMALLEST), f"{told}, but it is at most {float(most)!r}"
        )
        if most > 1e-30:
            answer.referee_gaps.append(float((most - least) / most))
    if high > 1e-30 and ways is _EITHER:
        answer.gaps.append((high - low) / high)


def _distributions(
    question: Question, epsilon: float, top: float
) -> Iterator[tuple[Sequence[bool], tuple[float, float]]]:
    """Yields δ in each direction, by optimistic and pessimistic distributions.

    A group's are of either direction together: a split in one is another's reverse.
    """
    both = [
        pld.from_event(
            question.event,
            neighboring_relation=question.relation,
            value_discretization_interval=max(question.interval * top, 1e-4),
            pessimistic_estimate=side,
        )
        for side in (False, True)
    ]
    found = [
        [getattr(d, name).get_delta_for_epsilon(epsilon) for d in both]
        for name in ("_pmf_remove", "_pmf_add")
    ]
    if any(truths.groups(question.event)):
        low, high = (max(side) for side in zip(*found, strict=True))
        yield _EITHER, (float(low), float(min(high, 1.0)))
        return
    for way, (low, high) in zip((True, False), found, strict=True):
        yield (way,), (float(low), float(min(high, 1.0)))
