"""The bound on the probability of k of t events, against its definition."""

from fractions import Fraction
import math
import types

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext.amplification.k_of_t import bound_cells


@given(st.floats(0.0, 1e5), st.floats(0.0, 1.0))
def test_the_bound_on_the_probability_is_above_the_bessel_function(first, share):
    """And its reciprocal is concave and increases, without tolerance."""
    second = first + share * (first + 1)
    places = np.array([first, (first + second) / 2, second])
    values = bound_cells.log_reciprocal(places)
    with mpmath.workdps(40):
        truth = [v - mpmath.log(mpmath.besseli(0, v)) for v in places.tolist()]
    for value, exact in zip(values.tolist(), truth, strict=True):
        assert value <= exact + 64 * 2.0**-53 * (1 + exact)
        assert value >= exact - 0.06
    low, middle, high = np.exp(values).tolist()
    assert low <= middle * (1 + 1e-14) <= high * (1 + 2e-14)
    assert middle * (1 + 1e-13) >= (low + high) / 2


def test_the_constants_of_the_concave_function():
    """I₁/I₀ ≤ 1 − 1/(2V) at its start, and then for ever; the slope is never more."""
    with mpmath.workdps(30):

        def quotient(v):
            return mpmath.besseli(1, v) / mpmath.besseli(0, v)

        start = mpmath.mpf(bound_cells.CONCAVE_FROM)
        assert quotient(start) <= 1 - 1 / (2 * start)
        # e^V / I₀(V) is steepest where it turns concave, where equality holds.
        turn = mpmath.findroot(lambda v: quotient(v) - 1 + 1 / (2 * v), 0.79)
        assert turn <= start
        slope = mpmath.exp(turn) / mpmath.besseli(0, turn) * (1 - quotient(turn))
        assert slope <= bound_cells.STEEPEST <= 1.001 * slope


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.integers(0, 8))
def test_the_probability_of_k_events_is_below_its_bound(chances, count):
    law = [Fraction(1)]
    for chance in map(Fraction, chances):
        longer = [Fraction(0)] * (len(law) + 1)
        for number, mass in enumerate(law):
            longer[number] += mass * (1 - chance)
            longer[number + 1] += mass * chance
        law = longer
    variance = float(sum(Fraction(q) * (1 - Fraction(q)) for q in chances))
    bound = math.exp(-bound_cells.log_reciprocal(np.array([variance]))[0])
    assert (law[count] if count < len(law) else 0) <= bound * (1 + 1e-14)


@pytest.mark.parametrize("apart", [1e-3, 1.0, 1e3, 1e6])
def test_cells_in_line_keep_their_masses_and_are_not_more(apart):
    """However far columns are apart, in rows; and P keeps its mean of e^−loss."""
    rows = 1e-4 * np.arange(32.0)
    window = types.SimpleNamespace(rows=rows, row_step=1e-4)
    added = 1e-4 * apart * np.array([0.0, 0.3, 0.7, 1.0, 2.1])
    masses = np.random.default_rng(3).random((rows.size, added.size))
    losses, found = bound_cells._in_line(window, added, masses)
    assert losses.size == found.size <= masses.size
    assert math.isclose(found.sum(), masses.sum(), rel_tol=1e-12)
    means = (masses * np.exp(-rows[:, np.newaxis] - added)).sum()
    assert math.isclose((found * np.exp(-losses)).sum(), means, rel_tol=1e-12)
