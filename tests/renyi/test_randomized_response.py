"""Randomized response on a batch."""

import math

from dp_accounting.rdp import rdp_privacy_accountant as stock
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import randomized_response


def theorem_i3(order, noise, fraction):
    """log max {ψ(a, β), ψ(β, a)} / (α − 1), as the theorem has it."""
    with mpmath.workdps(60):
        order, noise, w = (mpmath.mpf(x) for x in (order, noise, fraction))
        theta = 1 - noise / 2
        beta = 1 - theta
        a = beta + w * (2 * theta - 1)

        def psi(x, y):
            kept = x**order * y ** (1 - order)
            return kept + (1 - x) ** order * (1 - y) ** (1 - order)

        return mpmath.log(max(psi(a, beta), psi(beta, a))) / (order - 1)


@given(
    st.floats(1.001, 1e4),
    st.floats(1e-3, 0.999),
    st.floats(1e-6, 1.0),
)
def test_against_60_digits(order, noise, fraction):
    got = randomized_response.batch_rdp([order], noise, fraction)[0]
    truth = theorem_i3(order, noise, fraction)
    assert truth <= got <= truth * (1 + mpmath.mpf(10) ** -10)


def test_the_whole_dataset_is_plain_randomized_response():
    orders = [1.5, 3.0, 40.0]
    got = randomized_response.batch_rdp(orders, 0.3, 1.0)
    expected = [
        stock._randomized_response_rdp_replace_one(0.3, 2, order) for order in orders
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_ends_of_the_orders():
    lowest, low, high, highest = randomized_response.batch_rdp(
        [1.0, 1.00001, 1e5, math.inf], 0.4, 0.25
    )
    a, beta = mpmath.mpf(0.35), mpmath.mpf(0.2)
    divergences = [
        x * mpmath.log(x / y) + (1 - x) * mpmath.log((1 - x) / (1 - y))
        for x, y in ((a, beta), (beta, a))
    ]
    assert lowest == pytest.approx(float(max(divergences)), rel=1e-8)
    assert lowest <= low <= lowest * (1 + 1e-4)
    assert highest == pytest.approx(math.log(0.35 / 0.2), rel=1e-10)
    assert highest * (1 - 1e-4) <= high <= highest


def test_no_privacy_and_nothing_to_hide():
    def rdp(noise, fraction):
        return randomized_response.batch_rdp([2.0], noise, fraction)[0]

    assert rdp(0.0, 0.1) == math.inf
    assert rdp(0.0, 0.0) == 0.0
    assert rdp(1.0, 0.5) == 0.0
    assert rdp(0.3, 0.0) == 0.0
