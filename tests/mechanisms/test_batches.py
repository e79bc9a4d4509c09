"""Coupled batches: each sampling row proven by the transport bound, enumerated."""

import dataclasses
from fractions import Fraction
import functools
import itertools
import math

import asked
import coupled_batches as enumerated
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import sampled_members

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
NOISE = batches.Neighbours(discrete_outputs.DiscreteLaplace(math.log(2), 1))
RESPONSE = discrete_outputs.RandomizedResponse(0.5, 2, replace_one=True)
EPSILONS = (0.0, 0.2, 0.7, 1.4, 3.0)


@dataclasses.dataclass
class Row:
    """A scheme: its laws on two datasets, a coupling, and what the package says."""

    laws: tuple
    coupling: list
    distance: object
    coupled: batches.Coupled


def poisson(removed, inserted):
    common, rate = ["c", "d"], Fraction(1, 4)
    own = [f"a{i}" for i in range(removed)], [f"b{j}" for j in range(inserted)]
    return Row(
        tuple(enumerated.poisson(common + group, rate) for group in own),
        list(enumerated.put_in(enumerated.poisson(common, rate), *own)),
        enumerated.symmetric_difference,
        batches.Coupled(
            sampled_members.poisson(removed, 0.25),
            sampled_members.poisson(inserted, 0.25),
        ),
    )


def fixed(removed, inserted):
    common, size = ["c", "d", "e"], 2
    own = [f"a{i}" for i in range(removed)], [f"b{j}" for j in range(inserted)]
    sizes = len(common) + removed, len(common) + inserted
    return Row(
        tuple(enumerated.without_replacement(common + group, size) for group in own),
        list(enumerated.swapped_in(common, *own, size)),
        enumerated.replaced,
        batches.Coupled(
            sampled_members.without_replacement(removed, sizes[0], size),
            sampled_members.without_replacement(inserted, sizes[1], size),
        ),
    )


def again(removed, inserted):
    common, size = ["c", "d"], 2
    own = [f"a{i}" for i in range(removed)], [f"b{j}" for j in range(inserted)]
    sizes = len(common) + removed, len(common) + inserted
    return Row(
        tuple(enumerated.with_replacement(common + group, size) for group in own),
        list(enumerated.drawn_again(common, *own, size)),
        enumerated.changed_draws,
        batches.Coupled(
            sampled_members.with_replacement(removed, sizes[0], size),
            sampled_members.with_replacement(inserted, sizes[1], size),
        ),
    )


def strata(removed, inserted):
    """One of two records of the first stratum, two of four of the second.

    Given how many members a batch has, where they are is drawn for each number alone.
    """
    assert (removed, inserted) == (3, 0)
    law = enumerated.stratified([["c", "a1"], ["d", "e", "a2", "a3"]], [1, 2])
    second = enumerated.stratified([["c"], ["d", "e"]], [1, 2])
    weights = [
        enumerated.Conditional(enumerated.without_replacement(*each)).weights
        for each in [(["c", "a1"], 1), (["d", "e", "a2", "a3"], 2)]
    ]
    places = [[] for _ in range(4)]
    for (i, one), (j, other) in itertools.product(*(w.items() for w in weights)):
        places[i + j].append((one * other, i, j))
    coupling = []
    for (share, first, _), (rest, more, _) in itertools.product(
        enumerated.swapped_in(["c"], ["a1"], [], 1),
        list(enumerated.swapped_in(["d", "e"], ["a2", "a3"], [], 2)),
    ):
        for way in itertools.product(*places):
            chance = math.prod(w for w, _, _ in way) / math.prod(
                sum(w for w, _, _ in each) for each in places
            )
            drawn = [enumerated.batch([*first[i], *more[j]]) for _, i, j in way]
            coupling.append((share * rest * chance, drawn, drawn[:1]))
    laws = [
        sampled_members.without_replacement(1, 2, 1),
        sampled_members.without_replacement(2, 4, 2),
    ]
    coupled = batches.Coupled(removed=sampled_members.total(laws))
    return Row((law, second), coupling, enumerated.replaced, coupled)


