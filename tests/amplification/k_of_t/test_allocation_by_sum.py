"""The lower bound for k out of t, against the mechanism itself by enumeration."""

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

from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
ACCURACY = Fraction(1, 10**9)  # Of lower bounds that could be the truth.


def allocation_of(sigma, selected, steps):
    step = additive_noise.Gaussian(sigma)
    return allocated.RandomAllocation(step, selected, steps)


def subset_law(pair, selected, steps):
    """(ratio, Q-mass) of the mechanism: the mean over all k-subsets of products."""
    atoms = list(
        zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
    )
    law = []
    for outputs in itertools.product(atoms, repeat=steps):
        total = Fraction(0)
        for subset in itertools.combinations(outputs, selected):
            total += math.prod((ratio for ratio, _ in subset), start=Fraction(1))
        mass = math.prod((mass for _, mass in outputs), start=Fraction(1))
        law.append((total / math.comb(steps, selected), mass))
    return law


@settings(max_examples=12, deadline=None)
@given(strategies.pairs(Bound.LOWER, sinks=False, most_atoms=3), st.data())
def test_it_is_below_the_mechanism(pair, data):
    steps = data.draw(st.integers(2, 4))
    selected = data.draw(st.integers(1, steps))
    law = subset_law(pair, selected, steps)
    for direction in Direction:
        profile = allocation_by_sum.lower_pair(
            pair, selected, steps, direction, tail_mass=1e-12
        )
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
            divergence = (
                oracles.remove_divergence
                if direction is Direction.REMOVE
                else oracles.add_divergence
            )
            assert profile.delta(epsilon, direction) <= divergence(
                law, kappa, Fraction(0)
            )


@settings(max_examples=15, deadline=None)
@given(strategies.pairs(Bound.LOWER, most_atoms=2), st.data())
def test_it_is_below_a_mechanism_with_sinks(pair, data):
    steps = data.draw(st.integers(2, 4))
    selected = data.draw(st.integers(1, steps))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    divergences = oracles.remove_divergence, oracles.add_divergence
    for direction, divergence in zip(Direction, divergences, strict=True):
        found = allocation_by_sum.lower_pair(
            pair, selected, steps, direction, tail_mass=1e-12
        )
        sink = infinity if direction is Direction.REMOVE else 0
        for epsilon in (0.0, 1.0, 2.5):
            kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
            assert found.delta(epsilon, direction) <= divergence(law, kappa, sink)


def test_steps_that_rule_the_record_out_are_seen_when_it_is_added():
    """Of 4 outputs an erased one never has the record: 5 of 16 have three or more."""
    pair = dominating_pair.DominatingPair(
        np.array([2.0]), np.array([0.5]), 0.0, 0.5, Bound.LOWER
    )
    law, _ = oracles.allocation_law(pair, 2, 4)
    found = allocation_by_sum.lower_pair(pair, 2, 4, Direction.ADD, tail_mass=1e-12)
    for epsilon in (0.0, 1.0, 5.0, 15.0):
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = oracles.add_divergence(law, kappa, 0)
        assert 0.98 * truth <= found.delta(epsilon, Direction.ADD) <= truth


def test_two_of_three_from_the_design_page():
    """σ = 1, ε = 2, remove: by Monte Carlo the mechanism's δ is .0572.

    The reduction's is larger: to say that its bounds are the mechanism's would be
    wrong by a quarter.
    """
    allocation = allocation_of(1.0, 2, 3)
    lower = allocation.pairs(Bound.LOWER, 1e-12).remove.delta(2.0, Direction.REMOVE)
    blocks = allocation.blocks().pairs(Bound.LOWER, 1e-12)
    reduction = blocks.remove.delta(2.0, Direction.REMOVE)
    assert 0.05 < lower <= 0.0574
    generator = np.random.default_rng(3)
    outputs = generator.normal(size=(1_000_000, 3)) + np.array([1.0, 1.0, 0.0])
    ratios = np.exp(outputs - 0.5)
    product = ratios[:, 0] * (ratios[:, 1] + ratios[:, 2]) / 2
    values = np.maximum(1 - math.exp(2.0) / product, 0.0)
    assert abs(reduction - values.mean()) < 5 * values.std() / 1000


