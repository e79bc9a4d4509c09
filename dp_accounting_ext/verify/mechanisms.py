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
import functools
import itertools
import math
from typing import Any

from dp_accounting import privacy_accountant
import numpy as np
from scipy import signal
from scipy import special

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import schemes

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

        Raises:
            NoTheoremError: If there is no bound at all.
        """
        found = mechanism.cases(self)
        if found is not None:
            return found
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
    """What an event runs on a set of records."""

    @property
    def inner_mechanisms(self) -> Sequence["Mechanism"]:
        """The mechanisms that this one is made of."""
        return ()

    def cases(self, reading: Reading) -> Cases | None:
        """Returns the channels of the cases; None if the laws of a group are unknown.

        Raises:
            NoTheoremError: If there is no bound at all.
        """
        raise channels.NoTheoremError("no theorem for what is only drawn")

    def takes_groups(self) -> bool:
        """Returns whether outputs can be drawn for several members."""
        return all(inner.takes_groups() for inner in self.inner_mechanisms)

    def is_drawn(self, *, several: bool) -> bool:
        """Returns whether there is no upper bound, or none for several values."""
        return any(inner.is_drawn(several=several) for inner in self.inner_mechanisms)

    def drawable(self, reading: Reading, lowest: float) -> "Mechanism":
        """Returns a mechanism of which outputs can be drawn; a table by default.

        Args:
            reading: A single member that contributes something or nothing, from below.
            lowest: The value of the members in the second dataset; 0 if there are none.

        Raises:
            NoTheoremError: If there is none.
        """
        return Table.of(reading.cases(self), lowest)

    def everywhere(self) -> "Mechanism":
        """Returns the same if members take part in every step."""
        return self

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        """Returns an output for each number of members.

        Args:
            rng: The source of randomness.
            members: The number of members in the dataset, for each output.
            value: What each member contributes where it takes part.

        Raises:
            NoTheoremError: If outputs can be drawn from a table alone.
        """
        raise channels.NoTheoremError("no definition of draws")

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        """Returns the loss of each output under the law of these arguments.

        Raises:
            NoTheoremError: If outputs can be drawn from a table alone.
        """
        raise channels.NoTheoremError("no definition of losses")


@dataclasses.dataclass(frozen=True)
class Known(Mechanism):
    """A mechanism with cases of its own for one record.

    Attributes:
        make: Returns the cases.
        is_replaced: Whether it does so for a record that is replaced, too.
        of_group: Returns the cases for any members that are added or removed.
        is_reversible: Whether the roles of the record and of the other records can be
            exchanged.
    """

    make: Callable[[Reading], Cases]
    is_replaced: bool = False
    of_group: Callable[[Reading], Cases] | None = None
    is_reversible: bool = False

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
class AtLeast(Mechanism):
    """A mechanism of which a less private one is known, and no upper bound.

    Attributes:
        inner: A mechanism that the event allows.
    """

    inner: Mechanism

    def cases(self, reading: Reading) -> Cases | None:
        return [] if reading.is_high else self.inner.cases(reading)

    def drawable(self, reading: Reading, lowest: float) -> Mechanism:
        return self.inner.drawable(reading, lowest)


@dataclasses.dataclass(frozen=True)
class Runs(Mechanism):
    """Several mechanisms on the same records, each of which is run a number of times.

    Attributes:
        parts: The mechanisms and how often each of them is run.
    """

    parts: Sequence[tuple[Mechanism, int]]

    @property
    def inner_mechanisms(self) -> Sequence[Mechanism]:
        return [part for part, _ in self.parts]

    def cases(self, reading: Reading) -> Cases | None:
        if not reading.split:
            return None
        found = [channels.NO_OP]
        for part, count in self.parts:
            cases = [
                lattices.power(case, count, reading.sizes)
                for case in reading.cases(part)
            ]
            pairs = itertools.islice(itertools.product(found, cases), _MOST_CASES)
            found = [lattices.product(a, b, reading.sizes) for a, b in pairs]
        return found

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
        found = [
            part.loss(each, members, value).reshape(-1, count).sum(axis=1)
            for each, (part, count) in zip(outputs, self.parts, strict=True)
        ]
        return np.asarray(np.sum(found, axis=0))


NOTHING = Runs(())


@dataclasses.dataclass(frozen=True)
class Sampled(Mechanism):
    """A mechanism on one Poisson sample of the records."""

    rate: float
    inner: Mechanism

    @property
    def inner_mechanisms(self) -> Sequence[Mechanism]:
        return [self.inner]

    def cases(self, reading: Reading) -> Cases | None:
        if reading.split == (1, 0):
            return [channels.sampled(self.rate, c) for c in reading.cases(self.inner)]
        if not reading.split:
            return None
        rate = fractions.Fraction(self.rate)
        first, second = (
            [(i, w) for i, w in enumerate(binomial(number, rate)) if w]
            for number in reading.split
        )
        inside = dataclasses.replace(reading, laws=(first, second))
        return self.inner.cases(inside)

    def drawable(self, reading: Reading, lowest: float) -> Mechanism:
        inner = self.inner.drawable(reading, lowest)
        return dataclasses.replace(self, inner=inner)

    def everywhere(self) -> Mechanism:
        return self.inner.everywhere()

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        return self.inner.draw(rng, rng.binomial(members, self.rate), value)

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        weights = np.array(binomial(members, self.rate))
        numbers = range(members + 1)
        losses = [self.inner.loss(outputs, number, value) for number in numbers]
        return schemes.log_mean(np.stack(losses, axis=-1), weights)


def binomial(size: int, rate: Any, most: float = math.inf) -> list[Any]:
    """Returns the probabilities of fewer than `most` of `size` draws."""
    return [
        math.comb(size, i) * rate**i * (1 - rate) ** (size - i)
        for i in range(int(min(most, size + 1)))
    ]


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
        Changing all signs gives the same channel for one run.
        """
        if not isinstance(self.inner, Noise):
            return self._of_any(reading)
        split = reading.split
        special = reading.relation is NeighborRel.REPLACE_SPECIAL
        if not split or (special and split != (1, 0)):
            return None
        if reading.is_high and (special or 0 not in split):
            return []
        noise = functools.partial(noises.noise, self.inner.kind, self.inner.scale)
        if special:
            law = self._members(self.size, self.batch, 1)
            p = tuple((float(number), weight) for number, weight in law)
            return [noise(p, UNSHIFTED, reading.sizes)]
        others = self.size - split[0]
        if reading.relation is not NeighborRel.REPLACE_ONE:
            others -= split[1]
        batches = [
            self.batch if self.is_replaced else min(self.batch, others + members)
            for members in split
        ]
        found: Cases = []
        for members, own, other in zip(split, batches, batches[::-1], strict=True):
            if not members:
                continue
            law = self._members(others + members, own, members)
            sign = -1.0 if found or not split[0] else 1.0
            shifts = tuple((sign * (2.0 * i - own + other), w) for i, w in law)
            p, q = (shifts, UNSHIFTED) if sign > 0 else (UNSHIFTED, shifts)
            found.append(noise(p, q, reading.sizes))
        return found

    def _members(self, size: int, batch: int, members: int) -> Members:
        """Returns the exact law of the number of group members in a batch."""
        if self.is_replaced:
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

    def _of_any(self, reading: Reading) -> Cases | None:
        """Returns the cases of any mechanism on a batch that includes a record.

        With the batch's share of all records, the record takes the place of another.
        """
        replaced = reading.relation is NeighborRel.REPLACE_ONE
        if reading.is_high:
            return []
        if reading.split not in [(1, 0), (0, 1)] and not (
            replaced and reading.split == (1, 1)
        ):
            return None
        inside = reading
        if reading.relation is NeighborRel.ADD_OR_REMOVE_ONE:
            laws = certain(1), certain(1)
            inside = Reading(NeighborRel.REPLACE_ONE, reading.sizes, laws)
        found = inside.cases(self.inner)
        if isinstance(self.inner, Known) and self.inner.is_reversible:
            # The other records contribute and this one does not, so that the rows of
            # the inner mechanism are exchanged.
            found = found + [channels.Channel(c.rows[::-1], c.blur) for c in found]
        return [channels.sampled(self.batch / self.size, case) for case in found]