def capped(removed, inserted):
    common, rate, most = ["c", "d"], Fraction(1, 4), 2
    own = [f"a{i}" for i in range(removed)], [f"b{j}" for j in range(inserted)]

    def cut(group):
        return group[: most + 1]

    coupling = [
        (chance, cut(first), cut(second))
        for chance, first, second in enumerated.put_in(
            enumerated.poisson(common, rate), *own
        )
    ]
    numbers = [
        sampled_members.capped(sampled_members.poisson(len(group), 0.25), most)
        for group in own
    ]
    return Row(
        tuple(enumerated.capped_poisson(common + group, rate, most) for group in own),
        coupling,
        enumerated.symmetric_difference,
        batches.Coupled(*numbers),
    )


ROWS = [
    (poisson, 1, 0),
    (poisson, 2, 0),
    (poisson, 0, 2),
    (poisson, 2, 1),
    (fixed, 1, 0),
    (fixed, 2, 0),
    (fixed, 1, 1),
    (again, 1, 0),
    (again, 2, 0),
    (again, 1, 1),
    (capped, 3, 0),
    (capped, 3, 1),
    (strata, 3, 0),
]


@functools.cache
def made(row):
    scheme, *sizes = row
    return scheme(*sizes)


def weights_of(row):
    laws = [enumerated.Conditional(law).weights for law in row.laws]
    return [[law[i] for i in sorted(law)] for law in laws]


def kappa_above(epsilon):
    """A rational number no smaller than e^ε, and equal but for a rounding."""
    return Fraction(math.nextafter(math.exp(epsilon), math.inf))


def deltas(mechanism, epsilon, bound=Bound.UPPER):
    pairs = interface.pairs_of(mechanism, bound, 1e-30)
    return [pairs.of(way).delta(epsilon, way) for way in Direction]


@pytest.mark.parametrize("row", ROWS)
def test_the_coupling_is_one_and_compatible(row):
    """Definition 3.2: its marginals; Definition 3.6: the least distances."""
    row = made(row)
    laws = [enumerated.Conditional(law) for law in row.laws]
    assert sum(chance for chance, *_ in row.coupling) == 1
    supports = {}
    for side, law in enumerate(laws):
        for number in law.weights:
            found = enumerated.marginal(row.coupling, side, number)
            assert found == law.given(number)
            supports[side, number] = list(found)
    for _, *tuples in row.coupling:
        placed = {
            (side, number): y
            for side, each in enumerate(tuples)
            for number, y in enumerate(each)
        }
        for (one, y), (other, z) in itertools.combinations(placed.items(), 2):
            apart = row.distance(y, z)
            least = min(
                row.distance(*pair)
                for pair in itertools.product(supports[one], supports[other])
            )
            assert apart == least or (one[1] and other[1])
            # The framework counts no more than this from the common batch.
            assert apart <= one[1] + other[1]
            if one[0] == other[0] and row.coupled.inserted != batches.NONE:
                assert apart == abs(one[1] - other[1])


@pytest.mark.parametrize("row", ROWS)
def test_the_weights_are_the_schemes(row):
    row = made(row)
    coupled = row.coupled.removed, row.coupled.inserted
    for weights, found in zip(weights_of(row), coupled, strict=True):
        total = [Fraction(0)] * len(weights)
        for distance, weight in found:
            total[int(distance)] += Fraction(weight)
        for weight, exact in zip(total, weights, strict=True):
            assert abs(weight - exact) <= Fraction(1, 10**12)


def values_of(row, seed):
    """Sums over a batch: one step of the row moves them by one at most."""
    spread = row.distance is enumerated.symmetric_difference

    def value(record):
        if record.startswith("a"):
            return 1
        if record.startswith("b"):
            return -1 if spread else 0
        return (ord(record) * 7 + seed) % (3 if spread else 2) - (1 if spread else 0)

    return value


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_noise_on_sums(row, seed):
    """The truth ≤ Theorem 3.4 ≤ Theorem 3.3, and Theorem 3.4 ≤ the pair's δ."""
    row = made(row)
    value = values_of(row, seed)

    def outputs(records):
        return enumerated.noisy(sum(map(value, records)))

    mechanism = batches.on_batches(NOISE, [row.coupled])
    check_against_the_transport(row, outputs, mechanism)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("base", ["answer", "neighbours"])
