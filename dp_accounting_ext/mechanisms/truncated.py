"""Gaussian noise on Poisson samples that are truncated to a largest batch size.

Each of n records is drawn with probability q. If more than B records are drawn, B of
them, chosen at random, are kept. Which records are drawn and kept does not depend on
what a record contributes: given its size s, a batch is a uniformly random set of s
records. Consider a group of K records (the members), and the t other records in the
batch. Their law is the same in both datasets. Given these others, the number of members
in the batch is i with a probability in proportion to

    Pr[s = t + i] · Pr[i of K among t + i of n],

which is binomial if t + K < B.

*A single record.* Batches of t others and i of the record, and of t' and i', are at
distance |t − t'| + |i − i'|, as others that are chosen at random can be nested. The
bound is the worst case of the two datasets' laws of (t, i) for t near B, and that of a
Poisson sample for smaller t. So it reveals nothing about t near B.

*Groups.* If members are absent, the bound is a chain over single members, on datasets
of n, n − 1, … records. Otherwise two upper bounds follow, either of which may be the
smaller one. The first is a chain over single members. The second one reveals the other
records in the batch. If there is room for the whole group, its members are a Poisson
sample. If there is room for only j < K members, the law of their number is in
proportion to a binomial law below j, with more mass at j.

For a group of more than 16 members, the second bound reveals the number of others only
up to a small interval. The number of members is then given a law that is stochastically
larger than its law for each number of others in the interval. This is an upper bound:
the likelihood ratio increases with the output, so that larger shifts, of either sign,
increase the divergence. For the same reason, several splits of such a group share one
bound: that of a split in which more members leave and more join.

For the lower bound, each of the others contributes −1 in one common direction, in which
the members contribute nothing. The output then reveals t up to the noise.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math

from dp_accounting import privacy_accountant
import numpy as np
from scipy import special
from scipy import stats

from dp_accounting_ext.common_types import FloatArray
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
# The batches with the same number of others, and the same number, 0 or 1, of a record.
# The number is −1 if another record is in its place.
_Class = tuple[float, float]
NeighborRel = privacy_accountant.NeighboringRelation
Shifts = shifts.Shifts

# Certified: a bound on the relative error of binomial masses and tails, and of their
# quotients; tested in tests/pairs/test_gaussian.py.
_BINOMIAL_ERROR = 1e-9
# Outcomes that are less likely are left out, as no δ is so small.
_LEAST_PROBABILITY = 1e-290
# Tuning, all of these constants.
# For the noisy number of others, the width of its cells, and how far the cells extend
# beyond the sizes that matter, both in standard deviations of the noise.
_CELL, _BEYOND = 0.5, 3.0
# The least and the largest noise at which the noisy number of others is used.
_LEAST_NOISE, _MOST_NOISE = 1e-3, 20.0
# For a group of more members than the first number, the number of members who leave or
# join is rounded to a multiple of its size / `_PARTS`, and at most `_MOST_INTERVALS`
# intervals of the number of others are distinguished. For batches of 120, the bracket
# for 30 members is 8 % wide and takes 2 s (3 % and 12 s with all sizes); for 120
# members it is 9 % wide and takes 4 s.
_FEW_MEMBERS, _PARTS, _MOST_INTERVALS = 16, 3, 32
# If a record is absent, it is revealed whether fewer than B − 4 others are drawn. With
# B − 24, ε is the same to four digits (.6 % smaller at σ = 20), in 3 times the time.
_NEAR = 4
# For more members than this times the noise multiplier, the chain was never the smaller
# bound.
_CHAINED = 8.0

# A limit of time: a larger group of absent members takes more than ten seconds.
MOST_ABSENT = 16
# Certified: a bound on the relative error of sums of a few thousand terms.
_SUM_ERROR = 1e-12
# Certified: noise of more standard deviations has a probability below 1e-32 and counts
# as impossible.
_NOISE_ENDS = 12.0


@dataclasses.dataclass(frozen=True)
class Truncated(sampling.Scheme):
    """Truncated Poisson samples, for Gaussian noise on a sum over the batch.

    In the other dataset, the records of a group have other values, contribute nothing
    (a member who leaves is still drawn then), or are absent. The numbers of members who
    leave and who join add up to the size of the whole group.

    Attributes:
        dataset_size: Number of records, n, including the members of a group.
        rate: Probability that a record is drawn, q, in (0, 1].
        batch_size: The largest number of records that are kept, B, at least 1.

    Source:
        docs/mathematics.md, "Truncated samples" (ours).
    """

    probability_error = 2 * _BINOMIAL_ERROR

    dataset_size: int
    rate: float
    batch_size: int

    def joint_probabilities(
        self, size: int, least: int
    ) -> Iterator[tuple[int, Shifts]]:
        """Yields the joint probabilities of the numbers of others and of members.

        Args:
            size: Number of members, K ≤ n.
            least: The least number of others.

        Yields:
            The number t of others, and for each i the probability that a batch holds t
            others and i members, with a relative error of at most 1e-9. A t whose
            probability is below 1e-290 is left out.
        """
        cap, others = self.batch_size, self.dataset_size - size
        _, full = sampled_members.binomial_tails(self.dataset_size, self.rate, cap - 1)
        in_full = dict(
            sampled_members.without_replacement(size, self.dataset_size, cap)
        )
        in_sample = dict(sampled_members.poisson(size, self.rate))
        for number in range(least, min(cap, others) + 1):
            mass = float(stats.binom.pmf(number, others, self.rate))
            room = cap - number
            law = {i: mass * in_sample.get(i, 0.0) for i in range(min(room, size + 1))}
            if room <= size:
                law[room] = full * in_full.get(room, 0.0)
            if sum(law.values()) > _LEAST_PROBABILITY:
                yield number, tuple((float(i), c) for i, c in law.items() if c)

    def fewer(self, size: int, least: int) -> Shifts:
        """Returns the law of the number of members if there is room for all of them.

        Args:
            size: The number of members, K.
            least: A number of others of at most B − K.

        Returns:
            For each i, the joint probability that fewer than `least` others and i
            members are drawn.
        """
        others = self.dataset_size - size
        mass, _ = sampled_members.binomial_tails(others, self.rate, least - 1)
        members = sampled_members.poisson(size, self.rate)
        return tuple((number, mass * weight) for number, weight in members)

    def full(self) -> tuple[float, float]:
        """Returns the probability that B or more others are drawn, and that of fewer.

        The others are all records except one.
        """
        room, full = sampled_members.binomial_tails(
            self.dataset_size - 1, self.rate, self.batch_size - 1
        )
        return full, room

    def inclusion(self) -> float:
        """Returns the probability that a record is in the batch, rounded down."""
        return dict(self._members(1)).get(1.0, 0.0)

    def coupled(self, removed: int, inserted: int) -> Sequence[Coupled]:
        """Returns a part for each number of others in the batch, which is revealed."""
        return _others_released(self, removed + inserted, removed, inserted)

    def split(self, base: batches.Base, removed: int, inserted: int) -> Mechanism:
        return self._bracket(base, removed + inserted, removed, inserted)

    def replaced(self, base: batches.Base, members: int) -> Mechanism:
        # All members are in both datasets, with other values.
        return self._bracket(base, members, members, members)

    def _bracket(
        self, base: batches.Base, size: int, removed: int, inserted: int
    ) -> Mechanism:
        noise = 0.0 if base.is_revealing else base.gaussian_noise
        attained = None
        if noise is not None:
            attained = _noise_released(self, noise, size, removed, inserted)
        return self.between(
            base,
            _others_released(self, size, removed, inserted),
            attained,
            *self._chain(base, size, removed, inserted),
        )

    def absent(self, base: batches.Base, removed: int, inserted: int) -> Mechanism:
        """Returns the mechanism where each dataset lacks the other one's members.

        The upper bound is a chain over single members, on datasets of all sizes. In the
        lower bound, the records that both datasets have contribute nothing.
        """

        def of(records: int) -> Truncated:
            return dataclasses.replace(self, dataset_size=records)

        records, fewest = self.dataset_size, self.dataset_size - removed - inserted
        leaving = range(records - inserted, fewest, -1)
        joining = range(fewest + 1, records - removed + 1)
        links = [(of(number).one_absent(base), 1, False) for number in leaving]
        links += [(of(number).one_absent(base), 1, True) for number in joining]
        if (removed, inserted) == (1, 0):
            return links[0][0]
        attained = Coupled(
            of(records - inserted)._members(removed),
            of(records - removed)._members(inserted),
        )
        below = batches.on_parts(base, [attained], self.probability_error)
        return known_bounds.between(below, chained.in_a_row(*links))

    def _members(self, size: int) -> Shifts:
        """Returns the law of the number of members in a batch, rounded down.

        The probabilities of one member and more are lowered by more than their error,
        and what is left goes to none.

        Args:
            size: The number of members, K.
        """
        with_room = max(self.batch_size - size, 0)
        law = np.zeros(size + 1)
        near_full = (joint for _, joint in self.joint_probabilities(size, with_room))
        for number, chance in itertools.chain(self.fewer(size, with_room), *near_full):
            law[int(number)] += chance
        law[1:] *= 1 - 4 * _BINOMIAL_ERROR
        law[0] = 1 - law[1:].sum()
        return tuple((float(i), c) for i, c in enumerate(law.tolist()) if c)

    def one_absent(self, base: batches.Base) -> Mechanism:
        """Returns a mechanism on samples of n records against samples of n − 1 of them.

        In the lower bound, the other records contribute nothing.
        """

        def on_a_sample(rate: float) -> Mechanism:
            inner = base.on(((1.0, 1.0),), batches.NONE)
            return subsampled.on_poisson_sample(rate, inner)

        few = on_a_sample(self.rate)
        if self.is_never_cut():
            return few
        others = self.dataset_size - 1
        second = {
            (number, 0.0): float(stats.binom.pmf(number, others, self.rate))
            for number, _ in self._near_full()
        }
        second[self.batch_size, 0.0] = self.full()[0]
        upper = self._by_numbers(base, few, second)
        return known_bounds.between(on_a_sample(self.inclusion()), upper)

    def _near_full(self) -> "dict[_Class, float]":
        """Returns the probabilities of t others and i of one record, for t near B."""
        least = max(self.batch_size - _NEAR, 0)
        return {
            (number, i): chance
            for number, law in self.joint_probabilities(1, least)
            for i, chance in law
        }

    def _by_numbers(
        self, base: batches.Base, few: Mechanism, second: "dict[_Class, float]"
    ) -> Mechanism:
        """Returns the upper bound of two laws of batches, of a single record.

        Args:
            base: The mechanism that runs on a batch.
            few: The mechanism if so few others are drawn that this is revealed.
            second: What `_near_full` returns for the second dataset.
        """
        first = self._near_full()
        classes = list(dict.fromkeys([*first, *second]))
        laws = [
            np.array([law.get(label, 0.0) for label in classes])
            for law in (first, second)
        ]
        p, q = (tuple((law / law.sum()).tolist()) for law in laws)
        points = np.array(classes)
        matrix = np.abs(points[:, np.newaxis] - points).sum(axis=2)
        distances = tuple(tuple(row) for row in matrix.tolist())
        # The errors of a probability, of the sum of all, and of their quotient.
        near = batches.OnBatchLaws(base, p, q, distances, error=3 * _BINOMIAL_ERROR)
        least = max(self.batch_size - _NEAR, 0)
        probability_of_few = math.fsum(chance for _, chance in self.fewer(1, least))
        cases = ((few, probability_of_few), (near, math.fsum(first.values())))
        possible = tuple(case for case in cases if case[1])
        return batches.RandomChoice(possible, error=self.probability_error)

    def is_never_cut(self) -> bool:
        """Returns whether a full batch is so rare that it is left out."""
        return self.full()[0] < _LEAST_PROBABILITY

    def _chain(
        self, base: batches.Base, size: int, removed: int, inserted: int
    ) -> list[Mechanism]:
        """Returns the chain over single members, each by two laws of batches.

        The list is empty if batches are never cut, or if the chain is too long.
        """
        limit = _CHAINED * max(base.gaussian_noise or 0.0, 1.0)
        if self.is_never_cut() or size > limit:
            return []
        is_replaced = removed == inserted == size
        second: dict[_Class, float] = {}
        for (number, i), chance in self._near_full().items():
            other = (number, -i if is_replaced else 0.0)
            second[other] = second.get(other, 0.0) + chance
        law = sampled_members.poisson(1, self.rate)
        few = base.on(law, law if is_replaced else batches.NONE)
        one = self._by_numbers(base, few, second)
        if is_replaced:
            return [chained.chain(one, size, 0)]
        return [groups.GroupedByChain(size, one).split(removed, inserted)]


@functools.lru_cache(maxsize=64)
def _others_released(
    scheme: Truncated, size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns the parts of the upper bound that reveals the number of others."""
    if scheme.is_never_cut():
        members = sampled_members.poisson(size, scheme.rate)
        return (_coupled(members, size, removed, inserted, probability=1.0),)
    cap = scheme.batch_size
    least = max(cap - size, 0)
    by_number = [scheme.fewer(size, least)]
    for number, probabilities in scheme.joint_probabilities(size, least):
        # Given the others, the probability of a full batch is rounded up.
        rounded_up = 1 + 3 * _BINOMIAL_ERROR
        room = cap - number
        by_number.append(
            tuple((i, c * rounded_up if i == room else c) for i, c in probabilities)
        )
    width = max(math.ceil(len(by_number) / _MOST_INTERVALS), 1)
    intervals = [by_number[i : i + width] for i in range(0, len(by_number), width)]
    by_number = [_stochastically_larger(laws, size) for laws in intervals]
    larger = (_few_sizes(size, number)[1] for number in (removed, inserted))
    return _parts(by_number, size, *larger)


