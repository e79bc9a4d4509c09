"""Events of dp_accounting's main, and those that Rényi bounds alone are known of."""

import fractions
import itertools
import math
import warnings

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import mpmath
import newer_events
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import renyi_events

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
ZCDp = stock_events.ZCDpEvent
Trees = stock_events.SingleEpochTreeAggregationDpEvent
Select = stock_events.RepeatAndSelectDpEvent
EpsilonDelta = newer_events.EpsilonDelta
Exponential = newer_events.Exponential
PermuteAndFlip = newer_events.PermuteAndFlip
DiscreteGaussian = newer_events.DiscreteGaussian


@pytest.fixture(autouse=True)
def newer(monkeypatch):
    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))
    monkeypatch.setattr(renyi_events, "_TABLE", dict(renyi_events._TABLE))
    for table in (event_table, renyi_events):
        table.register_stock_events(newer_events.MODULE)


class TestPrivacyParameters:
    def test_what_tells_all_beside_losses_that_are_all_rounding(self):
        rare = Poisson(1e-12, EpsilonDelta(1e-9, 1e-30))
        quiet = Poisson(6.92e-7, Gaussian(1e9))
        tree = Composed([rare, EpsilonDelta(700.0, 1.0), quiet])
        assert accountant_of(tree).get_epsilon_bounds(0.0) == (0.0, math.inf)

    def test_they_compose_to_the_optimum(self):
        """Kairouz et al.: the best composition of two (1, δ)-private mechanisms."""
        delta = 1e-5
        accountant = accountant_of(EpsilonDelta(1.0, delta), 2)
        with mpmath.workdps(40):
            p = mpmath.e / (1 + mpmath.e)
            rest = (1 - mpmath.mpf(delta)) ** 2
            for epsilon in (0.0, 0.5, 1.5):
                finite = [p**2 - mpmath.exp(epsilon) * (1 - p) ** 2, 0, 0]
                truth = 1 - rest + rest * sum(max(term, 0) for term in finite)
                upper = accountant.get_delta(epsilon)
                assert truth <= upper <= truth * (1 + 1e-6)
        assert accountant.get_delta_bounds(0.5)[0] == 0.0
        assert accountant.get_epsilon(delta) == math.inf
        least = -math.expm1(2 * math.log1p(-delta))
        assert least <= accountant.get_delta(math.inf) <= least * (1 + 1e-8)

    def test_the_composition_it_was_made_for(self):
        """Thresholding beside noise: below its δ nothing is promised."""
        event = Composed([Gaussian(4.0), EpsilonDelta(0.0, 1e-5), ZCDp(0.1)])
        accountant = accountant_of(event)
        assert accountant.get_epsilon(1e-6) == math.inf
        plain = accountant_of(Composed([Gaussian(4.0), ZCDp(0.1)]))
        lower = plain.get_epsilon(1e-3)
        assert lower <= accountant.get_epsilon(1e-3) <= plain.get_epsilon(1e-3 - 1.1e-5)

    def test_it_is_as_private_as_it_says(self):
        """To the last digit, where no loss but the infinite ones is larger."""
        once = accountant_of(EpsilonDelta(1.0, 1e-5))
        assert once.get_epsilon(1e-5) == 1.0
        assert once.get_delta(1.0) == once.get_delta(math.inf) == 1e-5
        event = Composed([EpsilonDelta(1.0, 0.1), EpsilonDelta(2.0, 0.2)])
        rest = (1 - fractions.Fraction(0.1)) * (1 - fractions.Fraction(0.2))
        twice = accountant_of(event)
        assert 1 - rest <= fractions.Fraction(twice.get_delta(3.0))
        assert twice.get_delta(3.0) == 0.28 and twice.get_epsilon(0.28) == 3.0
        assert twice.get_epsilon(math.nextafter(0.28, 0)) == math.inf

    def test_many_runs_of_it(self):
        count, delta = 10**6, 1e-10
        accountant = accountant_of(EpsilonDelta(1e-6, delta), count)
        with mpmath.workdps(40):
            truth = 1 - (1 - mpmath.mpf(delta)) ** count
        for epsilon in (1.0 + 1e-9, math.inf):
            assert truth <= accountant.get_delta(epsilon) <= truth * (1 + 1e-11)
        assert accountant.get_delta(0.99) > truth

    def test_a_sample(self):
        """δ_λ(ε) = λ δ(ln(1 + (e^ε − 1)/λ)): of the two outcomes and the sinks."""
        rate, delta = 0.25, 1e-3
        accountant = accountant_of(Poisson(rate, EpsilonDelta(1.0, delta)))
        with mpmath.workdps(40):
            at = mpmath.log1p(mpmath.expm1(0.2) / rate)
            gap = (mpmath.e - mpmath.exp(at)) / (1 + mpmath.e)
            truth = rate * (delta + (1 - delta) * gap)
        assert truth <= accountant.get_delta(0.2) <= truth * (1 + 1e-9)

    def test_ends(self):
        assert accountant_of(EpsilonDelta(0.0, 0.0)).get_epsilon(0.0) == 0.0
        assert accountant_of(EpsilonDelta(1.0, 0.0)).get_epsilon(0.0) >= 1.0
        assert accountant_of(EpsilonDelta(1.0, 1.0)).get_delta(9.0) == 1.0
        assert accountant_of(EpsilonDelta(math.inf, 0.0)).get_delta(9.0) == 1.0


