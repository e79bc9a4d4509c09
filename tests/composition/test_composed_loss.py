"""Composition against closed forms and enumeration."""

from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import saddle_point
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


def gaussian_runs(sigma, count, bound, direction, interval=1e-4):
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-60)
    law = loss_distribution.from_pair(pair, direction, count)
    return composed_loss.ComposedLoss([law], interval)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("sigma", "count"), [(1.0, 2), (5.0, 100), (30.0, 1000), (200.0, 10**5)]
)
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-15, 1e-30])
def test_gaussian_runs_against_the_closed_form(sigma, count, delta, direction):
    """No tolerance on the safe side; 5e-5 relative on the other, at any δ."""
    lower, upper = (
        gaussian_runs(sigma, count, bound, direction).epsilon(delta)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    mean = math.sqrt(count) / sigma
    assert oracles.gaussian_delta(mean, upper) <= delta
    if lower > 0:
        assert oracles.gaussian_delta(mean, lower) >= delta
    assert upper - lower <= 5e-5 * upper + 1e-9


@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.5, 3.0, 9.0])
@pytest.mark.parametrize("direction", list(Direction))
def test_delta_against_the_closed_form(epsilon, direction):
    truth = oracles.gaussian_delta(1.0, epsilon)
    lower, upper = (
        gaussian_runs(5.0, 25, bound, direction).delta(epsilon)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert lower <= truth <= upper
    if epsilon >= 0:
        assert upper <= lower * (1 + 3e-3)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_discrete_laws_against_enumeration(data):
    """Different mechanisms with counts, sinks included, as rational numbers."""
    direction = data.draw(st.sampled_from(list(Direction)))
    bound = data.draw(st.sampled_from(list(Bound)))
    pairs = [data.draw(strategies.pairs(bound, most_atoms=3)) for _ in range(2)]
    counts = [data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))]
    laws = [
        loss_distribution.from_pair(pair, direction, count)
        for pair, count in zip(pairs, counts, strict=True)
    ]
    found = composed_loss.ComposedLoss(laws, 1e-3)
    law, sink = oracles.composed_law(pairs, counts)
    for epsilon in (0.0, 0.4, 1.7, 4.0):
        side = 1 if bound is Bound.UPPER else -1
        kappa = Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**50))
        if direction is Direction.REMOVE:
            truth = oracles.remove_divergence(law, kappa, sink)
        else:
            truth = oracles.add_divergence(law, kappa, Fraction(0))
        value = found.delta(epsilon)
        # 2^-40 is what the masses drawn lack of one, as floats.
        if bound is Bound.UPPER:
            assert value >= min(truth, 1) - Fraction(1, 2**40)
        else:
            assert value <= truth + Fraction(1, 2**40)
        if 1e-6 < truth < 1:
            assert value == pytest.approx(float(truth), rel=0.02, abs=2e-3)


def test_the_order_of_laws_does_not_matter():
    laws = [
        loss_distribution.from_pair(
            gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-30),
            Direction.REMOVE,
            count,
        )
        for sigma, count in ((3.0, 5), (7.0, 20), (1.5, 1))
    ]
    values = [
        composed_loss.ComposedLoss(list(order), 1e-4).epsilon(1e-8)
        for order in itertools.permutations(laws)
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-6)


@pytest.mark.parametrize("bound", list(Bound))
def test_constant_losses_add_up(bound):
    law = loss_distribution.LossDistribution(
        np.array([0.5]), np.array([0.9]), 0.1, 2, bound
    )
    zero = loss_distribution.LossDistribution(
        np.array([0.0]), np.array([1.0]), 0.0, 7, bound
    )
    found = composed_loss.ComposedLoss([law, zero], 1e-4)
    for epsilon in (-1.0, 0.0, 0.7, 2.0):
        truth = 0.19 + 0.81 * max(-math.expm1(epsilon - 1.0), 0.0)
        assert found.delta(epsilon) == pytest.approx(truth, rel=1e-12)
    assert composed_loss.ComposedLoss([zero, zero], 1e-4).delta(0.0) <= 1e-14


def test_nothing_composed_loses_nothing():
    empty = composed_loss.ComposedLoss([], 1e-4)
    assert empty.epsilon(1e-6) == 0.0
    assert empty.delta(0.1) == 0.0
    assert empty.delta(-1.0) == pytest.approx(-math.expm1(-1.0))


def test_a_sink_above_delta_is_an_infinite_loss():
    law = loss_distribution.LossDistribution(
        np.array([0.0, 1.0]), np.array([0.5, 0.4]), 0.1, 2, Bound.UPPER
    )
    profile = composed_loss.ComposedLoss([law], 1e-4)
    assert profile.epsilon(0.1) == math.inf
    assert profile.epsilon(0.3) < 2.0
    assert profile.delta(5.0) == pytest.approx(0.19, rel=1e-9)


def test_a_coarse_interval_stays_certified():
    for interval in (0.5, 0.05, 0.005):
        upper = gaussian_runs(5.0, 100, Bound.UPPER, Direction.REMOVE, interval)
        assert oracles.gaussian_delta(2.0, upper.epsilon(1e-6)) <= 1e-6


@pytest.mark.parametrize("bound", list(Bound))
def test_rare_losses_go_to_the_safe_side(bound):
    law = loss_distribution.from_pair(
        gaussian.dominating_pair_of(2.0, bound, tail_mass=1e-20), Direction.REMOVE, 3
    )
    short = composed_loss._without_high(law, 0.2)
    raised = composed_loss._without_low(law, 20.0)
    assert short.losses.size < law.losses.size
    assert raised.losses.size < law.losses.size
    for changed in (short, raised):
        factor = dominating_pair.allowance(
            bound, changed.masses.size, changed.mass_error, 0.0
        )[1]
        total = sum(oracles.exact([*changed.masses, changed.infinity_mass]))
        whole = sum(oracles.exact([*law.masses, law.infinity_mass]))
        if bound is Bound.UPPER:
            assert Fraction(factor) * total >= whole
        else:
            assert total <= whole
            assert changed.masses.sum() < law.masses.sum() or changed is raised
            assert changed.infinity_mass == law.infinity_mass


def test_a_narrow_window_stays_certified(monkeypatch):
    monkeypatch.setattr(saddle_point, "_UPPER_EXPONENT", 1.0)
    monkeypatch.setattr(saddle_point, "_LOWER_EXPONENT", 1.0)
    monkeypatch.setattr(saddle_point, "_LEAST_EXPONENT", 0.5)
    for delta in (1e-2, 1e-8):
        lower, upper = (
            gaussian_runs(5.0, 50, bound, Direction.REMOVE).epsilon(delta)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        mean = math.sqrt(50) / 5.0
        assert oracles.gaussian_delta(mean, upper) <= delta
        assert lower == 0 or oracles.gaussian_delta(mean, lower) >= delta


def test_what_lies_above_the_window_counts():
    """A window that ends a little above where the profile is read."""
    law = loss_distribution.from_pair(
        gaussian.dominating_pair_of(5.0, Bound.UPPER, tail_mass=1e-20),
        Direction.REMOVE,
        50,
    )
    mean, deviation = 1.0, math.sqrt(2.0)
    window = saddle_point.Window(
        mean - 4 * deviation, mean + 0.3 * deviation, (1.0, 1.0), deviation
    )
    atoms = composed_loss._compose([law], 0.0, mean, window, 1e-3)
    assert atoms.delta(mean) >= oracles.gaussian_delta(math.sqrt(2.0), mean)
