"""Batches of every sampling scheme: never below what enumerated datasets attain."""

import dataclasses
from fractions import Fraction
import functools
import itertools
import math

import enumerated_batches as enumerated
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import sampled_members

NOISE = batch_mechanisms.NeighboringBatches(
    discrete_outputs.DiscreteLaplace(math.log(2), 1)
)
RESPONSE = discrete_outputs.RandomizedResponse(0.5, 2, replace_one=True)
EPSILONS = (0.0, 0.2, 0.7, 1.4, 3.0)
COMMON = ["c", "d", "e"]
RATE, SIZE, MOST = Fraction(1, 4), 2, 2


@dataclasses.dataclass
class Row:
    """A scheme's laws on two datasets, and what the package says of it.

    One step of the distance between batches is to put a record in or out, or it is to
    replace one.
    """

    laws: list
    coupled: batches.Coupled
    is_put_in: bool


# A law of batches of a dataset, that of the members in them, and what one step is.
SCHEMES = {
    "poisson": (
        lambda dataset: enumerated.poisson(dataset, RATE),
        lambda members, size: sampled_members.poisson(members, 0.25),
        True,
    ),
    "capped": (
        lambda dataset: enumerated.capped_poisson(dataset, RATE, MOST),
        lambda members, size: sampled_members.capped(
            sampled_members.poisson(members, 0.25), MOST
        ),
        True,
    ),
    "fixed": (
        lambda dataset: enumerated.without_replacement(dataset, SIZE),
        lambda members, size: sampled_members.without_replacement(members, size, SIZE),
        False,
    ),
    "again": (
        lambda dataset: enumerated.with_replacement(dataset, SIZE),
        lambda members, size: sampled_members.with_replacement(members, size, SIZE),
        False,
    ),
}
ROWS = [
    ("poisson", 1, 0),
    ("poisson", 2, 0),
    ("poisson", 0, 2),
    ("poisson", 2, 1),
    ("fixed", 1, 0),
    ("fixed", 2, 0),
    ("fixed", 1, 1),
    ("again", 1, 0),
    ("again", 2, 0),
    ("again", 1, 1),
    ("capped", 3, 0),
    ("capped", 3, 1),
    "strata",
]


@functools.cache
def made(row):
    if row == "strata":
        # One of two records of the first stratum, two of four of the second.
        strata = [["c", "a1"], ["d", "e", "a2", "a3"]], [["c"], ["d", "e"]]
        laws = [
            sampled_members.without_replacement(1, 2, 1),
            sampled_members.without_replacement(2, 4, 2),
        ]
        coupled = batches.Coupled(removed=sampled_members.total(laws))
        return Row([enumerated.stratified(s, [1, 2]) for s in strata], coupled, False)
    name, removed, inserted = row
    law_of, numbers_of, is_put_in = SCHEMES[name]
    own = [f"a{i}" for i in range(removed)], [f"b{j}" for j in range(inserted)]
    datasets = [COMMON + group for group in own]
    numbers = [numbers_of(len(d) - len(COMMON), len(d)) for d in datasets]
    return Row(list(map(law_of, datasets)), batches.Coupled(*numbers), is_put_in)


def kappa_above(epsilon):
    """A rational number no smaller than e^ε, and equal but for a rounding."""
    return Fraction(math.nextafter(math.exp(epsilon), math.inf))


def deltas(mechanism, epsilon, bound=Bound.UPPER):
    pairs = interface.pairs_of(mechanism, bound, accuracy.Accuracy(1e-30))
    return [pairs.of(way).delta(epsilon, way) for way in Direction]


@pytest.mark.parametrize("row", ROWS)
def test_the_weights_are_the_schemes(row):
    row = made(row)
    coupled = row.coupled.removed, row.coupled.inserted
    for law, found in zip(row.laws, coupled, strict=True):
        total = [Fraction(0)] * (1 + max(int(number) for number, _ in found))
        for distance, weight in found:
            total[int(distance)] += Fraction(weight)
        exact = enumerated.numbers_of_members(law)
        for weight, truth in itertools.zip_longest(total, exact, fillvalue=0):
            assert abs(weight - truth) <= Fraction(1, 10**12)


def values_of(row, seed):
    """Sums over a batch: one step of the row moves them by one at most."""

    def value(record):
        if record.startswith("a"):
            return 1
        if record.startswith("b"):
            return -1 if row.is_put_in else 0
        place = (ord(record) * 7 + seed) % (3 if row.is_put_in else 2)
        return place - row.is_put_in

    return value


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_noise_on_sums(row, seed):
    row = made(row)
    value = values_of(row, seed)
    mechanism = batches.on_batches(NOISE, [row.coupled])
    assert_above(row, lambda y: enumerated.noisy(sum(map(value, y))), mechanism)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    "base",
    [
        batch_mechanisms.Answer(0.5),
        batch_mechanisms.NeighboringBatches(RESPONSE, is_bounded=True),
    ],
)
def test_answers_to_questions(row, base):
    """Randomized response: of any batch that holds a member, or one of them."""
    row = made(row)
    mechanism = batches.on_batches(base, [row.coupled])
    questions = [
        lambda records: int(enumerated.members(records) > 0),
        lambda records: int(any(record.startswith("b") for record in records)),
        lambda records: len("".join(records)) % 2,
    ]
    for question in questions:
        assert_above(row, lambda y, q=question: enumerated.response(q(y)), mechanism)


def outputs_of(row, outputs):
    """Returns the laws of outputs on the batches of either dataset."""
    return [
        enumerated.mixed([(chance, outputs(y)) for y, chance in law.items()])
        for law in row.laws
    ]


