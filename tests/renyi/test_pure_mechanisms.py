"""Rényi divergences of pure mechanisms at the largest orders."""

import math

import numpy as np
import pytest

from dp_accounting_ext.renyi import pure_mechanisms

ORDERS = [2.0, 1e3, 1e9, 1e12, 1e13, 1e16, 1e160, 1.7e308, math.inf]


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 3.0, 30.0, 600.0])
def test_no_divergence_of_a_bounded_range_is_below_that_of_a_smaller_order(epsilon):
    found = pure_mechanisms.bounded_range_rdp(ORDERS, epsilon)
    # Divergences increase with the order.
    assert (np.diff(found) >= 0).all()
    # With losses t = ε − 1/α and t − ε, Q has at least q = e^−ε/α at t, and D_α is at
    # least ln(q e^{αt}) / (α − 1).
    for order, value in zip(ORDERS, found, strict=True):
        if order * epsilon >= 1 and order < math.inf:
            assert value >= epsilon - (1 + math.log(order)) / (order - 1)
