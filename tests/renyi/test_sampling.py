"""Samples of any mechanism: domination of exact divergences, and how tight it is."""

import math

from hypothesis import assume
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import group_subsampling
from dp_accounting_ext.renyi import sampling

ORDERS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.7, 8.0, 33.0, math.inf)


def divergence_of(p, q, order):
    """D_α of finite laws, with 60 digits."""
    p, q = [mpmath.mpf(x) for x in p], [mpmath.mpf(x) for x in q]
    if math.isinf(order):
        return max(mpmath.log(x / y) for x, y in zip(p, q, strict=True))
    if order == 1:
        return mpmath.fsum(x * mpmath.log(x / y) for x, y in zip(p, q, strict=True))
    total = mpmath.fsum(x**order * y ** (1 - order) for x, y in zip(p, q, strict=True))
    return mpmath.log(total) / (order - 1)


def larger(p, q, order):
    return max(divergence_of(p, q, order), divergence_of(q, p, order))


def curve_of(p, q):
    def curve(orders):
        # Rounded up, as every curve of a mechanism is.
        return np.array([float(larger(p, q, a)) * (1 + 1e-13) for a in orders])

    return curve


laws = st.lists(st.integers(1, 10_000), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(laws, st.data(), st.floats(1e-6, 1 - 1e-6))
def test_a_poisson_sample_is_dominated_in_both_directions(weights, data, rate):
    others = data.draw(
        st.lists(st.integers(1, 10_000), min_size=len(weights), max_size=len(weights))
    )
    with mpmath.workdps(60):
        p = [mpmath.mpf(x) / sum(weights) for x in weights]
        q = [mpmath.mpf(x) / sum(others) for x in others]
        assume(p != q)
        mixed = [
            rate * x + (1 - mpmath.mpf(rate)) * y for x, y in zip(p, q, strict=True)
        ]
        bounds = sampling.poisson_rdp(ORDERS, curve_of(p, q), rate)
        for order, bound in zip(ORDERS, bounds, strict=True):
            assert bound >= larger(mixed, q, order)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 19))
def test_a_batch_is_dominated_in_both_directions(data, batch):
    """A record in 20 replaced: both datasets have the rest, A, in common."""
    law = st.lists(st.integers(1, 1000), min_size=3, max_size=3)
    weights = [data.draw(law) for _ in range(3)]
    with mpmath.workdps(60):
        absent, old, new = [[mpmath.mpf(x) / sum(w) for x in w] for w in weights]
        assume(old != new and old != absent and new != absent)
        pairs = [(absent, old), (absent, new), (old, new)]

        def curve(orders):
            each = [np.abs(curve_of(*pair)(orders)) for pair in pairs]
            return np.maximum.reduce(each)

        share = mpmath.mpf(batch) / 20
        one, other = (
            [share * x + (1 - share) * y for x, y in zip(law, absent, strict=True)]
            for law in (old, new)
        )
        bounds = sampling.without_replacement_rdp(ORDERS, curve, batch / 20)
        for order, bound in zip(ORDERS, bounds, strict=True):
            assert bound >= larger(one, other, order)


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 2.0), (1e-8, 0.7)])
def test_integer_orders_of_a_gaussian_are_tight(rate, noise):
    orders = [2.0, 3.0, 8.0, 40.0]

    def curve(orders):
        return np.array(orders) / (2 * noise**2)

    got = sampling.poisson_rdp(orders, curve, rate)
    exact = group_subsampling.group_rdp(orders, 1, rate, noise).max(axis=0)
    np.testing.assert_allclose(got, exact, rtol=1e-9)
    between = sampling.poisson_rdp([2.5], curve, rate)
    assert got[0] < between[0] < got[1]


def test_ends_of_the_rate():
    def curve(orders):
        return np.array(orders) * 0.5

    for sample in (sampling.poisson_rdp, sampling.without_replacement_rdp):
        assert np.all(sample([2.0, 3.0], curve, 0.0) == 0)
        assert sample([2.0, 3.0], curve, 1.0).tolist() == [1.0, 1.5]
        # No order is worse than without the sample.
        high = sample([5000.0, math.inf], curve, 0.1)
        assert high.tolist() == [2500.0, math.inf]


def test_what_has_no_privacy_has_none_on_a_sample():
    def curve(orders):
        return np.full(len(orders), np.inf)

    for sample in (sampling.poisson_rdp, sampling.without_replacement_rdp):
        assert np.all(sample([1.0, 2.5, 7.0, math.inf], curve, 0.1) == np.inf)
