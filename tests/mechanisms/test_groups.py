"""Groups of records, and batches of fixed size, in the accountant."""

import itertools
import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
accountant_of = asked.accountant_of
Direction = dominating_pair.Direction
NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
Group = ext.GroupSubsampledEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 2)  # θ = 3/4.


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
    only_remove = asked.bounds_of({grouped.split(4, 0): 2}, 1e-4)
    loss = only_remove.bounds._loss(Bound.UPPER, Direction.REMOVE, 0)
    assert loss.deltas(np.array([0.2])) == pytest.approx([0.37577], abs=5e-6)


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
        composed = asked.bounds_of({grouped.split(1, 1): 2}, 1e-4)
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


def test_a_distribution_of_a_group_holds_every_split():
    event = Group(3, Poisson(0.3, Gaussian(2.0)))
    found = pld.from_event(event)
    accountant = accountant_of(event)
    for epsilon in (0.0, 0.3, 1.0):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= found.get_delta_for_epsilon(epsilon) <= upper * 1.001


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
    # Beside a sample, of which no member may be a part either.
    both = accountant_of(event).compose(Poisson(0.5, dp_accounting.NonPrivateDpEvent()))
    chance = 1 - (1 - chance) / 8
    lower, upper = both.get_delta_bounds(1.0)
    assert chance * (1 - 1e-9) <= lower <= upper <= chance * (1 + 1e-9)


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


class Recorded(groups.Grouped):
    group_size = 5

    def split(self, removed, inserted):
        return compositions.Composed(
            ((additive_noise.Gaussian(1.0 + removed), 1 + inserted),)
        )


def test_every_split_or_its_reverse_is_a_scenario():
    part = Recorded()
    found = groups.scenarios({part: 2}, replace_one=False)
    splits = [(5, 0), (4, 1), (3, 2)]
    assert found == [{part.split(*split): 2} for split in splits]
    replaced = groups.scenarios({part: 2}, replace_one=True)
    assert replaced == [{part.split(5, 5): 2}]


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-10, 1e-15, 1e-20, 1e-200])
def test_randomized_response_of_a_group_that_hardly_lies(noise):
    """One record, no sample: it is the plain randomized response."""
    response = dp_accounting.RandomizedResponseDpEvent(noise, 2)
    accountant = ext.PLDAccountant().compose(ext.GroupSubsampledEvent(1, response))
    with mpmath.workdps(50):
        lie = mpmath.mpf(noise) / 2
        largest = mpmath.log((1 - lie) / lie)
        for share in (0.0, 0.5, 0.9, 0.98, 0.999):
            epsilon = float(largest * share)
            exact = 1 - lie - mpmath.exp(mpmath.mpf(epsilon)) * lie
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= exact <= upper
