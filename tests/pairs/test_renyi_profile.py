"""Pairs of what is known by its Rényi divergences alone."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import renyi_profile

Direction = dominating_pair.Direction
ORDERS = np.array(renyi_profile.ORDERS)


@pytest.mark.parametrize("rho", [1e-6, 0.02, 1.0, 30.0])
def test_it_dominates_the_gaussian_with_these_divergences(rho):
    """N(m, 1) against N(0, 1) has divergences of α m²/2, and they are attained."""
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, rho * ORDERS, tail_mass=1e-25
    )
    mean = math.sqrt(2 * rho)
    for deviations in (-6.0, -1.0, 0.0, 1.0, 5.0, 9.0):
        epsilon = rho + deviations * mean
        with mpmath.workdps(30):
            truth = mpmath.ncdf(mean / 2 - epsilon / mean)
            truth -= mpmath.exp(epsilon) * mpmath.ncdf(-mean / 2 - epsilon / mean)
        for direction in Direction:
            assert pair.delta(epsilon, direction) >= truth


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
    pair = renyi_profile.dominating_pair_of(
        (1.5, 2, 4, 16, 64, 1024), values, tail_mass=1e-20
    )
    for epsilon in np.linspace(-1, 1, 21):
        truth = max(p - mpmath.exp(epsilon) * (1 - p), 1 - mpmath.exp(epsilon))
        for direction in Direction:
            assert pair.delta(float(epsilon), direction) >= truth
