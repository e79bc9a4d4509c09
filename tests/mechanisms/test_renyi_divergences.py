"""Rényi divergences of mechanisms, but for an event that may tell everything."""

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import renyi_divergences
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import renyi_profile

ORDERS = np.array(renyi_profile.ORDERS)


def test_divergences_of_randomized_response_and_of_compositions():
    epsilon = 0.8
    response = discrete_outputs.PrivacyParameters(epsilon)
    gaussian = additive_noise.Gaussian(2.0)
    both = compositions.compose({response: 3, gaussian: 2})
    bound = renyi_divergences.of_mechanism(both)
    found, told = bound.values, bound.told
    assert told == 0
    for place in (100, 400, 700, 1000):
        with mpmath.workdps(40):
            order = mpmath.mpf(float(ORDERS[place]))
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            moment = p**order * (1 - p) ** (1 - order)
            moment += (1 - p) ** order * p ** (1 - order)
            truth = 3 * mpmath.log(moment) / (order - 1) + 2 * order / 8
        assert truth <= found[place] <= truth * (1 + mpmath.mpf("1e-8"))


def test_what_tells_everything_is_apart_from_the_divergences():
    """Of a (ε, δ)-private event: with probability 1 − δ it is randomized response."""
    pure, both = (
        renyi_divergences.of_mechanism(discrete_outputs.PrivacyParameters(1.0, delta))
        for delta in (0.0, 0.1)
    )
    assert both.told == pytest.approx(0.1, rel=1e-12) and both.told >= 0.1
    assert both.values == pytest.approx(pure.values, rel=1e-6, abs=1e-9)
    certain = renyi_divergences.of_mechanism(discrete_outputs.PrivacyParameters(1.0, 1))
    assert certain.told == 1


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_samples_of_noise_by_quadrature(rate):
    """Both directions at once: the larger is that of the sample from the noise."""
    sample = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(1.5))
    found = renyi_divergences.of_mechanism(sample)
    assert found.told < 1e-270
    for place in (250, 300, 400):
        order = float(ORDERS[place])
        with mpmath.workdps(30):

            def density(x, order=order):
                ratio = 1 - rate + rate * mpmath.exp((x - 0.5) / 2.25)
                return ratio**order * mpmath.npdf(x, 0, 1.5)

            ends = [-20, -5, 0, 1, order, order + 5, order + 20]
            moment = mpmath.quad(density, sorted(set(ends)))
            truth = mpmath.log(moment) / (order - 1)
        assert truth <= found.values[place] <= truth * (1 + 1e-4) + 1e-9


def test_two_pairs_with_tails_are_no_one_event():
    """The bound is that of no amplification."""
    allocation = allocated.RandomAllocation(additive_noise.Gaussian(2.0), 2, 5)
    found = renyi_divergences.of_mechanism(allocation)
    assert found.told < 1e-270
    assert np.all(np.array(found.values) <= ORDERS * (2 / 8) * (1 + 1e-12))
    alone = interface.pairs_of(allocation, dominating_pair.Bound.UPPER, 1e-20)
    assert alone.add is not alone.remove


def test_a_composition_adds_what_is_told():
    told = discrete_outputs.PrivacyParameters(0.5, 1e-3)
    found = renyi_divergences.of_mechanism(compositions.compose({told: 3}))
    exact = 1 - (1 - 1e-3) ** 3
    assert found.told == pytest.approx(exact, rel=1e-9) and found.told >= exact
