"""Truncated and zeroed samples: every batch of a few records, in exact fractions."""

import collections
from fractions import Fraction
import functools
import itertools
import math

import asked
import dp_accounting
import enumerated_batches as enumerated
import flint
from flint import arb
import nights
import numpy as np
import pytest
from scipy import integrate
from scipy import optimize
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.mechanisms import truncated

NeighborRel = dp_accounting.NeighboringRelation
Truncated = dp_accounting.TruncatedSubsampledGaussianDpEvent
Gaussian = dp_accounting.GaussianDpEvent


@functools.cache
def batches_of(size, rate, most):
    """Returns the chance of every batch of records 0, 1, …, all of one user."""
    law = enumerated.capped_poisson([f"a{i}" for i in range(size)], rate, most)
    return {tuple(int(name[1:]) for name in batch): law[batch] for batch in law}


def noisy_sums(batches, values, sigma):
    """Returns the law of sums over batches, (mean / σ, weight), exact weights."""
    law = collections.defaultdict(Fraction)
    for batch, chance in batches.items():
        law[sum(values[i] for i in batch) / sigma] += chance
    return tuple(law.items())


def density(law, points):
    return sum(
        float(w) * np.exp(-((points - s) ** 2) / 2) / math.sqrt(2 * math.pi)
        for s, w in law
    )


def rational(weight):
    return flint.fmpq(weight.numerator, weight.denominator)


def at_most_the_truth(p, q, epsilon):
    """Returns P(S) − e^ε Q(S) as a ball, S close to where it is the largest."""
    kappa = math.exp(epsilon)
    one, other = ([(s, float(w)) for s, w in law] for law in (p, q))

    def gap(x):
        return density(one, x) - kappa * density(other, x)

    ends = [s for s, _ in (*p, *q)]
    points = np.linspace(min(ends) - 12, max(ends) + 12, 1001)
    values = gap(points)
    changes = np.flatnonzero(np.diff(values > 0))
    roots = [optimize.brentq(gap, points[i], points[i + 1]) for i in changes]
    # Between two roots the sign is that of the place with the largest difference.
    parts = np.split(values, changes + 1)
    signs = [part[np.abs(part).argmax()] for part in parts]
    with flint.ctx.workprec(140):
        factor, half = arb(epsilon).exp(), arb(2).rsqrt()
        weights = [(arb(rational(w)), arb(s)) for s, w in p]
        weights += [(-factor * arb(rational(w)), arb(s)) for s, w in q]

        def below(x):
            """Of everything below x."""
            if math.isinf(x):
                return sum((w for w, _ in weights), arb(0)) if x > 0 else arb(0)
            return sum(
                (w * ((s - arb(x)) * half).erfc() / 2 for w, s in weights), arb(0)
            )

        edges = [-math.inf, *roots, math.inf]
        return sum(
            (
                below(high) - below(low)
                for (low, high), sign in zip(
                    itertools.pairwise(edges), signs, strict=True
                )
                if sign > 0
            ),
            arb(0),
        )


def deltas(mechanism, epsilons, bound=Bound.UPPER):
    """Returns (n,) δ in both directions of every bound."""
    found = []
    for each in mechanism.routes(bound):
        ((part, _),) = each.items()
        pairs = interface.pairs_of(part, bound, accuracy.Accuracy(1e-30))
        asked = np.array(epsilons)
        found.append([pairs.of(way).profile(way).deltas(asked) for way in Direction])
    return np.array(found)


def seen_by(removed, inserted, sigma, scheme, *, is_replaced=False):
    """Returns Gaussian noise on cut samples, as a split or a replaced group sees it."""
    noise = batch_mechanisms.Noise(sigma)
    if is_replaced:
        return scheme.replaced(noise, removed)
    return scheme.split(noise, removed, inserted)


EPSILONS = (-0.3, 0.0, 0.2, 1.0, 3.0)
OTHERS = {
    "nothing": [0.0],
    "all against": [-1.0],
    "all with it": [1.0],
    "either way": [1.0, -1.0],
    "some": [-1.0, 0.0, 0.5],
}