@functools.lru_cache(maxsize=64)
def _noise_released(
    scheme: Truncated, noise: float, size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns the parts of the lower bound: cells of the noisy number of others."""
    if scheme.is_never_cut():
        return _others_released(scheme, size, removed, inserted)
    cap, reach, edges = scheme.batch_size, 0.0, np.zeros(0)
    if _LEAST_NOISE <= noise <= _MOST_NOISE:
        # Numbers of others that leave little room for members matter most.
        last = min(size, 4) / noise + _BEYOND
        edges = noise * np.arange(-_BEYOND, last + _CELL, _CELL)
        reach = float(edges[-1]) + _NOISE_ENDS * noise
    least = max(cap - size - math.ceil(reach), 0)
    cells = np.zeros((edges.size + 1, size + 1))
    for number, probabilities in scheme.joint_probabilities(size, least):
        shares = _shares(edges - (cap - number), noise)
        for i, probability in probabilities:
            cells[:, int(i)] += shares * probability
    for i, probability in scheme.fewer(size, least):
        cells[-1, int(i)] += probability
    cells[:, 1:] *= 1 - 3 * _BINOMIAL_ERROR
    laws: list[list[float]] = cells.tolist()
    by_number = [tuple((float(i), c) for i, c in enumerate(law) if c) for law in laws]
    smaller = (_few_sizes(size, number)[0] for number in (removed, inserted))
    return _parts(by_number, size, *smaller)


def _parts(
    by_number: Sequence[Shifts], size: int, removed: int, inserted: int
) -> tuple[Coupled, ...]:
    """Returns a part for each case that is not too rare, from its members' law."""
    probabilities = [math.fsum(mass for _, mass in members) for members in by_number]
    return tuple(
        _coupled(members, size, removed, inserted, probability)
        for members, probability in zip(by_number, probabilities, strict=True)
        if probability > _LEAST_PROBABILITY
    )


def _coupled(
    members: Shifts, size: int, removed: int, inserted: int, probability: float
) -> Coupled:
    """Returns one part of coupled batches, in which `members` is the same law for both.

    If all members leave and all join, they are replaced. Otherwise those who leave, and
    those who join, are any of the members in the batch.

    Args:
        members: The joint probability of this part and of each number of members.
        size: The number of members.
        removed: The number of members who leave.
        inserted: The number of members who join.
        probability: The probability of the part.
    """
    total = math.fsum(weight for _, weight in members)
    law = tuple((number, weight / total) for number, weight in members)
    if removed == inserted == size:
        return Coupled(law, law, probability)
    leave, join = (_of_these(these, size, law) for these in (removed, inserted))
    return Coupled(leave, join, probability)


def _of_these(these: int, size: int, law: Shifts) -> Shifts:
    """Returns how many of `these` members are in a batch, if of `size` it is `law`."""
    if these == size:
        return law
    weights: dict[float, float] = {}
    for number, weight in law:
        for count, share in _among(these, size, int(number)):
            weights[count] = weights.get(count, 0.0) + weight * share
    return tuple(weights.items())


@functools.lru_cache(maxsize=1024)
def _among(these: int, members: int, drawn: int) -> Shifts:
    """Returns the law of how many of some members are among those drawn."""
    return sampled_members.without_replacement(these, members, drawn)


def _few_sizes(size: int, part: int) -> tuple[int, int]:
    """Returns the size of a part of a group, rounded down and up to one of a few."""
    if size <= _FEW_MEMBERS or part == size:
        return part, part
    unit = -(-size // _PARTS)
    return part // unit * unit, min(-(-part // unit) * unit, size)


def _stochastically_larger(laws: list[Shifts], size: int) -> Shifts:
    """Returns probabilities of each number of members, stochastically above `laws`.

    Their sum is the probability of all cases together. Divided by this sum, the
    probability of i or more members is, for each i, no smaller than in any of the laws.
    """
    if len(laws) == 1:
        return laws[0]
    probabilities = np.zeros((len(laws), size + 1))
    for row, law in zip(probabilities, laws, strict=True):
        for number, probability in law:
            row[int(number)] = probability
    tails = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    tails = tails[tails[:, 0] > 0]
    largest = (tails / tails[:, :1]).max(axis=0) * (1 + _SUM_ERROR)
    largest[0] = 1.0
    masses = -np.diff(np.minimum.accumulate(np.minimum(largest, 1.0)), append=0.0)
    total = float(tails[:, 0].sum())
    return tuple((float(i), total * c) for i, c in enumerate(masses.tolist()) if c)


def _shares(edges: FloatArray, noise: float) -> FloatArray:
    """Returns the (n + 1,) probabilities of noise between (n,) edges, and beyond."""
    if not edges.size:
        return np.ones(1)
    scaled = np.concatenate([[-math.inf], edges / noise, [math.inf]])
    low, high = scaled[:-1], scaled[1:]
    # Differences are taken in the smaller tail, where they keep their digits.
    above = low > 0
    first = special.ndtr(np.where(above, -low, high))
    last = special.ndtr(np.where(above, -high, low))
    shares: FloatArray = first - last
    return shares
