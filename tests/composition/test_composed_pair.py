"""Pairs of compositions against closed forms and enumeration, in both tails."""

from fractions import Fraction
import functools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.composition import composed_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


@functools.cache
def gaussian_runs(sigma, count, bound):
    """Composed once for all that is asked of them."""
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-32)
    return composed_pair.compose([(pair, count)], tail_mass=1e-26)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("sigma", "count"), [(1.0, 2), (5.0, 100), (60.0, 3000)])
@pytest.mark.parametrize("delta", [0.2, 1e-6, 1e-15, 1e-22])
def test_gaussian_runs_against_the_closed_form(sigma, count, delta, direction):
    lower, upper = (
        gaussian_runs(sigma, count, bound).epsilon(delta, direction)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    mean = math.sqrt(count) / sigma
    assert oracles.gaussian_delta(mean, upper) <= delta
    assert oracles.gaussian_delta(mean, lower) >= delta
    assert upper - lower <= 1e-4 * upper


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_discrete_pairs_against_enumeration(data):
    bound = data.draw(st.sampled_from(list(Bound)))
    pairs = [data.draw(strategies.pairs(bound, most_atoms=3)) for _ in range(2)]
    counts = [data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))]
    found = composed_pair.compose(
        list(zip(pairs, counts, strict=True)), tail_mass=1e-14
    )
    law, sink = oracles.composed_law(pairs, counts)
    for epsilon in (-1.0, 0.0, 0.4, 1.7, 4.0):
        side = 1 if bound is Bound.UPPER else -1
        kappa = Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**50))
        truths = {
            Direction.REMOVE: oracles.remove_divergence(law, kappa, sink),
            Direction.ADD: oracles.add_divergence(law, kappa, Fraction(0)),
        }
        for direction, truth in truths.items():
            value = found.delta(epsilon, direction)
            # 2^-40 is what the masses drawn lack of one, as floats.
            if bound is Bound.UPPER:
                assert value >= min(truth, 1) - Fraction(1, 2**40)
            else:
                assert value <= truth + Fraction(1, 2**40)
            if 1e-6 < truth < 1:
                assert value == pytest.approx(float(truth), rel=0.02, abs=2e-3)


@pytest.mark.parametrize("bound", list(Bound))
def test_masses_are_conserved(bound):
    pair = gaussian.dominating_pair_of(2.0, bound, tail_mass=1e-25)
    found = composed_pair.compose([(pair, 40)], tail_mass=1e-20)
    assert abs(found.p_masses.sum() + found.infinity_mass - 1) < 1e-9
    assert abs(found.masses.sum() + found.zero_mass - 1) < 1e-9


def test_the_left_tail_survives_subsampling():
    """A sample of a composition: p e^{−loss} must not blow noise up."""
    rate, sigma, count = 0.01, 4.0, 64
    mean = math.sqrt(count) / sigma
    for direction in Direction:
        for epsilon in (1e-4, 0.02, 0.3):
            truth = oracles.shift_mixture_deltas(
                [(0.0, 1 - rate), (mean, rate)], [(0.0, 1.0)], epsilon
            )[direction.value]
            lower, upper = (
                poisson_subsampling.poisson_subsample(
                    composed_pair.compose(
                        [
                            (
                                gaussian.dominating_pair_of(sigma, b, tail_mass=1e-30),
                                count,
                            )
                        ],
                        tail_mass=1e-25,
                    ),
                    rate,
                ).delta(epsilon, direction)
                for b in (Bound.LOWER, Bound.UPPER)
            )
            assert lower <= truth <= upper
            assert upper - lower <= 1e-5 * upper + 1e-13