def exponential_truth(scores, others, epsilon, kappa):
    """H_κ of the exponential mechanism with two utilities, each moved by at most 1."""
    p, q = (
        [mpmath.exp(epsilon / 2 * mpmath.mpf(s)) for s in row]
        for row in (scores, others)
    )
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    return sum(max(a - kappa * b, 0) for a, b in zip(p, q, strict=True))


class TestExponentialMechanism:
    @pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 20.0])
    def test_no_utility_is_worse_and_two_candidates_attain_it(self, epsilon):
        accountant = accountant_of(Exponential(epsilon))
        rng = np.random.default_rng(0)
        for share in (0.0, 0.3, 0.9):
            lower, upper = accountant.get_delta_bounds(share * epsilon)
            assert lower <= upper <= lower * (1 + 1e-12)
            with mpmath.workdps(40):
                kappa = mpmath.exp(mpmath.mpf(share * epsilon))
                for size in (2, 3, 6):
                    scores = rng.normal(0, 3, size)
                    moves = rng.choice([-1, 1], size)
                    found = exponential_truth(scores, scores + moves, epsilon, kappa)
                    assert found <= upper
                # With losses t and t − ε, t = (ε + ε′)/2: the best of two outcomes.
                t = epsilon * (1 + mpmath.mpf(share)) / 2
                p = (1 - mpmath.exp(t - epsilon)) / (1 - mpmath.exp(-epsilon))
                best = p * (1 - kappa * mpmath.exp(-t))
                assert lower <= best * (1 + mpmath.mpf("1e-14"))
                assert upper >= best

    @pytest.mark.parametrize("count", [2, 10])
    def test_compositions_of_the_worst_of_two_outcomes(self, count):
        """All mechanisms with losses in [t − ε, t], the same t every time."""
        epsilon = 0.7
        accountant = accountant_of(Exponential(epsilon), count)
        for at in (0.1, 0.8 * count * epsilon / 2):
            lower, upper = accountant.get_delta_bounds(at)
            truths = []
            with mpmath.workdps(40):
                for t in np.linspace(0.05, 0.95, 19) * epsilon:
                    p = (1 - mpmath.exp(t - epsilon)) / (1 - mpmath.exp(-epsilon))
                    total = mpmath.mpf(0)
                    for ups in range(count + 1):
                        loss = count * t - (count - ups) * epsilon
                        mass = mpmath.binomial(count, ups)
                        mass *= p**ups * (1 - p) ** (count - ups)
                        total += mass * max(1 - mpmath.exp(at - loss), 0)
                    truths.append(total)
            assert lower <= max(truths) <= upper

    @pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (1.0, 100), (1.0, 10)])
    def test_it_is_tighter_than_pure_privacy(self, epsilon, count):
        ours = accountant_of(Exponential(epsilon), count)
        theirs = accountant_of(EpsilonDelta(epsilon, 0.0), count)
        assert ours.get_epsilon(1e-6) < 0.82 * theirs.get_epsilon(1e-6)
        assert ours.get_epsilon(0.0) >= count * epsilon

    def test_every_relation_and_a_sample(self):
        for relation in NeighborRel:
            found = accountant_of(Exponential(1.0), 3, relation).get_epsilon(1e-6)
            assert found == accountant_of(Exponential(1.0), 3).get_epsilon(1e-6)
        lower, upper = accountant_of(Poisson(0.25, Exponential(2.0))).get_delta_bounds(
            0.1
        )
        at = math.log1p(math.expm1(0.1) / 0.25)
        truth = 0.25 * math.expm1((at - 2) / 2) ** 2 / -math.expm1(-2)
        assert truth <= upper * (1 + 1e-14) <= truth * (1 + 1e-5)
        assert lower <= truth


