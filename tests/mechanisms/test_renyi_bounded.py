"""Pairs of what is known by its Rényi divergences alone."""

import mpmath
import numpy as np

from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.mechanisms import renyi_bounded


def test_it_dominates_randomized_response():
    """Of divergences that grow to ε: their orders are few, and the tail is cut."""
    with mpmath.workdps(40):
        p = mpmath.e / (1 + mpmath.e)
        values = [
            float(
                mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a))
                / (a - 1)
            )
            * (1 + 1e-14)
            for a in map(mpmath.mpf, (1.5, 2, 4, 16, 64, 1024))
        ]
    orders = np.array([1.5, 2, 4, 16, 64, 1024])
    pair = renyi_bounded.dominating_pair_of(orders, np.array(values), 1e-20)
    for epsilon in np.linspace(-1, 1, 21):
        truth = max(p - mpmath.exp(epsilon) * (1 - p), 1 - mpmath.exp(epsilon))
        for direction in Direction:
            assert pair.delta(float(epsilon), direction) >= truth
