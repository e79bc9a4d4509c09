"""Mechanisms of bounded loss, against their definitions in 60 digits."""

import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import pure_mechanisms

ORDERS = (1.0, 1.1, 2.0, 3.5, 16.0, 256.0, math.inf)
EPSILONS = (1e-12, 1e-6, 0.01, 0.5, 1.0, 4.0, 30.0)


def divergence_of(p, q, order):
    if math.isinf(order):
        return max(mpmath.log(x / y) for x, y in zip(p, q, strict=True) if x)
    if order == 1:
        return mpmath.fsum(
            x * mpmath.log(x / y) for x, y in zip(p, q, strict=True) if x
        )
    total = mpmath.fsum(x**order * y ** (1 - order) for x, y in zip(p, q, strict=True))
    return mpmath.log(total) / (order - 1)


def check(bounds, exact, tightness):
    for order, bound in zip(ORDERS, bounds, strict=True):
        with mpmath.workdps(60):
            truth = exact(order)
        assert bound >= truth
        assert bound <= truth * (1 + tightness)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_dp_is_that_of_a_bit(epsilon):
    def exact(order):
        truth = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        return divergence_of([truth, 1 - truth], [1 - truth, truth], order)

    check(pure_mechanisms.pure_dp_rdp(ORDERS, epsilon), exact, 1e-8)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace(epsilon):
    def exact(order):
        e = mpmath.mpf(epsilon)
        if math.isinf(order):
            return e
        if order == 1:
            return e + mpmath.expm1(-e)
        a = mpmath.mpf(order)
        first = a / (2 * a - 1) * mpmath.exp((a - 1) * e)
        second = (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)
        return mpmath.log(first + second) / (a - 1)

    check(
        pure_mechanisms.laplace_rdp(ORDERS, epsilon), exact, max(1e-8, 1e-13 / epsilon)
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounded_range_is_the_largest_over_the_range(epsilon):
    bounds = pure_mechanisms.bounded_range_rdp(ORDERS, epsilon)
    found = np.zeros(len(ORDERS))
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        for share in np.linspace(0.001, 0.999, 999):
            high, low = mpmath.exp(e * share), mpmath.exp(e * (share - 1))
            q = (1 - low) / (high - low)
            for place, order in enumerate(ORDERS[:-1]):
                value = divergence_of([q * high, (1 - q) * low], [q, 1 - q], order)
                assert bounds[place] >= value
                found[place] = max(found[place], value)
    assert bounds[-1] == epsilon
    np.testing.assert_allclose(bounds[:-1], found[:-1], rtol=3e-3)
    pure = pure_mechanisms.pure_dp_rdp(ORDERS, epsilon)
    assert np.all(bounds <= pure * (1 + 1e-9))


scores = st.lists(st.floats(-4, 4), min_size=2, max_size=5)
moves = st.lists(st.floats(-1, 1), min_size=5, max_size=5)


@settings(max_examples=50, deadline=None)
@given(scores, moves, st.floats(0.05, 3))
def test_the_exponential_mechanism_has_bounded_range(values, changes, epsilon):
    def law(values):
        weights = [mpmath.exp(mpmath.mpf(epsilon) * v / 2) for v in values]
        return [w / mpmath.fsum(weights) for w in weights]

    bounds = pure_mechanisms.bounded_range_rdp(ORDERS, epsilon)
    with mpmath.workdps(40):
        p = law([mpmath.mpf(v) for v in values])
        q = law([mpmath.mpf(v) + c for v, c in zip(values, changes, strict=False)])
        for order, bound in zip(ORDERS, bounds, strict=True):
            assert bound >= divergence_of(p, q, order)


def permute_and_flip(values, epsilon):
    """Its law: candidates in random order, each kept with e^{ε (score − best)/2}."""
    best = max(values)
    chances = [mpmath.exp(mpmath.mpf(epsilon) * (v - best) / 2) for v in values]
    total = [mpmath.mpf(0)] * len(values)
    for order in itertools.permutations(range(len(values))):
        left = mpmath.mpf(1)
        for candidate in order:
            total[candidate] += left * chances[candidate]
            left *= 1 - chances[candidate]
    return [x / math.factorial(len(values)) for x in total]


@settings(max_examples=50, deadline=None)
@given(scores, moves, st.floats(0.05, 3))
def test_permute_and_flip_is_no_further_apart_than_laplace(values, changes, epsilon):
    bounds = pure_mechanisms.laplace_rdp(ORDERS, epsilon)
    with mpmath.workdps(40):
        p = permute_and_flip([mpmath.mpf(v) for v in values], epsilon)
        moved = [mpmath.mpf(v) + c for v, c in zip(values, changes, strict=False)]
        q = permute_and_flip(moved, epsilon)
        for order, bound in zip(ORDERS, bounds, strict=True):
            assert bound >= divergence_of(p, q, order)


@pytest.mark.parametrize("replace_one", [True, False])
@pytest.mark.parametrize(
    ("noise", "buckets"), [(0.3, 2), (0.5, 7), (1e-4, 3), (0.99, 2)]
)
def test_randomized_response(noise, buckets, replace_one):
    def exact(order):
        even = mpmath.mpf(noise) / buckets
        p = [1 - mpmath.mpf(noise) + even] + [even] * (buckets - 1)
        q = [p[1], p[0], *p[2:]] if replace_one else [mpmath.mpf(1) / buckets] * buckets
        return max(divergence_of(p, q, order), divergence_of(q, p, order))

    bounds = pure_mechanisms.randomized_response_rdp(
        ORDERS, noise, buckets, replace_one
    )
    check(bounds, exact, 1e-8)


def test_no_loss_and_a_large_one():
    for rdp in (
        pure_mechanisms.pure_dp_rdp,
        pure_mechanisms.bounded_range_rdp,
        pure_mechanisms.laplace_rdp,
    ):
        assert np.all(rdp(ORDERS, 0.0) == 0)
        assert np.all(rdp(ORDERS, 1e4) == 1e4)