def assert_above(row, outputs, mechanism):
    p, q = outputs_of(row, outputs)
    for epsilon in EPSILONS:
        kappa = kappa_above(epsilon)
        remove, add = deltas(mechanism, epsilon)
        assert enumerated.hockey_stick(p, q, kappa) <= remove
        assert enumerated.hockey_stick(q, p, kappa) <= add


def test_parts_are_drawn_and_told():
    """One of two cities, then a Poisson sample of it: the chance of the city counts."""
    rate = Fraction(1, 4)
    cities = [
        [enumerated.poisson(["c", "a1"], rate), enumerated.poisson(["d"], rate)],
        [enumerated.poisson(["c"], rate), enumerated.poisson(["d"], rate)],
    ]
    one = sampled_members.poisson(1, 0.25)
    mechanism = batches.on_batches(
        NOISE, [batches.Coupled(one, probability=0.5), batches.Coupled(probability=0.5)]
    )

    def law(each, told):
        return enumerated.mixed(
            [
                (
                    chance / 2,
                    {
                        (output, city if told else None): mass
                        for output, mass in enumerated.noisy(len(y)).items()
                    },
                )
                for city, batches_of in enumerate(each)
                for y, chance in batches_of.items()
            ]
        )

    for epsilon in EPSILONS:
        kappa = kappa_above(epsilon)
        remove, add = deltas(mechanism, epsilon)
        for told in (False, True):
            p, q = (law(each, told) for each in cities)
            assert enumerated.hockey_stick(p, q, kappa) <= remove
            assert enumerated.hockey_stick(q, p, kappa) <= add
    half = batches.on_batches(NOISE, [batches.Coupled(one)])
    for epsilon in EPSILONS:
        assert deltas(mechanism, epsilon)[0] == pytest.approx(
            deltas(half, epsilon)[0] / 2, rel=1e-9
        )


class TestBases:
    def test_the_mechanism_agnostic_bound(self):
        """Section 3.2: δ' = Σ Binom(k | K, r) δ_k at ε' = ln(1 + r_K (e^ε − 1))."""
        members, rate = 3, 0.2
        coupled = batches.Coupled(sampled_members.poisson(members, rate))
        base = additive_noise.Gaussian(1.5)
        ours = batches.on_batches(batch_mechanisms.NeighboringBatches(base), [coupled])
        some = 1 - (1 - rate) ** members
        for epsilon in (0.5, 1.0):
            agnostic = math.fsum(
                math.comb(members, k)
                * rate**k
                * (1 - rate) ** (members - k)
                * deltas(chained.ChainedSplit(base, k, 0), epsilon)[0]
                for k in range(1, members + 1)
            )
            sampled = math.log1p(some * math.expm1(epsilon))
            assert deltas(ours, sampled)[0] == pytest.approx(agnostic, rel=1e-6)

    def test_a_mechanism_that_is_not_symmetric_counts_either_way(self):
        pair = output_pairs.of_probabilities(
            (0.9, 0.1), (0.5, 0.5), Bound.UPPER, error=0.0
        )
        known = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(pair))
        base = batch_mechanisms.NeighboringBatches(known)
        whole = base.on(sampled_members.unsampled(1), batches.NONE)
        for epsilon in (0.0, 0.3, 1.0):
            worst = max(deltas(known, epsilon))
            assert min(deltas(whole, epsilon)) >= worst * (1 - 1e-12)

    @pytest.mark.parametrize(
        "base",
        [
            batch_mechanisms.Noise(1.0),
            batch_mechanisms.Noise(1.0, is_laplace=True),
            batch_mechanisms.WithoutNoise(),
            NOISE,
        ],
    )
    def test_nothing_moves(self, base):
        assert batches.on_batches(base, [batches.Coupled()]) == compositions.NO_OP

    def test_no_noise_reveals_the_members(self):
        coupled = batches.Coupled(sampled_members.poisson(2, 0.25))
        bare = batches.on_batches(batch_mechanisms.Noise(0.0), [coupled])
        assert deltas(bare, 40.0) == pytest.approx([0.4375, 0.0], rel=1e-9)

    def test_lower_bounds_are_of_one_step_that_is_attained(self):
        one = batches.Coupled(sampled_members.poisson(1, 0.25))
        attained = batches.on_batches(NOISE, [one], is_attained=True)
        lower = deltas(attained, 0.1, Bound.LOWER)[0]
        assert 0 < lower <= deltas(attained, 0.1)[0] <= lower * (1 + 1e-9)
        for coupled in (one, batches.Coupled(sampled_members.poisson(2, 0.25))):
            unknown = batches.on_batches(NOISE, [coupled])
            assert deltas(unknown, 0.1, Bound.LOWER) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("base", "parts", "message"),
    [
        (NOISE, [], "probabilities of parts must sum to 1. Found 0"),
        (NOISE, [batches.Coupled(probability=0.5)], "must sum to 1. Found 0.5"),
        (NOISE, [batches.Coupled(probability=math.nan)], "must be in .0, 1.. Found"),
        (NOISE, [batches.Coupled(((1.0, 0.5),))], "weights of distances must sum"),
        (NOISE, [batches.Coupled(((-1.0, 1.0),))], "at least 0. Found"),
        (NOISE, [batches.Coupled(((math.inf, 1.0),))], "must be finite"),
        (NOISE, [batches.Coupled(((0.5, 1.0),))], "must be integers"),
    ],
)
def test_what_is_no_law_is_refused(base, parts, message):
    with pytest.raises(ValueError, match=message):
        batches.on_batches(base, parts)
