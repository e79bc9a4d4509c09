"""Pairs from profiles, against the profiles as they are stored, to forty digits."""

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import strategies

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import profile_pairs

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs


@given(st.lists(strategies.pairs(Bound.UPPER), min_size=1, max_size=3))
def test_the_maximum_of_profiles(pairs):
    whole = profile_pairs.maximum(
        [dominating_pair.DirectedPairs.same(pair) for pair in pairs]
    )
    for epsilon in np.linspace(-4, 4, 41):
        for direction in Direction:
            most = max(oracles.stored_delta(pair, epsilon, direction) for pair in pairs)
            found = whole.of(direction).delta(epsilon, direction)
            assert found >= min(most, 1)
            if len(pairs) < 3:
                assert found <= most * (1 + 1e-9) + 1e-9


@given(st.floats(0.05, 0.9), st.floats(0.3, 3.0), st.floats(0.0, 2.0))
def test_reflection(rate, sigma, epsilon):
    sample = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(sigma))
    both = profile_pairs.reflected(sample.pairs(Bound.UPPER, 1e-12).remove)
    p = oracles.binomial_shifts(1, rate, (1, sigma))
    truth = oracles.shift_mixture_deltas(p, [(0, 1)], epsilon)["remove"]
    for direction in Direction:
        found = both.delta(epsilon, direction)
        assert truth <= found <= truth * (1 + 1e-4) + 1e-9


@given(strategies.pairs(Bound.UPPER))
def test_a_reflection_has_the_profile_from_one_on_both_ways(pair):
    both = profile_pairs.reflected(pair)
    # If not, no two datasets have both branches: the twins are more than one.
    above = pair.ratios > 1
    rest = 1 - pair.infinity_mass - pair.p_masses[above].sum()
    is_convex = pair.masses[above].sum() <= rest
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        truth = oracles.stored_delta(pair, epsilon, Direction.REMOVE)
        for direction in Direction:
            found = both.delta(epsilon, direction)
            assert min(truth, 1) <= found <= truth * (1 + 1e-9) + 1e-12
            # Of the two datasets exchanged: 1 − κ + κ H, at κ = e^−ε.
            with mpmath.workdps(40):
                kappa = mpmath.exp(-mpmath.mpf(epsilon))
                exchanged = 1 - kappa + kappa * truth
            found = both.delta(-epsilon, direction)
            assert min(exchanged, 1) <= found
            if is_convex:
                assert found <= exchanged * (1 + 1e-9) + 1e-12
