"""Earlier bounds on random allocation: on their side of the certified ones."""

import math

import dp_accounting
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import allocation_baselines
from dp_accounting_ext.renyi import conversion
from dp_accounting_ext.renyi import random_allocation

Direction = dominating_pair.Direction
REMOVE, ADD = Direction.REMOVE, Direction.ADD

# What the authors' own software says: the package random-allocation 1.0.5 by M.
# Shenfeld (its functions allocation_delta_decomposition, …_recursive, …_direct,
# …_RDP_DCO and …_lower_bound, the last that of Chua et al.'s public code, on a grid of
# thresholds of 0.01), with steps of 1e-4 and, for the direct method, orders 2 to 60.
THEIRS = (
    # Method, direction, σ, k, t, ε, δ, relative agreement.
    ("decomposition", REMOVE, 1.0, 1, 50, 0.3, 0.0276274, 1e-5),
    ("decomposition", ADD, 1.0, 1, 50, 0.3, 0.0188354, 1e-5),
    ("decomposition", REMOVE, 0.5, 1, 100, 3.0, 0.00588509, 1e-5),
    ("decomposition", ADD, 0.5, 1, 100, 1.0, 0.0095847, 1e-4),
    ("decomposition", REMOVE, 1.0, 1, 1000, 0.3, 7.01225e-07, 0.005),
    ("recursive", REMOVE, 1.0, 1, 50, 0.3, 0.297398, 1e-5),
    ("recursive", ADD, 1.0, 1, 50, 0.3, 0.381767, 1e-5),
    ("recursive", REMOVE, 0.5, 1, 100, 3.0, 0.622485, 1e-5),
    ("recursive", REMOVE, 1.0, 4, 400, 1.0, 0.0431382, 1e-5),
    ("direct", REMOVE, 1.0, 1, 50, 0.3, 0.0225887, 1e-5),
    ("direct", REMOVE, 0.5, 1, 100, 1.0, 0.141264, 1e-5),
    ("direct", REMOVE, 1.0, 4, 400, 1.0, 0.000381317, 1e-5),
    ("direct", ADD, 1.0, 1, 50, 0.3, 0.178366, 1e-5),
    ("direct", ADD, 0.5, 1, 100, 3.0, 1.03186e-08, 1e-5),
    ("dong", REMOVE, 1.0, 1, 50, 0.3, 0.0553178, 1e-5),
    ("dong", ADD, 1.0, 1, 50, 0.8, 1.22064e-07, 1e-5),
    ("dong", REMOVE, 1.0, 4, 400, 1.0, 0.00771486, 1e-5),
    ("dong", ADD, 1.0, 4, 400, 1.0, 5.63834e-06, 1e-5),
    ("chua", REMOVE, 1.0, 1, 50, 0.3, 0.0019011, 2e-4),
    ("chua", REMOVE, 0.5, 1, 100, 1.0, 0.026661, 5e-4),
    ("chua", REMOVE, 0.5, 1, 100, 3.0, 0.0010441, 1e-4),
    ("chua", REMOVE, 1.0, 1, 1000, 0.3, 6.21743e-09, 1e-4),
)


def delta_by(method, direction, setting):
    """δ of a method, σ, k, t and ε given."""
    noise, selected, steps, epsilon = setting
    if method == "decomposition":
        return allocation_baselines.decomposition_delta(*setting, direction)
    if method == "recursive":
        return allocation_baselines.recursive_delta(*setting, direction)
    if method == "chua":
        return allocation_baselines.max_statistic_delta(noise, steps, epsilon)
    if method == "dong":
        orders = allocation_baselines.DONG_ORDERS
        both = allocation_baselines.dong_rdp(noise, selected, steps, orders)
        rdp = both[list(Direction).index(direction)]
        return conversion.delta(orders, rdp, epsilon)[0]
    if direction is REMOVE:
        return allocation_baselines.direct_remove_delta(*setting)
    return allocation_baselines.direct_add_delta(*setting)


@pytest.mark.parametrize("row", THEIRS)
def test_each_number_is_what_its_authors_software_says(row):
    method, direction, *setting, theirs, agreement = row
    found = delta_by(method, direction, setting)
    assert found == pytest.approx(theirs, rel=agreement)


@pytest.mark.parametrize(
    ("setting", "combined", "dong"),
    [
        ((1.0, 1, 1000), 0.290842, 1.26454),
        ((0.6, 1, 1024), 2.64092, 3.52754),
        ((0.5, 1, 1000), 4.87992, 5.23666),
        ((1.0, 1, 100), 1.31789, 1.97117),
    ],
)
def test_epsilons_are_what_their_authors_software_says(setting, combined, dong):
    """The same package's allocation_epsilon_combined, a search to 1e-3, and DCO."""
    found = allocation_baselines.combined_epsilon(*setting, 1e-6)
    assert found == pytest.approx(combined, rel=3e-4)
    found = allocation_baselines.dong_epsilon(*setting, 1e-6)
    assert found == pytest.approx(dong, rel=1e-5)


