"""Budgets are kept: by plans, by noise, and by events chosen while outputs are seen."""

from concurrent import futures
import copy
import functools
import math
import pickle
import time

import dp_accounting
import mpmath
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
    more = dp_accounting.SelfComposedDpEvent(two, planned // 5 + 1)
    assert not filtered.may_run(more)
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
    with pytest.raises(ValueError, match="noise_multiplier"):
        filtered.spend(Gaussian(-1.0))
    assert filtered.spent == used
    assert filtered.may_run(Gaussian(20.0))


class SlowNumber(float):
    """A number at whose reading another thread has its turn."""

    def __float__(self):
        time.sleep(1e-4)
        return super().__float__()


@pytest.mark.parametrize("kind", [budget.RenyiFilter, budget.GaussianFilter])
def test_no_run_is_lost_between_threads(kind):
    shared, alone = kind(5.0, DELTA), kind(5.0, DELTA)
    noises = [[60.0 + 4 * i + thread for i in range(30)] for thread in range(4)]

    def spend(distinct):
        for noise in distinct:
            shared.spend(Gaussian(SlowNumber(noise)))

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(spend, noises))
    for noise in np.ravel(noises).tolist():
        alone.spend(Gaussian(noise))
    assert math.isclose(shared.spent, alone.spent, rel_tol=1e-9)


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


def test_the_most_runs_that_are_tried():
    nothing = ext.PLDAccountant()
    assert budget.MOST_RUNS == 10**7
    hardly_any = Gaussian(1e6)
    assert budget.remaining(nothing, hardly_any, 2.0, DELTA) == budget.MOST_RUNS


def test_runs_that_cost_no_epsilon_at_first():
    """ε is 0 for the first runs, so that the budget is met by many numbers exactly."""
    runs = budget.remaining(ext.PLDAccountant(), Gaussian(100.0), 0.0, 0.1)
    mean = 2 * stats.norm.ppf(0.55)
    assert runs == math.floor((100 * mean) ** 2)


def most_often_exceeded(delta, depth):
    """The probability that a loss ever exceeds what is told, for the best adversary."""
    start = budget.RenyiOdometer(delta, neighboring_relation=Relation.REPLACE_ONE)

    @functools.cache
    def told(path):
        spent = copy.copy(start)
        for parameter in path:
            spent.spend(bit(parameter))
        return spent.epsilon

    def best(path, p, q):
        if p > q * math.exp(told(tuple(sorted(path)))):
            return p
        if len(path) == depth:
            return 0.0
        return max(
            sum(best((*path, each), p * x, q * y) for x, y in chances(each))
            for each in PARAMETERS[::2]
        )

    return best((), 1.0, 1.0)


def test_the_loss_hardly_ever_exceeds_what_the_odometer_says():
    """However the events are chosen, and whenever one looks."""
    for delta in (0.3, 0.05, 0.01):
        assert most_often_exceeded(delta, 6) <= delta
    assert most_often_exceeded(0.3, 6) > 0


def test_the_odometer_says_what_renyi_divergences_do():
    spent = budget.RenyiOdometer(DELTA)
    assert spent.epsilon == 0
    spent.spend(Gaussian(10.0), 30)
    spent.spend(Gaussian(5.0))
    precision = mpmath.mpf(30) / 100 + mpmath.mpf(1) / 25
    share = mpmath.log(len(spent.orders) / mpmath.mpf(DELTA))
    known = min(a * precision / 2 + share / (a - 1) for a in spent.orders)
    assert known <= spent.epsilon <= known * (1 + 1e-9)
    planned = ext.PLDAccountant().compose(Gaussian(10.0), 30).compose(Gaussian(5.0))
    assert planned.get_epsilon(DELTA) < spent.epsilon
    assert "spent so far" in repr(spent)
    again = pickle.loads(pickle.dumps(spent))
    assert again.epsilon == spent.epsilon
    with pytest.raises(ValueError, match="event must have no δ of its own"):
        spent.spend(dp_accounting.NonPrivateDpEvent())
    assert again.epsilon == spent.epsilon


@pytest.mark.parametrize("target", [0.01, 0.1, 0.9])
def test_noise_for_an_advantage(target):
    """2 Φ(1 / 2σ) − 1 is the advantage."""
    noise = budget.calibrate(Gaussian, risk.advantage, target)
    truth = 1 / (2 * stats.norm.ppf((1 + target) / 2))
    assert truth * (1 - 1e-12) <= noise <= truth * (1 + 2e-5)
    found = risk.advantage(ext.PLDAccountant().compose(Gaussian(noise)))
    assert found[1] <= target


@pytest.mark.parametrize(
    ("target", "measure"),
    [
        (0.0, lambda accountant: accountant.get_epsilon(1e-3)),
        (1.0, lambda accountant: round(accountant.get_epsilon(1e-6), 1)),
    ],
)
def test_a_target_that_many_noises_meet_exactly(target, measure):
    """The search does not stop in the middle of a plain, and walk on digit by digit."""
    asked = []

    def noisy(noise):
        asked.append(noise)
        return Gaussian(noise)

    noise = budget.calibrate(noisy, measure, target)
    assert len(asked) <= 100
    accountant = ext.PLDAccountant()
    assert measure(accountant.compose(Gaussian(noise))) == target
    accountant = ext.PLDAccountant()
    assert measure(accountant.compose(Gaussian(noise * (1 - 1.1e-5)))) > target
