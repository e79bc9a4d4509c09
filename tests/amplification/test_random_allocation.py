"""1-out-of-t allocation: both routes against enumeration, quadrature, sampling."""

from fractions import Fraction
import functools
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import allocation_stages
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route
BOUNDS = (Bound.LOWER, Bound.UPPER)
ROUTES = (Route.GEOMETRIC, Route.ADDITIVE)


@functools.cache
def allocated(sigma, steps, bound, *, delta=1e-6, route=Route.AUTOMATIC, points=None):
    tail_mass = delta * 1e-6
    base = gaussian.dominating_pair_of(sigma, bound, tail_mass=tail_mass / steps / 100)
    return random_allocation.random_allocation(
        base, steps, tail_mass=tail_mass, route=route, points=points
    )


def bracket(sigma, steps, delta, direction, **options):
    return tuple(
        allocated(sigma, steps, bound, delta=delta, **options).epsilon(delta, direction)
        for bound in BOUNDS
    )


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_small_discrete_pairs_against_enumeration(route, data):
    """No tolerance on the safe side; the oracle is rational arithmetic."""
    steps = data.draw(st.integers(2, 5))
    upper = data.draw(strategies.pairs(Bound.UPPER))
    law = [
        (place / steps, mass)
        for place, mass in oracles.sum_law(
            [([0.0, *upper.ratios], [upper.zero_mass, *upper.masses], steps)]
        )
    ]
    infinity = Fraction(upper.infinity_mass)
    for bound in BOUNDS:
        base = dominating_pair.DominatingPair(
            upper.ratios, upper.masses, upper.infinity_mass, upper.zero_mass, bound
        )
        found = random_allocation.random_allocation(
            base, steps, tail_mass=1e-12, route=route, points=800
        )
        for epsilon in (-1.0, 0.0, 0.2, 0.7, 1.5, 3.0):
            # The oracle's κ is moved against the bound by more than exp's rounding.
            slack = Fraction(1) + Fraction(1, 2**50) * (
                1 if bound is Bound.UPPER else -1
            )
            kappa = Fraction(math.exp(epsilon)) * slack
            remove = oracles.remove_divergence(law, kappa, infinity)
            add = oracles.add_divergence(law, kappa, Fraction(0))
            for direction, truth in ((Direction.REMOVE, remove), (Direction.ADD, add)):
                value = found.delta(epsilon, direction)
                if bound is Bound.UPPER:
                    assert value >= min(truth, 1)
                else:
                    assert value <= truth


@pytest.mark.parametrize("steps", [2, 3, 7, 12, 13, 31, 64, 97])
@pytest.mark.parametrize("route", ROUTES)
def test_the_mean_of_the_ratio_is_kept(route, steps):
    """Mass and mean of upper bounds end up in atoms and sinks, all of them."""
    pair = allocated(1.0, steps, Bound.UPPER, route=route)
    assert pair.masses.sum() + pair.zero_mass == pytest.approx(1.0, abs=1e-9)
    assert pair.p_masses.sum() + pair.infinity_mass == pytest.approx(1.0, abs=2e-8)
    assert pair.infinity_mass < 2e-8
    assert pair.zero_mass < 1e-9


def test_one_step_is_the_mechanism_itself():
    base = gaussian.dominating_pair_of(1.0, Bound.UPPER, tail_mass=1e-20)
    assert random_allocation.random_allocation(base, 1, tail_mass=1e-12) is base


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("direction", list(Direction))
def test_two_steps_against_quadrature(sigma, direction):
    pairs = {bound: allocated(sigma, 2, bound) for bound in BOUNDS}
    for share in (0.0, 0.15, 0.5):
        epsilon = share * (0.5 / sigma**2 + 4 / sigma)
        truth = oracles.two_step_delta(
            sigma, epsilon, remove=direction is Direction.REMOVE
        )
        lower, upper = (pairs[bound].delta(epsilon, direction) for bound in BOUNDS)
        assert lower <= truth <= upper
        if truth > 1e-9:
            assert upper - lower <= 1e-3 * truth


GOLDEN = [
    # σ, t, δ, direction, ε and half its width: the independent computation.
    (1.0, 1000, 1e-6, Direction.REMOVE, 0.1717287, 2e-7),
    (1.0, 1000, 1e-6, Direction.ADD, 0.149431, 5e-7),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "direction", "value", "half"), GOLDEN
)
def test_golden_values(route, sigma, steps, delta, direction, value, half):
    lower, upper = bracket(sigma, steps, delta, direction, route=route)
    assert lower <= value + half
    assert value - half <= upper
    assert upper - lower <= 2e-4 * upper


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"),
    [(1.0, 20, 1e-6), (0.6, 300, 1e-6), (2.0, 300, 1e-9), (1.0, 143, 1e-15)],
)
@pytest.mark.parametrize("direction", list(Direction))
def test_routes_agree(sigma, steps, delta, direction):
    """Two computations that share nothing but the base: their brackets meet."""
    first, second = (
        bracket(sigma, steps, delta, direction, route=route) for route in ROUTES
    )
    assert first[0] <= second[1]
    assert second[0] <= first[1]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("direction", list(Direction))
