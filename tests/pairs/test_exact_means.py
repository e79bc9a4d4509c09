"""Pairs without errors against what they bound, in rational numbers."""

from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import exact_means

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
BOUNDS = list(Bound)


def exact_law(data, most_apart=0.1):
    """Draws (ratio, mass) of mass one and mean one, as rational numbers."""
    apart = st.floats(1e-4, most_apart).map(Fraction)
    heights = st.integers(1, 10**6).map(Fraction)
    above = data.draw(st.lists(st.tuples(apart, heights), min_size=1, max_size=4))
    below = data.draw(st.lists(st.tuples(apart, heights), min_size=1, max_size=4))
    weight = sum(x * mass for x, mass in above) / sum(x * mass for x, mass in below)
    atoms = [(1 + x, mass) for x, mass in above]
    atoms += [(1 - x, mass * weight) for x, mass in below]
    total = sum(mass for _, mass in atoms)
    return sorted((ratio, mass / total) for ratio, mass in atoms)


def exact_delta(law, epsilon, direction, above):
    """The divergence at a float e^ε, a little on the side that is asked for."""
    kappa = Fraction(math.exp(epsilon)) * (1 + above * Fraction(1, 2**50))
    if direction is Direction.REMOVE:
        return sum(mass * max(z - kappa, 0) for z, mass in law)
    return sum(mass * max(1 - kappa * z, 0) for z, mass in law)


def stored(data, law, bound, mass_error, ratio_error, lacking=0.0):
    """Draws what a computation with such errors may have made of a law."""
    share = st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1)
    ratios, masses = [], []
    for ratio, mass in law:
        ratios.append(float(ratio) * (1 + 0.999 * ratio_error * data.draw(share)))
        factor = 1 + 0.999 * mass_error * data.draw(share)
        # What is added to an upper bound, and lost to a lower one.
        extra = lacking * data.draw(st.floats(0, 1))
        factor *= 1 + extra if bound is Bound.UPPER else 1 - extra
        masses.append(float(mass) * factor)
    order = np.argsort(ratios, kind="stable")
    return dominating_pair.DominatingPair(
        np.array(ratios)[order],
        np.array(masses)[order],
        0.0,
        0.0,
        bound,
        mass_error,
        ratio_error,
    )


def epsilons(law):
    """At each ratio, between them, and near the middle."""
    ends = [math.log(ratio) for ratio, _ in law]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
    return [*ends, *middles, 0.0, 1e-9, -1e-9]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("lacking", [0.0, 1e-7])
@pytest.mark.parametrize("ratio_error", [1e-13, 1e-8])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_settled_pairs_stay_on_their_side(bound, lacking, ratio_error, data):
    law = exact_law(data)
    mass_error = data.draw(st.sampled_from([1e-12, 1e-9, 1e-7, 1e-5]))
    pair = stored(data, law, bound, mass_error, ratio_error, lacking)
    found = exact_means.settled(pair)
    if found is pair:  # Too little spread beside so large errors.
        return
    assert found.mass_error < 1e-14 and found.ratio_error < 1e-14
    for direction in Direction:
        for epsilon in epsilons(law):
            value = Fraction(found.delta(epsilon, direction))
            if bound is Bound.UPPER:
                assert value >= exact_delta(law, epsilon, direction, 1)
            else:
                assert value <= exact_delta(law, epsilon, direction, -1)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("spread", [1e-6, 1e-3, 0.3])
def test_ratios_that_err_towards_the_middle(bound, spread):
    """All of the spread may be rounding: the whole error is found in δ at 0."""
    error = 1e-6 * spread
    sign = 1 if bound is Bound.UPPER else -1
    law = [
        (1 - Fraction(spread), Fraction(1, 2)),
        (1 + Fraction(spread), Fraction(1, 2)),
    ]
    ratios = np.array([1 - spread + sign * error, 1 + spread - sign * error])
    pair = dominating_pair.DominatingPair(
        ratios, np.full(2, 0.5), 0.0, 0.0, bound, 0.0, error * (1 + 2 * spread)
    )
    found = exact_means.settled(pair)
    assert found is not pair
    for direction in Direction:
        value = Fraction(found.delta(0.0, direction))
        truth = exact_delta(law, 0.0, direction, 0)
        assert value >= truth if sign > 0 else value <= truth
        assert abs(value - truth) <= 1e-5 * truth + Fraction(1, 2**44)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("errors", [(1e-12, 1e-7), (1e-7, 1e-12)])