def test_answers_to_questions(row, base):
    """Randomized response: of any batch that holds a member, or one of them."""
    row = made(row)
    if base == "answer":
        mechanism = batches.on_batches(batches.Answer(0.5), [row.coupled])
    else:
        neighbours = batches.Neighbours(RESPONSE, is_bounded=True)
        mechanism = batches.on_batches(neighbours, [row.coupled])
    questions = [
        lambda records: int(enumerated.members(records) > 0),
        lambda records: int(any(record.startswith("b") for record in records)),
        lambda records: len("".join(records)) % 2,
    ]
    for question in questions:
        check_against_the_transport(
            row, lambda y, q=question: enumerated.response(q(y)), mechanism
        )


def check_against_the_transport(row, outputs, mechanism):
    weights = weights_of(row)
    laws = [
        enumerated.mixed([(chance, outputs(y)) for y, chance in law.items()])
        for law in row.laws
    ]
    mirrored = [(chance, second, first) for chance, first, second in row.coupling]
    for epsilon in EPSILONS:
        kappa = kappa_above(epsilon)
        remove, add = deltas(mechanism, epsilon)
        truth = enumerated.hockey_stick(*laws, kappa)
        bound = enumerated.transport_bound(row.coupling, weights, outputs, kappa)
        told = enumerated.single_transport_bound(row.coupling, weights, outputs, kappa)
        assert truth <= bound <= told
        assert bound <= remove
        truth = enumerated.hockey_stick(*laws[::-1], kappa)
        bound = enumerated.transport_bound(mirrored, weights[::-1], outputs, kappa)
        assert truth <= bound <= add


@pytest.mark.parametrize("row", [(poisson, 2, 1), (fixed, 2, 0), (again, 1, 1)])
def test_a_composition(row):
    """Two batches: the pair composes, as the datasets are the same."""
    row = made(row)
    value = values_of(row, 0)
    laws = [
        enumerated.mixed(
            [
                (chance, enumerated.noisy(sum(map(value, y)), furthest=3))
                for y, chance in law.items()
            ]
        )
        for law in row.laws
    ]
    twice = [
        {(a, b): law[a] * law[b] for a, b in itertools.product(law, repeat=2)}
        for law in laws
    ]
    mechanism = batches.on_batches(NOISE, [row.coupled])
    bounds = asked.bounds_of({mechanism: 2}, 1e-4)
    for epsilon in (0.1, 0.8, 2.0):
        kappa = kappa_above(epsilon)
        upper = bounds.upper_delta(epsilon)
        assert enumerated.hockey_stick(*twice, kappa) <= upper
        assert enumerated.hockey_stick(*twice[::-1], kappa) <= upper


