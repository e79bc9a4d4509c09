"""Sampling schemes and outputs on their batches, enumerated in exact fractions.

Shares no code with the package. A batch is a sorted tuple of records; a record is a
letter (common to both datasets), or a letter with a number: "a1", "a2" of the first
dataset only, "b1" of the second.
"""

from collections import defaultdict
from fractions import Fraction
import itertools
import math


def batch(records):
    return tuple(sorted(records))


def numbers_of_members(law):
    """Returns how likely batches with so many members are, from none on."""
    weights = defaultdict(Fraction)
    for records, chance in law.items():
        weights[members(records)] += chance
    return [weights[number] for number in range(max(weights) + 1)]


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