def test_what_is_traded_is_what_the_proof_asks_for(bound, errors):
    """Of atoms beyond any place that rounding may have taken for the middle."""
    sign = 1 if bound is Bound.UPPER else -1
    mass_error, ratio_error = (Fraction(sign * error) for error in errors)
    rng = np.random.default_rng(7)
    for _ in range(50):
        near = rng.uniform(-3e-7, 3e-7, 4)
        apart = np.sort([*near, -rng.uniform(0.01, 0.1), rng.uniform(0.01, 0.1)])
        masses = rng.dirichlet(np.ones(6))
        # Of a mean that is off by what errors may have made of it.
        p_excess, q_excess = 1 + sign * rng.uniform(0, 9e-8, 2)
        found = exact_means._change(
            apart,
            masses,
            p_excess=p_excess,
            q_excess=q_excess,
            mass_error=float(mass_error),
            ratio_error=float(ratio_error),
        )
        if math.isinf(found):
            continue
        p, q = Fraction(p_excess), Fraction(q_excess)
        middle = abs(ratio_error) + abs(p / q - 1)
        mean_error = sign * ((1 + mass_error) * q - 1)
        for side in (1, -1):
            error = sign * ((1 + mass_error) * p * (1 + side * ratio_error) - 1)
            beyond = side * apart
            for place in [0.0, *beyond[(-middle < beyond) & (beyond < middle)]]:
                there = [Fraction(x) for x in beyond[beyond >= place]]
                weights = [Fraction(m) for m in masses[beyond >= place]]
                mean = sum(w * x for w, x in zip(weights, there, strict=True))
                mean /= sum(weights)
                lacking = max(side * (error - mean_error), 0)
                assert Fraction(found) >= max(error, 0) + lacking / mean


@pytest.mark.parametrize("bound", BOUNDS)
def test_many_runs_keep_the_spread(bound):
    """What a million runs would multiply is a change of the spread, and small."""
    x = 1e-3
    pair = dominating_pair.DominatingPair(
        np.array([1 - x, 1 + x]), np.full(2, 0.5), 0.0, 0.0, bound, 1e-7, 1e-13
    )
    found = exact_means.settled(pair)
    sign = 1 if bound is Bound.UPPER else -1
    assert found.masses.sum() == pytest.approx(1, abs=1e-15)
    assert found.p_masses.sum() == pytest.approx(1, abs=1e-15)
    assert found.ratios - 1 == pytest.approx((1 + sign * 1.01e-7) * (pair.ratios - 1))


@pytest.mark.parametrize("bound", BOUNDS)
def test_small_ratios_keep_their_digits(bound):
    pair = dominating_pair.DominatingPair(
        np.array([1e-6, 1.0, 2 - 1e-6]),
        np.array([0.25, 0.5, 0.25]),
        0.0,
        0.0,
        bound,
        1e-13,
        1e-14,
    )
    found = exact_means.settled(pair)
    change = abs(found.ratios[2] - pair.ratios[2]) / (1 - 1e-6)
    least = Fraction(10) ** -6
    moved = Fraction(change) * (1 - least) * (-1 if bound is Bound.UPPER else 1)
    assert found is not pair
    assert float(found.ratios[0]) == pytest.approx(float(least + moved), rel=1e-9)


def test_sinks_of_an_upper_bound_are_raised():
    pair = dominating_pair.DominatingPair(
        np.array([0.9, 1.1]), np.full(2, 0.5), 1e-9, 1e-12, Bound.UPPER, 1e-6, 1e-12
    )
    found = exact_means.settled(pair)
    assert found.infinity_mass / 1e-9 == pytest.approx(1 + 1e-6, rel=1e-12)
    assert found.zero_mass / 1e-12 == pytest.approx(1 + 1e-6, rel=1e-12)
    assert found.masses.sum() + found.zero_mass == pytest.approx(1, abs=1e-15)
    assert found.p_masses.sum() + found.infinity_mass == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("ratios", "masses", "infinity_mass", "bound"),
    [
        ([], [], 0.0, Bound.UPPER),
        ([1.0], [1.0], 0.0, Bound.UPPER),
        ([0.5, 1.5], [0.5, 0.5], 1e-9, Bound.LOWER),
        ([0.5, 1.5], [0.5, 0.4], 0.0, Bound.LOWER),
        ([0.1, 1.9], [0.5, 0.5], 0.0, Bound.UPPER),
        ([0.0, 1.0, 2.0], [0.25, 0.5, 0.25], 0.0, Bound.UPPER),
        ([0.0, 1.0, 2.0], [0.25, 0.5, 0.25], 0.0, Bound.LOWER),
        ([0.1, 1.9], [0.5, 0.5], 0.0, Bound.LOWER),
        ([1.0, 1.5], [0.5, 0.5], 0.0, Bound.UPPER),
        ([0.9, 1.1], [0.4, 0.4], 0.0, Bound.UPPER),
        ([0.5, 1.5], [0.5, 0.5], 0.7, Bound.UPPER),
        ([0.8, 1.21], [0.5, 0.5], 0.0, Bound.LOWER),
    ],
)
def test_what_cannot_be_settled_stays(ratios, masses, infinity_mass, bound):
    """No spread, a sink of a lower bound, ratios near 0, a mass or mean far off."""
    pair = dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), infinity_mass, 0.0, bound, 1e-6, 1e-12
    )
    assert exact_means.settled(pair) is pair
