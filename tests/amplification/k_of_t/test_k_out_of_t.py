"""k out of t against the mechanism itself: enumeration, closed laws, Monte Carlo."""

import dataclasses
from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
from scipy import special
import strategies

from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import k_out_of_t
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
REMOVE = Direction.REMOVE
NOTHING = [dominating_pair.trivial_pair(Bound.UPPER)]
EPSILONS = (0.0, 0.3, 1.0, 2.5, 5.0)


@settings(max_examples=8, deadline=None)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.data())
def test_upper_is_above_the_mechanism(pair, data):
    steps = data.draw(st.integers(3, 6))
    selected = data.draw(st.integers(2, steps - 1))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = k_out_of_t.upper_pair(pair, selected, steps, NOTHING, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-2.0, -0.5, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= truth


@settings(max_examples=8, deadline=None)
@given(strategies.pairs(Bound.LOWER, most_atoms=3), st.data())
def test_lower_is_below_the_mechanism(pair, data):
    steps = data.draw(st.integers(3, 6))
    selected = data.draw(st.integers(2, steps - 1))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = k_out_of_t.lower_pair(pair, selected, steps, tail_mass=1e-12)
    assert found.bound is Bound.LOWER
    for epsilon in (-2.0, -0.5, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) <= truth


def coin(bound, **errors):
    """A bit that is uniform without the record and 1 in 3 of 4 cases with it."""
    return dominating_pair.DominatingPair(
        np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, bound, **errors
    )


def ones(tosses, chance):
    """(tosses + 1,) the binomial law, exactly."""
    return [
        math.comb(tosses, n) * chance**n * (1 - chance) ** (tosses - n)
        for n in range(tosses + 1)
    ]


def coin_divergence(selected, steps, kappa):
    """Of k coins out of t, whose number of ones is all that there is to know."""
    q = ones(steps, Fraction(1, 2))
    first, second = (
        ones(selected, Fraction(3, 4)),
        ones(steps - selected, Fraction(1, 2)),
    )
    p = [
        sum(
            first[n] * second[total - n]
            for n in range(max(0, total - steps + selected), min(selected, total) + 1)
        )
        for total in range(steps + 1)
    ]
    return sum(max(g - kappa * c, 0) for g, c in zip(p, q, strict=True))


@pytest.mark.parametrize(
    ("selected", "steps", "epsilons", "looseness"),
    [
        (4, 7, [0.0, 0.3, 1.0], 2.0),
        (40, 300, [0.0, 1.0, 3.0, 4.5], 1.1),
        (12, 60, [0.5, 2.0, 3.0], 1.2),
    ],
)
def test_coins_of_which_the_number_of_ones_tells_all(
    selected, steps, epsilons, looseness
):
    upper = k_out_of_t.upper_pair(
        coin(Bound.UPPER), selected, steps, NOTHING, tail_mass=1e-12
    )
    lower = k_out_of_t.lower_pair(coin(Bound.LOWER), selected, steps, tail_mass=1e-12)
    for epsilon in epsilons:
        kappa = Fraction(math.exp(epsilon))
        above, below = (kappa * (1 + side * Fraction(1, 2**50)) for side in (1, -1))
        truth = coin_divergence(selected, steps, above)
        assert truth <= upper.delta(epsilon, REMOVE) <= looseness * truth
        truth = coin_divergence(selected, steps, below)
        assert 0.94 * truth <= lower.delta(epsilon, REMOVE) <= truth


@given(st.floats(0.0, 1e5), st.floats(0.0, 1.0))
def test_the_bound_on_the_probability_is_above_the_bessel_function(first, share):
    """And its reciprocal is concave and increases, without tolerance."""
    second = first + share * (first + 1)
    places = np.array([first, (first + second) / 2, second])
    values = k_out_of_t.log_reciprocal(places)
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

        start = mpmath.mpf(k_out_of_t.CONCAVE_FROM)
        assert quotient(start) <= 1 - 1 / (2 * start)
        # e^V / I₀(V) is steepest where it turns concave, where equality holds.
        turn = mpmath.findroot(lambda v: quotient(v) - 1 + 1 / (2 * v), 0.79)
        assert turn <= start
        slope = mpmath.exp(turn) / mpmath.besseli(0, turn) * (1 - quotient(turn))
        assert slope <= k_out_of_t.STEEPEST <= 1.001 * slope


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
    bound = math.exp(-k_out_of_t.log_reciprocal(np.array([variance]))[0])
    assert (law[count] if count < len(law) else 0) <= bound * (1 + 1e-14)


def pairs_of(sigma, selected, steps):
    """Upper pair, lower pair, and the blocks'."""
    base = {
        bound: gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-18)
        for bound in Bound
    }
    step = additive_noise.Gaussian(sigma)
    blocks = allocated.RandomAllocation(step, selected, steps).blocks()
    blocks = blocks.pairs(Bound.UPPER, 1e-14).remove
    upper = k_out_of_t.upper_pair(
        base[Bound.UPPER], selected, steps, [blocks], tail_mass=1e-14
    )
    lower = k_out_of_t.lower_pair(base[Bound.LOWER], selected, steps, tail_mass=1e-14)
    return upper, lower, blocks


