"""Rényi divergences of random allocation, both directions."""

import itertools
import math
import time

from dp_accounting.rdp import rdp_privacy_accountant as stock
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
import renyi_oracles

from dp_accounting_ext.renyi import random_allocation

TIGHT = 1 + mpmath.mpf(10) ** -10


@pytest.mark.parametrize("noise", [0.15, 1.0, 20.0])
def test_two_steps_against_50_digits(noise):
    orders = [1.01, 1.9, 2.0, 2.6, 17.0, 40.0][: 3 if noise < 0.3 else None]
    remove, add = random_allocation.both_directions(orders, noise, 2)
    for place, order in enumerate(orders):
        removing = renyi_oracles.two_step_rdp(order, noise, remove=True)
        assert removing <= remove[place]
        loss = TIGHT if order < 2 or order.is_integer() else 1.08
        assert remove[place] <= removing * loss
        adding = renyi_oracles.two_step_rdp(order, noise, remove=False)
        assert adding <= add[place]
        # Exact, unless it does not matter.
        assert add[place] <= max(adding * TIGHT, removing)


@pytest.mark.parametrize(("noise", "order"), [(0.5, 9.0), (1.0, 60.0), (3.0, 800.0)])
def test_adding_is_exact_for_steep_powers(noise, order):
    (got,) = random_allocation._exact([(False, order)], noise, 2)
    truth = renyi_oracles.two_step_rdp(order, noise, remove=False)
    assert truth <= got <= truth * TIGHT