@pytest.mark.parametrize(("selected", "steps"), [(1, 1000), (7, 1000)])
def test_it_is_close_to_the_reduction_for_many_steps(selected, steps):
    allocation = allocation_of(1.0, selected, steps)
    pair = gaussian.dominating_pair_of(1.0, Bound.LOWER, tail_mass=1e-17)
    upper = allocation.pairs(Bound.UPPER, 1e-13)
    for direction in Direction:
        lower = allocation_by_sum.lower_pair(
            pair, selected, steps, direction, tail_mass=1e-12
        ).epsilon(1e-6, direction)
        assert lower <= upper.of(direction).epsilon(1e-6, direction) <= 1.02 * lower


@pytest.mark.parametrize(("sigma", "selected"), [(0.5, 4), (0.7, 6), (0.4, 2)])
def test_little_noise_has_no_wide_bracket(sigma, selected):
    upper, lower = (
        interface.pairs_of(
            allocation_of(sigma, selected, 1000), bound, 1e-15
        ).remove.epsilon(1e-6, Direction.REMOVE)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    assert 0.8 * upper <= lower <= upper


def coin(**errors):
    """A bit that is uniform without the record and 1 in 3 of 4 cases with it."""
    return dominating_pair.DominatingPair(
        np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, Bound.LOWER, **errors
    )


def heads(tosses, chance):
    """(tosses + 1,) the binomial law, exactly."""
    return [
        math.comb(tosses, n) * chance**n * (1 - chance) ** (tosses - n)
        for n in range(tosses + 1)
    ]


def coin_divergence(selected, steps, kappa, direction):
    """Of k coins out of t, whose number of ones is all that there is to know."""
    q = heads(steps, Fraction(1, 2))
    first, second = (
        heads(selected, Fraction(3, 4)),
        heads(steps - selected, Fraction(1, 2)),
    )
    p = [
        sum(
            first[n] * second[total - n]
            for n in range(max(0, total - steps + selected), min(selected, total) + 1)
        )
        for total in range(steps + 1)
    ]
    gain, cost = (p, q) if direction is Direction.REMOVE else (q, p)
    return sum(max(g - kappa * c, 0) for g, c in zip(gain, cost, strict=True))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("selected", "steps", "epsilons"),
    [
        (3, 3, [0.0, 0.2, 1.0]),
        (2, 5, [0.0, 0.1, 0.3]),
        (60, 60, [0.5, 3.0, 8.0, 14.0]),
        (40, 300, [0.0, 1.0, 3.0, 4.5]),
    ],
)
def test_nothing_is_lost_where_the_sum_tells_all(direction, selected, steps, epsilons):
    pair = allocation_by_sum.lower_pair(
        coin(), selected, steps, direction, tail_mass=1e-14
    )
    assert pair.bound is Bound.LOWER
    for epsilon in epsilons:
        # κ is moved against the bound by more than the rounding of exp.
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = coin_divergence(selected, steps, kappa, direction)
        found = pair.delta(epsilon, direction)
        assert (1 - ACCURACY) * truth <= found <= truth


@pytest.mark.parametrize(
    ("mass_error", "ratio_error"), [(2.0**-30, 2.0**-34), (2.0**-34, 2.0**-30)]
)
def test_errors_of_the_step_are_carried_and_those_of_the_sums_added(
    mass_error, ratio_error
):
    """A product of t masses, and of k ratios, errs t and k times as much as one."""
    exact, rough = (
        allocation_by_sum.lower_pair(step, 4, 50, Direction.REMOVE, tail_mass=1e-12)
        for step in (coin(), coin(mass_error=mass_error, ratio_error=ratio_error))
    )
    carried = rough.mass_error - exact.mass_error
    assert carried == pytest.approx(50 * (mass_error + ratio_error), rel=1e-6)
    # The masses count as exact: a ratio of sums errs as four ratios do, either way.
    carried = rough.ratio_error - exact.ratio_error
    assert carried == pytest.approx(2 * 4 * ratio_error, rel=1e-6)
    # 50 masses of each law, gathered and tilted.
    for error in (exact.mass_error, exact.ratio_error):
        assert 2 * 50 * 16 * 2.0**-53 <= error < 2 * 50 * 600 * 2.0**-53


