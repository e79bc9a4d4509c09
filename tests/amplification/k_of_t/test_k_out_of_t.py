"""k out of t against the mechanism itself: enumeration, closed laws, Monte Carlo."""

import dataclasses
from fractions import Fraction
import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

import dp_accounting_ext as ext
from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.amplification.k_of_t import k_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair

REMOVE = Direction.REMOVE
NOTHING = [dominating_pair.trivial_pair(Bound.UPPER)]
EPSILONS = (0.0, 0.3, 1.0, 2.5, 5.0)


@settings(max_examples=8)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.data())
def test_upper_is_above_the_mechanism(pair, data):
    steps = data.draw(st.integers(3, 5))
    selected = data.draw(st.integers(2, steps - 1))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = k_out_of_t.upper_pair(pair, selected, steps, NOTHING, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-2.0, -0.5, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= truth


@pytest.mark.parametrize(
    ("selected", "steps", "epsilons", "looseness"),
    [
        (4, 7, [0.0, 0.3, 1.0], 2.0),
        (40, 300, [0.0, 1.0, 3.0, 4.5], 1.1),
        (12, 60, [0.5, 2.0, 3.0], 1.2),
    ],
)
def test_coins_of_which_the_number_of_ones_tells_all(
    selected, steps, epsilons, looseness
):
    upper = k_out_of_t.upper_pair(
        strategies.coin(Bound.UPPER), selected, steps, NOTHING, tail_mass=1e-12
    )
    for epsilon in epsilons:
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.coin_divergence(selected, steps, kappa)
        assert truth <= upper.delta(epsilon, REMOVE) <= looseness * truth


def test_errors_of_the_step_are_carried():
    mass_error, ratio_error = 2.0**-30, 2.0**-32
    errors = {"mass_error": mass_error, "ratio_error": ratio_error}
    exact, rough = (
        k_out_of_t.upper_pair(pair, 4, 50, NOTHING, tail_mass=1e-12)
        for pair in (
            strategies.coin(Bound.UPPER),
            strategies.coin(Bound.UPPER, **errors),
        )
    )
    # Of t masses, and of k ratios that are moved as well.
    for epsilon in (0.1, 0.5, 1.0):
        grown = rough.delta(epsilon, REMOVE) / exact.delta(epsilon, REMOVE)
        assert grown >= 1 + 50 * mass_error
        moved = exact.delta(epsilon - 50 * ratio_error, REMOVE)
        assert rough.delta(epsilon, REMOVE) >= moved


@pytest.mark.parametrize("bound", list(Bound))
def test_what_has_one_ratio_shows_nothing(bound):
    constant = dominating_pair.DominatingPair(np.ones(1), np.ones(1), 0.0, 0.0, bound)
    nearly = dataclasses.replace(
        strategies.coin(bound), ratios=np.array([1 - 1e-10, 1 + 1e-10])
    )
    for pair in (constant, nearly):
        if bound is Bound.UPPER:
            found = k_out_of_t.upper_pair(pair, 2, 3, [pair], tail_mass=1e-9)
            assert found.delta(0.0, REMOVE) <= pair.delta(0.0, REMOVE) + 1e-10
        else:
            found = allocation_by_sum.lower_pair(pair, 2, 3, REMOVE, tail_mass=1e-9)
            assert found.delta(0.0, REMOVE) <= 2e-10


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "runs", "delta", "bracket"),
    [
        # At a small δ blocks are far above the theorem: 16.09.
        (0.7, 5, 1000, 1, 1e-30, (15.05, 15.25)),
        # Of many runs the theorem alone is far above blocks of three draws: 95.2.
        (0.41567, 2, 3, 10, 3.648e-6, (94.86, 95.2)),
        # There the theorem alone is nearly best.
        (0.32, 5, 17, 1, 1e-6, (48.15, 48.34)),
    ],
)
def test_the_bounds_that_are_tried_are_enough(
    sigma, selected, steps, runs, delta, bracket
):
    noise = dp_accounting.GaussianDpEvent(sigma)
    event = ext.RandomAllocationEvent(noise, selected, steps)
    accountant = ext.PLDAccountant().compose(event, runs)
    lower, upper = accountant.get_epsilon_bounds(delta)
    assert bracket[0] <= lower <= upper <= bracket[1]
