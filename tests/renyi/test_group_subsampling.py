"""Rényi divergences of groups, against quadrature of another kind."""

import math

from flint import arb
import numpy as np
import pytest
import renyi_oracles

from dp_accounting_ext.renyi import group_subsampling

CASES = [
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


@pytest.mark.parametrize(("order", "removed", "inserted", "rate", "noise"), CASES)
def test_against_50_digits(order, removed, inserted, rate, noise):
    rows = group_subsampling.group_rdp([order], removed + inserted, rate, noise)
    truth = renyi_oracles.group_rdp(order, removed, inserted, rate, noise)
    assert truth <= rows[removed, 0] <= truth * (1 + arb(10) ** -10)


def test_order_one_is_the_kullback_leibler_divergence():
    truth = renyi_oracles.group_rdp(1, 2, 1, 0.1, 2.0)
    got = group_subsampling.group_rdp([1.0], 3, 0.1, 2.0)[2, 0]
    assert truth <= got <= truth * (1 + arb(10) ** -8)


def test_no_noise_and_no_sampling():
    assert np.all(group_subsampling.group_rdp([1.0, 7.0], 3, 0.2, 0.0) == math.inf)
    assert np.all(group_subsampling.group_rdp([1.0, 7.0], 3, 0.0, 0.0) == 0.0)
    everybody = group_subsampling.group_rdp([1.5, 7.0], 3, 1.0, 2.0)
    assert np.all(everybody >= np.array([1.5, 7.0]) * 9 / 8)
    np.testing.assert_allclose(everybody, [[1.6875, 7.875]], rtol=1e-10)


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 1e6, 1e60])
@pytest.mark.parametrize("rate", [1e-12, 0.5, 1 - 1e-12])
def test_extreme_parameters_have_valid_answers(rate, noise):
    orders = [1.0, 1.5, 2.0, 64.0, 4096.0]
    rows = group_subsampling.group_rdp(orders, 2, rate, noise)
    assert not np.any(np.isnan(rows))
    assert np.all(rows > 0)
    if noise < 1e-2:
        # r^α e^{α(α − 1) K²/2σ²} is part of the moment of all-remove.
        exact = np.array([2 * order / noise**2 for order in orders[2:]])
        lost = 2 * np.array(orders[2:]) / (np.array(orders[2:]) - 1) * math.log(rate)
        assert np.all(rows[-1, 2:] >= exact + lost)
