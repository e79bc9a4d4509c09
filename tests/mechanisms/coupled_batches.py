"""Sampling schemes and couplings of their batches, enumerated in exact fractions.

Shares no code with the package. A batch is a sorted tuple of records; a record is a
letter (common to both datasets), or a letter with a number: "a1", "a2" of the first
dataset only, "b1" of the second.
"""

from collections import Counter
from collections import defaultdict
import dataclasses
from fractions import Fraction
import itertools
import math


def batch(records):
    return tuple(sorted(records))


def members(records):
    return sum(len(record) > 1 for record in records)


def poisson(dataset, rate):
    """The law of a Poisson sample."""
    law = {}
    for chosen in itertools.product([False, True], repeat=len(dataset)):
        records = [r for r, kept in zip(dataset, chosen, strict=True) if kept]
        law[batch(records)] = rate ** len(records) * (1 - rate) ** (
            len(dataset) - len(records)
        )
    return law


def without_replacement(dataset, size):
    drawn = list(itertools.combinations(dataset, size))
    return {batch(records): Fraction(1, len(drawn)) for records in drawn}


def with_replacement(dataset, size):
    """The law of a sequence of draws: here a batch keeps its order."""
    share = Fraction(1, len(dataset) ** size)
    return {draws: share for draws in itertools.product(dataset, repeat=size)}


def stratified(strata, sizes):
    """So many records of each stratum, drawn without replacement."""
    laws = [without_replacement(*each) for each in zip(strata, sizes, strict=True)]
    law = defaultdict(Fraction)
    for way in itertools.product(*(each.items() for each in laws)):
        records = itertools.chain.from_iterable(drawn for drawn, _ in way)
        law[batch(records)] += math.prod(chance for _, chance in way)
    return dict(law)


def capped_poisson(dataset, rate, most):
    """A Poisson sample of which a user's records but a few, at random, are dropped."""
    law = defaultdict(Fraction)
    for records, chance in poisson(dataset, rate).items():
        own = [record for record in records if len(record) > 1]
        others = [record for record in records if len(record) == 1]
        choices = list(itertools.combinations(own, min(most, len(own))))
        for kept in choices:
            law[batch([*others, *kept])] += chance / len(choices)
    return dict(law)


def put_in(common, removed, inserted):
    """Couples batches: members join a common one in a random order.

    Args:
        common: The law of batches without members.
        removed: Members of the first dataset.
        inserted: Those of the second.

    Yields:
        (chance, batches of the first dataset by members in them, those of the second).
    """
    orders = list(
        itertools.product(
            itertools.permutations(removed), itertools.permutations(inserted)
        )
    )
    for records, chance in common.items():
        for first, second in orders:
            yield (
                chance / len(orders),
                [batch([*records, *first[:i]]) for i in range(len(first) + 1)],
                [batch([*records, *second[:j]]) for j in range(len(second) + 1)],
            )


def swapped_in(common, removed, inserted, size):
    """Couples batches of one size: members take the places of a batch's records."""
    for records, chance in without_replacement(common, size).items():
        ways = list(
            itertools.product(
                itertools.permutations(records),
                itertools.permutations(removed),
                itertools.permutations(inserted),
            )
        )
        for order, first, second in ways:
            yield (
                chance / len(ways),
                [
                    batch([*first[:i], *order[i:]])
                    for i in range(min(len(first), size) + 1)
                ],
                [
                    batch([*second[:j], *order[j:]])
                    for j in range(min(len(second), size) + 1)
                ],
            )


def drawn_again(common, removed, inserted, size):
    """Couples sequences: members take the first so many places of a random order."""
    orders = list(itertools.permutations(range(size)))
    laws = [
        with_replacement(group, size) if group else {(): Fraction(1)}
        for group in (common, removed, inserted)
    ]
    for way in itertools.product(*(law.items() for law in laws)):
        (records, first, second), chances = zip(*way, strict=True)
        for order in orders:
            yield (
                math.prod(chances) / len(orders),
                _in_places(records, first, order),
                _in_places(records, second, order),
            )


def _in_places(records, own, order):
    found = [tuple(records)]
    for number in range(1, len(own) + 1):
        draws = list(records)
        for place in order[:number]:
            draws[place] = own[place]
        found.append(tuple(draws))
    return found


@dataclasses.dataclass
class Conditional:
    """A dataset's batches cut by the number of members in them."""

    law: dict

    def __post_init__(self):
        self.weights = defaultdict(Fraction)
        for records, chance in self.law.items():
            self.weights[members(records)] += chance

    def given(self, number):
        return {
            records: chance / self.weights[number]
            for records, chance in self.law.items()
            if members(records) == number
        }


def marginal(coupling, side, number):
    """The law of one of the coupled batches."""
    law = defaultdict(Fraction)
    for chance, *sides in coupling:
        law[sides[side][number]] += chance
    return dict(law)


def symmetric_difference(one, other):
    """How many records join or leave between two batches."""
    one, other = Counter(one), Counter(other)
    return sum(((one - other) + (other - one)).values())


def replaced(one, other):
    """How many records of a batch of one size are others."""
    return sum((Counter(one) - Counter(other)).values())


def changed_draws(one, other):
    """In how many places two sequences differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def noisy(value, furthest=5):
    """Discrete Laplace noise of ratio 1/2 on an integer, clamped to a range."""
    outputs = range(-furthest, furthest + 1)
    law = {}
    for output in outputs:
        distance = abs(output - value)
        mass = Fraction(1, 3) * Fraction(1, 2) ** distance
        if abs(output) == furthest and (output - value) * output >= 0:
            mass = Fraction(2, 3) * Fraction(1, 2) ** distance
        elif abs(output) == furthest:
            inside = furthest - abs(value)
            mass = 1 - Fraction(1, 3) * Fraction(1, 2) ** inside
        law[output] = mass
    return law


def response(answer):
    """A bit, told wrong with probability 1/4."""
    return {answer: Fraction(3, 4), 1 - answer: Fraction(1, 4)}


def mixed(weighted):
    """The mixture of laws with weights."""
    law = defaultdict(Fraction)
    for weight, part in weighted:
        for output, mass in part.items():
            law[output] += weight * mass
    return law


def hockey_stick(p, q, kappa):
    return sum(max(p[each] - kappa * q.get(each, 0), 0) for each in p)


def transport_bound(coupling, weights, outputs, kappa):
    """Theorem 3.4's right side: the mean of the cost under the coupling."""
    total = Fraction(0)
    for chance, first, second in coupling:
        sides = [
            mixed([(w[i], outputs(y)) for i, y in enumerate(batches)])
            for w, batches in zip(weights, (first, second), strict=True)
        ]
        total += chance * hockey_stick(*sides, kappa)
    return total


def single_transport_bound(coupling, weights, outputs, kappa):
    """Theorem 3.3's right side: the numbers of members are drawn, and told."""
    total = Fraction(0)
    for chance, first, second in coupling:
        for (i, y), (j, z) in itertools.product(enumerate(first), enumerate(second)):
            cost = hockey_stick(outputs(y), outputs(z), kappa)
            total += chance * weights[0][i] * weights[1][j] * cost
    return total