def permute_and_flip(scores):
    """The law of the selected candidate, over all orders: Algorithm 1 of its paper."""
    chances = [mpmath.exp(s - max(scores)) for s in scores]
    found = [mpmath.mpf(0)] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = mpmath.mpf(1)
        for candidate in order:
            found[candidate] += left * chances[candidate] / len(orders)
            left *= 1 - chances[candidate]
    return found


class TestPermuteAndFlip:
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
    def test_no_utility_is_worse_than_laplace_noise(self, epsilon):
        accountant = accountant_of(PermuteAndFlip(epsilon))
        rng = np.random.default_rng(1)
        laplace = accountant_of(Laplace(1 / epsilon))
        for share in (0.0, 0.4, 0.9):
            upper = accountant.get_delta(share * epsilon)
            assert upper == pytest.approx(laplace.get_delta(share * epsilon), rel=1e-9)
            with mpmath.workdps(30):
                kappa = mpmath.exp(mpmath.mpf(share * epsilon))
                for size in (2, 3, 4):
                    scores = -rng.exponential(1, size) * rng.integers(0, 2, size)
                    moves = rng.choice([-1, 1], size) * epsilon / 2
                    p, q = permute_and_flip(scores), permute_and_flip(scores + moves)
                    pairs = zip(p, q, strict=True)
                    assert sum(max(a - kappa * b, 0) for a, b in pairs) <= upper

    def test_lower_bounds_are_attained_by_two_candidates(self):
        """A composition of cuts in the middle: p = 1 − e^{−ε/2}/2 against 1 − p."""
        epsilon, count = 1.0, 4
        lie = math.exp(-epsilon / 2) / 2
        with mpmath.workdps(30):
            p = permute_and_flip([0.0, -epsilon / 2])
            assert float(p[1]) == pytest.approx(lie, rel=1e-12)
        masses = [1 - lie, lie]
        p = [math.prod(m) for m in itertools.product(masses, repeat=count)]
        q = [math.prod(m) for m in itertools.product(masses[::-1], repeat=count)]
        accountant = accountant_of(PermuteAndFlip(epsilon), count)
        for at in (0.0, 1.0):
            lower, upper = accountant.get_delta_bounds(at)
            truth = oracles.discrete_deltas(p, q, at)["remove"]
            assert 0.999 * truth <= lower <= truth * (1 + 1e-12) <= upper

    def test_relations(self):
        replaced = ext.PLDAccountant(NeighborRel.REPLACE_ONE)
        assert replaced.supports(PermuteAndFlip(1.0))
        assert not replaced.supports(ext.PLDSubsampleEvent(0.1, PermuteAndFlip(1.0)))
        assert accountant_of(PermuteAndFlip(0.0)).get_epsilon(0.0) == 0.0


def discrete_gaussian_delta(sigma, shift, epsilon):
    with mpmath.workdps(30):
        xs = range(-200, 201)
        weights = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * sigma**2)) for x in xs}
        total = sum(weights.values())
        kappa = mpmath.exp(epsilon)
        return (
            sum(
                max(weights[x - shift] - kappa * weights[x], 0)
                for x in xs
                if x - shift in weights
            )
            / total
        )


