"""Pairs of mechanisms that are known by the chances of their outputs."""

from fractions import Fraction
import math

from dp_accounting import dp_event as stock
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import output_pairs

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


def test_samples_of_many_runs_whose_masses_are_raised():
    """Profiles are raised by 1e-9, and so are the masses of one run, a thousand times.

    These runs reveal a record. The pair of all of them must still be one of laws.
    """
    noise = stock.DiscreteLaplaceDpEvent(0.776, 1)
    epoch = ext.RandomAllocationEvent(noise, 9, 57)
    whole = stock.SelfComposedDpEvent(epoch, 1000)
    alone = ext.PLDAccountant().compose(whole).get_epsilon_bounds(1e-6)
    sample = ext.PLDAccountant().compose(ext.PLDSubsampleEvent(0.3, whole))
    lower, upper = sample.get_epsilon_bounds(1e-6)
    assert 0.9 * alone[0] < lower < alone[1]
    assert lower <= upper < 1.02 * lower
