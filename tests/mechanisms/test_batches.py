"""Batches of every sampling scheme: never below what enumerated datasets attain."""

from collections import Counter
import dataclasses
from fractions import Fraction
import functools
import itertools
import math

import enumerated_batches as enumerated
from mechanism_laws import deltas
import mpmath
import nights
import oracles
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
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


# Two laws are a linear program, which is small for these rows. Others run at night.
QUICK = [("poisson", 1, 0), ("fixed", 1, 1)]
nightly = pytest.mark.nightly


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


def steps_between(one, other, name):
    """The number of steps from one batch to another."""
    if name == "again":
        return sum(a != b for a, b in zip(one, other, strict=True))
    apart = Counter(one)
    apart.subtract(Counter(other))
    number = sum(map(abs, apart.values()))
    # A replaced record is one that is put out, and one that is put in.
    return number if name in ("poisson", "capped") else number / 2


def class_of(records):
    """How many members of either group are in a batch."""
    return tuple(sum(r.startswith(g) and len(r) > 1 for r in records) for g in "ab")


@functools.cache
def by_laws(row, base):
    """The mechanism by two laws over classes, whose distances are enumerated."""
    scheme = made(row)
    weights = [Counter() for _ in scheme.laws]
    for law, found in zip(scheme.laws, weights, strict=True):
        for records, chance in law.items():
            found[class_of(records)] += chance
    every = {
        key: [y for y in {**scheme.laws[0], **scheme.laws[1]} if class_of(y) == key]
        for key in {**weights[0], **weights[1]}
    }

    def distance(one, other):
        return min(
            steps_between(*pair, row[0])
            for pair in itertools.product(every[one], every[other])
        )

    first, second = ({k: float(v) for k, v in found.items()} for found in weights)
    return batches.on_batch_laws(base, first, second, distance)


def by_common_batch(row, base):
    return batches.on_batches(base, [made(row).coupled])


SMALL = [pytest.param(r, marks=[] if r in QUICK else nightly) for r in ROWS]
WAYS = [(by_common_batch, row) for row in ROWS]
WAYS += [pytest.param(by_laws, *row.values, marks=row.marks) for row in SMALL]


@pytest.mark.parametrize(("mechanism_of", "row"), WAYS)
@pytest.mark.parametrize("seed", [0, *nights.at_night(1)])
def test_noise_on_sums(row, seed, mechanism_of):
    value = values_of(made(row), seed)
    assert_above(
        made(row),
        lambda y: enumerated.noisy(sum(map(value, y))),
        mechanism_of(row, NOISE),
    )


ANSWER = batch_mechanisms.Answer(0.5)
RESPONSES = batch_mechanisms.NeighboringBatches(RESPONSE, is_bounded=True)
QUESTIONS = [
    lambda records: int(enumerated.members(records) > 0),
    lambda records: int(any(record.startswith("b") for record in records)),
    lambda records: len("".join(records)) % 2,
]


@pytest.mark.parametrize(("mechanism_of", "row"), WAYS)
def test_answers_to_questions(row, mechanism_of):
    """Randomized response: of any batch that holds a member, or one of them."""
    bases = [ANSWER] if mechanism_of is by_laws else [ANSWER, RESPONSES]
    for base, question in itertools.product(bases, QUESTIONS):
        mechanism = mechanism_of(row, base)
        assert_above(
            made(row), lambda y, q=question: enumerated.response(q(y)), mechanism
        )


@pytest.mark.parametrize("row", SMALL)
def test_two_laws_are_no_looser_than_a_common_batch(row):
    noise = batch_mechanisms.Noise(1.5)
    ours, common = by_laws(row, noise), by_common_batch(row, noise)
    for epsilon in EPSILONS:
        for one, other in zip(
            deltas(ours, epsilon), deltas(common, epsilon), strict=True
        ):
            assert one <= other * (1 + 1e-4) + 1e-12


@nightly
@pytest.mark.parametrize("removed", [1, 2])
def test_classes_are_as_good_as_single_batches(removed):
    """Theorem 2 of docs/mathematics.md: every batch on its own, or by orbits."""
    noise = batch_mechanisms.Noise(1.0)
    row = ("poisson", removed, 1)
    first, second = (
        {records: float(chance) for records, chance in law.items()}
        for law in made(row).laws
    )
    single = batches.on_batch_laws(
        noise, first, second, lambda x, y: steps_between(x, y, row[0])
    )
    for epsilon in (0.0, 0.2, 0.7):
        assert deltas(single, epsilon) == pytest.approx(
            deltas(by_laws(row, noise), epsilon), rel=1e-3
        )


class TestBases:
    def test_less_than_the_mechanism_agnostic_bound(self):
        """Section 3.2: δ' = Σ Binom(k | K, r) δ_k at ε' = ln(1 + r_K (e^ε − 1)).

        Chains of Gaussian noise are Gaussian noise, so that the bound is that of noise.
        """
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
            exact = batches.on_batches(batch_mechanisms.Noise(1.5), [coupled])
            assert deltas(ours, sampled)[0] < 0.999 * agnostic
            for found, truth in zip(
                deltas(ours, sampled), deltas(exact, sampled), strict=True
            ):
                assert truth * (1 - 1e-6) <= found <= truth * (1 + 1e-5)

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


HALVES = (0.5, 0.5, 0.0), (0.5, 0.0, 0.5)
APART = ((0, 1, 1), (1, 0, 1), (1, 1, 0))


