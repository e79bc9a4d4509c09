"""Compares every bound of the package with what the referee knows."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
import re
from typing import Any

from dp_accounting import privacy_accountant
from flint import arb
import own_readings

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds

NeighborRel = privacy_accountant.NeighboringRelation
# Probabilities below it underflow (docs/guarantees.md): nobody is to ask for such a δ.
SMALLEST = 1e-270
LARGEST = 1e4  # No larger ε is judged.
_EITHER = (True, False)  # Ways: whether the record is removed.
# All but the first are among the stock accountant's own.
_ORDERS = [1.25, 2.0, 3.1, 5.0, 10.7, 32.0, 64.0]
assert own_readings  # It adds kinds to those of the package.


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of a tree.

    Attributes:
        event: The tree.
        relation: The neighboring relation.
        deltas: δ at which ε is asked for.
        shares: Of the ε found, where δ is asked for.
        epsilons: Where δ is asked for, besides.
        atoms: Which losses of the tree δ is asked for at, and a hair beside them, as
            shares of their number.
        rates: False positive rates.
        interval: Of a privacy loss distribution over that ε; none where it is 0.
    """

    event: Any
    relation: NeighborRel
    deltas: tuple[float, ...]
    shares: tuple[float, ...] = (0.5, 1.0)
    epsilons: tuple[float, ...] = ()
    atoms: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
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

    def __init__(self, question: Question, **sizes: Any) -> None:
        self._low, self._high = (
            kinds.cases(
                question.event, question.relation, channels.Sizes(side, **sizes)
            )
            for side in channels.Side
        )

    @property
    def has_upper(self) -> bool:
        return bool(self._high)

    def lower(self, epsilon: float, ways: Sequence[bool] = _EITHER) -> arb:
        """Returns what δ is at least."""
        return _most(c.delta(epsilon, remove=r)[0] for c in self._low for r in ways)

    def upper(self, epsilon: float, ways: Sequence[bool] = _EITHER) -> arb:
        """Returns what δ is at most."""
        return _most(c.delta(epsilon, remove=r)[1] for c in self._high for r in ways)

    def power(self, rate: float) -> tuple[arb, arb]:
        """Returns bounds on the best true positive rate; the upper may be one."""
        least, most = (
            [c.true_positives(rate, remove=r) for c in channels for r in _EITHER]
            for channels in (self._low, self._high)
        )
        upper = _most(high for _, high in most) if most else arb(1)
        return _most(low for low, _ in least), upper

    def renyi(self, order: float) -> arb:
        """Returns what the Rényi divergence is at least."""
        return _most(renyi(c, order, remove=r) for c in self._low for r in _EITHER)

    def losses(self) -> list[float]:
        """Returns losses of outputs that have both a probability, in order."""
        found = [
            abs(float((p / q).log()))
            for channel in self._low
            for q, p in zip(*channel.rows, strict=True)
            if p > 0 and q > 0
        ]
        return sorted(found)


def renyi(channel: channels.Channel, order: float, *, remove: bool) -> arb:
    """Returns a lower bound on the Rényi divergence of an order above one."""
    q, p = channel.rows if remove else channel.rows[::-1]
    total, alpha = arb(0), channels.ball(order)
    for a, b in zip(p, q, strict=True):
        if a > 0 and not b > 0:
            return arb("inf") if b == 0 else arb(0)
        if a > 0:
            total += a * ((alpha - 1) * (a / b).log()).exp()
    if not total > 0:
        return arb(0)
    return (total.log() / (alpha - 1) - 2 * alpha * channel.blur).lower()


def _most(values: Iterator[arb]) -> arb:
    largest = arb(0)
    for value in values:
        largest = value if value > largest else largest
    return largest


def judge(question: Question, **sizes: Any) -> Answer:
    """Returns how a tree's bounds compare with the truth; an error is wrong, too."""
    return _judged(question, _judge_accountants, **sizes)


def judge_mixed(question: Question, **sizes: Any) -> Answer:
    """Returns the same of both accountants, each of which may refuse by name."""
    return _judged(question, _judge_or_refused, **sizes)


def _judged(question: Question, judged: Callable[..., None], **sizes: Any) -> Answer:
    answer = Answer()
    rarest = min(1e-22, *question.deltas, *question.rates)
    sizes.setdefault("rare", max(rarest * 1e-8, 1e-300))
    try:
        judged(question, answer, **sizes)
    except Exception as error:
        answer.require(False, f"{question}: {error!r}")
    return answer


def _judge_accountants(question: Question, answer: Answer, **sizes: Any) -> None:
    accountant = ext.PLDAccountant(question.relation).compose(question.event)
    _judge(question, accountant, Truth(question, **sizes), answer)