class TestDiscreteGaussian:
    @pytest.mark.parametrize(
        ("event", "shift"),
        [
            (DiscreteGaussian(2.0), 1),
            (DiscreteGaussian(2.0, 1.0, 7), 1),
            (DiscreteGaussian(2.0, 3.0, 1), 3),
            (DiscreteGaussian(3.0, 2.9, 1), 2),
        ],
    )
    def test_one_coordinate_exactly(self, event, shift):
        for epsilon in (0.0, 0.7, 2.0):
            lower, upper = accountant_of(event).get_delta_bounds(epsilon)
            truth = discrete_gaussian_delta(event.sigma, shift, epsilon)
            assert lower <= truth <= upper <= lower * (1 + 1e-9)

    def test_several_coordinates_from_above_and_one_from_below(self):
        """A function of sensitivity 2 may move four coordinates by one."""
        sigma = 2.0
        xs = np.arange(-40, 41)
        one = np.exp(-(xs**2) / (2 * sigma**2))
        one /= one.sum()
        accountant = accountant_of(DiscreteGaussian(sigma, 2.0))
        losses = (2 * xs - 1) / (2 * sigma**2)
        moved = np.roll(one, 1)
        law = {}
        for step in range(4):
            fresh = {}
            for loss, mass in law.items() if step else [(0.0, 1.0)]:
                for more, m in zip(losses, moved, strict=True):
                    key = round(loss + more, 9)
                    fresh[key] = fresh.get(key, 0.0) + mass * m
            law = fresh
        for epsilon in (0.1, 1.0, 2.0):
            four = sum(
                m * max(-math.expm1(epsilon - loss), 0) for loss, m in law.items()
            )
            whole = discrete_gaussian_delta(sigma, 2, epsilon)
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert max(four, whole) <= upper
            assert whole * (1 - 1e-9) <= lower <= whole

    @pytest.mark.parametrize("size", [2, 5])
    def test_a_group_that_is_replaced_moves_by_all_its_norms(self, size):
        """From above no more than the function of so large a sensitivity."""

        def bounds(event):
            accountant = ext.PLDAccountant(NeighborRel.REPLACE_ONE).compose(event, 3)
            return accountant.get_epsilon_bounds(1e-6)

        lower, upper = bounds(
            ext.GroupSubsampledEvent(size, DiscreteGaussian(10.0, 1.0, 3))
        )
        whole = bounds(DiscreteGaussian(10.0, float(size), 3))
        assert upper <= whole[1] * (1 + 1e-5)
        assert lower == pytest.approx(whole[0], rel=1e-6)
        # One of its coordinates may move by all of that.
        assert bounds(DiscreteGaussian(10.0, float(size), 1))[0] <= upper

    def test_ends(self):
        assert accountant_of(DiscreteGaussian(0.0)).get_delta(1.0) == 1.0
        assert accountant_of(DiscreteGaussian(1.0, 0.0)).get_epsilon(0.0) == 0.0
        # What moves by less than one does not move; it is not believed.
        assert accountant_of(DiscreteGaussian(1.0, 0.5)).get_epsilon(1e-6) > 0
        assert accountant_of(DiscreteGaussian(1e7)).get_delta(0.0) > 3.9e-8


