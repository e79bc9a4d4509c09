"""Gaussian noise on a batch without replacement, one record replaced."""

import itertools
import math

from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
import pytest
from scipy import integrate

from dp_accounting_ext.renyi import substituted_gaussian

ORDERS = (1.0, 1.3, 2.0, 3.0, 8.0, 20.0, 64.0)
CASES = [(1.0, 0.01), (0.2, 0.1), (2.0, 0.5), (0.02, 1e-4), (1.0, 1e-6)]


def density(x, shift=0.0):
    return math.exp(-((x - shift) ** 2) / 2) / math.sqrt(2 * math.pi)


def integral(function, distance, order):
    points = np.linspace(distance / 2, distance * order + 14, 40)
    parts = [
        integrate.quad(function, a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in itertools.pairwise(points)
    ]
    return math.fsum(parts)


@pytest.mark.parametrize(("distance", "fraction"), CASES)
def test_it_is_the_moment_of_the_dominating_profile(distance, fraction):
    bounds = substituted_gaussian.batch_rdp(ORDERS, distance, fraction)
    for order, bound in zip(ORDERS[1:], bounds[1:], strict=True):
        if order * distance > 10:
            continue

        def part(x, order=order):
            gain = fraction * math.expm1(distance * (x - distance / 2))
            loss = math.log1p(gain)
            if order * loss < 1e-3:
                # Up to a share of loss².
                return density(x) * order * (order - 1) * loss**2 * (1 + loss / 2)
            first = math.expm1(order * loss) - order * gain
            second = math.expm1((1 - order) * loss) + (order - 1) * gain
            return density(x) * (first + second)

        value = math.log1p(integral(part, distance, order)) / (order - 1)
        assert bound >= value * (1 - 1e-6)
        assert bound <= value * 1.02


@pytest.mark.parametrize(("distance", "fraction"), CASES)
def test_it_is_above_datasets_that_attain_much(distance, fraction):
    """(1 − w) N(0) + w N(d) from N(0), and the mirrored mixture: both by quadrature."""
    grid = np.linspace(-14, 64 * distance + 14, 400_001)
    step = grid[1] - grid[0]
    log_base = -(grid**2) / 2 - math.log(2 * math.pi) / 2
    log_ratio = np.logaddexp(
        math.log1p(-fraction), math.log(fraction) + distance * grid - distance**2 / 2
    )
    bounds = substituted_gaussian.batch_rdp(ORDERS, distance, fraction)
    for order, bound in zip(ORDERS[1:], bounds[1:], strict=True):
        for power in (order, 1 - order):
            if order * distance > 10:
                continue
            reach = np.minimum(power * log_ratio, 700)
            terms = np.exp(log_base + np.maximum(reach, 0)) * -np.expm1(-abs(reach))
            moment = step * math.fsum(np.sign(reach) * terms)
            assert bound >= math.log1p(max(moment, 0)) / (order - 1) * (1 - 1e-9)


@pytest.mark.parametrize(("distance", "fraction"), CASES)
def test_it_is_below_the_stock_s_bound(distance, fraction):
    stock = rdp_privacy_accountant._compute_rdp_sample_wor_gaussian(
        fraction, 1 / distance, ORDERS[2:]
    )
    bounds = substituted_gaussian.batch_rdp(ORDERS, distance, fraction)[2:]
    assert np.all(bounds <= stock * (1 + 1e-2))
    assert bounds[0] < 0.8 * stock[0] or fraction == 0.5


def test_ends():
    orders = (1.0, 2.0, 5000.0, math.inf)
    assert np.all(substituted_gaussian.batch_rdp(orders, 1.0, 0.0) == 0)
    whole = substituted_gaussian.batch_rdp(orders, 1.0, 1.0)
    np.testing.assert_allclose(whole, np.array(orders) / 2, rtol=1e-10)
    some = substituted_gaussian.batch_rdp(orders, 1.0, 0.1)
    assert some[2:].tolist() == whole[2:].tolist()
    far = substituted_gaussian.batch_rdp(orders, 1e30, 0.5)
    assert np.all(far > 1e50)
