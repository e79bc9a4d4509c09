"""Earlier bounds are what their authors say, and beside ours."""

import functools
import math

import dp_accounting
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
from papers import earlier_allocation
from papers import earlier_groups
from papers import mirror_descent
from papers import stated_allocation as stated
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

REMOVE, ADD = "remove", "add"

# What the authors' own software says: the package random-allocation 1.0.5 by M.
# Shenfeld (its functions allocation_delta_decomposition, …_recursive, …_direct,
# …_RDP_DCO and …_lower_bound, the last that of Chua et al.'s public code, on a grid of
# thresholds of 0.01), with steps of 1e-4 and, for the direct method, orders 2 to 60.
THEIRS = (
    # Method, direction, σ, k, t, ε, δ, relative agreement.
    ("decomposition", REMOVE, 1.0, 1, 50, 0.3, 0.0276274, 5e-5),
    ("decomposition", ADD, 1.0, 1, 50, 0.3, 0.0188354, 5e-5),
    ("decomposition", ADD, 0.5, 1, 100, 1.0, 0.0095847, 1e-4),
    ("decomposition", REMOVE, 1.0, 1, 1000, 0.3, 7.01225e-07, 0.005),
    ("recursive", REMOVE, 1.0, 1, 50, 0.3, 0.297398, 1e-5),
    ("recursive", ADD, 1.0, 1, 50, 0.3, 0.381767, 1e-5),
    ("recursive", REMOVE, 1.0, 4, 400, 1.0, 0.0431382, 5e-5),
    ("direct", REMOVE, 1.0, 1, 50, 0.3, 0.0225887, 1e-5),
    ("direct", REMOVE, 1.0, 4, 400, 1.0, 0.000381317, 1e-5),
    ("direct", ADD, 1.0, 1, 50, 0.3, 0.178366, 1e-5),
    ("dong", REMOVE, 1.0, 1, 50, 0.3, 0.0553178, 1e-5),
    ("dong", ADD, 1.0, 1, 50, 0.8, 1.22064e-07, 1e-5),
    ("dong", ADD, 1.0, 4, 400, 1.0, 5.63834e-06, 1e-5),
    ("chua", REMOVE, 1.0, 1, 50, 0.3, 0.0019011, 2e-4),
    ("chua", REMOVE, 1.0, 1, 1000, 0.3, 6.21743e-09, 1e-4),
)


def delta_by(method, direction, setting):
    """δ of a method, σ, k, t and ε given."""
    noise, selected, steps, epsilon = setting
    if method == "decomposition":
        return earlier_allocation.decomposition_delta(*setting, direction)
    if method == "recursive":
        return earlier_allocation.recursive_delta(*setting, direction)
    if method == "chua":
        return earlier_allocation.max_statistic_delta(noise, steps, epsilon)
    if method == "dong":
        orders = earlier_allocation.DONG_ORDERS
        both = earlier_allocation.dong_rdp(noise, selected, steps, orders)
        rdp = both[0 if direction == REMOVE else 1].tolist()
        return rdp_privacy_accountant.compute_delta(orders, rdp, epsilon)[0]
    if direction == REMOVE:
        return earlier_allocation.direct_remove_delta(*setting)
    return earlier_allocation.direct_add_delta(*setting)


@pytest.mark.parametrize("row", THEIRS)
def test_each_number_is_what_its_authors_software_says(row):
    method, direction, *setting, theirs, agreement = row
    found = delta_by(method, direction, setting)
    assert found == pytest.approx(theirs, rel=agreement)


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_post_hoc_bounds_of_a_group(size, epsilon):
    """Step by step is below the closed form, and above what is true."""
    single = functools.partial(earlier_groups.gaussian_delta, 0.3)
    geometric = earlier_groups.post_hoc_geometric(single, size, epsilon)
    linear = earlier_groups.post_hoc_linear(single, size, epsilon)
    truth = earlier_groups.gaussian_delta(0.3 * size, epsilon)
    assert truth <= geometric <= linear


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_mirror_descent_brackets_the_minimax_cost(epsilon):
    cost = np.abs(np.subtract.outer(np.arange(5.0), np.arange(4.0)))
    best = wpm.minimax_base_measure(cost, epsilon)
    values = []
    for steps in (50, 500):
        _, value, below = mirror_descent.mirror_descent_base_measure(
            cost, epsilon, steps
        )
        assert below <= best.value
        assert best.lower_bound <= value
        values.append(value)
    assert values[1] < values[0]