class TestRenyiBounds:
    @pytest.mark.parametrize(("rho", "xi"), [(1e-6, 0.0), (0.1, 0.0), (0.5, 0.3)])
    @pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-20])
    def test_no_looser_than_the_conversion(self, rho, xi, delta):
        """Of one run, and of many: divergences add up before they are converted."""
        orders = 1 + np.geomspace(1e-2, 1e6, 3000)
        for count in (1, 20):
            values = count * (xi + rho * orders)
            stock = rdp_privacy_accountant.compute_epsilon(orders, values, delta)[0]
            found = accountant_of(ZCDp(rho, xi), count).get_epsilon(delta)
            assert found <= stock * (1 + 1e-4)
            # A Gaussian mechanism is ρ-zCDP, of which no bound may say less.
            noise = 1 / math.sqrt(2 * rho)
            assert found >= accountant_of(Gaussian(noise), count).get_epsilon(delta)

    def test_they_mix_with_everything(self):
        parts = [ZCDp(0.01), Gaussian(5.0), Laplace(7.0), Poisson(0.1, ZCDp(0.2))]
        gaussians = [
            Gaussian(1 / math.sqrt(0.02)),
            Gaussian(5.0),
            Laplace(7.0),
            Poisson(0.1, Gaussian(1 / math.sqrt(0.4))),
        ]
        lower, upper = accountant_of(Composed(parts), 3).get_epsilon_bounds(1e-6)
        truth = accountant_of(Composed(gaussians), 3).get_epsilon_bounds(1e-6)
        assert 0 < lower <= truth[0]
        assert truth[1] <= upper <= 1.6 * truth[1]

    @pytest.mark.parametrize("steps", [1, 100, [7, 100]])
    def test_trees(self, steps):
        """A path of ⌈log₂(s + 1)⌉ nodes is as many runs of one Gaussian."""
        relation = NeighborRel.REPLACE_SPECIAL
        deepest = steps if isinstance(steps, int) else max(steps)
        depth = math.ceil(math.log2(deepest + 1))
        found = accountant_of(Trees(5.0, steps), 2, relation).get_epsilon_bounds(1e-6)
        expected = accountant_of(Gaussian(5.0), 2 * depth, relation)
        assert found == expected.get_epsilon_bounds(1e-6)
        assert not ext.PLDAccountant().supports(Trees(5.0, steps))

    @pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, math.inf])
    @pytest.mark.parametrize("inner", [Gaussian(3.0), Laplace(3.0)])
    def test_selections_against_the_library(self, inner, shape):
        event = Select(inner, 10, shape)
        stock = dp_accounting.rdp.RdpAccountant(
            1 + np.geomspace(1e-2, 1e4, 600)
        ).compose(event)
        for delta in (1e-3, 1e-9):
            lower, upper = accountant_of(event).get_epsilon_bounds(delta)
            assert lower == 0.0
            assert upper <= stock.get_epsilon(delta) * (1 + 1e-3)
            assert upper >= 0.9 * accountant_of(inner).get_epsilon(delta)

    def test_a_selection_of_one_candidate_by_brute_force(self):
        """The best of a geometric number of answers, of two that are possible."""
        truth, mean = 0.6, 4.0
        inner = EpsilonDelta(math.log(truth / (1 - truth)), 0.0)
        accountant = accountant_of(Select(inner, mean, 1.0))
        stop = 1 / mean
        # Yes wins if any run says so: E[1 − (1 − p)^K].
        laws = []
        for p in (truth, 1 - truth):
            none = stop * (1 - p) / (1 - (1 - stop) * (1 - p))
            laws.append([1 - none, none])
        for epsilon in (0.0, 0.2, 0.5):
            deltas = oracles.discrete_deltas(*laws, epsilon)
            assert max(deltas.values()) <= accountant.get_delta(epsilon)

    def test_selections_of_nothing_and_of_all(self):
        assert (
            accountant_of(Select(dp_accounting.NoOpDpEvent(), 5, 1.0)).get_epsilon(0.0)
            == 0.0
        )
        assert accountant_of(Select(Gaussian(0.0), 5, 1.0)).get_delta(3.0) == 1.0
        accountant = ext.PLDAccountant()
        error = privacy_accountant.UnsupportedEventError
        with pytest.raises(error, match="splits of a group"):
            accountant.compose(Select(ext.GroupSubsampledEvent(2, Gaussian(1.0)), 5, 1))

    @pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
    @pytest.mark.parametrize(
        "inner",
        [
            EpsilonDelta(1.0, 1e-6),
            DiscreteGaussian(3.0),
            Poisson(0.01, Gaussian(1.0)),
            dp_accounting.SelfComposedDpEvent(Poisson(0.01, Gaussian(1.0)), 50),
            ext.RandomAllocationEvent(Gaussian(1.0), 1, 100),
            Select(Laplace(3.0), 2.0, 0.0),
        ],
    )
    def test_selections_of_what_has_tails_or_is_amplified(self, inner, shape):
        """As by curves of the same events, and no less than one run that is kept."""
        event = Select(inner, 4.0, shape)
        orders = 1 + np.geomspace(1e-2, 1e4, 400)
        curve = ext.RdpAccountant(orders).compose(event)
        for delta in (1e-3, 1e-5):
            lower, upper = accountant_of(event).get_epsilon_bounds(delta)
            assert lower == 0.0
            assert upper <= curve.get_epsilon(delta) * 1.005
            if math.isfinite(shape):
                assert upper >= accountant_of(inner).get_epsilon_bounds(delta)[0]

    def test_a_selection_of_what_has_no_curve(self):
        """Two shifts at random tell less than one, and so does the best of them."""
        mixture = stock_events.MixtureOfGaussiansDpEvent(3.0, [0.0, 1.0], [0.5, 0.5])
        found, whole = (
            accountant_of(Select(each, 10, 1.0)).get_epsilon(1e-6)
            for each in (mixture, Gaussian(3.0))
        )
        assert found < 0.7 * whole


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (EpsilonDelta(-1.0, 0.0), "epsilon must be non-negative. Found -1.0"),
        (EpsilonDelta(1.0, 1.5), r"delta must be in \[0, 1\]. Found 1.5"),
        (Exponential(-1.0), "epsilon must be non-negative and finite. Found -1.0"),
        (PermuteAndFlip(math.inf), "epsilon must be non-negative and finite"),
        (DiscreteGaussian(-1.0), "sigma must be non-negative"),
        (DiscreteGaussian(1.0, 1.0, 0), "dimension must be at least 1. Found 0"),
        (ZCDp(-1.0), "rho must be non-negative and finite. Found -1.0"),
        (ZCDp(1.0, -1.0), "xi must be non-negative and finite. Found -1.0"),
        (
            Select(Gaussian(1.0), 0.5, 1.0),
            "mean must be at least 1 and at most 2.53. Found 0.5",
        ),
        (Select(Gaussian(1.0), 2.0, -1.0), "shape must be non-negative"),
    ],
)
def test_bad_fields(event, message):
    accountant = ext.PLDAccountant()
    assert accountant.supports(event)
    with pytest.raises(ValueError, match=message):
        accountant.compose(event)
    assert accountant.ledger == dp_accounting.NoOpDpEvent()


