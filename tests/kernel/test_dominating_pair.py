"""The core type: both directions, the dual, combination."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair


@given(strategies.pairs(Bound.UPPER), st.floats(-2.0, 4.0))
def test_dual_swaps_the_directions(pair, epsilon):
    swapped = dominating_pair.dual(pair)
    for direction, other in (
        (Direction.REMOVE, Direction.ADD),
        (Direction.ADD, Direction.REMOVE),
    ):
        assert float(oracles.stored_delta(swapped, epsilon, other)) == pytest.approx(
            float(oracles.stored_delta(pair, epsilon, direction)), rel=1e-12, abs=1e-15
        )


@given(
    strategies.pairs(Bound.UPPER),
    st.floats(1e-6, 0.9),
    st.sampled_from(list(Direction)),
)
def test_epsilon_inverts_delta(pair, delta, direction):
    epsilon = pair.epsilon(delta, direction)
    sink = pair.infinity_mass if direction is Direction.REMOVE else pair.zero_mass
    if math.isinf(epsilon):
        assert sink > delta * (1 - 1e-12)
        return
    assert float(oracles.stored_delta(pair, epsilon, direction)) <= delta * (1 + 1e-12)
    if epsilon > 0:
        lower = float(
            oracles.stored_delta(pair, epsilon * (1 - 1e-9) - 1e-12, direction)
        )
        assert lower >= delta * (1 - 1e-9)


@pytest.mark.parametrize(
    ("ratios", "masses", "message"),
    [
        # An ε of 2e-13 was answered, for 19.459.
        ((7e8, 1e-9), (1e-9, 0.3), "ratios must be increasing. Found 1e-09 after 7"),
        ((0.5, math.nan), (0.5, 0.5), "ratios must be positive and finite. Found nan"),
        ((-0.5, 2.0), (0.5, 0.5), "ratios must be positive and finite. Found -0.5"),
        ((0.5, math.inf), (0.5, 0.5), "ratios must be positive and finite. Found inf"),
        ((0.5, 2.0), (0.5, math.nan), "masses must be finite and at least 0. Found na"),
        ((0.5, 2.0), (0.5, -0.1), "masses must be finite and at least 0. Found -0.1"),
        ((0.5, 2.0), (0.5,), r"must have one shape, \(n,\). Found \(2,\) and \(1,\)"),
    ],
)
def test_pairs_of_others_are_checked(ratios, masses, message):
    arrays = np.array(ratios), np.array(masses)
    with pytest.raises(ValueError, match=message):
        dominating_pair.DominatingPair(*arrays, 0.0, 0.0, Bound.UPPER)
