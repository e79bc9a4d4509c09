"""Gaussian noise, around one shift or a random one, against many digits."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import oracles
import pytest
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.pairs import gaussian


@given(st.floats(0.01, 60.0), st.floats(0.0, 2.0), st.sampled_from(list(Bound)))
def test_closed_form_errs_on_its_side(mean, share, bound):
    epsilon = share * (mean**2 / 2 + 6 * mean)
    truth = oracles.gaussian_delta(mean, epsilon)
    found = gaussian.delta(mean, epsilon, bound)
    if bound is Bound.UPPER:
        assert found >= truth
    else:
        assert found <= truth
    if truth > 1e-300 and mean < 10:
        assert found == pytest.approx(float(truth), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-300, 6.2e-26, 1e-9, 0.5, 0.999])
@pytest.mark.parametrize("mean", [1e-12, 0.03, 40.0, 1e3, 1e7, 1e10, 6e10, 1e13])
def test_epsilon_of_any_mean(mean, delta):
    """Where δ falls at once from one to nothing, its slope is no float."""
    lower, upper = (
        gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert 0 <= lower <= upper < math.inf
    assert gaussian.delta(mean, upper, Bound.UPPER) <= delta
    if mean >= 40:
        # With t the quantile of δ, ε = m (m/2 − t): no digit of it is lost.
        assert upper <= lower * (1 + 1e-12)
        limit = mean * (mean / 2 - special.ndtri(delta))
        assert lower == pytest.approx(limit, rel=1 / mean**1.5 + 1e-13)
    if lower > 0:
        assert gaussian.delta(mean, lower, Bound.LOWER) >= delta * (1 - 1e-9)
        assert upper <= lower * (1 + 1e-6) + 1e-10


def bracket(p, q, epsilon, direction, tail_mass=1e-30):
    return [
        gaussian.of_mixtures(tuple(p), tuple(q), bound, tail_mass=tail_mass).delta(
            epsilon, direction
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


@settings(max_examples=25)
@given(st.data())
def test_any_mixture(data):
    def mixture(sign):
        size = data.draw(st.integers(1, 4))
        shifts = data.draw(
            st.lists(st.floats(0.0, 4.0), min_size=size, max_size=size, unique=True)
        )
        weights = data.draw(st.lists(st.integers(1, 64), min_size=size, max_size=size))
        total = sum(weights)
        with mpmath.workdps(60):
            exact = [mpmath.mpf(weight) / total for weight in weights]
        return [(sign * s, w) for s, w in zip(shifts, exact, strict=True)]

    p, q = mixture(1.0), mixture(-1.0)
    rounded = [[(s, float(w)) for s, w in each] for each in (p, q)]
    epsilon = data.draw(st.floats(0.0, 6.0))
    truths = oracles.shift_mixture_deltas(p, q, epsilon)
    for direction in Direction:
        lower, upper = bracket(*rounded, epsilon, direction)
        assert lower <= truths[direction.value] <= upper


def test_out_of_range_nothing_is_claimed():
    p, q = [(201.0, 1.0)], [(0.0, 1.0)]
    for direction in Direction:
        assert bracket(p, q, 1.0, direction) == [0.0, 1.0]
