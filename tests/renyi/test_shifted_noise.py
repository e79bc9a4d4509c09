"""Rényi divergences of mixtures of shifts, against quadrature of another kind."""

import math

from dp_accounting import dp_event as stock
from flint import arb
import mpmath
import nights
import numpy as np
import pytest
import renyi_oracles

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.renyi import shifted_noise

NOTHING = ((0.0, 1.0),)
THREE = ((0.0, 0.5), (1.0, 0.3), (2.0, 0.2))
UNEVEN = ((0.0, 0.9), (0.3, 0.07), (1.1, 0.03))
NEAR = ((0.25, 0.5), (0.25 + 1e-9, 0.25), (0.7, 0.25))
RARE = ((0.0, 1 - 1e-9), (0.1, 9e-10), (4.0, 1e-10))
# p, q, α.
CASES = [
    (THREE, NOTHING, 2.0),
    (THREE, NOTHING, 30.0),
    (NOTHING, THREE, 1.5),
    (NOTHING, THREE, 12.0),
    (UNEVEN, THREE, 3.3),
    (THREE, UNEVEN, 8.0),
    (NEAR, NOTHING, 5.0),
    (NEAR, UNEVEN, 2.5),
    (RARE, NOTHING, 2.0),
    (NOTHING, RARE, 7.0),
    (((0.0, 0.99), (1 / 3000, 0.01)), NOTHING, 1024.0),
    (((0.0, 0.99), (1e-5, 0.01)), NOTHING, 1.1),
]


@pytest.mark.parametrize(("p", "q", "order"), CASES)
def test_against_50_digits(p, q, order):
    laws = (shifted_noise.mixture(each) for each in (p, q))
    (found,) = shifted_noise.rdp([order], *laws)
    exact = renyi_oracles.shifts_rdp(p, q, order)
    assert exact <= found <= exact * (1 + arb(10) ** -9)


@pytest.mark.parametrize("order", [1.3, 4.0, 25.0])
def test_a_mechanism_has_the_larger_direction(order):
    q = tuple((-shift, weight) for shift, weight in UNEVEN)
    (found,) = additive_noise.GaussianMixture(THREE, q).rdp([order]).values
    exact = renyi_oracles.shifts_rdp(THREE, UNEVEN, order).max(
        renyi_oracles.shifts_rdp(UNEVEN, THREE, order)
    )
    assert exact <= found <= exact * (1 + arb(10) ** -9)


@pytest.mark.parametrize("sigma", [3e3, 1e4, 3e4, 1e8, 1e30])
def test_much_noise_is_no_harder_than_little(sigma):
    """At σ = 30,000 the lattice was given up, and δ = 1e-6 had an ε of 0.006."""
    event = stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(sigma))
    accountant = ext.RdpAccountant([1.1, 2.0, 16.0, 1024.0]).compose(event)
    # χ² is r² (e^{1/σ²} − 1); small, all orders are multiples of it.
    exact = np.array([1.1, 2.0, 16.0, 1024.0]) / 2 * 1e-4 * np.expm1(sigma**-2)
    assert (accountant.rdp >= exact * (1 - 1e-3)).all()
    assert accountant.rdp == pytest.approx(exact, rel=0.05)


def test_shifts_may_be_many_or_alike():
    alike = additive_noise.GaussianMixture(((0.5, 0.25),) * 4, NOTHING)
    assert alike.rdp([2.0]).values[0] >= 0.25
    assert alike.rdp([2.0]).values == pytest.approx([0.25], rel=1e-10)
    many = additive_noise.GaussianMixture(
        tuple((i / 40, 1 / 40) for i in range(40)), NOTHING
    )
    assert many.rdp([2.0]) is None