class TestTwoLaws:
    def test_forms_of_input(self):
        """A matrix, a function, labels, a detour, and classes that nobody draws."""
        noise = batch_mechanisms.Noise(1.0)
        plain = batches.on_batch_laws(noise, *HALVES, APART)
        assert plain == batches.on_batch_laws(noise, *HALVES, lambda x, y: x != y)
        named = batches.on_batch_laws(
            noise,
            {"none": 0.5, "old": 0.5},
            {"none": 0.5, "new": 0.5, "never": 0.0},
            lambda x, y: 0 if x == y else 1 + 7 * ("never" in (x, y)),
        )
        assert plain == named
        far = ((0, 1, 9), (1, 0, 1), (9, 1, 0))
        detour = batches.on_batch_laws(noise, *HALVES, far)
        assert detour.distances[0] == (0.0, 1.0, 2.0)

    def test_what_cannot_be_told_apart(self):
        noise = batch_mechanisms.Noise(1.0)
        assert (
            batches.on_batch_laws(noise, *HALVES, lambda x, y: 0) == compositions.NO_OP
        )
        same = batches.on_batch_laws(noise, HALVES[0], HALVES[0], APART)
        assert same == compositions.NO_OP
        merged = ((0, 1, 0), (1, 0, 1), (0, 1, 0))
        sampled = batches.on_batch_laws(noise, *HALVES, merged)
        assert (sampled.first, sampled.second) == ((0.5, 0.5), (1.0, 0.0))

    def test_without_noise_classes_are_told_apart(self):
        bare = batches.on_batch_laws(batch_mechanisms.Noise(0.0), *HALVES, APART)
        for bound in Bound:
            assert deltas(bare, 20.0, bound) == pytest.approx([0.5, 0.5], rel=1e-9)

    @pytest.mark.parametrize(
        ("sigma", "weight"), [(1e-3, 1e-30), (0.05, 1e-9), (40.0, 1.0), (40.0, 1e-30)]
    )
    def test_extreme_weights_and_noise(self, sigma, weight):
        """Of the total variation of two classes, and of their laws' three points."""
        rest = 1 - weight
        noise = batch_mechanisms.Noise(sigma)
        laws = {"c": rest, "a": weight}, {"c": rest, "b": weight}
        found = batches.on_batch_laws(noise, *laws, lambda x, y: x != y)
        variation = weight * math.erf(1 / sigma / math.sqrt(8))
        for one in deltas(found, 0.0):
            assert variation * (1 - 1e-12) <= one <= variation * (1 + 1e-4) + 1e-10

    def test_what_a_batch_may_reveal_is_a_failure_of_divergences(self):
        """Half of the batches have the record, and reveal it with the chance 1e-3."""
        known = discrete_outputs.PrivacyParameters(1.0, 1e-3)
        base = batch_mechanisms.NeighboringBatches(known)
        found = batches.on_batch_laws(base, *HALVES, APART).rdp([2.0])
        assert 5e-4 <= found.failure_probability <= 5e-4 * (1 + 1e-6)

    def test_lower_bounds_only_where_they_are_claimed(self):
        noise = batch_mechanisms.Noise(1.0)
        known = batches.on_batch_laws(noise, *HALVES, APART, is_attained=True)
        unknown = batches.on_batch_laws(noise, *HALVES, APART)
        assert deltas(unknown, 0.1, Bound.LOWER) == [0.0, 0.0]
        lower, upper = (
            deltas(known, 0.1, bound) for bound in (Bound.LOWER, Bound.UPPER)
        )
        assert upper[0] * (1 - 1e-4) <= lower[0] <= upper[0]
        assert lower[1] <= upper[1]


def hits_of(size, draws):
    """A record of so many, whose sum moves by two norms where another replaces it."""
    return sampled_members.with_replacement(1, size, draws)


MANY_DRAWS = [(1000, 10, 1.0), (50, 25, 5.0)]


class TestReplacedMembers:
    @pytest.mark.parametrize(
        ("size", "draws", "sigma"),
        [(4, 3, 2.0), *(pytest.param(*s, marks=nightly) for s in MANY_DRAWS)],
    )
    def test_no_two_datasets_are_further_apart(self, size, draws, sigma):
        """Others anywhere between the two records that replace one another."""
        mechanism = batches.replaced_members(
            batch_mechanisms.Noise(sigma / 2), hits_of(size, draws)
        )
        weights = [
            math.comb(draws, i) * (size - 1) ** (draws - i) / size**draws
            for i in range(min(draws, 12) + 1)
        ]
        for other in (-1.0, -0.4, 0.0):
            p = [((1 - other) * i / sigma, w) for i, w in enumerate(weights)]
            q = [((-1 - other) * i / sigma, w) for i, w in enumerate(weights)]
            for epsilon in (0.0, 0.1, 1.0, 3.0):
                truth = max(oracles.shift_mixture_deltas(p, q, epsilon).values())
                for found in deltas(mechanism, epsilon):
                    assert found >= truth * (1 - mpmath.mpf("1e-12"))

    @nightly
    def test_numbers_that_are_very_many(self):
        """Larger numbers stand for others, so that the bound is above the exact one."""
        noise, hits = batch_mechanisms.Noise(10.0), hits_of(50, 500)
        many = batches.replaced_members(noise, hits)
        assert len(many.first) < 80
        for epsilon in (0.0, 0.5, 3.0):
            lower = deltas(noise.on(hits, batches.NONE), epsilon, Bound.LOWER)[0]
            upper = max(deltas(many, epsilon))
            assert lower <= upper <= 1.1 * lower + 1e-6

    @nightly
    def test_rare_hits_are_told(self):
        mechanism = batches.replaced_members(
            batch_mechanisms.Noise(0.5), hits_of(1000, 10)
        )
        rare = math.fsum(w for number, w in hits_of(1000, 10) if number > 7)
        assert rare <= mechanism.rdp([2.0]).failure_probability <= 1e-20
