"""Rényi divergences of mixtures of shifts, against quadrature of another kind."""

from dp_accounting import dp_event as stock
from flint import arb
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
    pair = shifted_noise.Pair(shifted_noise.mixture(p), shifted_noise.mixture(q))
    (found,) = shifted_noise.rdp([order], pair)
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
