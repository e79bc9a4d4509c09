"""Budgets are kept: by plans, and by events chosen while outputs are seen."""

import copy
import functools
import math
import pickle

import dp_accounting
import numpy as np
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import risk

Relation = dp_accounting.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
DELTA = 1e-6


def sampled(noise, rate=0.01):
    return dp_accounting.PoissonSampledDpEvent(rate, Gaussian(noise))


# Chosen on the way: the record's bit, flipped with half of the chance given here.
PARAMETERS = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95]


def bit(parameter):
    return dp_accounting.RandomizedResponseDpEvent(parameter, 2)


def chances(parameter):
    """Of an output, where the record says so and where it does not."""
    flip = parameter / 2
    return [(1 - flip, flip), (flip, 1 - flip)]


def natural_filter(epsilon, delta):
    """What is unsound: δ of the events on the path, as if they had been planned."""

    def fits(path):
        losses = np.zeros(1)
        masses = np.ones(1)
        for parameter in path:
            flip = parameter / 2
            loss = math.log((1 - flip) / flip)
            losses = np.concatenate([losses + loss, losses - loss])
            masses = np.concatenate([masses * (1 - flip), masses * flip])
        return (masses * np.maximum(-np.expm1(epsilon - losses), 0)).sum() <= delta

    return fits


def renyi_filter(epsilon, delta, **options):
    start = budget.RenyiFilter(
        epsilon, delta, neighboring_relation=Relation.REPLACE_ONE, **options
    )

    @functools.cache
    def fits(path):
        spent = copy.copy(start)
        for parameter in path[:-1]:
            spent.spend(bit(parameter))
        return spent.may_run(bit(path[-1]))

    return lambda path: fits((*sorted(path[:-1]), path[-1]))


def largest_delta(fits, epsilon, depth):
    """δ at ε of the best adversary: each choice is made knowing all outputs."""

    def best(path, p, q):
        found = max(p - math.exp(epsilon) * q, 0.0)
        if len(path) == depth:
            return found
        for parameter in PARAMETERS:
            longer = (*path, parameter)
            if fits(longer):
                ends = (best(longer, p * a, q * b) for a, b in chances(parameter))
                found = max(found, sum(ends))
        return found

    return best((), 1.0, 1.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "orders", "share"),
    [
        (1.0, 0.1, [4.0], 0.8),
        (1.0, 0.3, [2.0], 0.8),
        (1.5, 0.2, [4.0], 0.8),
        (2.0, 0.4, [2.0], 0.8),
        (1.0, 0.3, [1.5, 2.0, 4.0], 0.2),
        (2.0, 0.2, [1.5, 2.0, 4.0], 0.2),
        (1.0, 0.1, None, 0.05),
    ],
)
def test_the_best_adversary_of_a_renyi_filter_stays_within_the_budget(
    epsilon, delta, orders, share
):
    """It gets so far that a filter which lets more run would be seen."""
    found = largest_delta(renyi_filter(epsilon, delta, orders=orders), epsilon, 5)
    assert share * delta < found <= delta


def test_the_best_adversary_of_the_natural_filter_does_not():
    """Why a PLD accountant is no filter."""
    epsilon, delta = 1.0, 0.1
    assert largest_delta(natural_filter(epsilon, delta), epsilon, 5) > delta


def test_ten_thousand_adaptive_sequences_are_within_the_budget():
    """Each a tree of choices, whose δ is summed over all of its ends."""
    rng = np.random.default_rng(0)
    filters = [
        (renyi_filter(epsilon, delta, orders=orders), math.exp(epsilon), delta)
        for epsilon, delta in ((1.0, 0.3), (2.0, 0.4))
        for orders in ([2.0], [2.0, 4.0])
    ]

    def deltas(fits, factor, path, p, q):
        """Of the rest of the run, in both directions."""
        longer = (*path, PARAMETERS[rng.integers(len(PARAMETERS))])
        if len(path) == 5 or not fits(longer):
            return max(p - factor * q, 0.0), max(q - factor * p, 0.0)
        (a, b), (c, d) = chances(longer[-1])
        first = deltas(fits, factor, longer, p * a, q * b)
        second = deltas(fits, factor, longer, p * c, q * d)
        return first[0] + second[0], first[1] + second[1]

    for number in range(10_000):
        fits, factor, delta = filters[number % 4]
        assert max(deltas(fits, factor, (), 1.0, 1.0)) <= delta


def test_ten_thousand_sequences_of_gaussian_noise_are_within_the_budget():
    """Noise that follows what came out; the path's δ has a closed form."""
    rng = np.random.default_rng(1)
    for epsilon, delta in ((0.5, 1e-3), (3.0, 1e-8)):
        start, precisions = budget.GaussianFilter(epsilon, delta), []
        for _ in range(5000):
            filtered, precision, noise = copy.copy(start), 1e-30, 2.0
            for _ in range(15):
                noise *= math.exp(rng.normal())
                if filtered.may_run(Gaussian(noise)):
                    filtered.spend(Gaussian(noise))
                    precision += noise**-2
            precisions.append(precision)
        mean = np.sqrt(precisions)
        lost = math.exp(epsilon) * stats.norm.cdf(-mean / 2 - epsilon / mean)
        found = stats.norm.cdf(mean / 2 - epsilon / mean) - lost
        assert delta / 2 < found.max() <= delta