def monte_carlo(sigma, selected, steps, epsilon, tilt, size=8000):
    """δ of a removed record with its standard error, by importance sampling.

    Each step's noise is drawn from its law times (1 − λ + λ X)^tilt, by its
    distribution function on a fine grid; e_k by its recursion.
    """
    generator = np.random.default_rng(7)
    rate = selected / steps
    grid = np.linspace(-10.0, 11.0 + 2 / sigma, 60_001)
    score = np.log1p(rate * np.expm1(grid / sigma - 0.5 / sigma**2))
    log_z = np.zeros(size)
    log_weights = np.zeros(size)
    symmetric = np.zeros((size, selected + 1))
    symmetric[:, 0] = 1.0
    laws = []
    for mean in (1 / sigma, 0.0):
        density = np.exp(tilt * score - (grid - mean) ** 2 / 2)
        density *= (grid[1] - grid[0]) / math.sqrt(2 * math.pi)
        cumulated = np.cumsum(density)
        laws.append((cumulated / cumulated[-1], math.log(cumulated[-1])))
    for step in range(steps):
        cumulated, log_total = laws[step >= selected]
        noise = np.interp(generator.random(size), cumulated, grid)
        ratios = np.exp(noise / sigma - 0.5 / sigma**2)
        mixed = 1 + rate * (ratios - 1)
        chance = (rate * ratios / mixed)[:, np.newaxis]
        symmetric[:, 1:] += (symmetric[:, :-1] - symmetric[:, 1:]) * chance
        symmetric[:, :1] *= 1 - chance
        log_z += np.log(mixed)
        log_weights += log_total - tilt * np.log(mixed)
    log_z += np.log(symmetric[:, -1])
    log_z -= special.gammaln(steps + 1) - special.gammaln(selected + 1)
    log_z += special.gammaln(steps - selected + 1)
    log_z -= selected * math.log(rate) + (steps - selected) * math.log1p(-rate)
    values = np.exp(log_weights) * -np.expm1(np.minimum(epsilon - log_z, 0.0))
    return values.mean(), values.std() / math.sqrt(size)


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "delta", "gap", "tilt"),
    [
        (0.7, 12, 240, 1e-7, 0.01, 1.3),
        (1.0, 2, 100, 1e-6, 0.03, 6.0),
        # Of little noise, where the second statistic of the lower bound decides.
        (0.32, 5, 17, 1e-6, 0.01, 0.7),
    ],
)
def test_brackets_are_narrow_and_hold_what_monte_carlo_finds(
    sigma, selected, steps, delta, gap, tilt
):
    upper, lower, blocks = pairs_of(sigma, selected, steps)
    high, low = upper.epsilon(delta, REMOVE), lower.epsilon(delta, REMOVE)
    assert low <= high <= (1 + 1e-5) * blocks.epsilon(delta, REMOVE)
    assert high - low <= gap * high
    for epsilon in (low, high):
        mean, error = monte_carlo(sigma, selected, steps, epsilon, tilt)
        assert error < 0.2 * mean
        assert lower.delta(epsilon, REMOVE) <= mean + 5 * error
        assert upper.delta(epsilon, REMOVE) >= mean - 5 * error


