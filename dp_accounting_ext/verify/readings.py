"""The channels of a tree of events, from the definitions of the events.

A reading is a list of cases. Each case is a channel: it stands for two neighboring
datasets and values of their records that the events allow. The true privacy profile is
at least that of every case, so that `LOW` channels bound it from below, and no upper
bound of the package may be less. Where a theorem proves that the listed cases are the
worst ones, `HIGH` channels bound it from above. An empty list means that no bound is
known.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import fractions
import itertools
import math
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from flint import arb

from dp_accounting_ext import dp_event
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import runs

NeighborRel = privacy_accountant.NeighboringRelation
Channel = channels.Channel
Shifts = noises.Shifts
Side = channels.Side
ball = channels.ball
ONE = fractions.Fraction(1)
UNSHIFTED: Shifts = ((0.0, ONE),)
SAMPLES = (stock.PoissonSampledDpEvent, dp_event.PLDSubsampleEvent)
FIXED = (stock.SampledWithoutReplacementDpEvent, stock.SampledWithReplacementDpEvent)
NOISES = (stock.GaussianDpEvent, stock.LaplaceDpEvent)
# Tuning: the most values of the normal distribution for one channel; and the least
# number of cells.
_MOST_TAILS, _FEWEST_CELLS = 200_000, 200
_LARGEST_GROUP = 64
PLAIN = (*NOISES, stock.NoOpDpEvent, stock.NonPrivateDpEvent)


@dataclasses.dataclass(frozen=True)
class Referee:
    """Reads events as channels, with the given relation, side and sizes.

    Attributes:
        readers: The reader of each event that is no composition or sample.
        relation: The neighboring relation.
        side: The side from which channels bound the mechanisms.
        cells: The number of cells into which continuous noise is discretized.
        most: The largest number of outputs of a channel.
        rare: Probability of tails that may be truncated, as in `runs.power`.
        split: The number of members of the group that are removed, and that are added.
            A single record is a group of one.
        exactly: Whether channels of discrete mechanisms stay exact.
    """

    readers: "Readers"
    relation: NeighborRel
    side: Side
    cells: int = 150
    most: int = 200
    rare: float = 1e-40
    split: tuple[int, int] = (1, 0)
    exactly: bool = True

    def channel(self, event: stock.DpEvent) -> Channel | None:
        """Returns the first case of an event; None if there is none.

        It is also None if an upper bound is needed and there are several cases.
        """
        cases = self.cases(event)
        several = self.side is Side.HIGH and len(cases) > 1
        return cases[0] if cases and not several else None

    def cases(self, event: stock.DpEvent) -> list[Channel]:
        """Returns a channel for each case; an empty list if no bound is known."""
        if isinstance(event, stock.SelfComposedDpEvent):
            return self.repeated(self.cases(event.event), int(event.count))
        if isinstance(event, stock.ComposedDpEvent):
            return self.composed([self.cases(child) for child in event.events])
        found = self._single(event)
        if self.exactly:
            return found
        return [channels.bounding(case, self.side) for case in found]

    def composed(self, parts: Sequence[list[Channel]]) -> list[Channel]:
        """Returns compositions of the parts, for a few choices of their cases."""
        found = [channels.NO_OP]
        for part in parts:
            pairs = itertools.islice(itertools.product(found, part), 6)
            found = [runs.product(a, b, self.most, self.rare) for a, b in pairs]
        return found

    def repeated(self, cases: list[Channel], count: int) -> list[Channel]:
        """Returns self-compositions: of each case alone, and of halves of two cases."""
        found = [runs.power(case, count, self.most, self.rare) for case in cases]
        if count > 1:
            for one, other in itertools.islice(itertools.combinations(cases, 2), 3):
                first, second = (
                    runs.power(case, number, self.most, self.rare)
                    for case, number in ((one, count // 2), (other, count - count // 2))
                )
                found.append(runs.product(first, second, self.most, self.rare))
        return found

    def _single(self, event: Any) -> list[Channel]:
        if isinstance(event, stock.NoOpDpEvent):
            return [channels.NO_OP]
        if isinstance(event, stock.NonPrivateDpEvent):
            return [channels.EVERYTHING]
        if isinstance(event, dp_event.GroupSubsampledEvent):
            return _Group(self).cases(event.event)
        if sum(self.split) > (2 if self.relation is NeighborRel.REPLACE_ONE else 1):
            return _Group(self).cases(event)
        if isinstance(event, FIXED):
            return self.fixed_size(event)
        if self.relation is NeighborRel.REPLACE_ONE:
            found = self._replaced(event)
            if found is not None:
                return found
            if kind(event) not in _ONES_OWN:
                return self._one_leaves(event)
        if isinstance(event, SAMPLES):
            return self._on_a_sample(event)
        name = kind(event)
        if name not in self.readers:
            raise channels.NoTheoremError(f"no theorem for {name}")
        return self.readers[name](event, self)

    def _one_leaves(self, event: Any) -> list[Channel]:
        """Returns the cases in which the replacing record contributes nothing."""
        if self.side is Side.HIGH:
            return []
        absent = dataclasses.replace(self, relation=NeighborRel.ADD_OR_REMOVE_ONE)
        return absent.cases(event)

    def noise(self, event: Any, p: Shifts, q: Shifts) -> Channel:
        """Returns the channel of noise around random sums.

        Args:
            event: The Gaussian or Laplace event.
            p: (value, probability) of the sum with the record, in norms of a record.
            q: The same without the record.
        """
        scale = float(event.noise_multiplier)
        if scale == 0:
            return noises.without_noise(p, q)
        kind = "laplace" if isinstance(event, stock.LaplaceDpEvent) else "gaussian"
        # A ball that may be zero counts.
        p, q = (
            tuple((shift, w) for shift, w in law if isinstance(w, arb) or w)
            for law in (p, q)
        )
        widest = max(abs(shift) for law in (p, q) for shift, _ in law) / scale
        # Large shifts need finer cells, because ratios change faster.
        cells = min(int(self.cells * (1 + widest / 3)), 4 * self.cells)
        # A normal variable exceeds this number with probability below `rare`.
        reach = math.ceil(math.sqrt(-2 * math.log(self.rare)))
        cells = cells * max(reach, 12) // 12
        # The time for each cell grows with the number of shifts.
        cells = min(cells, max(_MOST_TAILS // (len(p) + len(q)), _FEWEST_CELLS))
        # Balls cannot be looked up.
        balls = any(isinstance(w, arb) for law in (p, q) for _, w in law)
        make = noises.noise.__wrapped__ if balls else noises.noise
        return make(kind, scale, p, q, self.side, cells=cells, reach=reach)

    def _on_a_sample(self, event: Any) -> list[Channel]:
        rate = float(event.sampling_probability)
        return [channels.sampled(rate, case) for case in self.cases(event.event)]

    def _replaced(self, event: Any) -> list[Channel] | None:
        """Returns the case of a record at +1 that is replaced by one at −1.

        Returns None if the event is neither additive noise nor a Poisson sample of it.
        """
        if isinstance(event, NOISES):
            return [self.noise(event, ((1.0, ONE),), ((-1.0, ONE),))]
        if isinstance(event, SAMPLES) and isinstance(event.event, PLAIN):
            if isinstance(event.event, stock.NoOpDpEvent):
                return [channels.NO_OP]
            rate = fractions.Fraction(float(event.sampling_probability))
            p, q = (((0.0, 1 - rate), (s, rate)) for s in (1.0, -1.0))
            if isinstance(event.event, stock.NonPrivateDpEvent):
                return [noises.without_noise(p, q)]
            return [self.noise(event.event, p, q)] if rate else [channels.NO_OP]
        return None

    def fixed_size(self, event: Any) -> list[Channel]:
        """Returns the cases of noise on batches of fixed size, from a group of records.

        The members of the group are at +1 and all other records at −1. In the
        neighboring dataset the members are missing, or are replaced by records at −1.
        Changing all signs gives the same channel for one run.
        """
        if isinstance(event.event, stock.NoOpDpEvent):
            return [channels.NO_OP]
        size, batch = int(event.source_dataset_size), int(event.sample_size)
        if not isinstance(event.event, NOISES):
            return self._batch_of_any(event.event, batch / size)
        special = self.relation is NeighborRel.REPLACE_SPECIAL
        if self.side is Side.HIGH and (special or 0 not in self.split):
            return []
        replaced = isinstance(event, stock.SampledWithReplacementDpEvent)
        if special:
            law = batch_law(size, batch, self.split[0], replaced)
            return [
                self.noise(event.event, tuple((1.0 * i, w) for i, w in law), UNSHIFTED)
            ]
        others = size - self.split[0]
        if self.relation is not NeighborRel.REPLACE_ONE:
            others -= self.split[1]
        batches = [
            batch if replaced else min(batch, others + members)
            for members in self.split
        ]
        found: list[Channel] = []
        for members, own, other in zip(self.split, batches, batches[::-1], strict=True):
            if not members:
                continue
            law = batch_law(others + members, own, members, replaced)
            sign = -1.0 if found or not self.split[0] else 1.0
            shifts = tuple((sign * (2.0 * i - own + other), w) for i, w in law)
            pair = (shifts, UNSHIFTED) if sign > 0 else (UNSHIFTED, shifts)
            found.append(self.noise(event.event, *pair))
        return found

    def _batch_of_any(self, event: Any, rate: float) -> list[Channel]:
        """Returns the cases of any mechanism on a batch that includes a record.

        With probability `rate` the record takes the place of another in the batch.
        """
        if self.side is Side.HIGH:
            return []
        inside = self
        if self.relation is NeighborRel.ADD_OR_REMOVE_ONE:
            inside = dataclasses.replace(self, relation=NeighborRel.REPLACE_ONE)
        found = inside.cases(event)
        if kind(event) in REVERSIBLE:
            # The other records contribute and this one does not, so that the rows of
            # the inner mechanism are exchanged.
            found += [dataclasses.replace(c, rows=c.rows[::-1]) for c in found]
        return [channels.sampled(rate, case) for case in found]


def batch_law(
    size: int, batch: int, members: int, replaced: bool
) -> list[tuple[int, fractions.Fraction]]:
    """Returns the exact law of the number of group members in a batch of fixed size.

    Args:
        size: The number of records in the dataset.
        batch: The number of records in the batch.
        members: The number of members of the group.
        replaced: Whether the batch is drawn with replacement.
    """
    if replaced:
        weights = [
            math.comb(batch, i) * members**i * (size - members) ** (batch - i)
            for i in range(batch + 1)
        ]
    else:
        weights = [
            math.comb(members, i) * math.comb(size - members, batch - i)
            for i in range(min(members, batch) + 1)
        ]
    total = sum(weights)
    return [(i, fractions.Fraction(w, total)) for i, w in enumerate(weights) if w]


def inclusions(members: int, rate: float) -> list[tuple[int, fractions.Fraction]]:
    """Returns the exact law of the number of members in a Poisson sample."""
    inside = fractions.Fraction(rate)
    law = (
        (i, math.comb(members, i) * inside**i * (1 - inside) ** (members - i))
        for i in range(members + 1)
    )
    return [(number, weight) for number, weight in law if weight]


@dataclasses.dataclass(frozen=True)
class _Group:
    """Reads events for a group: removed members are at +1, added members at −1."""

    referee: Referee

    def cases(self, event: stock.DpEvent) -> list[Channel]:
        referee = self.referee
        if isinstance(event, stock.SelfComposedDpEvent):
            return referee.repeated(self.cases(event.event), int(event.count))
        if isinstance(event, stock.ComposedDpEvent):
            return referee.composed([self.cases(child) for child in event.events])
        if not self._is_tight(event):
            return self._single_member(event)
        if isinstance(event, FIXED):
            return referee.fixed_size(event)
        rate, inner = 1.0, event
        if isinstance(event, SAMPLES):
            rate, inner = float(event.sampling_probability), event.event
        if isinstance(inner, stock.NoOpDpEvent) or rate == 0:
            return [channels.NO_OP]
        laws = [inclusions(members, rate) for members in referee.split]
        if isinstance(inner, stock.NonPrivateDpEvent):
            p, q = (
                tuple((float(sign * (i > 0)), weight) for i, weight in law)
                for sign, law in zip((1, -1), laws, strict=True)
            )
            return [noises.without_noise(p, q)]
        if isinstance(inner, stock.RandomizedResponseDpEvent):
            return self._responses(inner, laws)
        p, q = (
            tuple((float(sign * i), weight) for i, weight in law)
            for sign, law in zip((1, -1), laws, strict=True)
        )
        return [referee.noise(inner, p, q)]

    def _is_tight(self, event: Any) -> bool:
        """Returns whether the channel of a split is known for the whole group."""
        relation = self.referee.relation
        if isinstance(event, FIXED):
            special = relation is NeighborRel.REPLACE_SPECIAL
            return isinstance(event.event, PLAIN) and not special
        inner = event.event if isinstance(event, SAMPLES) else event
        if isinstance(inner, stock.RandomizedResponseDpEvent):
            return relation is NeighborRel.ADD_OR_REMOVE_ONE
        return isinstance(inner, PLAIN)

    def _single_member(self, event: stock.DpEvent) -> list[Channel]:
        """Returns the cases in which one member is removed and no other contributes."""
        if self.referee.side is Side.HIGH or not self.referee.split[0]:
            return []
        return dataclasses.replace(self.referee, split=(1, 0)).cases(event)

    def _responses(
        self, event: Any, laws: Sequence[list[tuple[int, fractions.Fraction]]]
    ) -> list[Channel]:
        """Returns cases of randomized response to whether the batch has a member.

        There is one case for removed members and one for added members.
        """
        if self.referee.side is Side.HIGH and 0 not in self.referee.split:
            return []
        lie = fractions.Fraction(float(event.noise_parameter)) / 2
        found = []
        for index, law in enumerate(laws):
            probability = sum(weight for number, weight in law if number)
            if not probability:
                continue
            yes = probability * (1 - lie) + (1 - probability) * lie
            bits = [[lie, 1 - lie], [yes, 1 - yes]]
            found.append(channels.exact(*(bits if index == 0 else bits[::-1])))
        return found or [channels.NO_OP]


def splits(event: stock.DpEvent, relation: NeighborRel) -> list[tuple[int, int]]:
    """Returns every pair of numbers of removed and of added members of the group.

    If one pair is told, these are it and its reverse.

    Raises:
        NoTheoremError: If the group is too large.
    """
    size = max((int(group.group_size) for group in groups(event)), default=1)
    if size > _LARGEST_GROUP:
        raise channels.NoTheoremError(
            f"no theorem that is quick for a group of {size} records"
        )
    if relation is NeighborRel.REPLACE_ONE:
        return [(size, size)]
    if not any(groups(event)):
        return [(1, 0)]
    told = [int(g.num_removed) for g in groups(event) if g.num_removed is not None]
    if told:
        return [(told[0], size - told[0]), (size - told[0], told[0])]
    return [(leaving, size - leaving) for leaving in range(size + 1)]


def kind(event: Any) -> str:
    """Returns the name of an event's class, with its module if it is a stranger's."""
    home, name = type(event).__module__, type(event).__name__
    known = home.partition(".")[0] in ("dp_accounting", "dp_accounting_ext")
    return name if known else f"{home}.{name}"


def groups(event: Any) -> Iterator[dp_event.GroupSubsampledEvent]:
    """Yields the groups in a tree of events."""
    if isinstance(event, dp_event.GroupSubsampledEvent):
        yield event
    elif isinstance(event, stock.ComposedDpEvent):
        for child in event.events:
            yield from groups(child)
    elif isinstance(event, stock.SelfComposedDpEvent):
        yield from groups(event.event)


def readings(
    readers: "Readers",
    event: stock.DpEvent,
    relation: NeighborRel,
    side: Side,
    **sizes: Any,
) -> list[Channel]:
    """Returns the channels of all cases of an event; an empty list if none is known.

    Raises:
        NoTheoremError: If an event in the tree is not known, or a group is too large.
    """
    found = []
    for split in splits(event, relation):
        cases: list[Channel] = []
        for exactly in (True, False):
            referee = Referee(
                readers, relation, side, split=split, exactly=exactly, **sizes
            )
            try:
                cases = referee.cases(event)
                break
            except channels.TooLargeError:
                continue
        if len(cases) != 1 and side is Side.HIGH:
            return []
        found += cases
    return found


# Events in which the roles of the record and of the other records can be exchanged.
REVERSIBLE: set[str] = set()

# Events that have their own channel under the replace-one relation.
_ONES_OWN = {
    "RandomizedResponseDpEvent",
    "TruncatedSubsampledGaussianDpEvent",
    "PrivateSamplingEvent",
}

# Readers by the names of events. Each returns the cases of an event.
Readers = dict[str, Callable[[Any, Referee], list[Channel]]]
