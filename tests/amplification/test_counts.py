"""The theorem for counts against its definition, and k of t against enumeration."""

import dataclasses
from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import counts
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair

REMOVE = Direction.REMOVE
Kind = step_laws.Kind
NOTHING = [dominating_pair.trivial_pair(Bound.UPPER)]
EPSILONS = (0.0, 0.3, 1.0, 2.5, 5.0)


@settings(max_examples=8)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.data())
def test_upper_is_above_the_mechanism(pair, data):
    steps = data.draw(st.integers(3, 5))
    selected = data.draw(st.integers(2, steps - 1))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = counts.upper_pair([Kind(pair, steps)], selected, NOTHING, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-2.0, -0.5, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= truth


@pytest.mark.parametrize(
    ("selected", "steps", "epsilons", "looseness"),
    [
        (4, 7, [0.0, 0.3, 1.0], 2.0),
        (40, 300, [0.0, 1.0, 3.0, 4.5], 1.1),
        (12, 60, [0.5, 2.0, 3.0], 1.21),
    ],
)
def test_coins_of_which_the_number_of_ones_tells_all(
    selected, steps, epsilons, looseness
):
    kinds = [Kind(strategies.coin(Bound.UPPER), steps)]
    upper = counts.upper_pair(kinds, selected, NOTHING, tail_mass=1e-12)
    for epsilon in epsilons:
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.coin_divergence(selected, steps, kappa)
        assert truth <= upper.delta(epsilon, REMOVE) <= looseness * truth


def test_errors_of_the_step_are_carried():
    mass_error, ratio_error = 2.0**-30, 2.0**-32
    errors = {"mass_error": mass_error, "ratio_error": ratio_error}
    exact, rough = (
        counts.upper_pair([Kind(pair, 50)], 4, NOTHING, tail_mass=1e-12)
        for pair in (
            strategies.coin(Bound.UPPER),
            strategies.coin(Bound.UPPER, **errors),
        )
    )
    # Of t masses, and of k ratios that are moved as well.
    for epsilon in (0.1, 0.5, 1.0):
        grown = rough.delta(epsilon, REMOVE) / exact.delta(epsilon, REMOVE)
        assert grown >= 1 + 50 * mass_error
        moved = exact.delta(epsilon - 50 * ratio_error, REMOVE)
        assert rough.delta(epsilon, REMOVE) >= moved


@pytest.mark.parametrize("bound", list(Bound))
def test_what_has_one_ratio_shows_nothing(bound):
    constant = dominating_pair.DominatingPair(np.ones(1), np.ones(1), 0.0, 0.0, bound)
    nearly = dataclasses.replace(
        strategies.coin(bound), ratios=np.array([1 - 1e-10, 1 + 1e-10])
    )
    for pair in (constant, nearly):
        if bound is Bound.UPPER:
            found = counts.upper_pair([Kind(pair, 3)], 2, [pair], tail_mass=1e-9)
            assert found.delta(0.0, REMOVE) <= pair.delta(0.0, REMOVE) + 1e-10
        else:
            found = scores.lower_pair(
                [Kind(pair, 3)], 2, [((2,), 1.0)], REMOVE, tail_mass=1e-9
            )
            assert found.delta(0.0, REMOVE) <= 2e-10


@given(st.floats(0.0, 1e5), st.floats(0.0, 1.0))
def test_the_bound_on_the_probability_is_above_the_bessel_function(first, share):
    """And its reciprocal is concave and increases, without tolerance."""
    second = first + share * (first + 1)
    places = np.array([first, (first + second) / 2, second])
    values = counts.log_reciprocal(places)
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

        start = mpmath.mpf(counts.CONCAVE_FROM)
        assert quotient(start) <= 1 - 1 / (2 * start)
        # e^V / I₀(V) is steepest where it turns concave, where equality holds.
        turn = mpmath.findroot(lambda v: quotient(v) - 1 + 1 / (2 * v), 0.79)
        assert turn <= start
        slope = mpmath.exp(turn) / mpmath.besseli(0, turn) * (1 - quotient(turn))
        assert slope <= counts.STEEPEST <= 1.001 * slope


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
    bound = math.exp(-counts.log_reciprocal(np.array([variance]))[0])
    assert (law[count] if count < len(law) else 0) <= bound * (1 + 1e-14)


@pytest.mark.parametrize("infinity_masses", [(0.6, 0.3), (0.9, 0.0), (1e-4, 1e-3)])
def test_infinite_ratios_of_steps_that_differ(infinity_masses):
    """A record is in two of three steps, which are not drawn independently."""
    ratios, masses = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    pairs = [
        dominating_pair.DominatingPair(
            (1 - infinite) * ratios, masses, infinite, 0.0, Bound.UPPER
        )
        for infinite in infinity_masses
    ]
    steps = [pairs[0], pairs[0], pairs[1]]
    sets = list(itertools.combinations(range(3), 2))

    def mean(values):
        """The mean over the sets of the product of their steps' values."""
        products = [math.prod(values[i] for i in each) for each in sets]
        return sum(products) / Fraction(len(sets))

    infinite = 1 - mean([1 - Fraction(step.infinity_mass) for step in steps])
    found = counts.upper_pair(
        [Kind(pairs[0], 2), Kind(pairs[1], 1)], 2, NOTHING, tail_mass=1e-12
    )
    for epsilon in (-1.0, 0.0, 0.5, 1.0, 8.0):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = infinite
        for drawn in itertools.product(*(step.ratios.tolist() for step in steps)):
            truth += max(mean([Fraction(ratio) for ratio in drawn]) - kappa, 0) / 8
        assert found.delta(epsilon, REMOVE) >= truth
