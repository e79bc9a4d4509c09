"""Pairs of Gaussian mixtures against Neyman and Pearson's lemma to 40 digits."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import oracles
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.pairs import gaussian_mixture

Mixture = gaussian_mixture.Mixture


def bracket(p, q, epsilon, direction, tail_mass=1e-30):
    return [
        gaussian_mixture.dominating_pair_of(
            Mixture(tuple(p)), Mixture(tuple(q)), bound, tail_mass=tail_mass
        ).delta(epsilon, direction)
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


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("tail_mass", [1e-14, 1e-25, 1e-100, 1e-280])
@pytest.mark.parametrize("shift", [0.01, 0.1, 1.0, 3.0, 20.0])
def test_masses_of_a_gaussian_pair_err_by_no_more_than_they_say(
    shift, tail_mass, bound
):
    """They sum to one, tails and sinks included."""
    pair = gaussian_mixture.dominating_pair_of(
        Mixture(((shift, 1.0),)), Mixture(((0.0, 1.0),)), bound, tail_mass=tail_mass
    )
    sign = 1 if bound is Bound.LOWER else -1
    masses = math.fsum(pair.masses) + pair.zero_mass
    gains = math.fsum(pair.p_masses) + pair.infinity_mass
    assert sign * (masses - 1) <= pair.mass_error
    assert sign * (gains - 1) <= pair.mass_error + pair.ratio_error