def test_brackets_narrow_as_the_budget_grows(route, direction):
    """Nested up to the last digits, which a finer grid may round otherwise."""
    brackets = [
        bracket(1.0, 60, 1e-6, direction, route=route, points=points)
        for points in (500, 2000, 8000)
    ]
    for wide, narrow in itertools.pairwise(brackets):
        width = wide[1] - wide[0]
        assert narrow[0] >= wide[0] - 0.02 * width
        assert narrow[1] <= wide[1] + 0.02 * width
        assert narrow[1] - narrow[0] < 0.3 * width


@pytest.mark.parametrize(
    ("route", "power"), [(Route.GEOMETRIC, 1.6), (Route.ADDITIVE, 1.6)]
)
def test_convergence_is_second_order(route, power):
    """Four times the points: a gap some sixteen times smaller."""
    gaps = []
    for points in (1000, 4000):
        lower, upper = bracket(
            2.0, 50, 1e-6, Direction.REMOVE, route=route, points=points
        )
        gaps.append(upper - lower)
    assert math.log(gaps[0] / gaps[1], 4) > power


@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
@pytest.mark.parametrize("steps", [4, 100, 1000])
def test_second_moment_is_analytic(sigma, steps):
    """Figure 9: E_Q[Z²] = 1 + (e^{1/σ²} − 1)/t, which grouping lowers."""
    truth = math.expm1(1 / sigma**2) / steps
    upper, lower = (
        allocated(sigma, steps, bound, delta=1e-12)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    assert lower.masses @ lower.ratios**2 <= (1 + truth) * (1 + 1e-9)
    # What an upper bound sends to infinity has no second moment to count.
    assert upper.variance() == pytest.approx(truth, rel=1e-3)
    assert lower.variance() == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 10), (0.5, 30)])
def test_monte_carlo_agrees_in_the_bulk(sigma, steps):
    pairs = [allocated(sigma, steps, bound) for bound in BOUNDS]
    for epsilon in (0.0, 0.1):
        estimates = oracles.monte_carlo_deltas(sigma, steps, epsilon, 200_000, 5)
        for direction in Direction:
            estimate, error = estimates[direction.value]
            lower, upper = (pair.delta(epsilon, direction) for pair in pairs)
            assert lower - 5 * error <= estimate <= upper + 5 * error


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 3), (1.0, 100), (0.5, 20)])
def test_upper_is_above_what_the_maximum_reveals(sigma, steps):
    upper = allocated(sigma, steps, Bound.UPPER)
    for epsilon in (0.1, 1.0, 2.0, 4.0):
        revealed = oracles.max_statistic_delta(sigma, 1, steps, epsilon)
        assert upper.delta(epsilon, Direction.REMOVE) >= revealed


@pytest.mark.parametrize("delta", [1e-12, 1e-40])
def test_small_deltas_stay_tight(delta):
    for direction in Direction:
        lower, upper = bracket(1.0, 1000, delta, direction)
        assert lower <= upper <= lower * 1.002


@pytest.mark.parametrize(
    ("sigma", "steps"),
    [(0.05, 100), (100.0, 1000), (0.01, 50), (1.0, 10**7), (0.2, 10**5), (30.0, 9)],
)
def test_extremes_are_bracketed(sigma, steps):
    for direction in Direction:
        lower, upper = bracket(sigma, steps, 1e-6, direction)
        assert 0 <= lower <= upper
        if sigma > 0.03:
            assert upper <= lower * 1.001


def test_a_pair_without_finite_ratios_stays_as_it_is():
    pair = dominating_pair.DominatingPair(
        np.array([1.0, 2.0]), np.zeros(2), 1.0, 1.0, Bound.UPPER
    )
    assert random_allocation.random_allocation(pair, 10, tail_mass=1e-9) is pair


