"""Three bounds on k of t steps, against enumerated outputs, and their lemmas.

`two_out_of_t` and `counts` bound it from above, `scores` does from below.
"""

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
from dp_accounting_ext.amplification import plane_sums
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair

REMOVE = Direction.REMOVE
Kind = step_laws.Kind
NOTHING = [dominating_pair.trivial_pair(Bound.UPPER)]
COIN = strategies.coin(Bound.UPPER)


def by_groups(pair, selected, steps):
    assert selected == 2
    return two_out_of_t.two_out_of_t(pair, steps, tail_mass=1e-12)


def by_counts(pair, selected, steps):
    return counts.upper_pair([Kind(pair, steps)], selected, NOTHING, tail_mass=1e-12)


def by_scores(pair, selected, steps, direction, tail_mass=1e-12):
    whole, pair = [((selected,), 1.0)], dataclasses.replace(pair, bound=Bound.LOWER)
    return scores.lower_pair(
        [Kind(pair, steps)], selected, whole, direction, tail_mass=tail_mass
    )


# Of the directions that a theorem is about.
UPPER = {by_groups: tuple(Direction), by_counts: (REMOVE,)}


def around(epsilon):
    """Rational numbers below e^ε and above it, by more than the rounding of exp."""
    return [Fraction(math.exp(epsilon)) * (1 + s * Fraction(2**-50)) for s in (-1, 1)]


@settings(max_examples=16)
@given(
    strategies.pairs(Bound.UPPER, most_atoms=3),
    st.integers(2, 6),
    st.sampled_from([2, 3, 2, 3, 4, 5, 1]),
)
def test_bounds_are_on_their_sides_of_the_mechanism(pair, steps, selected):
    selected = min(selected, steps)
    law, infinity = oracles.allocation_law(pair, selected, steps)
    makers = [by_groups] * (selected == 2) + [by_counts] * (selected > 1)
    upper = {m: m(pair, selected, steps) for m in makers if selected < steps}
    truths = oracles.remove_divergence, oracles.add_divergence
    for way, truth, sink in zip(Direction, truths, (infinity, 0), strict=True):
        lower = by_scores(pair, selected, steps, way)
        # Or what is made of many of them is too large.
        assert math.fsum(lower.masses) <= 1
        for epsilon in (-2.0, -1.0, -0.5, 0.0, 0.3, 1.0, 2.5, 5.0):
            most, least = (truth(law, kappa, sink) for kappa in around(epsilon))
            assert lower.delta(epsilon, way) <= most
            for make, found in upper.items():
                assert found.bound is Bound.UPPER
                assert way not in UPPER[make] or found.delta(epsilon, way) >= least


NEAR = [0.0, 0.2, 0.4, 0.6]


@pytest.mark.parametrize(
    ("selected", "steps", "epsilons", "make", "looseness"),
    [
        (3, 3, [0.0, 0.2, 1.0], None, 1),
        (2, 5, [0.0, 0.1, 0.3], None, 1),
        (60, 60, [0.5, 3.0, 8.0, 14.0], None, 1),
        (2, 9, NEAR, by_groups, 1.1),
        (2, 11, NEAR, by_groups, 1.1),
        (4, 7, [0.0, 0.3, 1.0], by_counts, 2.0),
        (12, 60, [0.5, 2.0, 3.0], by_counts, 1.21),
        (40, 300, [0.0, 1.0, 3.0, 4.5], by_counts, 1.1),
    ],
)
def test_coins_of_which_the_number_of_ones_tells_all(
    selected, steps, epsilons, make, looseness
):
    """From below nothing is lost; from above a theorem is so loose at most."""
    upper = make and make(COIN, selected, steps)
    for way in Direction:
        lower = by_scores(COIN, selected, steps, way, tail_mass=1e-14)
        assert lower.bound is Bound.LOWER
        for epsilon in epsilons:
            most, least = (
                oracles.coin_divergence(
                    selected, steps, kappa, is_removed=way is REMOVE
                )
                for kappa in around(epsilon)
            )
            assert (1 - Fraction(1, 10**9)) * most <= lower.delta(epsilon, way) <= most
            if make and way in UPPER[make]:
                assert least <= upper.delta(epsilon, way) <= looseness * least