def test_a_renyi_filter_is_within_the_exact_composition_of_its_path():
    rng = np.random.default_rng(2)
    pool = [
        Gaussian(6.0),
        dp_accounting.LaplaceDpEvent(9.0),
        sampled(2.0),
        ext.RandomAllocationEvent(Gaussian(3.0), 1, 10),
    ]
    for epsilon in (1.0, 2.0):
        filtered = budget.RenyiFilter(epsilon, DELTA)
        exact = ext.PLDAccountant()
        for _ in range(60):
            event = pool[rng.integers(len(pool))]
            if filtered.may_run(event, 3):
                filtered.spend(event, 3)
                exact.compose(event, 3)
        assert 0.5 < filtered.spent <= 1
        assert exact.get_epsilon_bounds(DELTA)[0] <= epsilon


def test_a_gaussian_filter_loses_nothing():
    filtered = budget.GaussianFilter(2.0, DELTA)
    planned = budget.remaining(ext.PLDAccountant(), Gaussian(50.0), 2.0, DELTA)
    assert filtered.may_run(Gaussian(50.0), planned)
    assert not filtered.may_run(Gaussian(50.0), planned + 1)
    two = dp_accounting.ComposedDpEvent([Gaussian(50.0), Gaussian(25.0)])
    assert filtered.may_run(dp_accounting.SelfComposedDpEvent(two, planned // 5))
    replaced = budget.GaussianFilter(
        2.0, DELTA, neighboring_relation=Relation.REPLACE_ONE
    )
    assert not replaced.may_run(Gaussian(50.0), planned // 4 + 1)


@pytest.mark.parametrize("kind", [budget.RenyiFilter, budget.GaussianFilter])
def test_a_filter_counts_what_ran(kind):
    filtered = kind(1.0, DELTA)
    assert filtered.spent == 0
    filtered.spend(Gaussian(20.0))
    used = filtered.spent
    assert 0 < used < 1
    assert not filtered.may_run(Gaussian(1.0))
    assert filtered.spent == used
    resumed = pickle.loads(pickle.dumps(filtered))
    assert resumed.spent == used
    with pytest.raises(RuntimeError, match="overrun"):
        resumed.spend(Gaussian(1.0))
    assert not resumed.may_run(Gaussian(1e6))
    assert filtered.may_run(Gaussian(20.0))


def test_what_a_filter_does_not_take():
    gaussian, renyi = budget.GaussianFilter(1.0, DELTA), budget.RenyiFilter(1.0, DELTA)
    for event in (sampled(1.0), dp_accounting.LaplaceDpEvent(1.0)):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="RenyiFilter"):
            gaussian.may_run(event)
    group = ext.GroupSubsampledEvent(2, Gaussian(9.0))
    for event in (group, dp_accounting.ComposedDpEvent([Gaussian(9.0), group])):
        with pytest.raises(ValueError, match="single records"):
            renyi.spend(event)
    with pytest.raises(ValueError, match="no δ of its own"):
        renyi.spend(dp_accounting.NonPrivateDpEvent())
    assert renyi.spent == gaussian.spent == 0
    for event in (Gaussian(-1.0), Gaussian(math.nan)):
        with pytest.raises(ValueError, match="noise_multiplier"):
            gaussian.spend(event)
        with pytest.raises(ValueError, match="noise_multiplier"):
            renyi.spend(event)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0.0, 1e-6), {}, "epsilon must be positive"),
        ((math.inf, 1e-6), {}, "epsilon must be positive"),
        ((1.0, 0.0), {}, "delta must be in"),
        ((1.0, 1.0), {}, "delta must be in"),
        ((1.0, 1e-6), {"orders": []}, "at least one order"),
        ((1.0, 1e-6), {"orders": [1.0]}, "orders must be in"),
        ((0.1, 1e-6), {"orders": [2.0]}, "none of"),
    ],
)
def test_budgets_that_mean_nothing(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        budget.RenyiFilter(*arguments, **options)
    if not options:
        with pytest.raises(ValueError, match=message):
            budget.GaussianFilter(*arguments)


@pytest.mark.parametrize(
    ("spent", "event", "epsilon"),
    [
        (0, Gaussian(50.0), 2.0),
        (100, sampled(1.0), 1.5),
        (0, ext.RandomAllocationEvent(Gaussian(2.0), 1, 100), 1.0),
        (3, dp_accounting.LaplaceDpEvent(10.0), 2.0),
    ],
)
def test_as_many_runs_remain_as_fit(spent, event, epsilon):
    accountant = ext.PLDAccountant()
    if spent:
        accountant.compose(event, spent)
    before = accountant.get_epsilon(DELTA)
    runs = budget.remaining(accountant, event, epsilon, DELTA)
    assert accountant.get_epsilon(DELTA) == before
    assert runs > 1
    all_of_them = spent + runs
    fits = ext.PLDAccountant().compose(event, all_of_them)
    assert fits.get_epsilon(DELTA) <= epsilon
    one_more = ext.PLDAccountant().compose(event, all_of_them + 1)
    assert one_more.get_epsilon(DELTA) > epsilon


def test_few_runs_remain_and_many():
    accountant = ext.PLDAccountant().compose(Gaussian(1.0))
    spent = accountant.get_epsilon(DELTA)
    assert budget.remaining(accountant, Gaussian(1.0), spent, DELTA) == 0
    two = ext.PLDAccountant().compose(Gaussian(1.0), 2).get_epsilon(DELTA)
    assert budget.remaining(accountant, Gaussian(1.0), two, DELTA) == 1
    assert budget.remaining(accountant, Gaussian(1.0), spent / 2, DELTA) == 0
    told = dp_accounting.NonPrivateDpEvent()
    assert budget.remaining(accountant, told, 100.0, DELTA) == 0
    nothing = dp_accounting.NoOpDpEvent()
    assert budget.remaining(accountant, nothing, spent, DELTA) > 5_000_000
    for epsilon, delta in ((-1.0, DELTA), (1.0, 2.0)):
        with pytest.raises(ValueError, match="must be"):
            budget.remaining(accountant, Gaussian(1.0), epsilon, delta)


@pytest.mark.parametrize("root", [0.0314159, 1.0, 9.99999, 12345.6])
@pytest.mark.parametrize("steep", [1e-3, 1.0, 30.0, math.inf])
def test_the_search_ends_at_the_least_noise_of_six_digits(root, steep):
    """Of what falls gently, steeply or at once, to nothing at all."""

    def bound(noise):
        if steep == math.inf:
            return 0.0 if noise >= root else math.inf
        return (root / noise) ** steep * (1 + 1e-14 * (noise < root))

    assert budget.least_noise(bound, 1.0, guess=3.0) == root


def test_where_any_noise_will_do():
    assert 0 < budget.least_noise(lambda noise: 0.5, 1.0) < budget.LEAST_NOISE


@pytest.mark.parametrize("target", [0.01, 0.1, 0.9])
def test_noise_for_an_advantage(target):
    """2 Φ(1 / 2σ) − 1 is the advantage."""
    noise = budget.calibrate(Gaussian, risk.advantage, target)
    truth = 1 / (2 * stats.norm.ppf((1 + target) / 2))
    assert truth * (1 - 1e-12) <= noise <= truth * (1 + 2e-5)
    found = risk.advantage(ext.PLDAccountant().compose(Gaussian(noise)))
    assert found[1] <= target


@pytest.mark.parametrize(
    ("measure", "target"),
    [
        (lambda a: risk.attack_success(a, 0.01), 0.05),
        (lambda a: risk.positive_predictive_value(a, 0.01, 0.5), 0.7),
        (lambda a: risk.membership_success(a, 0.1), 0.92),
        (lambda a: a.get_epsilon_bounds(DELTA), 2.0),
    ],
)
def test_noise_for_a_target(measure, target):
    def run(noise):
        return dp_accounting.SelfComposedDpEvent(sampled(noise), 500)

    noise = budget.calibrate(run, measure, target)
    assert measure(ext.PLDAccountant().compose(run(noise)))[1] <= target
    less = ext.PLDAccountant().compose(run(noise * (1 - 1e-4)))
    assert measure(less)[1] > target


def test_one_budget_is_split_by_shares_over_several_mechanisms():
    """Shares of 1 / σ² under a common factor."""
    shares = [0.7, 0.2, 0.1]

    def split(factor):
        return dp_accounting.ComposedDpEvent(
            [Gaussian(factor / math.sqrt(share)) for share in shares]
        )

    factor = budget.calibrate(split, lambda a: a.get_epsilon_bounds(DELTA), 1.0)
    alone = budget.calibrate(Gaussian, lambda a: a.get_epsilon_bounds(DELTA), 1.0)
    assert math.isclose(factor, alone, rel_tol=1e-5)


@pytest.mark.parametrize("target", [0.0, -1.0, 1.0, math.nan])
def test_targets_that_no_noise_or_any_meets(target):
    with pytest.raises(ValueError, match="target must be"):
        budget.calibrate(Gaussian, risk.advantage, target)


def test_several_orders_share_delta():
    """As much runs as with the best of them alone, at its share of δ."""
    for event in (Gaussian(30.0), sampled(2.0)):
        orders = [9.0, 12.0, 16.0]
        runs = []
        for chosen, delta in ((orders, DELTA), *(([x], DELTA / 3) for x in orders)):
            filtered, count = budget.RenyiFilter(2.0, delta, orders=chosen), 1
            while filtered.may_run(event, count):
                count += 1
            runs.append(count)
        assert runs[0] == max(runs[1:])
