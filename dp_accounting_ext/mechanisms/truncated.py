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
import dataclasses
import functools
import math

import numpy as np
from scipy import special
from scipy import stats

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import sampled_members
from dp_accounting_ext.pairs import shifts

Mechanism = interface.Mechanism
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
class Sampling:
    """Poisson samples, cut.

    Attributes:
        dataset_size: Number of records, n, members of a group among them.
        rate: Probability that a record is drawn, q, in (0, 1].
        batch_size: How many are kept at most, B, at least 1.
    """

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


@dataclasses.dataclass(frozen=True)
class GroupedTruncated(groups.Grouped):
    """Gaussian noise on cut samples, where a group's records have other values.

    Where members leave they contribute nothing, and are drawn as before.

    Attributes:
        group_size: Number of records in the group, K.
        noise_multiplier: Standard deviation of the noise over the bound on a record's
            norm.
        sampling: How the batch is drawn.

    Source:
        docs/mathematics.md, "Truncated samples" (ours).
    """

    group_size: int
    noise_multiplier: float
    sampling: Sampling

    def split(self, removed: int, inserted: int) -> Mechanism:
        size, is_replaced = self.group_size, removed == inserted == self.group_size
        if self.sampling.full()[0] < _LEAST_CHANCE:
            members = sampled_members.poisson(size, self.sampling.rate)
            return self._on(members, removed, inserted)
        one = self._by_place(is_replaced=is_replaced)
        fewer, more = zip(
            *(_parts_of(size, part) for part in (removed, inserted)), strict=True
        )
        chain = None
        if size <= _CHAINED * max(self.noise_multiplier, 1.0):
            by_chain = groups.GroupedByChain(size, one, is_replaced)
            chain = by_chain.split(removed, inserted)
        return known_bounds.Between(
            _told_by_noise(self, *fewer), _told(self, *more), chain
        )

    def _by_place(self, *, is_replaced: bool) -> Mechanism:
        """Returns what bounds one member from above: who was drawn is told."""
        noise, chance = self.noise_multiplier, self.sampling.place()
        law = sampled_members.poisson(1, self.sampling.rate)
        fewer = batches.Noise(noise).on(law, law if is_replaced else batches.NONE)
        if noise == 0:
            sampled = chance, 1 - chance
            place: Mechanism = known_bounds.NonPrivate(sampled, sampled)
        elif is_replaced:
            inner = additive_noise.Gaussian(noise / 2)
            place = subsampled.substituted_sample(inner, chance)
        else:
            place = subsampled.zeroed_sample(noise, chance)
        return _either(self.sampling, fewer, place)

    def _on(self, members: Shifts, removed: int, inserted: int) -> Mechanism:
        """Returns noise on a batch, given the chances of members in it."""
        total = math.fsum(chance for _, chance in members)
        law = tuple((number, chance / total) for number, chance in members)
        noise = batches.Noise(self.noise_multiplier)
        if removed == inserted == self.group_size:
            return noise.on(law, law)
        return noise.on(self._of_these(removed, law), self._of_these(inserted, law))

    def _of_these(self, these: int, law: Shifts) -> Shifts:
        """Returns the law of how many of these members are among those in a batch."""
        if these == self.group_size:
            return law
        found: dict[float, float] = {}
        for number, weight in law:
            for each, share in _among(these, self.group_size, int(number)):
                found[each] = found.get(each, 0.0) + weight * share
        return tuple(found.items())

    def told(self, removed: int, inserted: int) -> Mechanism:
        """Returns what bounds it from above: the number of others is told."""
        size, most = self.group_size, self.sampling.batch_size
        least = max(most - size, 0)
        told = [self.sampling.fewer(size, least)]
        for number, chances in self.sampling.chances(size, least):
            # What fills the batch is no less likely than it is, given the others.
            raised = 1 + 3 * _BINOMIAL_ERROR
            room = most - number
            told.append(tuple((i, c * raised if i == room else c) for i, c in chances))
        number = max(-(-len(told) // _MOST_TOLD), 1)
        several = [told[i : i + number] for i in range(0, len(told), number)]
        told = [_stochastically_larger(laws, size) for laws in several]
        return self._drawn(told, removed, inserted)

    def told_by_noise(self, removed: int, inserted: int) -> Mechanism:
        """Returns what bounds it from below: cells of a noisy number of others."""
        size, most = self.group_size, self.sampling.batch_size
        noise, reach, edges = self.noise_multiplier, 0.0, np.zeros(0)
        if 0 < noise <= _MOST_NOISE:
            # Those for whom there is little room tell the most.
            last = min(size, 4) / noise + _BEYOND
            edges = noise * np.arange(-_BEYOND, last + _CELL, _CELL)
            reach = float(edges[-1]) + _NOISE_ENDS * noise
        least = max(most - size - math.ceil(reach), 0)
        cells = np.zeros((edges.size + 1, size + 1))
        for number, chances in self.sampling.chances(size, least):
            shares = _shares(edges - (most - number), noise)
            for i, chance in chances:
                cells[:, int(i)] += shares * chance
        for i, chance in self.sampling.fewer(size, least):
            cells[-1, int(i)] += chance
        cells[:, 1:] *= 1 - 3 * _BINOMIAL_ERROR
        laws: list[list[float]] = cells.tolist()
        told = [tuple((float(i), c) for i, c in enumerate(law) if c) for law in laws]
        return self._drawn(told, removed, inserted)

    def _drawn(self, told: list[Shifts], removed: int, inserted: int) -> Mechanism:
        drawn = tuple(
            (self._on(members, removed, inserted), chance)
            for members in told
            if (chance := math.fsum(each for _, each in members)) > _LEAST_CHANCE
        )
        return batches.Drawn(drawn, error=2 * _BINOMIAL_ERROR)


@functools.lru_cache(maxsize=64)
def _told(grouped: GroupedTruncated, removed: int, inserted: int) -> Mechanism:
    return grouped.told(removed, inserted)


@functools.lru_cache(maxsize=64)
def _told_by_noise(grouped: GroupedTruncated, removed: int, inserted: int) -> Mechanism:
    return grouped.told_by_noise(removed, inserted)


@functools.lru_cache(maxsize=1024)
def _among(these: int, members: int, drawn: int) -> Shifts:
    """Returns the law of how many of these members are among those drawn."""
    return sampled_members.without_replacement(these, members, drawn)


def _parts_of(size: int, part: int) -> tuple[int, int]:
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


def _either(sampling: Sampling, fewer: Mechanism, place: Mechanism) -> Mechanism:
    """Returns samples with room for a record, or those where it takes a place."""
    full, room = sampling.full()
    drawn = tuple((m, chance) for m, chance in ((fewer, room), (place, full)) if chance)
    return batches.Drawn(drawn, error=2 * _BINOMIAL_ERROR)


def joining(noise_multiplier: float, sampling: Sampling) -> Mechanism:
    """Returns Gaussian noise on cut samples of n records, or of all of these but one.

    Who was drawn is told: a record that takes another's place moves the sum by two
    norms, which is not there in the other dataset. From below others contribute
    nothing.

    Args:
        noise_multiplier: Standard deviation over the bound on a record's norm.
        sampling: How the batch is drawn, of n records.
    """

    def on_a_sample(rate: float, norms: int) -> Mechanism:
        noise = noise_multiplier / norms
        inner: Mechanism = known_bounds.NonPrivate()
        if noise:
            inner = additive_noise.Gaussian(noise)
        return subsampled.on_poisson_sample(rate, inner)

    if sampling.full()[0] < _LEAST_CHANCE:
        return on_a_sample(sampling.rate, 1)
    fewer, place = on_a_sample(sampling.rate, 1), on_a_sample(sampling.place(), 2)
    return known_bounds.Between(
        on_a_sample(sampling.inclusion(), 1), _either(sampling, fewer, place)
    )
