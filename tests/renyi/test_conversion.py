"""From divergences to ε and δ: never below, and as the stock library's otherwise."""

import math

from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import pytest

from dp_accounting_ext.renyi import conversion

orders = st.floats(1.02, 2000)
values = st.floats(1e-12, 500)


@given(orders, values, st.floats(1e-12, 0.99))
def test_epsilon_is_the_formula_rounded_up(order, value, delta):
    got, at = conversion.epsilon([order], [value], delta)
    with mpmath.workdps(40):
        a, r, d = mpmath.mpf(order), mpmath.mpf(value), mpmath.mpf(delta)
        exact = r + mpmath.log(1 - 1 / a) - mpmath.log(d * a) / (a - 1)
        nothing = d**2 >= min(1 - mpmath.exp(-r), r / 2)
    assert at == order
    if got == 0:
        assert nothing or exact <= 0
    else:
        assert exact <= got <= exact + 1e-12 * (value + 60 / (order - 1) + 10)


@given(orders, values, st.floats(0, 600))
def test_delta_is_the_formula_rounded_up(order, value, epsilon):
    got, _ = conversion.delta([order], [value], epsilon)
    with mpmath.workdps(40):
        a, r = mpmath.mpf(order), mpmath.mpf(value)
        exact = mpmath.exp((a - 1) * (r - epsilon + mpmath.log(1 - 1 / a))) / a
        exact = min(exact, mpmath.sqrt(min(1 - mpmath.exp(-r), r / 2)))
    assert got >= min(exact, 1)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1, 0.6])
def test_it_is_as_the_stock_s(delta):
    several = [1.005, 1.5, 2.0, 8.0, 64.0]
    curve = [0.01 * a for a in several]
    ours = conversion.epsilon(several, curve, delta)
    stock = rdp_privacy_accountant.compute_epsilon(several, curve, delta)
    assert ours == pytest.approx(stock, rel=1e-12)
    ours = conversion.delta(several, curve, 0.3)
    assert ours == pytest.approx(
        rdp_privacy_accountant.compute_delta(several, curve, 0.3), rel=1e-12
    )


def test_order_infinity_is_pure_dp():
    """Of which the stock's formula makes not-a-number, and then an ε of 0."""
    assert conversion.epsilon([2.0, math.inf], [1.0, 1.5], 1e-9) == (1.5, math.inf)
    assert conversion.epsilon([math.inf], [1.5], 0.0) == (1.5, math.inf)
    assert conversion.delta([math.inf], [1.5], 1.5) == (0.0, math.inf)
    assert conversion.delta([math.inf], [1.5], 1.4)[0] > 0.8


@pytest.mark.parametrize("epsilon", [1e151, 1e300, 1e308, 1.7e308])
def test_an_epsilon_whose_products_do_not_fit(epsilon):
    """Of many orders it was not a number, which no test of bounds sees."""
    orders = [1.0, 1.25, 2.0, 1e6, 1e200, 1.7e308, math.inf]
    for curve in (0.0, 1.0, 1e200, 1.7e308, math.inf):
        found, _ = conversion.delta(orders, [curve] * len(orders), epsilon)
        assert 0 <= found <= (1e-300 if curve <= epsilon else 1)
        found, _ = conversion.delta([2.0, 64.0], [curve] * 2, epsilon)
        assert 0 <= found <= (1e-300 if curve <= 1 else 1)