@pytest.mark.parametrize(
    ("ratios", "masses", "steps"),
    [
        # Randomized response, .9 noise over 10^4 buckets: the bulk is one number.
        ([0.9, 1000.9], [1 - 1e-4, 1e-4], 9),
        ([0.5, 1.5, 100.0], [0.5, 0.5, 0.0], 8),
        ([0.25, 0.5, 1.5], [0.0, 0.5, 0.5], 8),
        # All steps may jump, which leaves nothing beside the jumps.
        ([0.45, 0.55, 4000.0], [0.5, 0.5 - 1.2e-4, 1.2e-4], 8),
        ([1 - 2.0**-50, 1 + 2.0**-50], [0.5, 0.5], 10),
        ([1e-300, 2e-300], [0.5, 0.5], 10),
        ([1e-180, 2e-150], [0.5, 0.5], 10),
    ],
)
def test_pairs_that_leave_a_lattice_nothing_to_show(ratios, masses, steps):
    """Each of them once was a division by zero, an overflow or an empty sum."""
    law = [
        (place / steps, mass)
        for place, mass in oracles.sum_law([(ratios, masses, steps)])
    ]
    infinity = max(1 - float(np.dot(ratios, masses)), 0.0)
    pairs = {
        bound: random_allocation.random_allocation(
            dominating_pair.DominatingPair(
                np.array(ratios), np.array(masses), infinity, 0.0, bound
            ),
            steps,
            tail_mass=1e-35,
        )
        for bound in BOUNDS
    }
    for epsilon in (-1.0, 0.0, 0.1, 1.0, 4.0, 7.0):
        kappa = Fraction(math.exp(epsilon))
        more = kappa * Fraction(1, 2**50)
        for direction, divergence, sink in (
            (Direction.REMOVE, oracles.remove_divergence, Fraction(infinity)),
            (Direction.ADD, oracles.add_divergence, Fraction(0)),
        ):
            lower, upper = (pairs[bound].delta(epsilon, direction) for bound in BOUNDS)
            assert lower <= divergence(law, kappa - more, sink)
            assert upper >= min(divergence(law, kappa + more, sink), 1)
            assert upper - lower <= 2e-4 * upper + 1e-9


@pytest.mark.parametrize(("noise", "steps"), [(0.5, 10), (0.2, 10), (0.25, 300)])
def test_least_sums_are_resolved_where_a_record_is_added(noise, steps):
    """Beside losses that are no jumps: on a lattice ε was infinite, or off by 1 %."""
    lower, upper = (
        random_allocation.random_allocation(
            additive_noise.laplace(noise).pairs(bound, 1e-20).add,
            steps,
            tail_mass=1e-13,
        )
        for bound in BOUNDS
    )
    for delta in (1e-3, 1e-6, 1e-9):
        for direction in Direction:
            least = lower.epsilon(delta, direction)
            assert least <= upper.epsilon(delta, direction) <= least * (1 + 1e-4)


def test_no_lattice_of_jumps_is_finer_than_its_points():
    """From 300 to 600 beside a bulk of .001: cells of the bulk's size are 10^8."""
    jumps = np.geomspace(300, 600, 50)
    ratios = np.array([0.899, 0.901, *jumps])
    masses = np.array([0.5, 0.4999, *np.full(50, 2e-6)])
    lower, upper = (
        random_allocation.random_allocation(
            dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, bound),
            9,
            tail_mass=1e-13,
        )
        for bound in BOUNDS
    )
    mean = float(ratios @ masses)
    assert upper.p_masses.sum() == pytest.approx(mean, rel=1e-8)
    assert lower.p_masses.sum() == pytest.approx(mean, rel=1e-8)
    # Jumps that are a twentieth of the mean once moved the window off the sums.
    assert upper.infinity_mass < 1e-10
    for epsilon in (0.0, 2.0, 4.0):
        least = lower.delta(epsilon, Direction.REMOVE)
        assert least <= upper.delta(epsilon, Direction.REMOVE) <= least * (1 + 1e-4)


@settings(max_examples=200)
@given(st.integers(2, 10**7), st.integers(1, 4))
def test_groups_share_the_steps(num_steps, stages):
    groups = allocation_stages.number_of_groups(num_steps, stages)
    assert 1 <= groups <= num_steps
    assert groups * (num_steps // groups) <= num_steps


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999, 1 - 1e-5])
@pytest.mark.parametrize("steps", [20, 1000, 100_001])
@pytest.mark.parametrize("spread", [0.01, 0.5])
def test_lower_bounds_that_lack_mass(spread, steps, share):
    """What is left of it to the power of the steps may be nothing at all."""
    pair = dominating_pair.DominatingPair(
        np.array([1 - spread, 1 + spread]),
        np.full(2, share / 2),
        0.0,
        0.0,
        Bound.LOWER,
    )
    found = random_allocation.random_allocation(pair, steps, tail_mass=1e-12)
    left = share**steps
    assert found.bound is Bound.LOWER
    assert 0.0 <= found.delta(0.0, Direction.REMOVE) <= 0.5
    if left > 1e-6:
        total = math.fsum(found.masses)
        assert left * (1 - 1e-4) <= total <= left * (1 + 1e-9)


@pytest.mark.parametrize("steps", [1560, 1564, 1570])
@pytest.mark.parametrize("tail_mass", [1e-8, 1e-10, 1e-12])
def test_little_is_lost_where_a_sum_ends(steps, tail_mass):
    """Near the least sum a window's tilt is strong, and what rounding left weighs."""
    weights = np.array([0.012327989491764592, 0.9876720105082354])
    ratios = np.array([0.4917669829147709, 0.5082330170852292]) / weights
    pair = dominating_pair.DominatingPair(
        ratios[::-1], weights[::-1], 0.0, 0.0, Bound.UPPER
    )
    found = random_allocation.random_allocation(pair, steps, tail_mass=tail_mass)
    assert found.infinity_mass + found.zero_mass <= 1e4 * tail_mass
