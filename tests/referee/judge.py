"""Compares every bound of the package with what the referee knows."""

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


class Wrong(list[str]):
    """Bounds on the wrong side of the truth."""

    def unless(self, holds: bool, message: str) -> None:
        """Adds a message, unless what it denies holds."""
        if not holds:
            self.append(message)


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


def judge(question: Question, *, mixed: bool = False, **sizes: Any) -> Wrong:
    """Returns which of a tree's bounds are wrong; an error is wrong, too.

    Of a mixed tree both accountants are asked, each of which may refuse by name.
    """
    wrong = Wrong()
    rarest = min(1e-22, *question.deltas, *question.rates)
    sizes.setdefault("rare", max(rarest * 1e-8, 1e-300))
    try:
        (_judge_or_refused if mixed else _judge_accountant)(question, wrong, **sizes)
    except Exception as error:
        wrong.append(f"{question}: {error!r}")
    return wrong


def _judge_accountant(question: Question, wrong: Wrong, **sizes: Any) -> None:
    accountant = ext.PLDAccountant(question.relation).compose(question.event)
    _judge(question, accountant, Truth(question, **sizes), wrong)


def _judge_or_refused(question: Question, wrong: Wrong, **sizes: Any) -> None:
    accountants = [
        ext.PLDAccountant(question.relation),
        ext.RdpAccountant(neighboring_relation=question.relation),
        ext.RdpAccountant(_ORDERS, neighboring_relation=question.relation),
    ]
    taken = [each for each in accountants if _is_taken(each, question, wrong)]
    truth = Truth(question, **sizes) if taken else None
    for accountant in taken:
        judged = _judge if accountant is accountants[0] else _judge_renyi
        judged(question, accountant, truth, wrong)


def _is_taken(accountant: Any, question: Question, wrong: Wrong) -> bool:
    """Tells whether a tree is composed; if it is not, the refusal names an event."""
    try:
        accountant.compose(question.event)
    except privacy_accountant.UnsupportedEventError as error:
        named = re.search(r"caused by subevent (\w+Event)\(", str(error))
        held = named is not None and named[1] in repr(question.event)
        wrong.unless(held and accountant.get_epsilon(1e-9) == 0, f"{question}: {error}")
        return False
    return True


def _judge_renyi(
    question: Question, accountant: Any, truth: Truth, wrong: Wrong
) -> None:
    for delta in question.deltas:
        found = accountant.get_epsilon(delta)
        told = f"{question}: ε at {delta!r} is {found!r} by Rényi divergences"
        wrong.unless(found >= 0, f"{told}, no number")
        if found < LARGEST:
            least = truth.lower(found)
            wrong.unless(least <= delta, f"{told}, but δ is {float(least)!r}")
        for epsilon in {share * min(found, 600.0) for share in (0.0, *question.shares)}:
            delta_there = accountant.get_delta(epsilon)
            least = truth.lower(epsilon)
            wrong.unless(
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
        wrong.unless(
            bool(least <= found) if math.isfinite(found) else found > 0,
            f"{question}: the divergence of order {order!r} is {found!r}, "
            f"but it is at least {float(least)!r}",
        )


def _judge(question: Question, accountant: Any, truth: Truth, wrong: Wrong) -> None:
    tops = [
        _judge_epsilons(question, truth, wrong, accountant, delta)
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
        _judge_deltas(question, truth, wrong, epsilon, bounds)
        if question.interval and epsilon <= 600:
            for ways, both in _distributions(question, epsilon, max(tops)):
                _judge_deltas(question, truth, wrong, epsilon, both, ways)
    for rate in question.rates:
        low, high = accountant.get_true_positive_rate_bounds(rate)
        told = f"{question}: true positives at {rate!r} in [{low!r}, {high!r}]"
        least, most = truth.power(rate)
        wrong.unless(0 <= low <= high <= 1, f"{told} out of order")
        wrong.unless(bool(least <= high), f"{told}, but at least {float(least)!r}")
        wrong.unless(bool(low <= most), f"{told}, but at most {float(most)!r}")


def _beside(losses: Sequence[float], places: Sequence[float]) -> Iterator[float]:
    """Yields losses and their neighbors among floats."""
    for place in places if losses else ():
        at = losses[round(place * (len(losses) - 1))]
        for each in (at, math.nextafter(at, math.inf), math.nextafter(at, -math.inf)):
            yield max(each, 0.0)


def _judge_epsilons(
    question: Question, truth: Truth, wrong: Wrong, accountant: Any, delta: float
) -> float:
    """Returns the upper bound, or one where it is infinite."""
    low, high = accountant.get_epsilon_bounds(delta)
    told = f"{question}: ε at {delta!r} in [{low!r}, {high!r}]"
    wrong.unless(0 <= low <= high, f"{told} out of order")
    if high < LARGEST:
        least = truth.lower(high)
        wrong.unless(
            bool(least <= delta), f"{told}, but δ is at least {float(least)!r}"
        )
    if 0 < low < LARGEST and truth.has_upper:
        most = truth.upper(low)
        wrong.unless(bool(most >= delta), f"{told}, but δ is at most {float(most)!r}")
    return high if math.isfinite(high) else 1.0


def _judge_deltas(
    question: Question,
    truth: Truth,
    wrong: Wrong,
    epsilon: float,
    bounds: tuple[float, float],
    ways: Sequence[bool] = _EITHER,
) -> None:
    low, high = bounds
    told = f"{question}: δ({epsilon!r}) in [{low!r}, {high!r}], ways {ways}"
    wrong.unless(0 <= low <= high <= 1, f"{told} out of order")
    least = truth.lower(epsilon, ways)
    wrong.unless(
        bool(least <= max(high, SMALLEST)), f"{told}, but at least {float(least)!r}"
    )
    if truth.has_upper:
        most = truth.upper(epsilon, ways)
        wrong.unless(
            bool(low <= max(float(most.upper()), SMALLEST)),
            f"{told}, but at most {float(most)!r}",
        )


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
