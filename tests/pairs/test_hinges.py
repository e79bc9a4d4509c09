"""The least of several profiles, from their hinges."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import few_atoms
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import hinges


@given(st.floats(0.3, 3.0), st.integers(20, 60), st.integers(20, 60))
def test_the_minimum_of_profiles(sigma, one, other):
    """It is a bound on what either bounds, and hardly above the less."""
    pair = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-20)
    pairs = [few_atoms.reduced(pair, atoms) for atoms in (one, other)]
    least = hinges.minimum([dominating_pair.DirectedPairs.same(each) for each in pairs])
    for epsilon in np.linspace(0, 4, 21):
        truth = gaussian.delta(1 / sigma, epsilon, Bound.LOWER)
        for direction in Direction:
            found = least.of(direction).delta(epsilon, direction)
            each = [pair.delta(epsilon, direction) for pair in pairs]
            assert truth <= found <= min(each) * (1 + 1e-9) + 1e-12