def test_where_several_steps_are_drawn_each_round_adds_its_shift():
    """The package counts the shift of one round however many there are."""
    noise, selected, steps, epsilon = 1.0, 4, 400, 1.0
    found = allocation_baselines.direct_add_delta(noise, selected, steps, epsilon)
    mean = math.sqrt(selected**2 / steps) / noise
    shift = (1 - selected / steps) / (2 * noise**2)
    one = oracles.gaussian_delta(mean, epsilon - shift)
    each = oracles.gaussian_delta(mean, epsilon - selected * shift)
    assert float(one) == pytest.approx(0.000475389, rel=1e-4)
    assert found == pytest.approx(float(each), rel=1e-9)


def certified(noise, selected, steps):
    step = dp_accounting.GaussianDpEvent(noise)
    event = ext.RandomAllocationEvent(step, selected, steps)
    return ext.PLDAccountant().compose(event)


@pytest.mark.parametrize("setting", [(1.0, 1, 100), (0.6, 1, 1024), (2.0, 4, 64)])
def test_upper_bounds_are_above(setting):
    lower, _ = certified(*setting).get_epsilon_bounds(1e-6)
    combined = allocation_baselines.combined_epsilon(*setting, 1e-6)
    dong = allocation_baselines.dong_epsilon(*setting, 1e-6)
    assert lower < combined and lower < dong
    # The published figures: within a small factor for one step of t.
    assert setting[1] > 1 or combined < 2 * lower


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_all_bounds_of_a_profile_are_on_their_side(epsilon):
    noise, steps = 0.5, 100
    lower, upper = certified(noise, 1, steps).get_delta_bounds(epsilon)
    assert lower <= allocation_baselines.combined_delta(noise, 1, steps, epsilon)
    least = allocation_baselines.max_statistic_delta(noise, steps, epsilon)
    assert 0.8 * lower < least <= upper
    exact = oracles.max_statistic_delta(noise, 1, steps, epsilon)
    assert least == pytest.approx(float(exact), rel=1e-3)


@pytest.mark.parametrize("direction", list(Direction))
def test_each_method_alone_is_a_bound(direction):
    noise, steps = 1.0, 50
    for epsilon in (0.3, 0.8):
        lower, _ = certified(noise, 1, steps).get_delta_bounds(epsilon)
        setting = noise, 1, steps, epsilon
        found = [
            allocation_baselines.decomposition_delta(*setting, direction),
            allocation_baselines.recursive_delta(*setting, direction),
        ]
        if direction is Direction.REMOVE:
            # The larger direction here.
            assert min(found) >= lower
            assert allocation_baselines.direct_remove_delta(*setting) >= lower
        else:
            shift = (1 - 1 / steps) / 2
            exact = oracles.gaussian_delta(1 / math.sqrt(steps), epsilon - shift)
            direct = allocation_baselines.direct_add_delta(*setting)
            assert direct == pytest.approx(float(exact), rel=1e-9)


def test_dong_et_al_are_exact_at_order_two():
    """The closed form of paper 1's Figure 9: log(1 + (e^{1/σ²} − 1) / t)."""
    for noise, steps in ((1.0, 10), (0.7, 1000)):
        remove, add = allocation_baselines.dong_rdp(noise, 1, steps, [2.0, 3.0, 8.0])
        exact = math.log1p(math.expm1(noise**-2) / steps)
        assert remove[0] == pytest.approx(exact, rel=1e-9)
        known = random_allocation.allocation_rdp([2.0, 3.0, 8.0], noise, 1, steps)
        assert np.all(remove >= known * (1 - 1e-9))
        assert np.all(add > 0)


def test_a_monte_carlo_mean_is_near_and_its_limit_above():
    epsilons = [0.5, 1.0, 2.0]
    means, limits = allocation_baselines.monte_carlo_deltas(
        0.5,
        20,
        epsilons,
        samples=40_000,
        confidence=0.999,
        generator=np.random.default_rng(3),
    )
    accountant = certified(0.5, 1, 20)
    for epsilon, mean, limit in zip(epsilons, means, limits, strict=True):
        truth = accountant.get_delta(epsilon)
        assert mean == pytest.approx(truth, rel=0.05)
        assert truth <= limit <= 1.2 * truth


def test_limits_are_those_of_the_relative_entropy():
    assert allocation_baselines._upper_limit(0.0, 1000, 0.05) == pytest.approx(
        -math.expm1(math.log(0.05) / 1000)
    )
    assert allocation_baselines._upper_limit(1.0, 10, 0.05) == 1.0


def test_sampled_allocations_by_renyi_cost_more_than_the_truth():
    noise, selected, steps, rate, count = 2.0, 2, 16, 0.1, 10
    found = allocation_baselines.sampled_allocation_epsilon(
        noise, selected, steps, rate, count, 1e-6
    )
    step = dp_accounting.GaussianDpEvent(noise)
    event = ext.PLDSubsampleEvent(
        rate, ext.RandomAllocationEvent(step, selected, steps)
    )
    lower, upper = ext.PLDAccountant().compose(event, count).get_epsilon_bounds(1e-6)
    assert lower < found < 5 * upper
