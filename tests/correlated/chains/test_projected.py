"""Projections from below: closed forms of mixtures, and quadrature of few bins."""

import correlated_oracles
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated.chains import projected


def exact(shifts, chances, epsilon, *, remove):
    """δ of Σ chance · N(shift, 1) against N(0, 1)."""
    with mpmath.workdps(60):
        total = mpmath.fsum(chances)
        p = [(s, mpmath.mpf(c) / total) for s, c in zip(shifts, chances, strict=True)]
    found = oracles.shift_mixture_deltas(p, ((0.0, 1.0),), epsilon)
    return found["remove" if remove else "add"]


@given(
    st.lists(
        st.tuples(st.just(0.0) | st.floats(1e-3, 3), st.floats(1e-6, 1.0)),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 3),
)
@example([(0.5, 1.0)], 0.0)
@example([(0.0, 0.9), (2.0, 0.1)], 1.0)
def test_mixtures_against_their_closed_form(parts, epsilon):
    shifts, chances = np.array(parts).T
    chances = chances / chances.sum()
    pair = projected.mixture_below(shifts, chances, tail_mass=1e-20)
    for direction in Direction:
        truth = exact(shifts, chances, epsilon, remove=direction is Direction.REMOVE)
        found = pair.delta(epsilon, direction)
        assert found <= truth
        assert found >= 0.999 * truth - 1e-9


def test_shifts_with_hardly_a_chance_are_lowered():
    shifts = np.array([0.0, 0.4, 0.4, 0.9, 1.0])
    chances = np.array([1e-305, 0.5, 0.25, 0.25, 1e-305])
    pair = projected.mixture_below(shifts, chances, tail_mass=1e-20)
    truth = exact([0.4, 0.9], [0.75, 0.25], 0.1, remove=True)
    assert 0.8 * truth < pair.delta(0.1, Direction.REMOVE) <= truth


def test_an_error_of_the_chances_lowers_the_bound():
    shifts, chances = np.array([0.0, 1.0]), np.array([0.9, 0.1])
    sure = projected.mixture_below(shifts, chances, tail_mass=1e-20)
    unsure = projected.mixture_below(
        shifts, chances, tail_mass=1e-20, probability_error=1e-3
    )
    below = exact(shifts, [0.9, 0.0999], 0.2, remove=True)
    assert unsure.delta(0.2, Direction.REMOVE) < below
    assert unsure.delta(0.2, Direction.REMOVE) < sure.delta(0.2, Direction.REMOVE)


@pytest.mark.parametrize("shifts", [[100.0, 100.0], [0.5, 1e6]])
def test_shifts_beyond_what_ratios_can_hold(shifts):
    pair = projected.mixture_below(
        np.array(shifts), np.array([0.5, 0.5]), tail_mass=1e-20
    )
    assert 0 < pair.delta(1.0, Direction.REMOVE) < 1


def test_negative_shifts_are_refused():
    with pytest.raises(ValueError, match="shifts and probabilities must be at least 0"):
        projected.mixture_below(np.array([-0.1]), np.ones(1), tail_mass=1e-20)


def test_bins_that_are_one_lose_nothing():
    """All outputs are one then: the projection is the mechanism."""
    gram = np.full((5, 5), 0.49)
    for pair in projected.of_gram(gram, error=1e-14, tail_mass=1e-20):
        truth = exact([0.7], [1.0], 1.0, remove=True)
        assert 0.9999 * truth <= pair.delta(1.0, Direction.REMOVE) <= truth


def test_three_eigenvectors_tell_more_than_one():
    gram = correlated_oracles.toeplitz_gram([1.0, 0.8, 0.6, 0.4], 16, 2, 2.0)
    found = projected.of_gram(gram, error=1e-14, tail_mass=1e-20)
    first, _, third = (pair.epsilon(1e-5, Direction.REMOVE) for pair in found)
    assert third > 1.05 * first


def test_products_that_are_uncertain_are_not_looked_at():
    """On a line their error lowers shifts; cells of several lines ask for more."""
    gram = correlated_oracles.toeplitz_gram([1.0, 0.5], 8, 1, 1.0)
    sure = projected.of_gram(gram, error=1e-14, tail_mass=1e-20)
    unsure = projected.of_gram(gram, error=1e-3, tail_mass=1e-20)
    assert (len(sure), len(unsure)) == (3, 2)
    for low, high in zip(unsure, sure, strict=False):
        assert low.delta(0.5, Direction.REMOVE) < high.delta(0.5, Direction.REMOVE)
