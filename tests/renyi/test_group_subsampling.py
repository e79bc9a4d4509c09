"""Rényi divergences of groups, against quadrature of another kind."""

import itertools
import math

from dp_accounting.rdp import rdp_privacy_accountant as stock
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
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
    (2.5, 4, 0, 0.2, 0.7),
    (1.5, 1, 1, 0.3, 1.0),
    (8.0, 0, 3, 0.2, 0.8),
    (20.0, 3, 2, 0.05, 1.5),
    (3.0, 8, 8, 0.5, 3.0),
    (1.1, 2, 2, 1e-4, 5.0),
    (1.01, 0, 4, 1e-3, 10.0),
    (10.0, 2, 2, 0.999, 1.0),
    (12.0, 1, 2, 0.9, 0.5),
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
    assert truth <= rows[removed, 0] <= truth * (1 + mpmath.mpf(10) ** -10)


def test_order_one_is_the_kullback_leibler_divergence():
    truth = renyi_oracles.group_rdp(1, 2, 1, 0.1, 2.0)
    got = group_subsampling.group_rdp([1.0], 3, 0.1, 2.0)[2, 0]
    assert truth <= got <= truth * (1 + mpmath.mpf(10) ** -8)


def test_convolution_is_the_expanded_moment():
    """Every tuple of α members' counts, one by one."""
    rate, noise, members, order = 0.3, 0.8, 2, 4
    with mpmath.workdps(40):
        r, s = mpmath.mpf(rate), mpmath.mpf(noise)
        masses = [
            mpmath.binomial(members, i) * r**i * (1 - r) ** (members - i)
            for i in range(members + 1)
        ]
        total = mpmath.mpf(0)
        for counts in itertools.product(range(members + 1), repeat=order):
            exponent = (sum(counts) ** 2 - sum(i * i for i in counts)) / (2 * s**2)
            total += mpmath.fprod(masses[i] for i in counts) * mpmath.exp(exponent)
        got = group_subsampling.log_moments_by_convolution(order, members, rate, noise)
        assert abs(got[order] - mpmath.log(total)) <= 1e-14


def test_convolution_and_quadrature_agree(monkeypatch):
    orders = [float(order) for order in range(2, 40)]
    split = group_subsampling.Split(removed=5, inserted=0, rate=0.15, noise=1.2)
    by_convolution = group_subsampling._convolved_moments(orders, split)
    assert len(by_convolution) > 30
    both = group_subsampling._split_rdp(tuple(orders), split)
    monkeypatch.setattr(group_subsampling, "_LONGEST_POWER", 0)
    assert not group_subsampling._convolved_moments(orders, split)
    alone = group_subsampling._split_rdp(tuple(orders), split)
    np.testing.assert_allclose(both, alone, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-4, 0.9), st.floats(0.4, 20.0))
def test_a_group_of_one_is_poisson_sampling(rate, noise):
    orders = [2.0, 5.0, 17.0]
    rows = group_subsampling.group_rdp(orders, 1, rate, noise)
    expected = stock._compute_rdp_poisson_subsampled_gaussian(rate, noise, orders)
    np.testing.assert_allclose(rows.max(axis=0), expected, rtol=1e-7, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 6),
    st.floats(1e-4, 0.999),
    st.floats(0.3, 10.0),
    st.floats(1.01, 1.5),
)
def test_monotonicity(group_size, rate, noise, factor):
    orders = [1.0, 1.05, 1.5, 2.0, 2.5, 9.0, 40.0]
    rows = group_subsampling.group_rdp(orders, group_size, rate, noise)
    slack = 1 + 1e-9
    assert np.all(rows >= 0)
    assert np.all(rows[:, 1:] * slack >= rows[:, :-1])
    noisier = group_subsampling.group_rdp(orders, group_size, rate, noise * factor)
    assert np.all(noisier <= rows * slack)
    rarer = group_subsampling.group_rdp(orders, group_size, rate / factor, noise)
    assert np.all(rarer <= rows * slack)
    larger = group_subsampling.group_rdp(orders, group_size + 1, rate, noise)
    # One more who is removed, or inserted, in the same split.
    assert np.all(larger[1:] * slack >= rows)
    assert np.all(larger[:-1] * slack >= rows)
    # Sampling never hurts.
    whole = group_subsampling.group_rdp(orders, group_size, 1.0, noise)
    assert np.all(rows <= whole * slack)


@pytest.mark.parametrize(("members", "rate", "noise"), [(3, 0.5, 5.0), (8, 0.1, 1.0)])
def test_zeros_of_a_mixture_are_negative(members, rate, noise):
    """What the strip of analyticity rests on."""
    with mpmath.workdps(60):
        r, s = mpmath.mpf(rate), mpmath.mpf(noise)
        coefficients = [
            mpmath.binomial(members, i)
            * r**i
            * (1 - r) ** (members - i)
            * mpmath.exp(-mpmath.mpf(i * i) / (2 * s**2))
            for i in range(members + 1)
        ]
        for zero in mpmath.polyroots(
            coefficients, maxsteps=500, extraprec=500, asc=True
        ):
            assert abs(mpmath.im(zero)) <= mpmath.mpf(10) ** -40 * abs(zero)
            assert mpmath.re(zero) < 0


def test_no_noise_and_no_sampling():
    assert np.all(group_subsampling.group_rdp([1.0, 7.0], 3, 0.2, 0.0) == math.inf)
    assert np.all(group_subsampling.group_rdp([1.0, 7.0], 3, 0.0, 0.0) == 0.0)
    everybody = group_subsampling.group_rdp([1.5, 7.0], 3, 1.0, 2.0)
    assert np.all(everybody >= np.array([1.5, 7.0]) * 9 / 8)
    np.testing.assert_allclose(everybody, np.tile([1.6875, 7.875], (4, 1)), rtol=1e-10)


def test_infinite_and_enormous_orders():
    rows = group_subsampling.group_rdp([1e6, math.inf], 2, 0.1, 1.0)
    assert np.all(rows[:, 0] >= 1e6 * 2 * (1 - 1e-5))
    assert np.all(rows[:, 1] == math.inf)


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
        assert np.all(rows[2, 2:] >= exact + lost)


def test_a_lattice_that_would_be_too_long_is_replaced_by_a_bound(monkeypatch):
    exact = group_subsampling.group_rdp([3.5], 3, 0.2, 0.9)
    monkeypatch.setattr(group_subsampling, "_MOST_TERMS", 10)
    bound = group_subsampling.group_rdp([3.50000001], 3, 0.2, 0.9)
    assert np.all(bound > exact)
    np.testing.assert_allclose(bound, 3.5 * 9 / 2 / 0.81, rtol=1e-7)


def test_results_are_kept_and_cannot_be_changed():
    first = group_subsampling.group_rdp([2.0], 2, 0.1, 1.0)
    assert group_subsampling.group_rdp((2,), 2, 0.1, 1) is first
    with pytest.raises(ValueError, match="read-only"):
        first += 1
