"""Paper 1's algorithm as stated: what it promises, against certified bounds."""

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import stated_allocation


@pytest.mark.parametrize(
    ("noise", "steps", "alpha", "beta"),
    [(1.0, 2, 0.3, 1e-9), (1.0, 100, 0.4, 1e-9), (0.6, 37, 0.8, 1e-10)],
)
def test_it_is_above_and_tight_as_asked(noise, steps, alpha, beta):
    """Theorem 4.6: at most α to the right, but for β."""
    stated = stated_allocation.remove(noise, steps, alpha, beta)
    (sums,) = allocation_sums.compute(noise, steps, allocation_sums.Route.AUTOMATIC)
    direction = dominating_pair.Direction.REMOVE
    for epsilon in (-0.5, 0.0, 0.5, 1.0, 2.0, 4.0):
        found = stated.delta(epsilon)
        assert found >= sums.lower.delta(epsilon, direction) * (1 - 1e-9)
        assert found <= sums.upper.delta(epsilon - alpha, direction) + beta


def test_its_tails_are_not_lost_in_the_rounding_of_a_sum():
    stated = stated_allocation.remove(1.0, 1000, 0.2, 1e-12)
    assert 1e-15 / 1000 < stated.delta(3.0) < 1e-12
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, 1000)
    least, _ = ext.PLDAccountant().compose(event).get_delta_bounds(3.0)
    assert stated.delta(3.0) >= least


def test_it_asks_for_far_more_points_than_are_needed():
    stated = stated_allocation.remove(1.0, 100, 0.2, 1e-9)
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, 100)
    truth = ext.PLDAccountant().compose(event).get_epsilon(1e-6)
    # Near the answer it is moved up by about a tenth of α.
    assert stated.delta(truth + 0.1) < 1e-6 < stated.delta(truth)
    assert stated.masses.size > 1000


def test_sums_are_those_of_all_pairs():
    generator = np.random.default_rng(1)
    one, other = (
        stated_allocation.Sum(first, 0.05, masses / masses.sum())
        for first, masses in zip((0.3, -1.0), generator.random((2, 60)), strict=True)
    )
    found = stated_allocation._convolved(one, other)
    assert found.first == pytest.approx(np.log(np.exp(0.3) + np.exp(-1.0)))
    exact = np.exp(one.logarithms)[:, None] + np.exp(other.logarithms)
    masses = one.masses[:, None] * other.masses
    for level in found.logarithms:
        above = float(masses[exact > np.exp(level)].sum())
        moved = float(found.masses[found.logarithms > level - 1e-9].sum())
        moved += 1 - float(found.masses.sum())
        assert above <= moved + 1e-12
        nearer = float(masses[exact > np.exp(level - 0.05 - 1e-9)].sum())
        assert moved <= nearer + 1e-12
