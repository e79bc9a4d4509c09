"""What an event runs: read in ball arithmetic, and drawn.

A reading *in balls* is a list of cases. Each case is a channel: it stands for two
neighboring datasets and values of their records that the event allows. The true privacy
profile is at least that of every case, so that `LOW` channels bound it from below.
Where a theorem proves that the listed cases are the worst ones, `HIGH` channels bound
it from above. An empty list means that no bound is known.

Outputs are *drawn* where there is no upper bound. A law is that of the outputs if some
members of a group of records are in the dataset, each of which contributes the same
value where it takes part: 1, −1, or any other. The loss of an output under a law is the
logarithm of its density over that without any member.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import fractions
import itertools
import math
from typing import Any

from dp_accounting import privacy_accountant
import numpy as np
from scipy import special

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import noises

NeighborRel = privacy_accountant.NeighboringRelation
Array = np.ndarray
Cases = list[channels.Channel]
Shifts = noises.Shifts
# The law of a number of members.
Members = Sequence[tuple[int, fractions.Fraction]]
UNSHIFTED: Shifts = ((0.0, fractions.Fraction(1)),)
_MOST_CASES = 6  # Of compositions, so many choices of cases are looked at.


def certain(number: int) -> Members:
    """Returns the law of a number of members that is not random."""
    return ((number, fractions.Fraction(1)),)


@dataclasses.dataclass(frozen=True)
class Reading:
    """Two neighboring datasets, and how finely their channels are bounded.

    Attributes:
        relation: The neighboring relation.
        sizes: The side and the sizes of channels.
        laws: The laws of the number of members of a group that the first dataset has,
            with the value 1, and that the second one has, with the value −1. A single
            record that is removed is a group of one.
    """

    relation: NeighborRel
    sizes: channels.Sizes
    laws: tuple[Members, Members] = (certain(1), certain(0))

    @property
    def is_high(self) -> bool:
        """Whether the channels are upper bounds."""
        return self.sizes.side is channels.Side.HIGH

    @property
    def split(self) -> tuple[int, ...]:
        """The two numbers of members; empty if they are random."""
        if any(len(law) > 1 for law in self.laws):
            return ()
        return tuple(number for ((number, _),) in self.laws)

    def cases(self, mechanism: "Mechanism") -> Cases:
        """Returns the cases of a mechanism; a single member's where no more is known.

        That member is replaced, or, if that is not known either, contributes nothing in
        the second dataset.
        """
        cases = mechanism.cases(self)
        if cases is not None:
            return cases
        if self.is_high or not self.split[0]:
            return []
        if self.relation is NeighborRel.REPLACE_ONE and self.split != (1, 1):
            one = dataclasses.replace(self, laws=(certain(1), certain(1)))
            return one.cases(mechanism)
        return self.absent.cases(mechanism)

    @property
    def absent(self) -> "Reading":
        """That of a single member that contributes nothing in the second dataset."""
        if self.relation is NeighborRel.REPLACE_ONE:
            return Reading(NeighborRel.REPLACE_SPECIAL, self.sizes)
        return Reading(self.relation, self.sizes)


class Mechanism:
    """What an event runs on a set of records.

    Methods raise `NoTheoremError` where there is no bound, or no definition of draws.
    """

    def cases(self, reading: Reading) -> Cases | None:
        """Returns the channels of the cases; None if those of a group are unknown."""
        raise channels.NoTheoremError("no theorem for what is only drawn")

    def takes_groups(self) -> bool:
        """Returns whether outputs can be drawn for several members."""
        return True

    def is_drawn(self, *, several: bool) -> bool:
        """Returns whether there is no upper bound, or none for several values."""
        return False

    def drawable(self, reading: Reading, lowest: float) -> "Mechanism":
        """Returns a mechanism of which outputs can be drawn; a table by default.

        Args:
            reading: A single member that contributes something or nothing, from below.
            lowest: The value of the members in the second dataset; 0 if there are none.
        """
        return Table.of(reading.cases(self), lowest)

    def everywhere(self) -> "Mechanism":
        """Returns the same if members take part in every step."""
        return self

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        """Returns an output for each number of members, who contribute the value."""
        raise channels.NoTheoremError("no definition of draws")

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        """Returns the loss of each output under the law of these arguments."""
        raise channels.NoTheoremError("no definition of losses")


@dataclasses.dataclass(frozen=True)
class Known(Mechanism):
    """A mechanism with cases of its own for one record.

    Attributes:
        make: Returns the cases.
        is_replaced: Whether it does so for a record that is replaced, too.
        of_group: Returns the cases for any members that are added or removed.
    """

    make: Callable[[Reading], Cases]
    is_replaced: bool = False
    of_group: Callable[[Reading], Cases] | None = None

    def cases(self, reading: Reading) -> Cases | None:
        replaced = self.is_replaced and reading.relation is NeighborRel.REPLACE_ONE
        if reading.split == (1, 0) or (replaced and reading.split == (1, 1)):
            return self.make(reading)
        if self.of_group and reading.relation is NeighborRel.ADD_OR_REMOVE_ONE:
            return self.of_group(reading)
        return None


@dataclasses.dataclass(frozen=True)
class Noise(Mechanism):
    """Gaussian or Laplace noise around the sum of what the members contribute."""

    kind: str
    scale: float

    def cases(self, reading: Reading) -> Cases | None:
        p, q = (
            tuple((float(sign * number), weight) for number, weight in law)
            for sign, law in zip((1, -1), reading.laws, strict=True)
        )
        return [noises.noise(self.kind, self.scale, p, q, reading.sizes)]

    def drawable(self, reading: Reading, lowest: float) -> Mechanism:
        if not self.scale:
            raise channels.NoTheoremError("no theorem for a part without noise")
        return self

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        drawn = rng.laplace if self.kind == "laplace" else rng.normal
        return drawn(members * value, self.scale)

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        shift = members * value
        if self.kind == "laplace":
            further = np.abs(outputs) - np.abs(outputs - shift)
            return np.asarray(further / self.scale)
        return np.asarray((outputs - shift / 2) * (shift / self.scale**2))


@dataclasses.dataclass(frozen=True)
class Runs(Mechanism):
    """Several mechanisms on the same records, each of which is run a number of times.

    Attributes:
        parts: The mechanisms and how often each of them is run.
    """

    parts: Sequence[tuple[Mechanism, int]]

    def cases(self, reading: Reading) -> Cases | None:
        if not reading.split:
            return None
        counts = [count for _, count in self.parts]
        of_parts = [reading.cases(part) for part, _ in self.parts]
        chosen = itertools.islice(itertools.product(*of_parts), _MOST_CASES)
        return [
            lattices.composed([*zip(cases, counts, strict=True)], reading.sizes)
            for cases in chosen
        ]

    def takes_groups(self) -> bool:
        return all(part.takes_groups() for part, _ in self.parts)

    def is_drawn(self, *, several: bool) -> bool:
        return any(part.is_drawn(several=several) for part, _ in self.parts)

    def drawable(self, reading: Reading, lowest: float) -> Mechanism:
        parts = [(part.drawable(reading, lowest), count) for part, count in self.parts]
        return dataclasses.replace(self, parts=parts)

    def everywhere(self) -> Mechanism:
        return Runs([(part.everywhere(), count) for part, count in self.parts])

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        return [
            part.draw(rng, np.repeat(members, count), value)
            for part, count in self.parts
        ]

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        return np.asarray(self.losses(outputs, members, value).sum(axis=1))

    def losses(self, outputs: Any, members: int, value: float) -> Array:
        """Returns the loss of each output in each run: a column for each run."""
        of_parts = [
            part.loss(of_part, members, value).reshape(-1, count)
            for of_part, (part, count) in zip(outputs, self.parts, strict=True)
        ]
        return np.concatenate(of_parts, axis=1)


NOTHING = Runs(())


@dataclasses.dataclass(frozen=True)
class AtLeast(Runs):
    """Runs that are no more private than the event, which has no upper bound."""

    def cases(self, reading: Reading) -> Cases | None:
        return [] if reading.is_high else super().cases(reading)


@dataclasses.dataclass(frozen=True)
class Sampled(Runs):
    """Runs of one mechanism on one Poisson sample of the records."""

    rate: float

    def cases(self, reading: Reading) -> Cases | None:
        ((inner, _),) = self.parts
        if reading.split == (1, 0):
            return [channels.sampled(self.rate, c) for c in reading.cases(inner)]
        if not reading.split:
            return None
        first, second = (
            law_of(binomial(number, fractions.Fraction(self.rate)))
            for number in reading.split
        )
        return inner.cases(dataclasses.replace(reading, laws=(first, second)))

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        return super().draw(rng, rng.binomial(members, self.rate), value)

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        weights = np.array(binomial(members, self.rate))[:, None]
        numbers = range(members + 1)
        losses = [super(Sampled, self).loss(outputs, n, value) for n in numbers]
        return np.asarray(special.logsumexp(losses, axis=0, b=weights))


def binomial(size: int, rate: Any, most: float = math.inf) -> list[Any]:
    """Returns the probabilities of fewer than `most` of `size` draws."""
    return [
        math.comb(size, i) * rate**i * (1 - rate) ** (size - i)
        for i in range(int(min(most, size + 1)))
    ]


def law_of(weights: Sequence[fractions.Fraction]) -> Members:
    """Returns the law of a number, from the probabilities of 0, 1, 2 and so on."""
    return [(number, weight) for number, weight in enumerate(weights) if weight]


@dataclasses.dataclass(frozen=True)
class Batch(Mechanism):
    """A mechanism on a batch of fixed size, drawn from a dataset of given size.

    Attributes:
        inner: The mechanism.
        size: The number of records of the dataset.
        batch: The number of records of the batch.
        is_replaced: Whether the batch is drawn with replacement.
    """

    inner: Mechanism
    size: int
    batch: int
    is_replaced: bool

    def cases(self, reading: Reading) -> Cases | None:
        """Returns the cases of noise on the batch, from a group of records.

        The members of the group are at +1 and all other records at −1. In the
        neighboring dataset the members are missing, or are replaced by records at −1.
        (A member that contributes nothing in its place is beside records that are 0.)
        Changing all signs gives the same channel for one run.
        """
        if not isinstance(self.inner, Noise):
            return self._of_any(reading)
        split = reading.split
        is_special = reading.relation is NeighborRel.REPLACE_SPECIAL
        if not split or (is_special and split != (1, 0)):
            return None
        if reading.is_high and (is_special or 0 not in split):
            return []
        is_added = reading.relation is NeighborRel.ADD_OR_REMOVE_ONE
        others = self.size - split[0] - split[1] * is_added
        is_whole = self.is_replaced or not is_added
        batches = [
            self.batch if is_whole else min(self.batch, others + m) for m in split
        ]
        moved = 1.0 if is_special else 2.0
        cases: Cases = []
        for members, own, other in zip(split, batches, batches[::-1], strict=True):
            if not members:
                continue
            law = self._members(others + members, own, members)
            sign = -1.0 if cases or not split[0] else 1.0
            shifts = tuple((sign * (moved * i - own + other), w) for i, w in law)
            p, q = (shifts, UNSHIFTED) if sign > 0 else (UNSHIFTED, shifts)
            kind, scale = self.inner.kind, self.inner.scale
            cases.append(noises.noise(kind, scale, p, q, reading.sizes))
        return cases

    def _members(self, size: int, batch: int, members: int) -> Members:
        """Returns the exact law of the number of group members in a batch."""
        if self.is_replaced:
            return law_of(binomial(batch, fractions.Fraction(members, size)))
        every = math.comb(size, batch)
        weights = [
            fractions.Fraction(
                math.comb(members, i) * math.comb(size - members, batch - i), every
            )
            for i in range(min(members, batch) + 1)
        ]
        return law_of(weights)

    def _of_any(self, reading: Reading) -> Cases | None:
        """Returns the cases of any mechanism on a batch.

        The record is in the batch with a probability of batch size over dataset size.
        It is then in the place of another record.
        """
        if reading.is_high:
            return []
        replaced = reading.relation is NeighborRel.REPLACE_ONE
        if reading.split not in [(1, 0), (0, 1), *[(1, 1)] * replaced]:
            return None
        inside = reading
        if reading.relation is NeighborRel.ADD_OR_REMOVE_ONE:
            laws = certain(1), certain(1)
            inside = Reading(NeighborRel.REPLACE_ONE, reading.sizes, laws)
        share = self.batch / self.size
        return [channels.sampled(share, case) for case in inside.cases(self.inner)]


@dataclasses.dataclass(frozen=True)
class Table(Mechanism):
    """A mechanism of few outputs, by their masses in two datasets.

    Other values than those in the two stand for laws whose logarithms lie on the line
    through those of the two datasets. Any number of members is as one.

    Attributes:
        losses: The logarithm of the ratio of each output's masses.
        q: The masses in the second dataset.
        lowest: The value of the members in the second dataset; 0 if there are none.
    """

    losses: Array
    q: Array
    lowest: float

    @classmethod
    def of(cls, cases: Cases, lowest: float) -> "Table":
        """Returns the table of the case that is the least private at ε = 1.

        Outputs that are impossible in one dataset are merged with those of the next
        ratio, and all missing mass with the likeliest output: a post-processing.
        """
        if not cases:
            raise channels.NoTheoremError("no theorem for a part")
        channel = max(cases, key=lambda case: float(case.delta(1, remove=True)[0]))
        q, p = (np.array([float(x.mid()) for x in row]) for row in channel.rows)
        is_finite = (q > 0) & (p > 0)
        finite_q, finite_p = q[is_finite], p[is_finite]
        if not finite_q.size:
            raise channels.NoTheoremError("no theorem for a part that reveals all")
        ratios = finite_p / finite_q
        for row, law in ((finite_q, q), (finite_p, p)):
            row[ratios.argmax()] += law[q <= 0].sum()
            row[ratios.argmin()] += law[(p <= 0) & (q > 0)].sum()
            row[finite_q.argmax()] += max(1 - row.sum(), 0.0)
        return cls(np.log(finite_p / finite_q), finite_q, lowest)

    def _tilted(self, members: int, value: float) -> tuple[Array, float, float]:
        """Returns masses under a law, its share of P, and the log of their total."""
        share = (value - self.lowest) / (1 - self.lowest) if members else 0.0
        logs = np.log(self.q) + share * self.losses
        total = float(special.logsumexp(logs))
        return np.exp(logs - total), share, total

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        outputs = np.empty(members.shape, dtype=np.intp)
        for inside in (True, False):
            chosen = (members > 0) == inside
            masses = self._tilted(inside, value)[0]
            number = np.count_nonzero(chosen)
            outputs[chosen] = rng.choice(masses.size, number, p=masses / masses.sum())
        return outputs

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        _, share, total = self._tilted(members, value)
        return np.asarray(share * self.losses[outputs] - total)


def drawable(
    mechanism: Mechanism, reading: Reading, *, lowest: float, several: bool
) -> Mechanism:
    """Returns a mechanism of which outputs can be drawn, from tables where possible.

    Args:
        mechanism: The mechanism.
        reading: All members of the group, in both datasets, from below.
        lowest: The value of the members in the second dataset; 0 if there are none.
        several: Whether members are replaced, or there are several of them.
    """
    if not mechanism.is_drawn(several=several):
        return Table.of(reading.cases(mechanism), lowest)
    if type(mechanism) is not Runs:
        return mechanism.drawable(reading.absent, lowest)
    parts = [
        (drawable(part, reading, lowest=lowest, several=several), count)
        for part, count in mechanism.parts
    ]
    return Runs(parts)