@pytest.mark.parametrize(("sigma", "selected", "steps"), [(0.5, 7, 50), (0.6, 2, 300)])
def test_cells_of_a_lower_bound_are_counted_once(sigma, selected, steps):
    """Steps with rare large ratios, for which windows of several tilts overlap."""
    pair = gaussian.dominating_pair_of(sigma, Bound.LOWER, tail_mass=1e-18)
    found = k_out_of_t.lower_pair(pair, selected, steps, tail_mass=1e-14)
    assert found.masses.sum() <= 1 + 1e-8
    assert 1 - 1e-4 <= found.p_masses.sum() <= 1 + 1e-8


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "delta"),
    [(0.15, 3, 100, 1e-6), (0.7, 12, 240, 1e-20)],
)
def test_lower_bounds_see_little_noise_and_rare_events(sigma, selected, steps, delta):
    """Where a law tilted by one is far wider than what it is compared with."""
    tail = max(1e-6 * delta, 1e-26)
    pairs = [
        gaussian.dominating_pair_of(sigma, bound, tail_mass=tail) for bound in Bound
    ]
    upper = k_out_of_t.upper_pair(pairs[0], selected, steps, NOTHING, tail_mass=tail)
    lower = k_out_of_t.lower_pair(pairs[1], selected, steps, tail_mass=tail)
    high = upper.epsilon(delta, REMOVE)
    assert 0.98 * high <= lower.epsilon(delta, REMOVE) <= high


def test_many_runs_compose_no_looser_than_blocks():
    upper, _, blocks = pairs_of(0.7, 12, 120)
    runs = [
        known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(pair))
        for pair in (upper, blocks)
    ]
    ours, theirs = (
        compositions.Composed(((run, 10),))
        .pairs(Bound.UPPER, 1e-14)
        .remove.epsilon(1e-6, REMOVE)
        for run in runs
    )
    assert ours < 0.97 * theirs


@pytest.mark.parametrize("mass_error", [2.0**-30])
def test_errors_of_the_step_are_carried(mass_error):
    ratio_error = 2.0**-62 / mass_error
    errors = {"mass_error": mass_error, "ratio_error": ratio_error}
    exact, rough = (
        k_out_of_t.lower_pair(pair, 4, 50, tail_mass=1e-12)
        for pair in (coin(Bound.LOWER), coin(Bound.LOWER, **errors))
    )
    carried = rough.mass_error - exact.mass_error
    assert carried >= 50 * mass_error + 4 * ratio_error
    assert rough.ratio_error >= 2 * carried
    exact, rough = (
        k_out_of_t.upper_pair(pair, 4, 50, NOTHING, tail_mass=1e-12)
        for pair in (coin(Bound.UPPER), coin(Bound.UPPER, **errors))
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
    nearly = dataclasses.replace(coin(bound), ratios=np.array([1 - 1e-10, 1 + 1e-10]))
    for pair in (constant, nearly):
        if bound is Bound.UPPER:
            assert k_out_of_t.upper_pair(pair, 2, 3, [pair], tail_mass=1e-9) is pair
        else:
            found = k_out_of_t.lower_pair(pair, 2, 3, tail_mass=1e-9)
            assert found.delta(0.0, REMOVE) <= 2e-10


def test_shares_of_coarse_rows_are_those_of_a_split():
    anchor = joint_allocation.Anchor(0.1, 0.0, -1.0, 1.0, 1.0, 1.0, (1.0,))
    grid = joint_allocation.Grid.of([anchor], 100)
    weights = k_out_of_t._tent(grid)
    height = grid.height
    assert weights.size == 2 * height - 1
    assert weights[height - 1] == 1.0
    # A fine row's two shares: of the coarse row below it and the one above.
    for offset in range(1, height):
        lower, upper = weights[height - 1 + offset], weights[offset - 1]
        assert lower + upper == pytest.approx(1.0, rel=1e-12)
        mean = lower + upper * math.exp(-grid.coarse_step)
        assert mean == pytest.approx(math.exp(-grid.row_step * offset), rel=1e-12)


def test_a_pair_without_a_finite_ratio_tells_its_sink_and_no_more():
    sink = dominating_pair.DominatingPair(
        np.zeros(0), np.zeros(0), 0.25, 0.75, Bound.UPPER
    )
    other = dominating_pair.DominatingPair(
        np.array([0.5, 2.0]), np.array([0.1, 0.4]), 0.5, 0.6, Bound.UPPER
    )
    assert k_out_of_t.least([sink, sink]).infinity_mass == 0.25
    found = k_out_of_t.least([sink, other])
    for epsilon in (0.0, 0.5, 3.0):
        delta = found.hockey_stick(epsilon, dominating_pair.Direction.REMOVE)
        assert 0.25 <= delta <= 0.2501