@pytest.mark.parametrize("epsilon", [1e-9, 0.03, 700.0])
@pytest.mark.parametrize("delta", [1e-30, 4e-17])
def test_permute_and_flip_at_tiny_deltas(epsilon, delta):
    lower, upper = accountant_of(PermuteAndFlip(epsilon)).get_epsilon_bounds(delta)
    # As Laplace noise.
    assert lower <= epsilon + 2 * math.log1p(-delta) <= upper <= epsilon * (1 + 1e-12)


def test_the_best_of_what_is_nothing_has_no_nan():
    event = Select(ZCDp(0.0, 0.3), 1.5, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epsilon = ext.RdpAccountant().compose(event).get_epsilon(0.637)
    assert 0 <= epsilon < 1


def test_allocated_discrete_noise_beside_other_noise():
    """Its least ratios are far beyond any tail; a mean of them was stored as zero."""
    allocations = [
        ext.RandomAllocationEvent(newer_events.DiscreteGaussian(0.3, 1.0, 1), 1, 2),
        ext.RandomAllocationEvent(stock_events.DiscreteLaplaceDpEvent(0.693, 3), 1, 5),
    ]
    accountant = ext.PLDAccountant().compose(stock_events.ComposedDpEvent(allocations))
    lower, upper = accountant.get_epsilon_bounds(5.89e-11)
    assert 27.4 < lower <= upper <= lower * (1 + 1e-9)
