"""Sums from below, against closed forms and the sums from above."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums
from dp_accounting_ext.correlated.chains import sums_below


def chain_of(cells, **fields):
    """A chain of two steps without noise of their own."""
    return markov_chain.Chain(
        **{
            "states": np.linspace(-7.0, 8.0, 151),
            "correlation": 0.6,
            "scale": 1.0,
            "factors": np.ones(1),
            "probabilities": np.ones(1),
            "lost_factor": 0.0,
            "places": 0.02 * np.expm1(np.linspace(0.0, 12.0, cells + 1)),
            "length": 2,
            **fields,
        }
    )


CHAIN = chain_of(1500)


def test_sums_from_below_are_below_one_and_two_steps():
    """Calls of one lognormal variable in closed form, of two over those from above."""
    chain = dataclasses.replace(CHAIN, length=1)
    sums, masses, error = sums_below.lower_sum(chain, np.ones(1))
    assert error < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = 0.5 - math.log(strike)
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.9 * truth - 1e-9 <= found <= truth
    above = markov_sums.upper_sum(CHAIN)
    sums, masses, _ = sums_below.lower_sum(CHAIN, np.ones(2))
    assert np.all(np.diff(sums) > 0)
    for strike in (0.5, 2.0, 10.0):
        high = above.masses @ np.maximum(above.places - strike, 0)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.8 * high <= found <= high


@pytest.mark.parametrize(("ratio", "most"), [(1e-9, 1), (1e-2, 18), (1e4, 61)])
def test_merged_factors_keep_their_mean(ratio, most):
    """All convex functions of them have a mean that is no larger."""
    logs = np.linspace(-3.0, 4.0, 200)
    weights = np.exp(-((logs + 0.5) ** 2))
    probabilities = weights / weights.sum()
    chain = chain_of(60, factors=np.exp(logs), probabilities=probabilities)
    factors, probabilities = sums_below._merged(chain, ratio)
    assert factors.size <= most
    assert np.all(np.diff(factors) > 0)
    for strike in (0.0, 0.1, 1.0, 3.0, 20.0):
        before = chain.probabilities @ np.maximum(chain.factors - strike, 0)
        after = probabilities @ np.maximum(factors - strike, 0)
        assert after <= before * (1 + 1e-13)
        if not strike:
            assert after >= before * (1 - 1e-13)