DIRECTIONS = ("remove", "add")


def certified(base, num_steps, pessimistic):
    """Losses of one of t steps in both directions."""
    event = ext.RandomAllocationEvent(base, 1, num_steps)
    made = ext.pld.from_event(event, pessimistic_estimate=pessimistic)
    return {"remove": made._pmf_remove, "add": made._pmf_add}


def response_pair(noise, buckets):
    """Randomized response: two losses apart, and what both answers share."""
    true, other = 1 - noise + noise / buckets, noise / buckets
    ratio = math.log(true / other)
    masses = np.array([other, (buckets - 2) * other, true])
    return stated.AtomicPair(np.array([-ratio, 0.0, ratio]), masses)


PAIRS = [
    (stated.GaussianPair(1.0), dp_accounting.GaussianDpEvent(1.0), 2, 0.3, 1e-9),
    (stated.GaussianPair(1.0), dp_accounting.GaussianDpEvent(1.0), 100, 0.4, 1e-9),
    (stated.GaussianPair(0.6), dp_accounting.GaussianDpEvent(0.6), 37, 0.8, 1e-10),
]


@pytest.mark.parametrize(("pair", "event", "steps", "alpha", "beta"), PAIRS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_they_are_above_and_tight_as_asked(pair, event, steps, alpha, beta, direction):
    """Theorem 4.6: at most α to the right, but for β."""
    found = getattr(stated, direction)(pair, steps, alpha, beta)
    least = certified(event, steps, False)[direction]
    most = certified(event, steps, True)[direction]
    for epsilon in (-0.5, 0.0, 0.5, 1.0, 2.0, 4.0):
        delta = found.delta(epsilon)
        assert delta >= least.get_delta_for_epsilon(epsilon) * (1 - 1e-9)
        assert delta <= most.get_delta_for_epsilon(epsilon - alpha) + beta


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_any_pair_is_taken(direction):
    """Two outcomes of each of three steps, added up one by one."""
    pair, steps, alpha = response_pair(0.5, 4), 3, 0.2
    found = getattr(stated, direction)(pair, steps, alpha, 1e-9)
    without = pair.masses * np.exp(-pair.losses)
    mesh = np.meshgrid(*[pair.losses] * steps, indexing="ij")
    mean = np.mean(np.exp(mesh), axis=0)
    absent = np.prod(np.meshgrid(*[without] * steps, indexing="ij"), axis=0)

    def truth(epsilon):
        if direction == "remove":
            return float((absent * np.maximum(mean - math.exp(epsilon), 0)).sum())
        return float((absent * np.maximum(1 - math.exp(epsilon) * mean, 0)).sum())

    for epsilon in (0.0, 0.2, 0.7, 1.2):
        assert truth(epsilon) <= found.delta(epsilon) * (1 + 1e-9)
        assert found.delta(epsilon) <= truth(epsilon - alpha) + 1e-9


def test_an_infinite_loss_stays_infinite():
    losses, masses = np.array([-0.5, 0.5]), np.array([0.3, 0.6])
    pair = stated.AtomicPair(losses, masses, 0.1)
    assert stated.remove(pair, 5, 0.3, 1e-9).infinite == pytest.approx(0.1, abs=1e-8)
    assert stated.add(pair.dual(), 5, 0.3, 1e-9).infinite >= 0.1
    assert pair.dual().infinite == pytest.approx(1 - masses @ np.exp(-losses))


@pytest.mark.parametrize("steps", [2, 100])
def test_fourier_sums_are_above_and_near(steps):
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    found = stated.fourier(stated.GaussianPair(1.0), steps, 1 << 16, 1e-12)
    profiles = {"remove": found.remove, "add": found.add}
    for direction, profile in profiles.items():
        least = certified(gaussian, steps, False)[direction]
        most = certified(gaussian, steps, True)[direction]
        for epsilon in (0.05, 0.1, 0.3):
            assert profile(epsilon) >= least.get_delta_for_epsilon(epsilon)
            assert profile(epsilon) <= 1.02 * most.get_delta_for_epsilon(epsilon)