def test_rare_large_losses_keep_their_place():
    """Few copies of an allocation: tilts must cover what lies beyond the bulk."""
    step = allocated.RandomAllocation(additive_noise.Gaussian(1.5), 1, 32)
    for count in (2, 8):
        lower, upper = (
            composed_pair.compose(
                [(interface.pairs_of(step, bound, 1e-19).remove, count)],
                tail_mass=1e-17,
            )
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        for delta in (1e-3, 1e-8, 1e-12):
            for direction in Direction:
                low = lower.epsilon(delta, direction)
                high = upper.epsilon(delta, direction)
                assert low <= high <= low * (1 + 1e-3)


def test_constants_multiply():
    pair = dominating_pair.DominatingPair(
        np.array([0.9]), np.array([0.8]), 1 - 0.72, 0.2, Bound.UPPER
    )
    found = composed_pair.compose([(pair, 3)], tail_mass=1e-12)
    assert found.ratios[0] == pytest.approx(0.9**3)
    assert found.masses[0] == pytest.approx(0.8**3)
    assert found.infinity_mass == pytest.approx(1 - 0.72**3)
    assert found.zero_mass == pytest.approx(1 - 0.8**3)


@pytest.mark.parametrize("bound", list(Bound))
def test_what_is_unknown_stays_unknown(bound):
    pair = gaussian.dominating_pair_of(1.0, bound, tail_mass=1e-15)
    unknown = dominating_pair.trivial_pair(bound)
    found = composed_pair.compose([(pair, 2), (unknown, 1)], tail_mass=1e-12)
    value = found.delta(1.0, Direction.REMOVE)
    if bound is Bound.UPPER:
        assert value == 1.0
    else:
        assert 0 < value <= oracles.gaussian_delta(math.sqrt(2), 1.0)


@settings(max_examples=40, deadline=None)
@given(strategies.pairs(Bound.UPPER), st.floats(1e-6, 0.3), st.data())
def test_without_tails(pair, tail_mass, data):
    bound = data.draw(st.sampled_from(list(Bound)))
    pair = dominating_pair.dataclasses.replace(pair, bound=bound)
    short = dominating_pair.without_tails(pair, tail_mass)
    for epsilon in (-1.0, 0.0, 0.5, 2.0):
        for direction in Direction:
            before = oracles.stored_delta(pair, epsilon, direction)
            after = short.delta(epsilon, direction)
            if bound is Bound.UPPER:
                assert after >= min(before, 1)
                assert (
                    after <= before + 2 * tail_mass * max(1, math.exp(epsilon)) + 1e-12
                )
            else:
                assert after <= before


@pytest.mark.parametrize("bound", list(Bound))
def test_ratios_that_are_one_but_for_rounding(bound):
    """A law without spread beside a constant: there is no scale to lay a lattice on."""
    constant = dominating_pair.DominatingPair(
        np.array([0.875]), np.ones(1), 0.125, 0.0, bound
    )
    twice = dominating_pair.DominatingPair(
        np.array([1.0, 1.0]), np.array([0.5, 0.5]), 0.0, 0.0, bound
    )
    found = composed_pair.compose([(constant, 1), (twice, 1)], tail_mass=1e-14)
    for epsilon in (-1.0, 0.0, 1.0):
        truth = constant.hockey_stick(epsilon, Direction.REMOVE)
        assert found.delta(epsilon, Direction.REMOVE) == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("epsilon", [10.0, 13.0, 16.0])
def test_tails_that_are_cut_off_go_to_the_sinks(direction, epsilon):
    """A tail mass so large that the window ends before the profile is read."""
    base = gaussian.dominating_pair_of(1.0, Bound.UPPER, tail_mass=1e-30)
    found = composed_pair.compose([(base, 9)], tail_mass=1e-3)
    truth = oracles.gaussian_delta(3.0, epsilon)
    assert found.delta(epsilon, direction) >= truth
    assert found.delta(epsilon, direction) <= truth + 1e-2


def test_a_window_shorter_than_the_sum_keeps_what_lies_above():
    """Forty ratios e^{±½}: a binomial sum with its upper tail out of the window."""
    count, up = 40, 1 / (1 + math.exp(0.5))
    pair = dominating_pair.DominatingPair(
        np.exp([-0.5, 0.5]), np.array([1 - up, up]), 0.0, 0.0, Bound.UPPER
    )
    found = composed_pair.compose([(pair, count)], tail_mass=1e-3)
    for epsilon in (12.0, 15.0, 18.0):
        truth = mpmath.mpf(0)
        with mpmath.workdps(40):
            rare = 1 / (1 + mpmath.exp(mpmath.mpf(1) / 2))
            for ups in range(count + 1):
                loss = mpmath.mpf(2 * ups - count) / 2
                chance = mpmath.binomial(count, ups)
                chance *= (1 - rare) ** ups * rare ** (count - ups)
                truth += chance * max(1 - mpmath.exp(epsilon - loss), 0)
        assert found.delta(epsilon, Direction.REMOVE) >= truth
        assert found.delta(epsilon, Direction.ADD) >= truth


def test_a_rare_ratio_that_is_cut_counts_as_infinite():
    rare = 1e-6
    pair = dominating_pair.DominatingPair(
        np.array([1 - rare, math.exp(5.0)]),
        np.array([1.0 - rare, rare * math.exp(-5.0)]),
        0.0,
        rare * (1 - math.exp(-5.0)),
        Bound.UPPER,
    )
    found = composed_pair.compose([(pair, 2)], tail_mass=1e-3)
    truth = 2 * rare * -math.expm1(2.0 - 5.0) * (1 - 3 * rare)
    assert found.delta(2.0, Direction.REMOVE) >= truth


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("loss", [-1.0, 1.0])
def test_constant_losses_that_add_up_to_no_float(bound, loss):
    """Each run says nothing or all: their sum of 1000 nats fits no ratio."""
    rare = 1 - math.exp(-1.0)
    sinks = (rare, 0.0) if loss < 0 else (0.0, rare)
    pair = dominating_pair.DominatingPair(
        np.array([math.exp(loss)]), np.array([1 - sinks[1]]), *sinks, bound
    )
    found = composed_pair.compose([(pair, 1000)], tail_mass=1e-12)
    for direction in Direction:
        for epsilon in (0.0, 5.0, 600.0):
            value = found.delta(epsilon, direction)
            assert value == (1.0 if bound is Bound.UPPER else 0.0)
