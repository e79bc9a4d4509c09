"""From divergences to ε and δ, and moments of ratios, without cancellation.

They are never below the truth, and never above the stock library's.
"""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.renyi import conversion
from dp_accounting_ext.renyi import ratio_moments

orders = st.floats(1.02, 2000)
values = st.floats(1e-12, 500)
small = st.floats(-14, 2.5).map(lambda x: 10.0**x)


def _of_moment(a, r, d):
    """ε of the function that counts all of the moment."""
    return r + mpmath.log(1 - 1 / a) - mpmath.log(d * a) / (a - 1)


def _kappa(a, log_z):
    return (1 - 1 / a) * mpmath.expm1(a * log_z) / mpmath.expm1((a - 1) * log_z)


def _of_excess(a, r, d):
    """ε of the function that counts what the moment has above one."""
    log_z = mpmath.log1p(mpmath.expm1((a - 1) * r) / (a * d)) / (a - 1)
    return mpmath.log(_kappa(a, log_z))


@given(orders, st.one_of(values, small), st.floats(1e-12, 0.99))
def test_epsilon_is_the_lesser_formula_rounded_up(order, value, delta):
    got, at = conversion.epsilon([order], [value], delta)
    with mpmath.workdps(40):
        a, r, d = mpmath.mpf(order), mpmath.mpf(value), mpmath.mpf(delta)
        exact = min(_of_moment(a, r, d), _of_excess(a, r, d))
        nothing = d**2 >= min(1 - mpmath.exp(-r), r / 2)
    assert at == order
    if got == 0:
        assert nothing or exact <= 0
    else:
        assert exact <= got <= exact + 1e-12 * (value + 60 / (order - 1) + 10)


@given(orders, st.one_of(values, small), st.floats(-9, 2.7).map(lambda x: 10.0**x))
def test_delta_is_the_least_formula_rounded_up(order, value, epsilon):
    got, _ = conversion.delta([order], [value], epsilon)
    with mpmath.workdps(40):
        a, r, e = mpmath.mpf(order), mpmath.mpf(value), mpmath.mpf(epsilon)
        logs = [(a - 1) * (r - e + mpmath.log(1 - 1 / a)) - mpmath.log(a)]
        logs.append(mpmath.log(min(1 - mpmath.exp(-r), r / 2)) / 2)
        low, high = mpmath.mpf(0), 2 * e
        for _ in range(120):
            middle = (low + high) / 2
            if mpmath.log(_kappa(a, middle)) <= e:
                low = middle
            else:
                high = middle
        excess = mpmath.expm1((a - 1) * r) / (a * mpmath.expm1((a - 1) * high))
        logs.append(mpmath.log(excess))
        exact = mpmath.exp(min(logs))
    assert got >= min(exact, 1)
    if 1e-200 < got < 1:
        # Of 1 + ε a float has so many digits.
        assert got <= exact * (1 + 1e-11 * (1 + order) * (1 + value + 1 / epsilon))


@given(
    st.floats(1.01, 200),
    st.floats(0, 1, exclude_max=True),
    small,
    st.floats(-12, -1e-3).map(lambda x: 10.0**x),
    st.floats(-9, 2).map(lambda x: 10.0**x),
)
def test_no_law_of_two_ratios_has_more(order, low, above, share, epsilon):
    """Of all laws of mean 1 and a given moment some such law has the largest δ."""
    with mpmath.workdps(60):
        z = 1 + mpmath.mpf(above)
        # The mean is one.
        p = min(mpmath.mpf(share), 1 / z)
        other = (1 - p * z) / (1 - p)
        moment = p * z**order + (1 - p) * other**order
        rdp = float(mpmath.log(moment) / (mpmath.mpf(order) - 1)) * (1 + 1e-15)
        delta = p * max(z - mpmath.exp(epsilon), 0)
        assert conversion.delta([order], [rdp + 1e-300], epsilon)[0] >= delta
        if delta > 1e-250:
            # No larger δ, as it is rounded.
            less = math.nextafter(float(delta), 0.0)
            got, _ = conversion.epsilon([order], [rdp + 1e-300], less)
            assert got >= epsilon


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


@given(
    st.floats(-60.0, 200.0) | st.floats(-1e-3, 1e-3),
    st.floats(ratio_moments.LOWEST_ORDER, 4000.0) | st.floats(1.0 + 1e-9, 1.1),
)
def test_excess_keeps_its_relative_accuracy(loss, order):
    (got,) = ratio_moments.log_mean_excesses([order], np.zeros(1), np.array([loss]))
    with mpmath.workdps(800):
        z, a = mpmath.exp(mpmath.mpf(loss)), mpmath.mpf(order)
        truth = (z**a - 1 - a * (z - 1)) / (a - 1)
        if truth < mpmath.mpf(10) ** -290:
            return  # Squares of losses below 1e-145 are no floats; they weigh nothing.
        # Only rounding α log Z costs more than a few roundings.
        allowed = 1e-13 + 1e-15 * abs(order * loss)
        assert abs(got - mpmath.log(truth)) <= allowed


@given(
    st.lists(st.floats(-3.0, 3.0) | st.floats(-1e-2, 1e-2), min_size=1, max_size=200),
    st.floats(ratio_moments.LOWEST_ORDER, 300.0),
    st.randoms(use_true_random=False),
)
def test_the_mean_of_many_is_the_sum_of_each(losses, order, random):
    masses = [random.random() ** 8 + 1e-250 for _ in losses]
    (found,) = ratio_moments.log_mean_excesses(
        [order], np.log(masses), np.array(losses)
    )
    with mpmath.workdps(310):  # An excess is as small as 1e-280.
        a = mpmath.mpf(order)
        powers = [mpmath.exp(mpmath.mpf(loss)) for loss in losses]
        excesses = [(z**a - 1 - a * (z - 1)) / (a - 1) for z in powers]
        truth = mpmath.fdot(map(mpmath.mpf, masses), excesses)
        if truth < mpmath.mpf(10) ** -280:
            return
        assert abs(found - mpmath.log(truth)) <= 1e-12


@given(st.floats(-600.0, 600.0), st.floats(1.0 + 1e-9, 4096.0))
def test_the_moment_is_that_of_its_excess(log_excess, order):
    found = ratio_moments.rdp_from_excess(log_excess, order)
    with mpmath.workdps(400):
        slope = mpmath.mpf(order) - 1
        truth = mpmath.log1p(slope * mpmath.exp(mpmath.mpf(log_excess))) / slope
        assert truth <= found <= truth * (1 + 1e-10)