@pytest.mark.parametrize("log_error", [-1.0, -8.0, *nights.at_night(-3.0, -20.0)])
def test_the_rule_is_as_accurate_as_promised(log_error):
    """At order 2, of N(0, 1) from a mixture: the integrand has poles off the line."""
    p, q = (
        shifted_noise.mixture(NOTHING),
        shifted_noise.mixture(((0.0, 0.5), (2.0, 0.5))),
    )
    step = shifted_noise._step(2.0, log_error, p, q)
    with mpmath.workdps(40):

        def f(x):
            return mpmath.npdf(x) / (1 + mpmath.exp(2 * x - 2)) * 2

        truth = mpmath.quad(f, np.linspace(-14, 14, 29).tolist())
        errors = []
        for shift in (0.0, 0.25, 0.5):
            lattice = [step * (n + shift) for n in range(-400, 401)]
            total = step * mpmath.fsum(f(x) for x in lattice)
            errors.append(abs(total / truth - 1))
        assert max(errors) <= mpmath.exp(log_error)
        # The step is not needlessly small either.
        assert max(errors) >= mpmath.exp(1.5 * log_error - 3)


GROUPS = [
    # α, K₋, K₊, r, σ
    (2.0, 1, 0, 0.01, 1.0),
    (3.0, 4, 0, 0.2, 0.7),
    (30.0, 1, 0, 1e-4, 1.0),
    (2.0, 16, 0, 1e-3, 5.0),
    (1.5, 1, 1, 0.3, 1.0),
    (8.0, 0, 3, 0.2, 0.8),
    (3.0, 8, 8, 0.5, 3.0),
    (1.1, 2, 2, 1e-4, 5.0),
    (1.01, 0, 4, 1e-3, 10.0),
    (10.0, 2, 2, 0.999, 1.0),
    (2.0, 0, 1, 1e-6, 20.0),
    (40.0, 0, 4, 0.7, 1.0),
    # Nearly everybody in the sample: q changes late. Nearly nobody: Ψ is next to 1.
    (50.5, 1, 2, 1 - 1.4e-5, 4.4),
    (10.0, 1, 7, 1.3e-6, 16.2),
]


@pytest.mark.parametrize(("order", "removed", "inserted", "rate", "noise"), GROUPS)
def test_groups_against_50_digits(order, removed, inserted, rate, noise):
    rows = shifted_noise.group_rdp([order], removed + inserted, rate, noise)
    truth = renyi_oracles.group_rdp(order, removed, inserted, rate, noise)
    assert truth <= rows[removed, 0] <= truth * (1 + arb(10) ** -10)


def test_order_one_is_the_kullback_leibler_divergence():
    truth = renyi_oracles.group_rdp(1, 2, 1, 0.1, 2.0)
    got = shifted_noise.group_rdp([1.0], 3, 0.1, 2.0)[2, 0]
    assert truth <= got <= truth * (1 + arb(10) ** -8)


def test_no_noise_and_no_sampling():
    assert np.all(shifted_noise.group_rdp([1.0, 7.0], 3, 0.2, 0.0) == math.inf)
    assert np.all(shifted_noise.group_rdp([1.0, 7.0], 3, 0.0, 0.0) == 0.0)
    everybody = shifted_noise.group_rdp([1.5, 7.0], 3, 1.0, 2.0)
    assert np.all(everybody >= np.array([1.5, 7.0]) * 9 / 8)
    np.testing.assert_allclose(everybody, [[1.6875, 7.875]], rtol=1e-10)


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 1e6, 1e60])
@pytest.mark.parametrize("rate", [1e-12, 0.5, 1 - 1e-12])
def test_extreme_parameters_have_valid_answers(rate, noise):
    orders = [1.0, 1.5, 2.0, 64.0, 4096.0]
    rows = shifted_noise.group_rdp(orders, 2, rate, noise)
    assert not np.any(np.isnan(rows))
    assert np.all(rows > 0)
    if noise < 1e-2:
        # r^α e^{α(α − 1) K²/2σ²} is part of the moment of all-remove.
        exact = np.array([2 * order / noise**2 for order in orders[2:]])
        lost = 2 * np.array(orders[2:]) / (np.array(orders[2:]) - 1) * math.log(rate)
        assert np.all(rows[-1, 2:] >= exact + lost)