def test_parts_are_drawn_and_told():
    """One of two cities, then a Poisson sample of it: the chance of the city counts."""
    rate = Fraction(1, 4)
    cities = [
        [enumerated.poisson(["c", "a1"], rate), enumerated.poisson(["d"], rate)],
        [enumerated.poisson(["c"], rate), enumerated.poisson(["d"], rate)],
    ]
    one = sampled_members.poisson(1, 0.25)
    mechanism = batches.on_batches(
        NOISE, [batches.Coupled(one, chance=0.5), batches.Coupled(chance=0.5)]
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
    def test_neighbours_of_noise_are_no_better_than_noise(self):
        """One member: the same pair. More: what noise knows of mixtures is lost."""
        generic = batches.Neighbours(additive_noise.laplace(1.0))
        noise = batches.Noise(1.0, is_laplace=True)
        for members in (1, 3):
            coupled = batches.Coupled(sampled_members.poisson(members, 0.2))
            ours = batches.on_batches(generic, [coupled])
            tight = batches.on_batches(noise, [coupled], is_attained=True)
            for epsilon in (0.1, 0.6):
                for loose, least in zip(
                    deltas(ours, epsilon), deltas(tight, epsilon), strict=True
                ):
                    assert loose >= least * (1 - 1e-9)
                    if members == 1:
                        assert loose == pytest.approx(least, rel=1e-6)

    def test_the_mechanism_agnostic_bound(self):
        """Section 3.2: δ' = Σ Binom(k | K, r) δ_k at ε' = ln(1 + r_K (e^ε − 1))."""
        members, rate = 3, 0.2
        coupled = batches.Coupled(sampled_members.poisson(members, rate))
        base = additive_noise.Gaussian(1.5)
        ours = batches.on_batches(batches.Neighbours(base), [coupled])
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
        pair = dominating_pair.of_probabilities(
            (0.9, 0.1), (0.5, 0.5), Bound.UPPER, error=0.0
        )
        known = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(pair))
        base = batches.Neighbours(known)
        whole = base.on(sampled_members.unsampled(1), batches.NONE)
        for epsilon in (0.0, 0.3, 1.0):
            worst = max(deltas(known, epsilon))
            assert min(deltas(whole, epsilon)) >= worst * (1 - 1e-12)

    @pytest.mark.parametrize(
        "base",
        [
            batches.Noise(1.0),
            batches.Noise(1.0, is_laplace=True),
            batches.Revealed(),
            NOISE,
        ],
    )
    def test_nothing_moves(self, base):
        assert batches.on_batches(base, [batches.Coupled()]) == compositions.NO_OP

    def test_groups_are_rows_of_it(self):
        """What the events of groups build is what the framework does."""
        for sampling in (groups.Poisson(0.25), groups.FixedSize(40, 8, True)):
            for removed, inserted in ((3, 0), (2, 1)):
                coupled = batches.Coupled(
                    sampling.members(removed, inserted),
                    sampling.members(inserted, removed),
                )
                for is_laplace in (False, True):
                    theirs = groups.GroupedNoise(3, 1.5, is_laplace, sampling)
                    step = 2.0 if isinstance(sampling, groups.FixedSize) else 1.0
                    ours = batches.on_batches(
                        batches.Noise(1.5 / step, is_laplace), [coupled]
                    )
                    split = theirs.split(removed, inserted)
                    for epsilon in (0.0, 0.5):
                        assert deltas(ours, epsilon) == pytest.approx(
                            deltas(split, epsilon), rel=1e-9
                        )

    def test_no_noise_reveals_the_members(self):
        coupled = batches.Coupled(sampled_members.poisson(2, 0.25))
        bare = batches.on_batches(batches.Noise(0.0), [coupled])
        assert deltas(bare, 40.0) == pytest.approx([0.4375, 0.0], rel=1e-9)

    def test_claims(self):
        """Of the largest loss and of a Gaussian that dominates."""
        coupled = batches.Coupled(
            sampled_members.poisson(2, 0.25), sampled_members.poisson(1, 0.25)
        )
        laplace = batches.on_batches(NOISE, [coupled])
        loss = laplace.claims().largest_loss
        mixture = 0.0625 * 3 + 0.375
        assert loss == pytest.approx(math.log1p(mixture) + math.log1p(0.25))
        bounds = asked.bounds_of({laplace: 1}, 1e-4)
        assert bounds.upper_delta(loss) == 0.0 < bounds.upper_delta(loss * 0.9)
        gaussian = batches.Neighbours(additive_noise.Gaussian(2.0)).on(
            coupled.removed, coupled.inserted
        )
        assert gaussian.claims().gaussian_precision == pytest.approx(9 / 4)
        assert gaussian.claims().largest_loss == math.inf
        parts = [
            batches.Coupled(sampled_members.poisson(1, 0.5), chance=0.25),
            batches.Coupled(sampled_members.poisson(2, 0.5), chance=0.75),
        ]
        drawn = batches.on_batches(batches.Noise(2.0), parts)
        assert drawn.claims().gaussian_precision == pytest.approx(1.0)
        assert not drawn.claims().is_symmetric
        bounds = asked.bounds_of({drawn: 3}, 1e-4)
        assert 0 == bounds.lower_delta(0.5) < bounds.upper_delta(0.5) < 1

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
        (NOISE, [], "chances of parts must sum to 1. Found 0"),
        (NOISE, [batches.Coupled(chance=0.5)], "must sum to 1. Found 0.5"),
        (NOISE, [batches.Coupled(chance=math.nan)], "must be in .0, 1.. Found"),
        (NOISE, [batches.Coupled(((1.0, 0.5),))], "weights of distances must sum"),
        (NOISE, [batches.Coupled(((-1.0, 1.0),))], "at least 0. Found"),
        (NOISE, [batches.Coupled(((math.inf, 1.0),))], "must be finite"),
        (NOISE, [batches.Coupled(((0.5, 1.0),))], "must be integers"),
    ],
)
def test_what_is_no_law_is_refused(base, parts, message):
    with pytest.raises(ValueError, match=message):
        batches.on_batches(base, parts)
