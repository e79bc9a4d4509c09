"""Rényi divergences of mechanisms, and of the best of a random number of runs."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import renyi_divergences
from dp_accounting_ext.pairs import renyi_profile

ORDERS = np.array(renyi_profile.ORDERS)


def test_poissons_number_of_runs_by_its_theorem():
    """ε(λ) + m δ̂ + ln(m)/(λ − 1), δ̂ at ε̂ = ln(1 + 1/(λ − 1)); then the least above."""
    rho, mean = 0.3, 7.0
    found = renyi_divergences.repeat_and_select(rho * ORDERS, mean, math.inf)
    with mpmath.workdps(30):
        levels = [mpmath.log1p(1 / (mpmath.mpf(o) - 1)) for o in ORDERS]
        expected = []
        for order, level in list(zip(ORDERS, levels, strict=True))[300:900:20]:
            chances = [
                mpmath.exp((a - 1) * (rho * a - level + mpmath.log1p(-1 / a))) / a
                for a in map(mpmath.mpf, ORDERS[200:900:4])
            ]
            cost = mpmath.mpf(rho * order) + mean * min(*chances, 1)
            expected.append((order, cost + mpmath.log(mean) / (order - 1)))
    for place, (order, _) in enumerate(expected):
        least = min(value for _, value in expected[place:])
        value = found[int(np.searchsorted(ORDERS, order))]
        # The total variation is the smaller δ̂ at low orders.
        assert value <= least * mpmath.mpf("1.001")
        if order > 3:
            assert value >= least * mpmath.mpf("0.95")


@pytest.mark.parametrize("shape", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("mean", [1.0 + 1e-9, 2.0, 1e6])
def test_the_parameter_of_the_number_of_runs(shape, mean):
    parameter = mpmath.mpf(renyi_divergences._smallest_parameter(shape, mean))
    with mpmath.workdps(40):
        if shape:
            truth = shape * (1 - parameter) / (parameter * (1 - parameter**shape))
        else:
            truth = (1 / parameter - 1) / mpmath.log(1 / parameter)
    assert mean <= truth <= mean * (1 + 1e-6)


def test_divergences_of_randomized_response_and_of_compositions():
    epsilon = 0.8
    response = discrete_outputs.PrivacyParameters(epsilon)
    gaussian = additive_noise.Gaussian(2.0)
    both = compositions.compose({response: 3, gaussian: 2})
    found = renyi_divergences.divergences(both)
    for place in (100, 400, 700, 1000):
        with mpmath.workdps(40):
            order = mpmath.mpf(float(ORDERS[place]))
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            moment = p**order * (1 - p) ** (1 - order)
            moment += (1 - p) ** order * p ** (1 - order)
            truth = 3 * mpmath.log(moment) / (order - 1) + 2 * order / 8
        assert truth <= found[place] <= truth * (1 + mpmath.mpf("1e-8"))
    alone = renyi_divergences.divergences(discrete_outputs.PrivacyParameters(1.0, 1e-9))
    assert np.isinf(alone).all()


def test_bounds_at_other_orders():
    """Between orders on a chord of (α − 1) D, which lies above it."""
    orders = [64.0, 2.0, 8.0, 1.5]
    known = renyi_bounded.RenyiBounded.at_orders(orders, [0.3 * o for o in orders])
    values = np.array(known.values)
    inside = (ORDERS >= 1.5) & (ORDERS <= 64)
    assert (values[inside] >= 0.3 * ORDERS[inside]).all()
    assert (values[inside] <= 0.3 * ORDERS[inside] * 3).all()
    assert np.isinf(values[ORDERS > 64]).all()
    assert values[0] == pytest.approx(0.45)
    none = renyi_bounded.RenyiBounded.at_orders([2.0], [math.inf])
    assert np.isinf(none.values).all()
