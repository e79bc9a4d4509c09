"""Mechanisms under random allocation: their laws, and one draw out of few steps."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mechanism_laws
import oracles
import pytest

from dp_accounting_ext.amplification import k_out_of_t
from dp_accounting_ext.amplification import one_large_step
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Gaussian = additive_noise.Gaussian
RandomAllocation = allocated.RandomAllocation
LAPLACE = additive_noise.laplace(1.0)


@pytest.mark.parametrize(
    ("inner", "selected", "steps"),
    [
        (Gaussian(1.0), 1, 2),
        (Gaussian(1.0), 3, 11),
        (LAPLACE, 1, 2),
        (LAPLACE, 1, 50),
        (discrete_outputs.DiscreteLaplace(0.5, 1), 1, 50),
        (discrete_outputs.DiscreteLaplace(0.5, 1), 3, 11),
    ],
)
def test_laws(inner, selected, steps):
    mechanism_laws.assert_laws(RandomAllocation(inner, selected, steps))


@pytest.mark.parametrize(
    "counts",
    [
        {Gaussian(1.0): 3, LAPLACE: 2},
        {Gaussian(1.0): 3, Gaussian(0.7): 1, compositions.NO_OP: 4},
    ],
)
def test_laws_of_schedules(counts):
    mechanism_laws.assert_laws(allocated.allocate_to_schedule(counts, 9))


@pytest.mark.parametrize("epsilon", [0.1, 0.8])
def test_two_steps_of_a_gaussian_against_quadrature(epsilon):
    mechanism = RandomAllocation(Gaussian(1.2), 1, 2)
    for direction in Direction:
        remove = direction is Direction.REMOVE
        truth = oracles.two_step_delta(1.2, epsilon, remove=remove)
        low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
        assert low <= truth <= high <= truth * (1 + 1e-3)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_blocks_have_all_steps_and_all_draws(one, other):
    selected, steps = sorted((one, other))
    blocks = RandomAllocation(LAPLACE, selected, steps).blocks()
    sizes = {
        part.num_steps if isinstance(part, RandomAllocation) else 1: number
        for part, number in blocks.items
    }
    assert sum(sizes.values()) == selected
    assert sum(size * number for size, number in sizes.items()) == steps
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=3, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.5, 1.5, 6.0]),
)
def test_an_upper_pair_of_several_draws_is_below_that_of_its_blocks(
    selected, more, sigma, epsilon
):
    mechanism = RandomAllocation(Gaussian(sigma), selected, selected + more)
    blocks = mechanism.blocks()
    for direction in Direction:
        least, most = mechanism_laws.bounds_of(mechanism, epsilon, direction)
        upper = mechanism_laws.bounds_of(blocks, epsilon, direction)[1]
        # A δ below the tail that was asked for is that of the tail's rounding.
        assert least <= most <= upper * (1 + 1e-4) + 4 * mechanism_laws.TAIL


@given(st.integers(2, 10**6), st.integers(1, 10**6))
def test_blocks_of_a_few_have_all_steps_and_all_draws(selected, more):
    steps = selected + more
    drawn = []
    few = RandomAllocation(LAPLACE, selected, steps).in_few()
    for part, number in getattr(few, "items", [(few, 1)]):
        if isinstance(part, allocated.FewOutOfSteps):
            drawn.append((part.num_selected, part.num_steps, number))
        elif isinstance(part, RandomAllocation):
            assert part.num_selected == 1
            drawn.append((1, part.num_steps, number))
        else:
            # All of one step, or of two: no draw is left to chance.
            size = 1 if part == LAPLACE else sum(n for _, n in part.items)
            drawn.append((size, size, number))
    assert sum(draws * number for draws, _, number in drawn) == selected
    assert sum(size * number for _, size, number in drawn) == steps
    sizes = [size for draws, size, _ in drawn if draws >= 2]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize(
    ("selected", "steps"), [(2, 3), (3, 6), (4, 7), (5, 6), (5, 7)]
)
def test_blocks_of_a_few_dominate_the_mechanism(selected, steps):
    """Every set of steps, in exact fractions."""
    bit = discrete_outputs.RandomizedResponse(0.5, 2, replace_one=True)
    law, infinity = oracles.allocation_law(
        bit.pair(Bound.UPPER, 1e-14), selected, steps
    )
    few = RandomAllocation(bit, selected, steps).in_few().pairs(Bound.UPPER, 1e-14)
    for epsilon in (0.0, 0.4, 1.1, 2.5):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        removed = oracles.remove_divergence(law, kappa, infinity)
        assert few.remove.delta(epsilon, Direction.REMOVE) >= removed
        added = oracles.add_divergence(law, kappa, 0)
        assert few.add.delta(epsilon, Direction.ADD) >= added


def test_nothing_and_everything():
    nothing, revealed = compositions.NO_OP, known_bounds.NonPrivate()
    assert allocated.allocate(nothing, 2, 5) == nothing
    assert allocated.allocate(revealed, 1, 5) == revealed
    whole = compositions.Composed(((LAPLACE, 5),))
    assert allocated.allocate(LAPLACE, 5, 5) == whole
    assert allocated.allocate(LAPLACE, 1, 1) == LAPLACE
    assert allocated.allocate(LAPLACE, 2, 5) == RandomAllocation(LAPLACE, 2, 5)
    assert allocated.allocate_to_schedule({nothing: 3}, 5) == nothing


@pytest.mark.parametrize("steps", [1, 4, 30])
def test_equal_steps_that_all_ran_are_an_allocation(steps):
    scheduled = allocated.allocate_to_schedule({LAPLACE: steps}, steps)
    plain = RandomAllocation(LAPLACE, 1, steps) if steps > 1 else LAPLACE
    for epsilon in (0.05, 0.4):
        for direction in Direction:
            one = mechanism_laws.bounds_of(scheduled, epsilon, direction)
            other = mechanism_laws.bounds_of(plain, epsilon, direction)
            assert one[0] <= other[1]
            assert other[0] <= one[1]
            assert one[1] == pytest.approx(other[1], rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("steps", [2, 10, 1000])
def test_one_step_that_ran_is_a_sample(steps):
    scheduled = allocated.allocate_to_schedule({LAPLACE: 1}, steps)
    sample = subsampled.on_poisson_sample(1 / steps, LAPLACE)
    for epsilon in (0.0, 0.3 / steps):
        for direction in Direction:
            one = mechanism_laws.bounds_of(scheduled, epsilon, direction)
            other = mechanism_laws.bounds_of(sample, epsilon, direction)
            assert one[0] <= other[1]
            assert other[0] <= one[1]
            assert one[1] == pytest.approx(other[1], rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(("ran", "steps"), [(1, 8), (3, 8)])
def test_steps_without_privacy_tell_all_with_their_chance(ran, steps):
    counts = {known_bounds.NonPrivate(): ran, LAPLACE: 2}
    mechanism = allocated.allocate_to_schedule(counts, steps)
    low, high = mechanism_laws.bounds_of(mechanism, 30.0, Direction.REMOVE)
    assert low <= ran / steps <= high
    assert low >= ran / steps * (1 - 1e-9)
    assert mechanism.gaussian_precision() == mechanism.largest_loss() == math.inf


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 0.3]))
def test_more_steps_never_tell_more(steps, more, epsilon):
    few, many = (RandomAllocation(Gaussian(1.0), 1, t) for t in (steps, steps + more))
    for direction in Direction:
        least = mechanism_laws.bounds_of(many, epsilon, direction)[0]
        assert least <= mechanism_laws.bounds_of(few, epsilon, direction)[1]


def test_pairs_of_steps_of_very_many_levels_say_nothing_wrong():
    """Errors grow from level to level, and what is left is certain or nothing."""
    inner = Gaussian(1.0)
    for _ in range(50):
        inner = RandomAllocation(inner, 1, 2)
    pairs = interface.pairs_of(inner, Bound.UPPER, 1e-15)
    assert pairs.remove.mass_error <= 0.01
    low, high = mechanism_laws.bounds_of(inner, 0.1, Direction.REMOVE, 1e-15)
    assert low <= high


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "delta", "best"),
    [(0.15, 2, 4, 1e-6, 0), (1.0, 5, 30, 1e-6, 0), (1.3, 2, 5000, 1e-24, 1)],
)
def test_a_lower_bound_of_several_draws_is_the_better_of_two(
    sigma, selected, steps, delta, best
):
    """At a rare δ that of one large step, and else that of the joint law."""
    tail, inner = delta / 1e6, Gaussian(sigma)
    pairs = interface.pairs_of(
        RandomAllocation(inner, selected, steps), Bound.LOWER, tail
    )
    step = interface.pairs_of_part(inner, Bound.LOWER, tail / steps / 100).remove
    alone = [
        k_out_of_t.lower_pair(step, selected, steps, tail_mass=tail),
        one_large_step.lower_pair(step, selected, steps, tail_mass=tail),
    ]
    found = [pair.epsilon(delta, Direction.REMOVE) for pair in alone]
    assert max(found) == found[best] == pairs.remove.epsilon(delta, Direction.REMOVE)
    assert min(found) < found[best]