def test_order_one_is_the_kullback_leibler_divergence():
    """E Z log Z and −E log Z, by Gauss-Hermite quadrature in two dimensions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    ratios = np.exp(nodes / 1.5 - 1 / (2 * 1.5**2))
    mean = (ratios[:, None] + ratios) / 2
    masses = np.multiply.outer(weights, weights)
    truths = np.sum(masses * mean * np.log(mean)), -np.sum(masses * np.log(mean))
    got = random_allocation.both_directions([1.0], 1.5, 2)[:, 0]
    np.testing.assert_allclose(got, truths, rtol=3e-9)


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_three_steps_by_brute_force(noise):
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    ratios = np.exp(nodes / noise - 1 / (2 * noise**2))
    mean = (ratios[:, None, None] + ratios[:, None] + ratios) / 3
    masses = np.einsum("i,j,k->ijk", weights, weights, weights)
    orders = [1.25, 2.0, 3.0, 4.0]
    remove, add = random_allocation.both_directions(orders, noise, 3)
    exact = random_allocation._exact([(False, order) for order in orders], noise, 3)
    for place, order in enumerate(orders):
        truth = math.log(np.sum(masses * mean**order)) / (order - 1)
        assert remove[place] == pytest.approx(truth, rel=1e-8)
        truth = math.log(np.sum(masses * mean ** (1 - order))) / (order - 1)
        assert exact[place] == pytest.approx(truth, rel=1e-8)
        assert add[place] >= truth * (1 - 1e-8)


def test_integer_moments_by_enumeration():
    """E (X_1 + X_2 + X_3)^4, every tuple of steps one by one."""
    noise, steps, order = 0.7, 3, 4
    with mpmath.workdps(40):
        s, total = mpmath.mpf(noise), mpmath.mpf(0)
        for tuples in itertools.product(range(steps), repeat=order):
            powers = [tuples.count(step) for step in range(steps)]
            total += mpmath.exp(sum(j * (j - 1) for j in powers) / (2 * s**2))
        truth = mpmath.log(total / steps**order)
        got = random_allocation.log_remove_moments({order}, noise, steps)[order]
        assert abs(got - truth) <= 1e-14 * truth


@pytest.mark.parametrize(
    ("noise", "steps"),
    [(1.0, 1000), (1.0, 10**6), (0.3, 100), (20.0, 10**6), (1000.0, 10**9), (2.0, 5)],
)
def test_integer_moments_against_the_power_series(noise, steps):
    truths = renyi_oracles.raw_moments(24, noise, steps)
    orders = {2, 3, 9, 24}
    got = random_allocation.log_remove_moments(orders, noise, steps)
    for order in orders:
        truth = mpmath.log(truths[order])
        assert abs(got[order] - truth) <= 1e-12 * truth
        rdp = random_allocation.both_directions([order], noise, steps)[0, 0]
        assert truth / (order - 1) <= rdp <= truth / (order - 1) * TIGHT


@pytest.mark.parametrize(
    ("noise", "steps"), [(5.0, 10**4), (1.0, 10**6), (100.0, 10**6), (3.0, 1000)]
)
def test_adding_against_moments_of_many_steps(noise, steps):
    for order in (1.0000001, 1.5, 3.0, 8.3):
        truth, rest = renyi_oracles.add_rdp_by_moments(order, noise, steps)
        assert rest < 1e-18
        (got,) = random_allocation._exact([(False, order)], noise, steps)
        assert truth <= got <= truth * TIGHT


def test_one_step_is_the_mechanism_itself():
    orders = [1.0, 1.5, 7.0, math.inf]
    for selected in (1, 4):
        got = random_allocation.allocation_rdp(orders, 2.0, selected, selected)
        exact = selected * np.array(orders) / 8
        assert np.all(got >= exact)
        np.testing.assert_allclose(got, exact, rtol=1e-10)


def test_several_steps_are_blocks_and_none_is_lost():
    orders = [1.5, 4.0, 30.0]
    got = random_allocation.allocation_rdp(orders, 1.0, 7, 1000)
    longer = random_allocation.both_directions(orders, 1.0, 143)
    shorter = random_allocation.both_directions(orders, 1.0, 142)
    np.testing.assert_allclose(got, (6 * longer + shorter).max(axis=0), rtol=1e-15)


@settings(max_examples=5, deadline=None)
@given(st.floats(0.4, 10.0), st.integers(2, 500), st.floats(1.01, 2.0))
def test_monotonicity(noise, steps, factor):
    orders = [1.0, 1.3, 2.0, 2.5, 3.0, 12.0, 64.0]
    rows = random_allocation.both_directions(orders, noise, steps)
    slack = 1 + 1e-9
    larger = rows.max(axis=0)
    assert np.all(rows > 0)
    assert np.all(larger[1:] * slack >= larger[:-1])
    # The chord between two and three is not below their log-convex moments.
    chord = (rows[0, 2] + 2 * rows[0, 4]) / 2 / 1.5
    plain = np.array(orders) / (2 * noise**2)
    assert rows[0, 3] == pytest.approx(min(chord, plain[3]), rel=1e-10)
    noisier = random_allocation.allocation_rdp(orders, noise * factor, 1, steps)
    assert np.all(noisier <= larger * slack)
    longer = random_allocation.allocation_rdp(orders, noise, 1, 2 * steps)
    assert np.all(longer <= larger * slack)
    assert np.all(larger <= plain * slack)


def test_the_geometric_mean_bounds_the_adding_direction():
    for noise, steps in ((0.5, 2), (1.0, 7), (4.0, 50)):
        orders = [1.5, 3.0, 20.0]
        bound = random_allocation.geometric_mean_rdp(orders, noise, steps)
        exact = random_allocation._exact(
            [(False, order) for order in orders], noise, steps
        )
        assert np.all(bound >= np.array(exact) * (1 - 1e-10))
    assert random_allocation.geometric_mean_rdp([7.0], 2.0, 1)[0] == 7 / 8


def test_a_million_steps_are_fast():
    orders = stock.DEFAULT_RDP_ORDERS
    begin = time.process_time()
    got = random_allocation.allocation_rdp(orders, 1.01, 1, 10**6)
    assert time.process_time() - begin < 2
    assert np.all(np.isfinite(got))
    # At small orders it is the second moment's: α Var Z / 2.
    assert got[9] == pytest.approx(math.expm1(1.01**-2) / 1e6, rel=1e-5)


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 0.05, 1e6, 1e60])
@pytest.mark.parametrize("steps", [2, 10**12])
def test_extreme_parameters_have_valid_answers(noise, steps):
    orders = [1.0, 1.5, 2.0, 2.5, 64.0, 4096.0, 1e7, math.inf]
    got = random_allocation.allocation_rdp(orders, noise, 1, steps)
    assert not np.any(np.isnan(got))
    assert np.all(got > 0)
    assert got[-1] == math.inf
    # E Z^α ≥ t^{1−α} E X^α, and more where α log t is small.
    least = np.array(orders[2:7]) / (2 * noise**2) - math.log(steps)
    assert np.all(got[2:7] >= least)


def test_no_noise():
    assert np.all(random_allocation.allocation_rdp([2.0], 0.0, 1, 9) == math.inf)