@pytest.mark.parametrize(
    ("make", "selected", "steps", "moved"),
    [(by_groups, 2, 6, 2), (by_counts, 4, 12, 12)],
)
def test_errors_of_the_step_are_carried(make, selected, steps, moved):
    """Of t masses, and of so many ratios."""
    exact = make(COIN, selected, steps)
    for mass, ratio in ((2.0**-30, 0.0), (0.0, 2.0**-32)):
        step = strategies.coin(Bound.UPPER, mass_error=mass, ratio_error=ratio)
        rough = make(step, selected, steps)
        for way, epsilon in itertools.product(UPPER[make], (0.1, 0.2, 0.5)):
            least = exact.delta(epsilon - moved * ratio, way) * (1 + steps * mass)
            assert rough.delta(epsilon, way) >= least


def test_what_has_one_ratio_shows_nothing():
    constant = dominating_pair.identity_pair(Bound.UPPER)
    nearly = dataclasses.replace(COIN, ratios=np.array([1 - 1e-10, 1 + 1e-10]))
    assert by_groups(constant, 2, 5).delta(0.0, REMOVE) <= 1e-5
    for pair in (constant, nearly):
        found = counts.upper_pair([Kind(pair, 3)], 2, [pair], tail_mass=1e-9)
        assert found.delta(0.0, REMOVE) <= pair.delta(0.0, REMOVE) + 1e-10
        lower = by_scores(pair, 2, 3, REMOVE, tail_mass=1e-9)
        assert lower.delta(0.0, REMOVE) <= 2e-10
    for way in Direction:
        assert by_groups(NOTHING[0], 2, 5).delta(1.0, way) == 1.0


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


@pytest.mark.parametrize(
    ("mass_error", "ratio_error"), [(2.0**-30, 2.0**-34), (2.0**-34, 2.0**-30)]
)
def test_errors_of_the_step_are_carried_and_those_of_the_sums_added(
    mass_error, ratio_error
):
    """A product of t masses, and of k ratios, errs t and k times as much as one."""
    exact, rough = (
        by_scores(strategies.coin(Bound.LOWER, **errors), 4, 50, REMOVE)
        for errors in ({}, {"mass_error": mass_error, "ratio_error": ratio_error})
    )
    carried = rough.mass_error - exact.mass_error
    assert carried == pytest.approx(50 * (mass_error + ratio_error), rel=1e-6)
    # The masses count as exact: a ratio of sums errs as four ratios do, either way.
    carried = rough.ratio_error - exact.ratio_error
    assert carried == pytest.approx(2 * 4 * ratio_error, rel=1e-6)


@given(strategies.pairs(Bound.UPPER), st.integers(1, 4), st.floats(1e-9, 0.9))
def test_what_is_lost_with_large_ratios_is_counted(pair, selected, mass):
    steps = step_laws.Steps.of([step_laws.Kind(pair, 6)], selected)
    kept, lost = steps.without_largest(mass)
    assert lost <= mass * (1 + 1e-8)
    first = kept.ratios.size
    assert kept.ratios.tolist() == steps.ratios[:first].tolist()
    gone = sum(n * masses[first:].sum() for masses, n in steps.with_record([selected]))
    assert gone <= lost
    assert kept.num_selected == selected


def test_masses_of_few_digits_are_on_the_safe_side():
    """A mass of 1e-290, split, would be below what floats hold: raised."""
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1.5, 2.0e3]), np.array([0.5, 0.5, 1e-290]), 0.0, 0.0, Bound.UPPER
    )
    steps = step_laws.Steps.of([step_laws.Kind(pair, 4)], 2)
    scores = step_laws.scores(pair.ratios, 0.5)[::2]
    step = float(scores[0][-1]) * (1 - 1e-13)
    grid = plane_sums.Grid(0.0, np.ones(2), 0.0, step, 0.25, 64, 16, 1)
    for masses, count in steps.with_record([2]):
        factor = grid.factor(scores, masses, count)
        assert factor.masses.min() >= 1e-300
        assert factor.masses.size == 2 * 2 * 3
