"""Rényi divergences on batches of fixed size, against laws that are written down."""

import math

from dp_accounting.rdp import rdp_privacy_accountant as stock
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import subsampling

RATES = [1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99]


def divergence(order, p, q):
    """The divergence of P from Q, which have the same outcomes, in 40 digits."""
    pairs = list(zip(p, q, strict=True))
    if order == 1:
        return sum(x * mpmath.log(x / y) for x, y in pairs)
    return mpmath.log(sum((x / y) ** order * y for x, y in pairs)) / (order - 1)


def laws_of(logs, losses):
    """Three laws on the same outcomes, as ratios to one law."""
    tilted = [
        [mpmath.exp(m) * mpmath.exp(x) for m, x in zip(logs, t, strict=True)]
        for t in losses
    ]
    return [[x / sum(law) for x in law] for law in tilted]


@st.composite
def triples(draw):
    """Masses, and three lists of losses, of which two may be the same."""
    size = draw(st.integers(2, 5))
    logs = [draw(st.floats(-12, 0)) for _ in range(size)]
    scale = 10 ** draw(st.floats(-2, 0.8))
    losses = [[scale * draw(st.floats(-2, 2)) for _ in range(size)] for _ in range(3)]
    losses[2] = losses[draw(st.sampled_from([2, 2, 1, 0]))]
    return logs, losses


@settings(max_examples=100, deadline=None)
@given(triples(), st.sampled_from(RATES), st.integers(2, 15))
def test_no_three_laws_diverge_more(triple, rate, order):
    """Two laws of batches with the record, and one without; all pairs are neighbors."""
    with mpmath.workdps(40):
        laws = p, q, a = laws_of(*triple)
        curve = {
            i: max(divergence(i, x, y) for x in laws for y in laws if x is not y)
            for i in range(1, order + 1)
        }

        def known(orders):
            # Rounded up. Between integers that of the next one, by monotonicity.
            return np.array(
                [float(curve[math.ceil(i)]) * (1 + 1e-15) + 1e-30 for i in orders]
            )

        (bound,) = subsampling.without_replacement_rdp([order], known, rate)
        m = [(1 - rate) * x + rate * y for x, y in zip(a, p, strict=True)]
        n = [(1 - rate) * x + rate * y for x, y in zip(a, q, strict=True)]
        assert divergence(order, m, n) <= bound


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.4])
def test_it_is_at_most_the_bound_for_gaussian_noise(noise, rate):
    """That of Wang, Balle and Kasiviswanathan, as dp_accounting has it."""
    orders = [3, 4, 10, 63, 200]

    def curve(orders):
        return np.array(orders) / (2 * noise**2)

    found = subsampling.without_replacement_rdp(orders, curve, rate)
    for order, bound in zip(orders, found, strict=True):
        log_moment = stock._compute_rdp_sample_wor_gaussian_int(rate, noise, order)
        assert bound <= log_moment / (order - 1)


def test_golden_value():
    """σ = 4, γ = .1, order 10: .0434 by Theorem 9, .0139 for Gaussian noise alone."""
    (bound,) = subsampling.without_replacement_rdp(
        [10], lambda orders: np.array(orders) / 32, 0.1
    )
    assert bound == pytest.approx(0.011656, rel=1e-3)


def test_nothing_and_everything():
    def nothing(orders):
        return np.zeros(len(orders))

    def everything(orders):
        return np.full(len(orders), math.inf)

    orders = [1.0, 1.5, 2.0, 5000.0, math.inf]
    assert not subsampling.without_replacement_rdp(orders, nothing, 0.3).any()
    found = subsampling.without_replacement_rdp(orders, everything, 0.3)
    assert np.isinf(found).all()
