"""The core type: both directions, the dual, combination."""

from fractions import Fraction
import math

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import output_pairs


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


of_probabilities = output_pairs.of_probabilities


# From denormals to one, and chances that are none.
weights = st.one_of(
    st.just(0.0), st.floats(0.01, 1.0), st.floats(-320.0, 0.0).map(lambda x: 10.0**x)
)


def law_of(found):
    """Returns chances that sum to one but for rounding."""
    total = math.fsum(found)
    return [weight / total for weight in found]


both = st.lists(st.tuples(weights, weights), min_size=1, max_size=6).filter(
    lambda each: all(sum(law) > 1e-3 for law in zip(*each, strict=True))
)


def divergence(p, q, kappa):
    """Returns Σ (p − κ q)₊ of the laws that are meant: exact, and of sum one."""
    each = [[Fraction(x) for x in law] for law in (p, q)]
    p, q = ([x / sum(law) for x in law] for law in each)
    return sum(max(x - kappa * y, Fraction(0)) for x, y in zip(p, q, strict=True))


@given(both, st.sampled_from([-2.0, 0.0, 1e-9, 0.7, 3.0, 300.0, 690.0]))
@example([(0.5, 0.5), (0.5, 1e-318)], 600.0)
def test_the_exact_divergences_lie_between(outputs, epsilon):
    """In any order of outputs, with chances among denormals, and of none."""
    p, q = (law_of(law) for law in zip(*outputs, strict=True))
    below, above = (Fraction(math.nextafter(math.exp(epsilon), x)) for x in (0, 1e400))
    for direction, (mine, other) in zip(Direction, ((p, q), (q, p)), strict=True):
        pairs = {b: of_probabilities(p, q, b, error=1e-14) for b in Bound}
        upper = pairs[Bound.UPPER].delta(epsilon, direction)
        lower = pairs[Bound.LOWER].delta(epsilon, direction)
        assert Fraction(lower) <= divergence(mine, other, below)
        assert Fraction(upper) >= divergence(mine, other, above)
        if all(x == 0 or x > 1e-280 for x in (*p, *q)):
            assert upper <= lower + 1e-12


@pytest.mark.parametrize("lacking", [0.25, 1e-6])
def test_what_is_lacking_tells_everything_or_nothing(lacking):
    """A law that is cut off at its tails."""
    p, q = [0.5, 0.5 - lacking], [0.5, 0.5]
    upper = of_probabilities(p, q, Bound.UPPER, error=0.0)
    assert upper.infinity_mass >= lacking * (1 - 1e-9)
    assert upper.zero_mass == 0.0
    lower = of_probabilities(p, q, Bound.LOWER, error=0.0)
    assert lower.infinity_mass == lower.zero_mass == 0.0


@pytest.mark.parametrize(
    ("p", "q", "error", "message"),
    [
        ([0.5, 0.5], [1.0], 0.0, r"one shape, \(n,\). Found \(2,\) and \(1,\)."),
        ([[1.0]], [[1.0]], 0.0, r"one shape"),
        ([math.nan, 0.5], [0.5, 0.5], 0.0, "p must hold probabilities.* Found nan."),
        ([0.5, 0.5], [1.5, -0.5], 0.0, "q must hold probabilities.* Found 1.5."),
        ([0.5, 0.5], [0.5, -0.5], 0.0, "q must hold probabilities.* Found -0.5."),
        ([0.7, 0.7], [0.5, 0.5], 0.0, "p must sum to at most 1. Found 1.4."),
        ([0.5, 0.5], [0.5, 0.5], math.nan, r"error must be in \[0, 0.003\]. Found nan"),
        ([0.5, 0.5], [0.5, 0.5], 0.1, r"error must be in \[0, 0.003\]. Found 0.1."),
    ],
)
def test_what_are_no_probabilities(p, q, error, message):
    with pytest.raises(ValueError, match=message):
        of_probabilities(p, q, Bound.UPPER, error=error)
