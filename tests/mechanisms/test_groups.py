"""Groups of records, and batches of fixed size, in the accountant."""

import itertools
import math

import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
Group = ext.GroupSubsampledEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
WithReplacement = dp_accounting.SampledWithReplacementDpEvent
RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 2)  # θ = 3/4.


def accountant_of(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


@pytest.mark.parametrize(
    ("group", "rate", "sigma", "count", "epsilon", "expected"),
    [
        # The design page's spot values, all-remove, which is the worst split here.
        (1, 0.01, 1.0, 1000, 1.0, 2.612421e-3),
        (2, 0.01, 1.0, 1000, 4.0, 9.217114e-6),
        (4, 0.01, 1.0, 1000, 4.0, 2.773747e-2),
        (16, 1e-3, 5.0, 1000, 0.25, 2.921025e-4),
        (4, 0.01, 1.0, 1000, 8.0, 5.72e-5),
    ],
)
def test_composed_groups_of_the_design_page(
    group, rate, sigma, count, epsilon, expected
):
    event = Group(group, Poisson(rate, Gaussian(sigma)))
    lower, upper = accountant_of(event, count).get_delta_bounds(epsilon)
    digits = 5e-4 if expected == 5.72e-5 else 1e-6
    assert lower <= expected * (1 + digits)
    assert expected * (1 - digits) <= upper <= expected * (1 + 1e-3)


def test_every_split_is_composed_on_its_own():
    """Laplace K=4, r=.5, b=2, T=2, ε=.2: all-remove .37577, all-insert .38835."""
    accountant = accountant_of(Group(4, Poisson(0.5, Laplace(2.0))), 2)
    lower, upper = accountant.get_delta_bounds(0.2)
    assert lower <= 0.388353
    assert 0.388345 <= upper <= 0.38836
    grouped = groups.GroupedNoise(4, 2.0, True, groups.Poisson(0.5))
    only_remove = privacy_bounds.PrivacyBounds({grouped.split(4, 0): 2}, 1e-4)
    profile = only_remove._profile(Bound.UPPER, Direction.REMOVE, 1e-3)
    assert profile.delta(0.2) == pytest.approx(0.37577, abs=5e-6)


@pytest.mark.parametrize(("group", "rate", "sigma"), [(5, 0.2, 2.0), (3, 1e-3, 0.7)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_single_steps_against_the_oracle(group, rate, sigma, epsilon):
    def shifts(members, sign):
        return oracles.binomial_shifts(members, rate, (sign, sigma))

    accountant = accountant_of(Group(group, Poisson(rate, Gaussian(sigma))))
    truth = max(
        oracles.shift_mixture_deltas(
            shifts(removed, 1), shifts(group - removed, -1), epsilon
        )["remove"]
        for removed in range(group + 1)
    )
    lower, upper = accountant.get_delta_bounds(epsilon)
    assert lower <= truth <= upper <= truth * (1 + 1e-6)


@pytest.mark.parametrize("count", [1, 7, 10**9])
def test_unsampled_groups_of_gaussian_noise_are_closed(count):
    """K members, whichever leave or join: a Gaussian of mean K √n / σ."""
    sigma = 3.0 * math.sqrt(count)
    accountant = accountant_of(Group(4, Gaussian(sigma)), count)
    for epsilon in (0.0, 1.0, 9.0):
        lower, upper = accountant.get_delta_bounds(epsilon)
        with mpmath.workdps(40):
            mean = 4 * mpmath.sqrt(count) / mpmath.mpf(sigma)
        truth = oracles.gaussian_delta(mean, epsilon)
        assert lower <= truth <= upper <= lower * (1 + 1e-9)


def test_gaussian_step_of_the_design_page():
    """K=16, r=.2, σ=2, ε=2: .2130."""
    accountant = accountant_of(Group(16, Poisson(0.2, Gaussian(2.0))))
    assert accountant.get_delta(2.0) == pytest.approx(0.2130, abs=5e-5)


@pytest.mark.parametrize("inner", [Gaussian(3.0), Laplace(5.0)])
def test_unsampled_groups_have_the_groups_sensitivity(inner):
    """All leave, or all join: the noise is that of a sensitivity of K."""
    scaled = type(inner)(inner.noise_multiplier / 4)
    ours = accountant_of(Group(4, inner), 3).get_epsilon(1e-6)
    assert ours == pytest.approx(accountant_of(scaled, 3).get_epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize("noise", [Gaussian(1.3), Laplace(0.8)])
@pytest.mark.parametrize("count", [1, 30])
def test_a_group_of_one_is_a_record(noise, count):
    event = Poisson(0.05, noise)
    group = accountant_of(Group(1, event), count)
    record = accountant_of(event, count)
    for delta in (1e-2, 1e-8):
        assert group.get_epsilon(delta) == pytest.approx(
            record.get_epsilon(delta), rel=1e-9
        )
    # So they may stand beside one another.
    group.compose(event)


def test_larger_groups_lose_more():
    epsilons = [
        accountant_of(Group(k, Poisson(0.01, Gaussian(2.0))), 100).get_epsilon(1e-6)
        for k in (1, 2, 3, 8)
    ]
    assert epsilons == sorted(epsilons)


def test_trees_distribute_over_groups():
    inside = Composed(
        [
            Poisson(0.1, Gaussian(2.0)),
            dp_accounting.SelfComposedDpEvent(Poisson(0.2, Laplace(3.0)), 3),
        ]
    )
    outside = Composed(
        [
            Group(3, Poisson(0.1, Gaussian(2.0))),
            dp_accounting.SelfComposedDpEvent(Group(3, Poisson(0.2, Laplace(3.0))), 3),
        ]
    )
    values = [
        accountant_of(tree, 2).get_epsilon(1e-6) for tree in (Group(3, inside), outside)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


class TestRandomizedResponse:
    def test_one_step_is_tight(self):
        rate, beta, gain = 0.3, 0.25, 0.5
        accountant = accountant_of(Group(2, Poisson(rate, RESPONSE)))
        for epsilon in (0.0, 0.1, 0.3):
            truth = mpmath.mpf(0)
            for removed in range(3):
                absent = 1 - mpmath.mpf(rate)
                chances = [1 - absent**k for k in (removed, 2 - removed)]
                for p, q in (
                    (beta + chances[0] * gain, beta),
                    (beta, beta + chances[1] * gain),
                ):
                    laws = oracles.discrete_deltas([p, 1 - p], [q, 1 - q], epsilon)
                    truth = max(truth, *laws.values())
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= truth <= upper <= truth * (1 + 1e-9)

    def test_the_composed_maximum_of_two_is_not_enough(self):
        """θ=.75, r=.3, (1, 1), T=2, ε=.3: .0766, but A then B attains .0975."""
        grouped = groups.GroupedRandomizedResponse(2, 0.5, 0.3)
        composed = privacy_bounds.PrivacyBounds({grouped.split(1, 1): 2}, 1e-4)
        upper = composed.upper_delta(0.3)
        beta, raised = 0.25, 0.25 + 0.3 * 0.5
        first = [raised, 1 - raised], [beta, 1 - beta]
        p = [a * b for a, b in itertools.product(first[0], first[1])]
        q = [a * b for a, b in itertools.product(first[1], first[0])]
        attained = oracles.discrete_deltas(p, q, 0.3)["remove"]
        assert attained == pytest.approx(0.0975, abs=1e-4)
        assert upper >= attained
        assert upper == pytest.approx(0.1194, abs=1e-4)
        assert composed.lower_delta(0.3, upper) == 0.0

    def test_ends(self):
        fair = stock_events.RandomizedResponseDpEvent(1.0, 2)
        assert accountant_of(Group(3, fair)).get_epsilon(0.0) == 0.0
        honest = stock_events.RandomizedResponseDpEvent(0.0, 2)
        assert accountant_of(Group(3, honest)).get_epsilon(0.5) == math.inf


class TestFixedBatches:
    def test_without_replacement_all_leave(self):
        """Hypergeometric weights, brute force over all batches."""
        size, batch, group, sigma = 7, 3, 2, 1.5
        counts = [
            sum(member < group for member in chosen)
            for chosen in itertools.combinations(range(size), batch)
        ]
        p = [
            (mpmath.mpf(2 * i) / sigma, mpmath.mpf(counts.count(i)) / len(counts))
            for i in range(max(counts) + 1)
        ]
        accountant = accountant_of(
            Group(group, WithoutReplacement(size, batch, Gaussian(sigma)))
        )
        for epsilon in (0.0, 0.4, 1.2):
            truths = oracles.shift_mixture_deltas(p, [(0.0, 1.0)], epsilon)
            lower, upper = accountant.get_delta_bounds(epsilon)
            truth = max(truths.values())
            assert lower <= truth <= upper
            assert lower >= truth * (1 - 1e-9)

    @pytest.mark.parametrize(
        ("size", "batch", "known"), [(2, 2, False), (9, 8, True), (9, 9, False)]
    )
    def test_a_batch_that_none_can_fill_up_has_no_lower_bound(self, size, batch, known):
        """Without the record there are too few to take its place."""
        accountant = accountant_of(WithoutReplacement(size, batch, Gaussian(1.0)))
        lower, upper = accountant.get_delta_bounds(1.0)
        assert (lower > 0) == known
        assert oracles.gaussian_delta(1.0, 1.0) < upper

    def test_with_replacement_all_leave(self):
        size, batch, sigma = 4, 3, 1.0
        counts = [
            sum(draw == 0 for draw in draws)
            for draws in itertools.product(range(size), repeat=batch)
        ]
        p = [
            (mpmath.mpf(2 * i) / sigma, mpmath.mpf(counts.count(i)) / len(counts))
            for i in range(batch + 1)
        ]
        accountant = accountant_of(WithReplacement(size, batch, Gaussian(sigma)))
        for epsilon in (0.0, 0.4, 1.2):
            truths = oracles.shift_mixture_deltas(p, [(0.0, 1.0)], epsilon)
            lower, upper = accountant.get_delta_bounds(epsilon)
            truth = max(truths.values())
            assert lower <= truth <= upper <= truth * (1 + 1e-6)

    @pytest.mark.parametrize("noise", [Gaussian(1.1), Laplace(0.9)])
    def test_one_record_leaving_a_subset_is_poisson(self, noise):
        subset = accountant_of(WithoutReplacement(1000, 10, noise), 50)
        # In the batch another record is missing: twice the sensitivity.
        halved = type(noise)(noise.noise_multiplier / 2)
        poisson = accountant_of(Poisson(0.01, halved), 50)
        assert subset.get_epsilon(1e-6) == pytest.approx(
            poisson.get_epsilon(1e-6), rel=1e-9
        )

    def test_a_record_replaced_without_replacement(self):
        """κ ≥ 1: H((1 − r) N(0) + r N(1) ‖ N(0)); reflected for κ < 1."""
        rate, sigma = 0.1, 0.8
        event = WithoutReplacement(50, 5, Gaussian(sigma))
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        p, q = [(0.0, 1 - rate), (2 / sigma, rate)], [(0.0, 1.0)]
        for epsilon in (0.0, 0.3, 1.5):
            truth = oracles.shift_mixture_deltas(p, q, epsilon)["remove"]
            assert truth <= accountant.get_delta(epsilon) <= truth * (1 + 1e-4)
            kappa = mpmath.exp(-mpmath.mpf(epsilon))
            reflection = 1 - kappa + kappa * truth
            assert reflection <= accountant.get_delta(-epsilon)
        # The stock's Rényi accountant of the same event, converted: far looser.
        many = accountant_of(event, 20, NeighborRel.REPLACE_ONE).get_epsilon(1e-6)
        assert many > accountant_of(event, 10, NeighborRel.REPLACE_ONE).get_epsilon(
            1e-6
        )

    @pytest.mark.parametrize("noise", [Gaussian(1.1), Laplace(0.9)])
    def test_a_batch_of_all_records_is_no_sample(self, noise):
        """One record replaced moves the sum by twice its norm, batch or not."""
        batch = accountant_of(
            WithoutReplacement(9, 9, noise), 5, NeighborRel.REPLACE_ONE
        )
        halved = type(noise)(noise.noise_multiplier / 2)
        assert batch.get_epsilon(1e-6) == pytest.approx(
            accountant_of(halved, 5).get_epsilon(1e-6), rel=1e-5
        )

    def test_a_record_replaced_with_replacement(self):
        """Theorem L.5: binomial shifts up against binomial shifts down."""
        size, batch, sigma = 30, 3, 1.0
        p = oracles.binomial_shifts(batch, 1, (2, sigma), draws_from=size)
        q = [(-shift, weight) for shift, weight in p]
        event = WithReplacement(size, batch, Gaussian(sigma))
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        for epsilon in (0.0, 0.5):
            truth = max(oracles.shift_mixture_deltas(p, q, epsilon).values())
            upper = accountant.get_delta(epsilon)
            assert truth <= upper <= truth * (1 + 1e-6)
        assert accountant.get_epsilon_bounds(1e-6)[0] == 0.0

    def test_many_draws_with_replacement_have_a_pair(self):
        """Shifts up to 600 are cut where their weights no longer matter."""
        event = WithReplacement(60_000, 600, Gaussian(2.0))
        lower, upper = accountant_of(event, 100).get_epsilon_bounds(1e-6)
        near = accountant_of(Poisson(0.01, Gaussian(1.0)), 100).get_epsilon(1e-6)
        assert near < lower <= upper <= lower * (1 + 1e-4)
        assert upper < near * 1.3


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "relation", "message"),
        [
            (
                Group(2, Poisson(0.1, Gaussian(1.0))),
                NeighborRel.REPLACE_SPECIAL,
                "ADD_OR_REMOVE_ONE.*Found",
            ),
            (
                WithoutReplacement(10, 2, Gaussian(1.0)),
                NeighborRel.REPLACE_SPECIAL,
                "ADD_OR_REMOVE_ONE.*Found",
            ),
            (
                Group(2, WithoutReplacement(10, 2, RESPONSE)),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "unproven for groups",
            ),
            (Group(2, RESPONSE), NeighborRel.REPLACE_ONE, "ADD_OR_REMOVE_ONE"),
            (
                Group(2, Poisson(0.5, Composed([Gaussian(1.0)]))),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "must run a `GaussianDpEvent` or a `LaplaceDpEvent`",
            ),
            (
                Group(2, ext.RandomAllocationEvent(Gaussian(1.0), 1, 5)),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "unproven",
            ),
            (
                Poisson(0.5, Group(2, Gaussian(1.0))),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "put the sampling inside",
            ),
            (
                WithoutReplacement(10, 2, stock_events.DiscreteLaplaceDpEvent(0.5, 1)),
                NeighborRel.ADD_OR_REMOVE_ONE,
                "unproven",
            ),
        ],
    )
    def test_what_is_not_proven(self, event, relation, message):
        accountant = ext.PLDAccountant(relation)
        assert not accountant.supports(event)
        with pytest.raises(privacy_accountant.UnsupportedEventError, match=message):
            accountant.compose(event)

    @pytest.mark.parametrize(
        ("event", "error", "message"),
        [
            (
                Group(0, Gaussian(1.0)),
                ValueError,
                "group_size must be at least 1. Found 0",
            ),
            (Group(1.5, Gaussian(1.0)), TypeError, "group_size must be an integer"),
            (Group(5000, Gaussian(1.0)), ValueError, "at most 1024. Found 5000"),
            (Group(2, Poisson(1.5, Gaussian(1.0))), ValueError, "sampling_probability"),
            (
                Group(2, WithoutReplacement(5, 9, Gaussian(1.0))),
                ValueError,
                "sample_size must be at most source_dataset_size. Found 9 of 5",
            ),
            (
                Group(9, WithoutReplacement(5, 2, Gaussian(1.0))),
                ValueError,
                "group_size must be at most source_dataset_size. Found 9 of 5",
            ),
            (Group(2, Gaussian(-1.0)), ValueError, "noise_multiplier"),
            (
                Group(2, stock_events.RandomizedResponseDpEvent(0.5, 3)),
                ValueError,
                "num_buckets must be 2 in a group. Found 3",
            ),
        ],
    )
    def test_bad_fields(self, event, error, message):
        accountant = ext.PLDAccountant()
        with pytest.raises(error, match=message):
            accountant.compose(event)
        assert accountant.ledger == dp_accounting.NoOpDpEvent()

    def test_mixed_trees(self):
        group = Group(16, Poisson(0.1, Gaussian(1.0)))
        remedy = r"group_size 16 cannot.*wrap it in GroupSubsampledEvent\(16, …\)"
        error = privacy_accountant.UnsupportedEventError
        with pytest.raises(error, match=remedy):
            accountant_of(Composed([group, Gaussian(1.0)]))
        accountant = accountant_of(group)
        before = accountant.get_epsilon(1e-6)
        assert not accountant.supports(Gaussian(1.0))
        with pytest.raises(error, match=remedy):
            accountant.compose(Gaussian(1.0))
        with pytest.raises(error, match="one group_size. Found 2 and 16"):
            accountant.compose(Group(2, Gaussian(1.0)))
        assert accountant.get_epsilon(1e-6) == before
        accountant.compose(dp_accounting.NoOpDpEvent())
        accountant.compose(dp_accounting.NonPrivateDpEvent())
        assert accountant.get_epsilon(1e-6) == math.inf


def test_a_distribution_of_a_group_holds_every_split():
    event = Group(3, Poisson(0.3, Gaussian(2.0)))
    found = pld.from_event(event)
    accountant = accountant_of(event)
    for epsilon in (0.0, 0.3, 1.0):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= found.get_delta_for_epsilon(epsilon) <= upper * 1.001


SelfComposed = dp_accounting.SelfComposedDpEvent


def test_compositions_of_compositions_of_groups_are_split_once():
    """Three runs of two: a group of one replaced, a Gaussian of mean 2 √6."""
    twice = Composed([Gaussian(1.0), Gaussian(1.0)])
    truth = oracles.gaussian_delta(2 * math.sqrt(6), 1.0)
    for event in (
        SelfComposed(Group(1, twice), 3),
        Composed([Group(1, twice), Group(1, SelfComposed(Gaussian(1.0), 4))]),
        SelfComposed(Composed([Group(1, twice), Group(1, SelfComposed(twice, 2))]), 1),
    ):
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        lower, upper = accountant.get_delta_bounds(1.0)
        assert lower <= truth <= upper <= truth * (1 + 1e-6)


def test_nested_compositions_of_groups_keep_their_lower_bound():
    inner = Composed([Poisson(0.1, Gaussian(1.0)), Laplace(1.0)])
    nested = accountant_of(SelfComposed(Group(2, inner), 3)).get_epsilon_bounds(1e-6)
    flat = accountant_of(Group(2, SelfComposed(inner, 3))).get_epsilon_bounds(1e-6)
    assert nested == flat
    assert 0 < nested[0] <= nested[1] <= nested[0] * 1.001


def test_nested_groups_of_two_sizes_are_refused():
    inner = Composed([Gaussian(1.0), Laplace(1.0)])
    accountant = accountant_of(SelfComposed(Group(5, inner), 3))
    for event in (Gaussian(1.0), Group(4, inner)):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="group_size"):
            accountant.compose(event)
        with pytest.raises(dp_accounting.UnsupportedEventError, match="group_size"):
            pld.from_event(Composed([Group(5, inner), event]))
    accountant.compose(Composed([Group(5, inner), Group(5, Laplace(2.0))]))


def test_a_distribution_of_a_replaced_group():
    event = Group(1, Gaussian(1.0))
    for pessimistic in (True, False):
        found = pld.from_event(
            event,
            neighboring_relation=NeighborRel.REPLACE_ONE,
            pessimistic_estimate=pessimistic,
        )
        for epsilon in (0.0, 1.0, 3.0):
            truth = oracles.gaussian_delta(2.0, epsilon)
            value = found.get_delta_for_epsilon(epsilon)
            assert truth <= value <= truth * 1.001 if pessimistic else value <= truth


def test_an_optimistic_distribution_of_a_group_is_one_split():
    found = pld.from_event(
        Group(3, Poisson(0.3, Gaussian(2.0))), pessimistic_estimate=False
    )
    p = oracles.binomial_shifts(3, 0.3, (1, 2.0))
    for epsilon in (0.0, 0.5, 1.5):
        truth = max(oracles.shift_mixture_deltas(p, [(0, 1)], epsilon).values())
        assert truth * 0.99 <= found.get_delta_for_epsilon(epsilon) <= truth


@pytest.mark.parametrize(
    ("event", "chance"),
    [
        (Poisson(0.25, Gaussian(0.0)), 0.25),
        (ext.PLDSubsampleEvent(0.1, Poisson(0.25, Gaussian(0.0))), 0.025),
        (Poisson(0.1, Composed([Gaussian(1.0), Laplace(0.0)])), 0.1),
        (WithoutReplacement(40, 4, Gaussian(0.0)), 0.1),
        (Group(2, Poisson(0.5, Gaussian(0.0))), 0.75),
        (
            stock_events.MixtureOfGaussiansDpEvent(0.0, [0.0, 1.0], [0.875, 0.125]),
            0.125,
        ),
        (
            ext.ScheduledAllocationEvent([Gaussian(0.0), Gaussian(1.0)], [1, 2], 8),
            0.125,
        ),
        (ext.RandomAllocationEvent(Gaussian(0.0), 1, 8), 1.0),
    ],
)
def test_no_privacy_on_a_sample_costs_its_probability(event, chance):
    accountant = accountant_of(event)
    assert accountant.get_epsilon(1e-3) == math.inf
    for epsilon in (40.0, math.inf):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert chance * (1 - 1e-8) <= lower <= chance <= upper <= chance * (1 + 1e-8)
    if chance < 1:
        assert accountant.get_epsilon_bounds(chance * 0.999) == (math.inf, math.inf)
        assert accountant.get_epsilon(chance * 1.001) < 20


@pytest.mark.parametrize("relation", list(NeighborRel))
@pytest.mark.parametrize("rate", [1e-6, 0.25, 0.999])
def test_samples_without_privacy_compose(relation, rate):
    """The chance of any, and in the other direction losses of ln 1/(1 − rate).

    Where another record takes its place its chance is known as well, and no finite
    loss is left.
    """
    accountant = ext.PLDAccountant(relation)
    event = Poisson(rate, dp_accounting.NonPrivateDpEvent())
    accountant.compose(Composed([event, event]))
    with mpmath.workdps(40):
        none = (1 - mpmath.mpf(rate)) ** 2
        for epsilon in (0.0, 1e-7, 0.3, 5.0):
            add = 1 - none * mpmath.exp(epsilon)
            replaced = relation is NeighborRel.REPLACE_ONE
            truth = max(1 - none, 0 if replaced else add)
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= truth <= upper <= truth * (1 + 1e-9) + 1e-13
            assert lower >= truth * (1 - 1e-9) - 1e-13


def test_a_group_without_privacy_where_some_leave_and_some_join():
    """Of three the chance that any is in the batch, in the worst of the splits."""
    event = Group(3, WithoutReplacement(10, 4, dp_accounting.NonPrivateDpEvent()))
    chance = 1 - math.comb(7, 4) / math.comb(10, 4)
    lower, upper = accountant_of(event).get_delta_bounds(1.0)
    assert chance * (1 - 1e-9) <= lower <= upper <= chance * (1 + 1e-9)
    grouped = accountant_of(event)
    with pytest.raises(privacy_accountant.UnsupportedEventError, match="wrap it in"):
        grouped.compose(Poisson(0.5, dp_accounting.NonPrivateDpEvent()))


@pytest.mark.parametrize("rest", [0.9999999999843446, 0.5, 1e-13])
def test_a_chance_is_no_complement(rest):
    """Of weights that nearly sum to one, each is known better than what is left."""
    chance = 1.5655e-11 if rest > 0.9 else 1 - rest
    event = stock_events.MixtureOfGaussiansDpEvent(0.0, [0.0, 1.0], [rest, chance])
    with mpmath.workdps(40):
        weights = mpmath.mpf(rest), mpmath.mpf(chance)
        truth = weights[1] / sum(weights)
        lower, upper = accountant_of(event).get_delta_bounds(0.0)
        assert lower <= truth <= upper
        assert upper <= lower * (1 + 1e-12) + 2e-14


def test_events_round_trip():
    event = Group(3, Poisson(0.3, Gaussian(2.0)))
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event


class Recorded(groups.Grouped):
    group_size = 5

    def split(self, removed, inserted):
        return compositions.Composed(
            ((additive_noise.Gaussian(1.0 + removed), 1 + inserted),)
        )


def test_every_split_or_its_reverse_is_a_scenario():
    part = Recorded()
    found = groups.scenarios({part: 2}, replace_one=False)
    splits = [(3, 2), (4, 1), (5, 0)]
    assert found == [{part.split(*split): 2} for split in splits]
    replaced = groups.scenarios({part: 2}, replace_one=True)
    assert replaced == [{part.split(5, 5): 2}]
