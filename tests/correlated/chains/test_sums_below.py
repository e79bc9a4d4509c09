"""Sums from below, against closed forms and quadrature."""

import math

import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.correlated.chains import sums_below

ONE = np.ones(1)


def chain_of(cells, factors=ONE, probabilities=ONE):
    """Grids of steps without noise of their own, by default."""
    return sums_below.Grids(
        states=np.linspace(-7.0, 8.0, 151),
        correlation=0.6,
        factors=factors,
        probabilities=probabilities,
        places=0.02 * np.expm1(np.linspace(0.0, 12.0, cells + 1)),
        smallest_mass=1e-220,
    )


def test_sums_from_below_are_below_one_and_two_steps():
    """Calls of one lognormal variable in closed form, of two by quadrature."""
    sums, masses, error = sums_below.lower_sum(chain_of(1500), np.ones(1))
    assert error < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = 0.5 - math.log(strike)
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.9 * truth - 1e-9 <= found <= truth
    sums, masses, _ = sums_below.lower_sum(chain_of(1500), np.ones(2))
    assert np.all(np.diff(sums) > 0)
    nodes = np.arange(-9, 10, 0.02)
    x, y = np.meshgrid(nodes, nodes)
    weights = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi) * 0.02**2
    total = np.exp(x - 0.5) + np.exp(0.6 * x + 0.8 * y - 0.5)
    for strike in (0.5, 2.0, 10.0):
        truth = (weights * np.maximum(total - strike, 0)).sum()
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.8 * truth <= found <= truth


@pytest.mark.parametrize(("ratio", "most"), [(1e-9, 1), (1e-2, 18), (1e4, 61)])
def test_merged_factors_keep_their_mean(ratio, most):
    """All convex functions of them have a mean that is no larger."""
    logs = np.linspace(-3.0, 4.0, 200)
    weights = np.exp(-((logs + 0.5) ** 2))
    probabilities = weights / weights.sum()
    chain = chain_of(60, np.exp(logs), probabilities)
    factors, probabilities = sums_below._merged(chain, ratio)
    assert factors.size <= most
    assert np.all(np.diff(factors) > 0)
    for strike in (0.0, 0.1, 1.0, 3.0, 20.0):
        before = chain.probabilities @ np.maximum(chain.factors - strike, 0)
        after = probabilities @ np.maximum(factors - strike, 0)
        assert after <= before * (1 + 1e-13)
        if not strike:
            assert after >= before * (1 - 1e-13)