@pytest.mark.parametrize("direction", list(Direction))
def test_what_is_not_looked_at_is_not_made_up(direction):
    """Tails beyond what is looked at."""
    pair = allocation_by_sum.lower_pair(coin(), 60, 60, direction, tail_mass=0.1)
    for epsilon in np.linspace(0.0, 40.0, 41):
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = coin_divergence(60, 60, kappa, direction)
        assert pair.delta(float(epsilon), direction) <= truth
    # The ratios are those of all ones, all but one, and so on; none is too telling.
    telling = pair.ratios if direction is Direction.REMOVE else pair.ratios[::-1] ** -1
    slack = 1 + Fraction(2 * pair.ratio_error)
    best = Fraction(3, 2) if direction is Direction.REMOVE else Fraction(2)
    for zeros, ratio in enumerate(telling[::-1]):
        assert Fraction(ratio) <= best**60 / Fraction(3) ** zeros * slack


@pytest.mark.parametrize("direction", list(Direction))
def test_gaussian_steps_all_taken_compose(direction):
    """k = t: the sum is the composed loss itself, of a Gaussian of √t / σ."""
    step = gaussian.dominating_pair_of(2.0, Bound.LOWER, tail_mass=1e-16)
    pair = allocation_by_sum.lower_pair(step, 12, 12, direction, tail_mass=1e-14)
    for epsilon in (0.0, 1.0, 4.0, 8.0):
        truth = oracles.gaussian_delta(math.sqrt(12) / 2, epsilon)
        assert (1 - 1e-3) * truth <= pair.delta(epsilon, direction) <= truth


@pytest.mark.parametrize("direction", list(Direction))
def test_of_all_steps_the_sum_is_the_loss(direction):
    """k = t: what is lost is the rounding to the lattice alone."""
    step = dominating_pair.DominatingPair(
        np.array([0.25, 1.0, 1.75]), np.array([0.25, 0.5, 0.25]), 0.0, 0.0, Bound.LOWER
    )
    pair = allocation_by_sum.lower_pair(step, 4, 4, direction, tail_mass=1e-14)
    law = subset_law(step, 4, 4)
    divergence = (
        oracles.remove_divergence
        if direction is Direction.REMOVE
        else oracles.add_divergence
    )
    for epsilon in (0.0, 0.5, 1.0, 1.5):
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = divergence(law, kappa, Fraction(0))
        assert (1 - 1e-4) * truth <= pair.delta(epsilon, direction) <= truth


def test_without_finite_ratios_nothing_is_known():
    empty = dominating_pair.DominatingPair(
        np.zeros(0), np.zeros(0), 1.0, 1.0, Bound.LOWER
    )
    found = allocation_by_sum.lower_pair(empty, 2, 3, Direction.REMOVE, tail_mass=1e-12)
    assert found.bound is Bound.LOWER
    assert found.delta(0.0, Direction.REMOVE) == 0.0


def test_many_equal_masses_do_not_add_up_to_more():
    """A sum, one after another, of 100000 equal masses errs to one side."""
    number, large, steps = 100_000, 0.093, 100
    mass = (1 - large) / number
    low = (1 - 2 * large) / (1 - large)
    ratios = np.append(low * (1 + 1e-9 * np.arange(number) / number), 2.0)
    step = dominating_pair.DominatingPair(
        ratios, np.append(np.full(number, mass), large), 0.0, 0.0, Bound.LOWER
    )
    found = allocation_by_sum.lower_pair(
        step, 2, steps, Direction.ADD, tail_mass=1e-14
    ).delta(-5.0, Direction.ADD)
    total = number * Fraction(mass) + Fraction(large)
    mean = Fraction(mass) * Fraction(math.fsum(ratios[:-1])) + 2 * Fraction(large)
    # Products of two ratios are below e^5, so that this is linear in their mean.
    kappa = Fraction(math.exp(-5.0)) * (1 - Fraction(1, 2**50))
    truth = total**steps - kappa * mean**2 * total ** (steps - 2)
    assert (1 - 1e-8) * truth < found <= truth