@dataclasses.dataclass(frozen=True)
class Allocated(Runs):
    """Steps of which each member takes part in some, drawn uniformly at random.

    Attributes:
        parts: The mechanism of each step that is run, and the number of such steps.
        selected: The number of steps in which a member takes part.
        total: The number of all steps, those that are not run among them.
    """

    selected: int
    total: int

    @functools.cached_property
    def _number(self) -> int:
        """The number of steps that are run."""
        return sum(count for _, count in self.parts)

    def takes_groups(self) -> bool:
        return self.selected == 1 and super().takes_groups()

    def cases(self, reading: Reading) -> Cases | None:
        if reading.split != (1, 0):
            return None
        steps = []
        for part, count in self.parts:
            cases = reading.cases(part)
            if not cases or (reading.is_high and len(cases) > 1):
                return []
            steps.append((cases[0], count))
        # Steps that did not run release nothing, even of records allocated to them.
        if self.total > self._number:
            steps.append((channels.NO_OP, self.total - self._number))
        try:
            return [lattices.allocated(steps, self.selected, reading.sizes)]
        except channels.TooLargeError:
            return []

    def is_drawn(self, *, several: bool) -> bool:
        return several or self.selected > 1 or super().is_drawn(several=several)

    @functools.cached_property
    def _scheme(self) -> Callable[[int], schemes.Scheme]:
        return functools.cache(
            lambda members: schemes.selected(
                self._number, self.total, self.selected, members
            )
        )

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        takes = np.zeros((members.size, self._number), dtype=np.int64)
        for number in np.unique(members[members > 0]).tolist():
            rows = np.flatnonzero(members == number)
            takes[rows] = self._scheme(number).draw(rng, rows.size)
        stops = np.cumsum([count for _, count in self.parts])[:-1]
        return [
            part.draw(rng, of_part.ravel(), value)
            for (part, _), of_part in zip(
                self.parts, np.split(takes, stops, axis=1), strict=True
            )
        ]

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        gains = [
            np.concatenate(
                [
                    part.loss(each, number, value).reshape(-1, count)
                    for each, (part, count) in zip(outputs, self.parts, strict=True)
                ],
                axis=1,
            ).T
            for number in range(1, members + 1)
        ]
        if not members:
            return np.zeros(len(outputs[0]) // self.parts[0][1])
        return self._scheme(members).log_mean(
            lambda stage: [gain[stage.step] for gain in gains], gains[0].shape[1]
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Correlated(Mechanism):
    """Correlated noise: C x + σ z is released, and x has what a member contributes.

    The outputs are kept as Cᵀ (C x + σ z) / σ², on which every loss depends.

    Attributes:
        strategy: The first column of the Toeplitz matrix C, or its rows.
        deviation: σ.
        scheme: Who takes part in which steps.
    """

    strategy: Array
    deviation: float
    scheme: schemes.Scheme

    def cases(self, reading: Reading) -> Cases | None:
        raise channels.NoTheoremError("no theorem for correlated noise")

    def takes_groups(self) -> bool:
        return False

    def is_drawn(self, *, several: bool) -> bool:
        return True

    def drawable(self, reading: Reading, lowest: float) -> Mechanism:
        return self

    def everywhere(self) -> Mechanism:
        number, products = self.scheme.number, self.scheme.products
        scheme = schemes.independent(number, 1.0, 1, products)
        return dataclasses.replace(self, scheme=scheme)

    def draw(self, rng: np.random.Generator, members: Array, value: float) -> Any:
        takes = np.zeros((members.size, self.scheme.number))
        rows = np.flatnonzero(members)
        takes[rows] = value * self.scheme.draw(rng, rows.size)
        outputs = _applied(self.strategy, takes)
        outputs += self.deviation * rng.standard_normal(outputs.shape)
        # The transpose of a Toeplitz matrix is the matrix itself, in reversed time.
        if self.strategy.ndim == 1:
            outputs = _applied(self.strategy, outputs[:, ::-1])[:, ::-1]
        else:
            outputs = outputs @ self.strategy
        return outputs / self.deviation**2

    def loss(self, outputs: Any, members: int, value: float) -> Array:
        if not members:
            return np.zeros(outputs.shape[0])

        def gains(stage: schemes.Stage) -> list[Array]:
            own = value * outputs[:, stage.step]
            return [own - value**2 * stage.squares[:, None]]

        return self.scheme.log_mean(gains, outputs.shape[0])


def _applied(strategy: Array, rows: Array) -> Array:
    """Returns C x for each row x of an array."""
    if strategy.ndim == 2:
        return np.asarray(rows @ strategy.T)
    size = rows.shape[1]
    found = signal.oaconvolve(rows, strategy[None, :size], axes=1)
    return np.array(found[:, :size])


def products(strategy: Array, number: int, deviation: float) -> Array:
    """Returns the products of columns i and i + d of C, over σ², in row d."""
    lags = min(number, len(strategy))
    found = np.zeros((lags, number))
    gram = strategy.T @ strategy if strategy.ndim == 2 else None
    for lag in range(lags):
        if gram is not None:
            found[lag, : number - lag] = np.diagonal(gram, lag)
            continue
        column = np.zeros(number)
        column[: strategy.size] = strategy[:number]
        # Column i + d ends after n − i − d entries.
        ends = np.cumsum(column[lag:] * column[: number - lag])
        found[lag, : number - lag] = ends[::-1]
    return found / deviation**2


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

        Raises:
            NoTheoremError: If there is none.
        """
        if not cases:
            raise channels.NoTheoremError("no theorem for a part")
        channel = max(cases, key=lambda case: float(case.delta(1, remove=True)[0]))
        q, p = (np.array([float(x.mid()) for x in row]) for row in channel.rows)
        finite = (q > 0) & (p > 0)
        kept_q, kept_p = q[finite], p[finite]
        if not kept_q.size:
            raise channels.NoTheoremError("no theorem for a part that reveals all")
        ratios = kept_p / kept_q
        for row, law in ((kept_q, q), (kept_p, p)):
            row[ratios.argmax()] += law[q <= 0].sum()
            row[ratios.argmin()] += law[(p <= 0) & (q > 0)].sum()
            row[kept_q.argmax()] += max(1 - row.sum(), 0.0)
        return cls(np.log(kept_p / kept_q), kept_q, lowest)

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
    return Runs(
        [
            (drawable(part, reading, lowest=lowest, several=several), count)
            for part, count in mechanism.parts
        ]
    )
