"""Gaussian noise on Poisson samples that are cut to a largest batch.

Of n records each is drawn with probability q, and of those that are drawn B are kept,
at random. Who is drawn and kept does not depend on what a record contributes: given
the size s of a batch it is a random set of so many records. So the batch without a
group of K, t others, has the same law in both datasets, and given it the number of
members beside it is i with probability in proportion to

    Pr[s = t + i] · Pr[i of K among t + i of n],

which is binomial where t + K < B. Two bounds from above follow, of which either may be
the less.

*The others are told*: Poisson samples where there is room for the group; else, with
room for j < K members, their law is binomial up to j, with more at j.

For a group of more than 16 the number of others is told to within a few, and the number
of members has a law that is stochastically larger than each of theirs: the ratio
increases with the output, so that larger shifts of either sign are further apart. For
the same reason several splits of such a group have one bound, that of a split in which
more members leave and more join.

*Who was drawn is told*, whether kept or not: B or more others, and a member takes the
place of one of them as in a batch of fixed size; or less, and it is a Poisson sample.

From below, others contribute -1 each in a direction of their own, where the output
tells of t what noise leaves of it.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math

from dp_accounting import privacy_accountant
import numpy as np
from scipy import special
from scipy import stats

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import sampled_members
from dp_accounting_ext.pairs import shifts

Coupled = batches.Coupled
Mechanism = interface.Mechanism
NeighborRel = privacy_accountant.NeighboringRelation
Shifts = shifts.Shifts

# Certified: of scipy's binomial masses and tails and of their quotient, relatively;
# asked by tests/test_assumptions.py.
_BINOMIAL_ERROR = 1e-9
# What is less likely is left out: losses are asked for no δ as small.
_LEAST_CHANCE = 1e-290
# Tuning: cells of what tells of the others, in standard deviations of the noise, and
# how far they go beyond the sizes that matter. With more noise these tell nothing.
_CELL, _BEYOND, _MOST_NOISE = 0.5, 3.0, 20.0
# Tuning: a group of more members than the first number is bounded for so many sizes of
# either part of it, and so many numbers of others are told apart: 30 members of batches
# of 120 have a bracket of 8 % in 2 s (with all sizes 3 %, in 12 s), 120 of 9 % in 4 s.
_FEW_MEMBERS, _PARTS, _MOST_TOLD = 16, 3, 32
# Tuning: a chain of so many members, over the noise, was never the lesser bound.
_CHAINED = 8.0
# Certified: sums of a few thousand terms, relatively.
_SUM_ERROR = 1e-12
# Certified: beyond so many standard deviations there is no noise.
_NOISE_ENDS = 12.0


@dataclasses.dataclass(frozen=True)
class Truncated(sampling.Scheme):
    """Poisson samples, cut, for Gaussian noise on a sum over the batch.

    A group's records have other values, or contribute nothing: where members leave they
    are drawn as before. The sizes of a group that leaves and one that joins add up to
    that of the whole group.

    Attributes:
        dataset_size: Number of records, n, members of a group among them.
        rate: Probability that a record is drawn, q, in (0, 1].
        batch_size: How many are kept at most, B, at least 1.

    Source:
        docs/mathematics.md, "Truncated samples" (ours).
    """

    group_relations = frozenset({NeighborRel.REPLACE_SPECIAL, NeighborRel.REPLACE_ONE})
    chance_error = 2 * _BINOMIAL_ERROR

    dataset_size: int
    rate: float
    batch_size: int

    def chances(self, size: int, least: int) -> Iterator[tuple[int, Shifts]]:
        """Yields the chances of so many others in a batch, and so many members.

        Args:
            size: Number of members, K ≤ n.
            least: The least number of others.

        Yields:
            The number t of others, and for each i the chance of t others and i
            members, within 1e-9 of it; what is less likely than 1e-290 is left out.
        """
        most, others = self.batch_size, self.dataset_size - size
        full = float(stats.binom.sf(most - 1, self.dataset_size, self.rate))
        kept = dict(sampled_members.without_replacement(size, self.dataset_size, most))
        drawn = dict(sampled_members.poisson(size, self.rate))
        for number in range(least, min(most, others) + 1):
            mass, room = self._mass(number, size), most - number
            found = {i: mass * drawn.get(i, 0.0) for i in range(min(room, size + 1))}
            if room <= size:
                found[room] = full * kept.get(room, 0.0)
            if sum(found.values()) > _LEAST_CHANCE:
                yield number, tuple((float(i), c) for i, c in found.items() if c)

    def _mass(self, number: int, size: int) -> float:
        return float(stats.binom.pmf(number, self.dataset_size - size, self.rate))

    def fewer(self, size: int, least: int) -> Shifts:
        """Returns the chances of fewer than least ≤ B − K others, and of members."""
        others = self.dataset_size - size
        mass = float(stats.binom.cdf(least - 1, others, self.rate))
        members = sampled_members.poisson(size, self.rate)
        return tuple((number, mass * weight) for number, weight in members)

    def full(self) -> tuple[float, float]:
        """Returns the chances that of the others B or more are drawn, or fewer."""
        of_them = stats.binom(self.dataset_size - 1, self.rate)
        return float(of_them.sf(self.batch_size - 1)), float(
            of_them.cdf(self.batch_size - 1)
        )

    def place(self) -> float:
        """Returns the chance that a record is kept of B others or more, rounded up."""
        full, _ = self.full()
        kept = float(stats.binom.sf(self.batch_size, self.dataset_size, self.rate))
        ratio = kept / full * (1 + 3 * _BINOMIAL_ERROR)
        return min(ratio * self.batch_size / self.dataset_size, 1.0)

    def inclusion(self) -> float:
        """Returns the chance that a record is in the batch, or a little less."""
        _, room = self.full()
        kept = float(stats.binom.sf(self.batch_size, self.dataset_size, self.rate))
        found = self.rate * room + kept * self.batch_size / self.dataset_size
        return found * (1 - 3 * _BINOMIAL_ERROR)

    def coupled(self, removed: int, inserted: int) -> Sequence[Coupled]:
        """Returns a part for each number of others in the batch, which is told."""
        return _others_released(self, removed + inserted, removed, inserted)

    def attained(
        self, base: batches.Base, removed: int, inserted: int
    ) -> Sequence[Coupled] | None:
        """Returns a part for each cell of what noise tells of the number of others."""
        return self._attained(base, removed + inserted, removed, inserted)

    def another_bound(
        self, base: batches.Base, removed: int, inserted: int
    ) -> Mechanism | None:
        """Returns the chain of members who take the places of others, one by one."""
        return self._chain(base, removed + inserted, removed, inserted)

    def replaced(self, base: batches.Base, members: int) -> Mechanism:
        # All members are in both datasets, with other values.
        return self.between(
            base,
            _others_released(self, members, members, members),
            self._attained(base, members, members, members),
            lambda: self._chain(base, members, members, members),
        )

    def one_absent(self, base: batches.Base) -> Mechanism:
        """Returns a mechanism on samples of n records, or of all of these but one.

        Who was drawn is told: a record that takes another's place moves the sum by two
        norms, and is not there in the other dataset. From below others contribute
        nothing.
        """

        def on_a_sample(rate: float, base: batches.Base) -> Mechanism:
            inner = base.on(((1.0, 1.0),), batches.NONE)
            return subsampled.on_poisson_sample(rate, inner)

        fewer = on_a_sample(self.rate, base)
        if self.is_never_cut():
            return fewer
        place = on_a_sample(self.place(), base.replaced())
        below = on_a_sample(self.inclusion(), base)
        return known_bounds.Between(below, self._either(fewer, place))

    def is_never_cut(self) -> bool:
        """Tells whether a batch is full with a probability that is left out."""
        return self.full()[0] < _LEAST_CHANCE

    def _attained(
        self, base: batches.Base, size: int, removed: int, inserted: int
    ) -> Sequence[Coupled] | None:
        noise = 0.0 if base.is_revealing else base.gaussian_noise
        if noise is None:
            return None
        return _noise_released(self, noise, size, removed, inserted)

    def _chain(
        self, base: batches.Base, size: int, removed: int, inserted: int
    ) -> Mechanism | None:
        """Returns the chain of what bounds one member, where who was drawn is told."""
        if size > _CHAINED * max(base.gaussian_noise or 0.0, 1.0):
            return None
        if removed == inserted == size:
            return chained.chain(self._by_place(base, is_replaced=True), size, 0)
        one = self._by_place(base, is_replaced=False)
        return groups.GroupedByChain(size, one).split(removed, inserted)

    def _by_place(self, base: batches.Base, *, is_replaced: bool) -> Mechanism:
        """Returns what bounds one member from above: who was drawn is told."""
        chance = self.place()
        law = sampled_members.poisson(1, self.rate)
        fewer = base.on(law, law if is_replaced else batches.NONE)
        if base.gaussian_noise is None:
            sampled = chance, 1 - chance
            place: Mechanism = known_bounds.NonPrivate(sampled, sampled)
        elif is_replaced:
            inner = additive_noise.Gaussian(base.gaussian_noise / 2)
            place = subsampled.substituted_sample(inner, chance)
        else:
            place = subsampled.zeroed_sample(base.gaussian_noise, chance)
        return self._either(fewer, place)

    def _either(self, fewer: Mechanism, place: Mechanism) -> Mechanism:
        """Returns samples with room for a record, or those where it takes a place."""
        full, room = self.full()
        drawn = ((fewer, room), (place, full))
        likely = tuple((mechanism, chance) for mechanism, chance in drawn if chance)
        return batches.RandomChoice(likely, error=self.chance_error)


@functools.lru_cache(maxsize=64)
def _others_released(
    scheme: Truncated, size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns what bounds a group from above: the number of others is told."""
    if scheme.is_never_cut():
        members = sampled_members.poisson(size, scheme.rate)
        return (_coupled(members, size, removed, inserted, chance=1.0),)
    most = scheme.batch_size
    least = max(most - size, 0)
    by_number = [scheme.fewer(size, least)]
    for number, chances in scheme.chances(size, least):
        # What fills the batch is no less likely than it is, given the others.
        raised = 1 + 3 * _BINOMIAL_ERROR
        room = most - number
        by_number.append(tuple((i, c * raised if i == room else c) for i, c in chances))
    number = max(-(-len(by_number) // _MOST_TOLD), 1)
    several = [by_number[i : i + number] for i in range(0, len(by_number), number)]
    by_number = [_stochastically_larger(laws, size) for laws in several]
    more = (_few_sizes(size, part)[1] for part in (removed, inserted))
    return _parts(by_number, size, *more)


@functools.lru_cache(maxsize=64)
def _noise_released(
    scheme: Truncated, noise: float, size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns what bounds it from below: cells of a noisy number of others."""
    if scheme.is_never_cut():
        return _others_released(scheme, size, removed, inserted)
    most, reach, edges = scheme.batch_size, 0.0, np.zeros(0)
    if 0 < noise <= _MOST_NOISE:
        # Those for whom there is little room tell the most.
        last = min(size, 4) / noise + _BEYOND
        edges = noise * np.arange(-_BEYOND, last + _CELL, _CELL)
        reach = float(edges[-1]) + _NOISE_ENDS * noise
    least = max(most - size - math.ceil(reach), 0)
    cells = np.zeros((edges.size + 1, size + 1))
    for number, chances in scheme.chances(size, least):
        shares = _shares(edges - (most - number), noise)
        for i, chance in chances:
            cells[:, int(i)] += shares * chance
    for i, chance in scheme.fewer(size, least):
        cells[-1, int(i)] += chance
    cells[:, 1:] *= 1 - 3 * _BINOMIAL_ERROR
    laws: list[list[float]] = cells.tolist()
    by_number = [tuple((float(i), c) for i, c in enumerate(law) if c) for law in laws]
    fewer = (_few_sizes(size, part)[0] for part in (removed, inserted))
    return _parts(by_number, size, *fewer)


def _parts(
    by_number: Sequence[Shifts], size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns a part of the batches for each of some cases, but for the rarest.

    Args:
        by_number: Chances of each number of members in a batch, in each case.
        size: Number of members.
        removed: How many of them leave,
        inserted: and join.
    """
    chances = [math.fsum(chance for _, chance in members) for members in by_number]
    return tuple(
        _coupled(members, size, removed, inserted, chance)
        for members, chance in zip(by_number, chances, strict=True)
        if chance > _LEAST_CHANCE
    )


def _coupled(
    members: Shifts, size: int, removed: int, inserted: int, chance: float
) -> Coupled:
    """Returns batches of either dataset, given the chances of members in them."""
    total = math.fsum(each for _, each in members)
    law = tuple((number, each / total) for number, each in members)
    if removed == inserted == size:
        return Coupled(law, law, chance)
    leave, join = (_of_these(these, size, law) for these in (removed, inserted))
    return Coupled(leave, join, chance)


def _of_these(these: int, size: int, law: Shifts) -> Shifts:
    """Returns the law of how many of these members are among those in a batch."""
    if these == size:
        return law
    found: dict[float, float] = {}
    for number, weight in law:
        for each, share in _among(these, size, int(number)):
            found[each] = found.get(each, 0.0) + weight * share
    return tuple(found.items())


@functools.lru_cache(maxsize=1024)
def _among(these: int, members: int, drawn: int) -> Shifts:
    """Returns the law of how many of these members are among those drawn."""
    return sampled_members.without_replacement(these, members, drawn)


def _few_sizes(size: int, part: int) -> tuple[int, int]:
    """Returns a part of a group, rounded down and up to one of a few sizes."""
    if size <= _FEW_MEMBERS or part == size:
        return part, part
    unit = -(-size // _PARTS)
    return part // unit * unit, min(-(-part // unit) * unit, size)


def _stochastically_larger(laws: list[Shifts], most: int) -> Shifts:
    """Returns chances of members with which one of several laws has happened.

    Args:
        laws: Chances of each number of members, in each of some cases.
        most: The largest number.

    Returns:
        Chances whose sum is that of all cases, and in which so many members or more
        are, given that one of the cases holds, no less likely than in any case.
    """
    if len(laws) == 1:
        return laws[0]
    chances = np.zeros((len(laws), most + 1))
    for row, law in zip(chances, laws, strict=True):
        for number, chance in law:
            row[int(number)] = chance
    tails = np.cumsum(chances[:, ::-1], axis=1)[:, ::-1]
    tails = tails[tails[:, 0] > 0]
    largest = (tails / tails[:, :1]).max(axis=0) * (1 + _SUM_ERROR)
    largest[0] = 1.0
    kept = -np.diff(np.minimum.accumulate(np.minimum(largest, 1.0)), append=0.0)
    total = float(tails[:, 0].sum())
    return tuple((float(i), total * c) for i, c in enumerate(kept.tolist()) if c)


def _shares(edges: FloatArray, noise: float) -> FloatArray:
    """Returns the (n + 1,) chances of noise between (n,) edges, and beyond them."""
    if not edges.size:
        return np.ones(1)
    scaled = np.concatenate([[-math.inf], edges / noise, [math.inf]])
    low, high = scaled[:-1], scaled[1:]
    # In the tail that is the smaller.
    above = low > 0
    first = special.ndtr(np.where(above, -low, high))
    last = special.ndtr(np.where(above, -high, low))
    shares: FloatArray = first - last
    return shares
