"""What is cut off ends up on the safe side: tails large enough to be seen."""

import functools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route
STEP = 0.2
ROUNDING = 1e-14


def divergences(law, kappa, rounding=0.0):
    """Both divergences, with the places a little higher and lower than they are."""
    places = law.places()
    above = np.maximum(places * (1 + rounding) - kappa, 0) @ law.masses
    below = np.maximum(1 - kappa * (1 - rounding) * places, 0) @ law.masses
    return above + law.lost_mean, below + law.zero_mass


@pytest.mark.parametrize("grouped", [False, True])
@settings(max_examples=100)
@given(data=st.data(), tail_mass=st.floats(1e-3, 0.5))
def test_trimming_keeps_the_side(grouped, data, tail_mass):
    law = data.draw(strategies.geometric_laws(STEP, grouped=grouped))
    cut = geometric_allocation.trim(law, 1, tail_mass)
    for kappa in (0.02, 0.3, 1.0, 4.0, 15.0, 60.0):
        larger, smaller = (cut, law) if not grouped else (law, cut)
        most, least = divergences(larger, kappa, ROUNDING), divergences(smaller, kappa)
        for more, less in zip(most, least, strict=True):
            assert less <= more * (1 + ROUNDING)
    mass = cut.masses.sum() + cut.zero_mass
    mean = cut.places() @ cut.masses + cut.lost_mean
    if not grouped:
        assert mass == pytest.approx(1.0, rel=1e-12)
        assert mean == pytest.approx(law.places() @ law.masses, rel=1e-12)


@pytest.mark.parametrize("tail_mass", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("bound", list(Bound))
def test_gaussian_pairs_with_large_tails(bound, tail_mass):
    pair = gaussian.dominating_pair_of(1.0, bound, tail_mass=tail_mass)
    if bound is Bound.UPPER:
        assert pair.masses.sum() + pair.zero_mass == pytest.approx(1, rel=1e-11)
        assert pair.p_masses.sum() + pair.infinity_mass == pytest.approx(1, rel=1e-11)
    for epsilon in (-1.0, 0.0, 0.5, 2.0, 5.0):
        truth = oracles.gaussian_delta(1.0, epsilon)
        for direction in Direction:
            value = pair.delta(epsilon, direction)
            assert value >= truth if bound is Bound.UPPER else value <= truth


@functools.cache
def allocated(sigma, steps, tail_mass, route):
    return {
        bound: random_allocation.random_allocation(
            gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-20),
            steps,
            tail_mass=tail_mass,
            route=route,
        )
        for bound in Bound
    }


@pytest.mark.parametrize("tail_mass", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 30), (3.0, 400), (0.7, 1000)])
@pytest.mark.parametrize("route", [Route.GEOMETRIC, Route.ADDITIVE])
def test_allocation_with_large_tails(route, sigma, steps, tail_mass):
    """Against brackets whose tails are negligible, of the automatic route."""
    tight = allocated(sigma, steps, 1e-14, Route.AUTOMATIC)
    loose = allocated(sigma, steps, tail_mass, route)
    for epsilon in (0.0, 0.02, 0.1, 0.5, 1.5, 4.0):
        for direction in Direction:
            upper = loose[Bound.UPPER].delta(epsilon, direction)
            lower = loose[Bound.LOWER].delta(epsilon, direction)
            assert upper >= tight[Bound.LOWER].delta(epsilon, direction)
            assert lower <= tight[Bound.UPPER].delta(epsilon, direction)
    pair = loose[Bound.UPPER]
    assert pair.masses.sum() + pair.zero_mass >= 1 - 1e-9
    assert pair.p_masses.sum() + pair.infinity_mass >= 1 - 1e-9


@pytest.mark.parametrize("bound", list(Bound))
def test_a_window_too_narrow_stays_certified(bound):
    """Half of the sum outside: bounds on what is left, not on what was meant."""
    steps = 200
    base = gaussian.dominating_pair_of(2.0, bound, tail_mass=1e-20)
    summands = [additive_window.Summand(base, steps)]
    window = additive_window.window_of(summands, 0.3)
    found = additive_allocation.mean_of(summands, window, points=2000)
    truth = {
        side: random_allocation.random_allocation(
            gaussian.dominating_pair_of(2.0, side, tail_mass=1e-20),
            steps,
            tail_mass=1e-13,
        )
        for side in Bound
    }
    for epsilon in (0.0, 0.05, 0.1, 0.2):
        for direction in Direction:
            value = found.delta(epsilon, direction)
            if bound is Bound.UPPER:
                assert value >= truth[Bound.LOWER].delta(epsilon, direction)
            else:
                assert value <= truth[Bound.UPPER].delta(epsilon, direction)


def test_sums_with_more_large_ratios_than_are_counted_are_not_forgotten(monkeypatch):
    """Their mass and mean go to the sinks, however few large ratios are counted."""
    base = gaussian.dominating_pair_of(1.0, Bound.UPPER, tail_mass=1e-20)
    summands = [additive_window.Summand(base, 100)]
    window = additive_window.window_of(summands, 1e-14)
    pairs = []
    for most in (16, 1):
        monkeypatch.setattr(additive_allocation, "_MOST_LARGE", most)
        pairs.append(additive_allocation.mean_of(summands, window, points=4000))
    for pair in pairs:
        assert pair.masses.sum() + pair.zero_mass >= 1 - 1e-10
        assert pair.p_masses.sum() + pair.infinity_mass >= 1 - 1e-10
    assert pairs[0].zero_mass < 1e-12
    assert 1e-8 < pairs[1].zero_mass < 1e-6
    for epsilon in (0.5, 2.0, 4.0):
        full, few = (pair.delta(epsilon, Direction.REMOVE) for pair in pairs)
        assert few >= full * (1 - 1e-6)