@pytest.mark.parametrize(
    "split", [(1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (2, 2), (3, 3)]
)
@pytest.mark.parametrize(
    ("others", "most"),
    [
        *((others, 3) for others in OTHERS),
        *itertools.product(("all against", "some"), (1, 4)),
    ],
)
def test_groups(split, others, most):
    """Who leaves has 1, or 0; who joins 0, or −1; who is replaced 1, or −1."""
    rate, sigma, size = Fraction(1, 4), 1.1, 6
    removed, inserted = split
    members = removed if removed == inserted else removed + inserted
    if split == (1, 1):
        members = 2
    is_replaced = removed == inserted == members
    scheme = truncated.Truncated(size, float(rate), most)
    mechanism = seen_by(*split, sigma, scheme, is_replaced=is_replaced)
    drawn = batches_of(size, rate, most)
    each = list(itertools.islice(itertools.cycle(OTHERS[others]), size - members))
    first = [1.0] * removed + [0.0] * inserted
    second = [0.0] * removed + [-1.0] * inserted
    if is_replaced:
        first, second = [1.0] * members, [-1.0] * members
    p = noisy_sums(drawn, first + each, sigma)
    q = noisy_sums(drawn, second + each, sigma)
    least = deltas(mechanism, EPSILONS).min(axis=0)
    for epsilon, (remove, add) in zip(EPSILONS, least.T.tolist(), strict=True):
        assert at_most_the_truth(p, q, epsilon) <= remove
        assert at_most_the_truth(q, p, epsilon) <= add


@pytest.mark.parametrize("sigma", [0.6, 3.0])
@pytest.mark.parametrize(
    ("split", "most"),
    [
        *(((1, 0), most) for most in (1, 2, 4)),
        *itertools.product(((2, 0), (1, 1), (2, 1), (3, 0)), (1, 2)),
    ],
)
@pytest.mark.parametrize("others", OTHERS)
def test_records_are_absent(others, split, most, sigma):
    """Datasets of two sizes: who leaves contributes 1, and who joins −1."""
    rate, (removed, inserted), common = Fraction(1, 4), split, 5
    each = list(itertools.islice(itertools.cycle(OTHERS[others]), common))
    first, second = [1.0] * removed + each, [-1.0] * inserted + each
    p, q = (
        noisy_sums(batches_of(len(values), rate, most), values, sigma)
        for values in (first, second)
    )
    scheme = truncated.Truncated(common + removed + inserted, float(rate), most)
    mechanism = scheme.absent(batch_mechanisms.Noise(sigma), removed, inserted)
    ((remove, add),) = deltas(mechanism, EPSILONS)
    lowers = deltas(mechanism, EPSILONS, Bound.LOWER)[0]
    for place, epsilon in enumerate(EPSILONS):
        there, back = at_most_the_truth(p, q, epsilon), at_most_the_truth(q, p, epsilon)
        assert there <= remove[place]
        assert back <= add[place]
        if others == "nothing":
            assert lowers[0, place] <= there
            assert lowers[1, place] <= back


@pytest.mark.parametrize("size", [2, 5])
def test_absent_groups_have_tight_bounds(size):
    """Of 10,000 records with rate .01, more than 130 are drawn once in 600 steps."""
    event = ext.GroupSubsampledEvent(size, Truncated(10_000, 0.01, 130, 2.0))
    lower, upper = ext.PLDAccountant().compose(event, 100).get_epsilon_bounds(1e-6)
    assert 0.24 * size < lower <= upper < 1.03 * lower


@pytest.mark.parametrize("most", [2, 3, 4])
def test_the_chance_to_be_in_a_batch(most):
    rate = Fraction(1, 4)
    chances = batches_of(6, rate, most).items()
    included = sum(chance for batch, chance in chances if 0 in batch)
    found = truncated.Truncated(6, float(rate), most).inclusion()
    assert 0 <= included - Fraction(found) <= 1e-8


def of_noise_told(sampling, sigma, members, replaced, epsilon):
    """Returns δ of others at −1 in a direction of their own, by quadrature."""
    joint = list(sampling.joint_probabilities(members, 0))

    def weights(y):
        law = collections.Counter()
        for number, chances in joint:
            height = math.exp(-(((y + number) / sigma) ** 2) / 2)
            law.update({i: chance * height for i, chance in chances})
        return law

    def divergence(y):
        law = weights(y)
        p = [(i / sigma, w) for i, w in law.items()]
        q = [(-i / sigma if replaced else 0.0, w) for i, w in law.items()]
        kappa = math.exp(epsilon)
        # The ratio increases.
        ends = [s for s, _ in (*p, *q)]

        def gap(x):
            return float(density(p, x) - kappa * density(q, x))

        low, high = min(ends) - 9, max(ends) + 9
        if gap(high) <= 0:
            return 0.0
        place = low if gap(low) >= 0 else optimize.brentq(gap, low, high)
        return sum(w * special.ndtr(s - place) for s, w in p) - kappa * sum(
            w * special.ndtr(s - place) for s, w in q
        )

    value, _ = integrate.quad(
        divergence, -sampling.batch_size - 9 * sigma, 9 * sigma, limit=200
    )
    return value / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize(
    ("size", "members", "most"), [(8, 2, 3), *nights.at_night((8, 1, 2), (8, 1, 4))]
)
@pytest.mark.parametrize("replaced", [False, True])
def test_the_lower_bound_is_of_two_datasets(size, members, most, replaced):
    sampling, sigma = truncated.Truncated(size, 0.3, most), 0.7
    split = seen_by(members, 0, sigma, sampling, is_replaced=replaced)
    epsilons = (0.0, 0.3, 1.0, 2.5)
    lowers = deltas(split, epsilons, Bound.LOWER)[0, 0]
    uppers = deltas(split, epsilons)[:, 0].min(axis=0)
    for epsilon, lower, upper in zip(epsilons, lowers, uppers, strict=True):
        truth = of_noise_told(sampling, sigma, members, replaced, epsilon)
        assert lower <= truth <= upper
        assert lower >= 0.9 * truth


@pytest.mark.parametrize("relation", list(NeighborRel))
def test_what_is_never_cut_is_a_poisson_sample(relation):
    for most in (5, 8):
        event = Truncated(5, 0.2, most, 1.5)
        plain = dp_accounting.PoissonSampledDpEvent(0.2, Gaussian(1.5))
        found = [
            ext.PLDAccountant(relation).compose(each, 3).get_epsilon(1e-5)
            for each in (event, plain)
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-9)


def of_others_told(sampling, sigma, members, split, epsilon):
    """Returns the δ of some test where the number of others is told: no more than δ."""
    kappa, value = math.exp(epsilon), 0.0
    for _, chances in sampling.joint_probabilities(members, 0):
        p, q = collections.Counter(), collections.Counter()
        for i, chance in chances:
            for law, part, sign in ((p, split[0], 1), (q, split[1], -1)):
                for j in range(max(0, int(i) - members + part), min(int(i), part) + 1):
                    share = math.comb(part, j) * math.comb(members - part, int(i) - j)
                    law[sign * j / sigma] += chance * share / math.comb(members, int(i))
        places = np.linspace(-4.0, 25.0, 200)
        found = sum(w * special.ndtr(s - places) for s, w in p.items())
        found -= kappa * sum(w * special.ndtr(s - places) for s, w in q.items())
        value += max(float(found.max()), 0.0)
    return value


@pytest.mark.parametrize("split", [(20, 0), (19, 1), (13, 7), (10, 10), (20, 20)])
def test_large_groups_have_no_less_than_each_number_of_others(split):
    """Numbers of others in bins and rounded splits, against tests of each of them."""
    sampling = truncated.Truncated(300, 0.08, 30)
    coarse = seen_by(*split, 1.3, sampling, is_replaced=split == (20, 20))
    epsilons = (0.0, 0.5, 3.0)
    uppers = deltas(coarse, epsilons)[:, 0].min(axis=0)
    for epsilon, upper in zip(epsilons, uppers, strict=True):
        found = of_others_told(sampling, 1.3, 20, split, epsilon) * (1 - 1e-8)
        assert found <= upper <= 5 * found


def test_a_group_is_no_larger_than_the_dataset():
    accountant = ext.PLDAccountant(NeighborRel.REPLACE_ONE)
    with pytest.raises(ValueError, match="at most dataset_size. Found 4 of 3"):
        accountant.compose(ext.GroupSubsampledEvent(4, Truncated(3, 0.5, 1, 1.0)))


class TestZeroedSample:
    @pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
    @pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
    def test_one_run_is_tight(self, rate, sigma):
        """The worst of all places of x and u: P at x − u, Q at −u."""
        upper = subsampled.zeroed_sample(sigma, rate)
        pairs = interface.pairs_of(upper, Bound.UPPER, accuracy.Accuracy(1e-30))
        rest = 1 - Fraction(rate)

        def law(place):
            return (0.0, rest), (place / sigma, Fraction(rate))

        for epsilon in (-1.0, -0.1, 0.0, 0.1, 1.0, 4.0):
            found = {way: pairs.of(way).delta(epsilon, way) for way in Direction}
            worst = dict.fromkeys(Direction, arb(0))
            for other in np.linspace(-1, 1, 9):
                for record in (-1.0, 0.5, 1.0):
                    p, q = law(record - other), law(-other)
                    for way, both in zip(Direction, ((p, q), (q, p)), strict=True):
                        value = at_most_the_truth(*both, epsilon)
                        assert value <= found[way]
                        worst[way] = worst[way].max(value)
            for way in Direction:
                assert found[way] <= float(worst[way]) * (1 + 1e-4) + 1e-12

    def test_the_whole_dataset_is_noise(self):
        bounds = asked.bounds_of({subsampled.zeroed_sample(1.3, 1.0): 1}, 1e-4)
        noise = ext.PLDAccountant().compose(Gaussian(1.3))
        assert bounds.upper_epsilon(1e-5) == noise.get_epsilon(1e-5)