def _judge_or_refused(question: Question, answer: Answer, **sizes: Any) -> None:
    accountants = [
        ext.PLDAccountant(question.relation),
        ext.RdpAccountant(neighboring_relation=question.relation),
        ext.RdpAccountant(_ORDERS, neighboring_relation=question.relation),
    ]
    taken = [_is_taken(each, question, answer) for each in accountants]
    answer.refused += taken[:2].count(False)
    if not any(taken):
        return
    truth = Truth(question, **sizes)
    if taken[0]:
        _judge(question, accountants[0], truth, answer)
    for accountant, is_taken in zip(accountants[1:], taken[1:], strict=True):
        if is_taken:
            _judge_renyi(question, accountant, truth, answer)


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
    for delta in question.deltas:
        found = accountant.get_epsilon(delta)
        told = f"{question}: ε at {delta!r} is {found!r} by Rényi divergences"
        answer.require(found >= 0, f"{told}, no number")
        if found < LARGEST:
            least = truth.lower(found)
            answer.require(least <= delta, f"{told}, but δ is {float(least)!r}")
        for epsilon in {share * min(found, 600.0) for share in (0.0, *question.shares)}:
            delta_there = accountant.get_delta(epsilon)
            least = truth.lower(epsilon)
            answer.require(
                least <= max(delta_there, SMALLEST),
                f"{question}: δ({epsilon!r}) is {delta_there!r} by Rényi divergences, "
                f"but it is at least {float(least)!r}",
            )
    if accountant.extra_delta:
        return
    for order, found in zip(
        accountant.orders.tolist(), accountant.rdp.tolist(), strict=True
    ):
        if order not in _ORDERS:
            continue
        least = truth.renyi(order)
        answer.require(
            bool(least <= found) if math.isfinite(found) else found > 0,
            f"{question}: the divergence of order {order!r} is {found!r}, "
            f"but it is at least {float(least)!r}",
        )


def _judge(question: Question, accountant: Any, truth: Truth, answer: Answer) -> None:
    tops = [
        _judge_epsilons(question, truth, answer, accountant, delta)
        for delta in question.deltas
    ]
    epsilons = {
        0.0,
        *question.epsilons,
        *(s * top for s in question.shares for top in tops),
    }
    epsilons |= set(_beside(truth.losses(), question.atoms))
    for epsilon in sorted(each for each in epsilons if each <= LARGEST):
        bounds = accountant.get_delta_bounds(epsilon)
        _judge_deltas(question, truth, answer, epsilon, bounds)
        if question.interval and epsilon <= 600:
            for ways, both in _distributions(question, epsilon, max(tops)):
                _judge_deltas(question, truth, answer, epsilon, both, ways)
    for rate in question.rates:
        low, high = accountant.get_true_positive_rate_bounds(rate)
        told = f"{question}: true positives at {rate!r} in [{low!r}, {high!r}]"
        least, most = truth.power(rate)
        answer.require(0 <= low <= high <= 1, f"{told} out of order")
        answer.require(bool(least <= high), f"{told}, but at least {float(least)!r}")
        answer.require(bool(low <= most), f"{told}, but at most {float(most)!r}")


def _beside(losses: Sequence[float], places: Sequence[float]) -> Iterator[float]:
    """Yields losses and their neighbors among floats."""
    for place in places if losses else ():
        at = losses[round(place * (len(losses) - 1))]
        for each in (at, math.nextafter(at, math.inf), math.nextafter(at, -math.inf)):
            yield max(each, 0.0)


def _judge_epsilons(
    question: Question, truth: Truth, answer: Answer, accountant: Any, delta: float
) -> float:
    """Returns the upper bound, or one where it is infinite."""
    low, high = accountant.get_epsilon_bounds(delta)
    told = f"{question}: ε at {delta!r} in [{low!r}, {high!r}]"
    answer.require(0 <= low <= high, f"{told} out of order")
    if high < LARGEST:
        least = truth.lower(high)
        answer.require(
            bool(least <= delta), f"{told}, but δ is at least {float(least)!r}"
        )
        if high > 1e-6:
            answer.gaps.append((high - low) / high)
    if 0 < low < LARGEST and truth.has_upper:
        most = truth.upper(low)
        answer.require(bool(most >= delta), f"{told}, but δ is at most {float(most)!r}")
    return high if math.isfinite(high) else 1.0


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
        bool(least <= max(high, SMALLEST)), f"{told}, but at least {float(least)!r}"
    )
    if truth.has_upper:
        most = truth.upper(epsilon, ways)
        answer.require(
            bool(low <= max(float(most.upper()), SMALLEST)),
            f"{told}, but at most {float(most)!r}",
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
    if any(kinds.groups(question.event)):
        low, high = (max(side) for side in zip(*found, strict=True))
        yield _EITHER, (float(low), float(min(high, 1.0)))
        return
    for way, (low, high) in zip((True, False), found, strict=True):
        yield (way,), (float(low), float(min(high, 1.0)))
