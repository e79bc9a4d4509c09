"""Paper 1's algorithms as stated: what they promise, against certified bounds."""

import math

import dp_accounting
import numpy as np
from papers import stated_allocation as stated
import pytest

import dp_accounting_ext as ext

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
