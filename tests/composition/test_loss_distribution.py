"""A pair's privacy loss, and how it is put on a lattice, in exact fractions."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
LossDistribution = loss_distribution.LossDistribution

INTERVALS = st.sampled_from([0.013, 0.25, 1.0, 3.7])


@st.composite
def laws(draw, bound):
    """Losses, and masses that sum to one, some of them very near one another."""
    size = draw(st.integers(1, 8))
    losses = draw(st.lists(st.floats(-9.0, 9.0), min_size=size, max_size=size))
    masses = draw(st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size))
    array = np.array(masses) / math.fsum(masses)
    return LossDistribution(np.sort(losses), array, 0.0, draw(st.integers(1, 5)), bound)


def masses_of(law):
    """P-mass and Q-mass, the latter p e^{−loss}, to some 40 digits."""
    p = [mpmath.mpf(float(mass)) for mass in law.masses]
    q = [
        mass * mpmath.exp(-mpmath.mpf(float(loss)))
        for mass, loss in zip(p, law.losses, strict=True)
    ]
    return p, q


def on_lattice(law, interval, gather):
    factor, others = loss_distribution.on_lattice(law, interval, gather=gather)
    assert factor.count == law.count
    return factor, others


@settings(max_examples=150, deadline=None)
@given(
    laws(Bound.UPPER), INTERVALS, st.sampled_from([sums.gather, sums.gather_quickly])
)
def test_a_split_keeps_both_masses(law, interval, gather):
    factor, others = on_lattice(law, interval, gather)
    assert others is None
    assert np.all(factor.masses >= 0)
    with mpmath.workdps(40):
        p, q = masses_of(law)
        found_p = [mpmath.mpf(float(mass)) for mass in factor.masses]
        found_q = [
            mass * mpmath.exp(-(factor.start + i) * mpmath.mpf(interval))
            for i, mass in enumerate(found_p)
        ]
        assert abs(sum(found_p) - sum(p)) <= 1e-14 * sum(p)
        assert abs(sum(found_q) - sum(q)) <= 1e-13 * sum(q)


def divergence(p, q, epsilon):
    kappa = mpmath.exp(mpmath.mpf(epsilon))
    return sum(
        max(mine - kappa * other, mpmath.mpf(0))
        for mine, other in zip(p, q, strict=False)
    )


@settings(max_examples=150, deadline=None)
@given(laws(Bound.UPPER), INTERVALS, st.floats(-8.0, 8.0))
def test_a_split_is_above(law, interval, epsilon):
    """But for the rounding of a share, which callers count."""
    factor, _ = on_lattice(law, interval, sums.gather)
    with mpmath.workdps(40):
        truth = divergence(*masses_of(law), epsilon)
        p = [mpmath.mpf(float(mass)) for mass in factor.masses]
        q = [
            mass * mpmath.exp(-(factor.start + i) * mpmath.mpf(interval))
            for i, mass in enumerate(p)
        ]
        assert divergence(p, q, epsilon) >= truth - mpmath.mpf(1e-14)


@settings(max_examples=150, deadline=None)
@given(laws(Bound.LOWER), INTERVALS, st.floats(-8.0, 8.0))
def test_groups_keep_both_masses_and_are_below(law, interval, epsilon):
    factor, others = on_lattice(law, interval, sums.gather)
    assert others.start == factor.start
    with mpmath.workdps(40):
        p, q = masses_of(law)
        found_p = [mpmath.mpf(float(mass)) for mass in factor.masses]
        found_q = [
            mpmath.mpf(float(mass)) * mpmath.exp(-(factor.start + i) * interval)
            for i, mass in enumerate(others.masses)
        ]
        assert abs(sum(found_p) - sum(p)) <= 1e-14 * sum(p)
        assert abs(sum(found_q) - sum(q)) <= 1e-13 * sum(q)
        truth = divergence(p, q, epsilon)
        assert divergence(found_p, found_q, epsilon) <= truth + mpmath.mpf(1e-13)


def test_losses_on_the_lattice_stay_where_they_are():
    losses, masses = np.array([-2.0, 0.0, 3.0]), np.array([0.25, 0.5, 0.25])
    for bound in Bound:
        law = LossDistribution(losses, masses, 0.0, 2, bound)
        factor, others = loss_distribution.on_lattice(law, 1.0)
        occupied = np.flatnonzero(factor.masses)
        assert (factor.start + occupied).tolist() == [-2, 0, 3]
        assert factor.masses[occupied].tolist() == [0.25, 0.5, 0.25]
        if others is not None:
            assert others.masses.tolist() == factor.masses.tolist()


@settings(max_examples=100, deadline=None)
@given(
    strategies.pairs(Bound.UPPER) | strategies.pairs(Bound.LOWER),
    st.sampled_from(list(Direction)),
    st.floats(-4.0, 4.0),
)
def test_the_loss_of_a_pair_has_its_profile(pair, direction, epsilon):
    """sink + Σ p (1 − e^{ε − loss})₊, within the errors that the loss names."""
    law = loss_distribution.from_pair(pair, direction, 3)
    assert (law.count, law.bound) == (3, pair.bound)
    assert np.all(np.diff(law.losses) >= 0)
    with mpmath.workdps(40):
        p, q = masses_of(law)
        found = mpmath.mpf(law.infinity_mass) + divergence(p, q, epsilon)
        truth = oracles.stored_delta(pair, epsilon, direction)
        assert abs(found - truth) <= 2 * law.mass_error + 2 * law.ratio_error
    assert law.mass_error + law.ratio_error <= 1e-13


@settings(max_examples=100, deadline=None)
@given(strategies.pairs(Bound.UPPER), st.sampled_from(list(Direction)))
def test_losses_err_by_no_more_than_they_say(pair, direction):
    law = loss_distribution.from_pair(pair, direction, 1)
    ratios = pair.ratios if direction is Direction.REMOVE else pair.ratios[::-1]
    masses = pair.masses if direction is Direction.REMOVE else pair.masses[::-1]
    sign = 1 if direction is Direction.REMOVE else -1
    with mpmath.workdps(40):
        for loss, mass, z, q in zip(
            law.losses, law.masses, ratios, masses, strict=True
        ):
            exact = sign * mpmath.log(mpmath.mpf(float(z)))
            assert abs(mpmath.mpf(float(loss)) - exact) <= law.ratio_error
            mine = Fraction(float(q)) * (Fraction(float(z)) if sign > 0 else 1)
            assert abs(Fraction(float(mass)) - mine) <= Fraction(law.mass_error) * mine


@given(st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(1, 50)), max_size=4))
def test_infinity_is_the_chance_of_any(sinks):
    laws_of = [
        LossDistribution(np.zeros(1), np.ones(1), sink, count, Bound.UPPER)
        for sink, count in sinks
    ]
    none = math.prod((1 - Fraction(sink)) ** count for sink, count in sinks)
    found = loss_distribution.infinity_mass(laws_of)
    assert found == pytest.approx(float(1 - none), rel=1e-12, abs=1e-300)


@given(
    st.lists(st.tuples(st.floats(0.1, 1.4), st.integers(1, 9)), min_size=1, max_size=4)
)
def test_no_mass_of_a_composition_is_above_the_most(totals):
    """Laws of less mass than one do not count: their share may be at one loss."""
    laws_of = [
        LossDistribution(np.zeros(2), np.full(2, total / 2), 0.0, count, Bound.UPPER)
        for total, count in totals
    ]
    most = loss_distribution.most_mass(laws_of)
    for kept in (1, len(totals)):
        exact = math.prod(
            max(Fraction(total), Fraction(1)) ** count for total, count in totals[:kept]
        )
        assert exact <= Fraction(most)
    assert most <= float(exact) * (1 + 1e-8)
    vast = LossDistribution(np.zeros(1), np.full(1, 2.0), 0.0, 10**9, Bound.UPPER)
    assert math.isfinite(loss_distribution.most_mass([vast]))


@pytest.mark.parametrize("bound", list(Bound))
def test_empty_cells_are_left_out_of_a_wide_law(bound):
    losses = np.array([-0.31, -0.3, 0.0, 0.7, 0.71, 55.5])
    masses = np.array([0.2, 0.2, 0.3, 0.2, 0.05, 0.05])
    law = loss_distribution.LossDistribution(losses, masses, 0.0, 3, bound)
    whole = loss_distribution.on_lattice(law, 1e-2)
    for dense, short in zip(
        whole, loss_distribution.on_lattice(law, 1e-2, with_gaps=True), strict=True
    ):
        if dense is None or short is None:
            assert dense is short
            continue
        filled = np.zeros(dense.masses.size)
        filled[short.places] = short.masses
        np.testing.assert_array_equal(filled, dense.masses)
        assert (short.start, short.end, short.count) == (dense.start, dense.end, 3)
        assert short.masses.size <= 12
