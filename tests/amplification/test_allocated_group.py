"""Groups under 1 of t against quadrature, and what is known of one."""

import collections
import itertools
import math

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import allocated_group
from dp_accounting_ext.amplification import allocated_group_above
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.kernel import dominating_pair

Allocation = replaced_allocation.Allocation
Steps = replaced_allocation.Steps
Direction = dominating_pair.Direction


def _law(allocation, members):
    """Returns ratios of two steps' outputs on a grid, and weights on either axis."""
    each = [
        (steps.shift, steps.chance)
        for steps in allocation.steps
        for _ in range(steps.count)
    ]
    nodes = np.linspace(-12.0, 16.0, 1401)
    density = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])
    chances = collections.Counter()
    for draws in itertools.product([*range(len(each)), None], repeat=members):
        chance, moved = 1.0, [0.0] * len(each)
        for draw in draws:
            chance *= allocation.silent if draw is None else each[draw][1]
            if draw is not None:
                moved[draw] += each[draw][0]
        chances[tuple(moved)] += chance
    ratio = np.zeros((nodes.size, nodes.size))
    for moved, chance in chances.items():
        ratio += chance * np.outer(*(np.exp(m * nodes - m**2 / 2) for m in moved))
    return ratio, density


def _profile(ratio, density, epsilon, direction):
    """Returns δ, by the trapezoidal rule."""
    kappa = math.exp(epsilon)
    if direction is Direction.REMOVE:
        values = np.maximum(ratio - kappa, 0.0)
    else:
        values = np.maximum(1 - kappa * ratio, 0.0)
    return float(density @ values @ density)


def _bracket(steps, members):
    """Returns bounds on ε of a group under 1 of so many steps, at δ = 1e-6."""
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, steps)
    event = ext.GroupSubsampledEvent(members, epoch)
    return ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-6)


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize(
    "allocation",
    [
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(0.5, 0.2, 2),), 0.6, 0.0),
        Allocation((Steps(0.6, 0.4, 1), Steps(1.2, 0.3, 1)), 0.3, 0.0),
    ],
)
def test_it_is_below_and_near_the_profile_of_two_steps(allocation, members):
    pair = allocated_group.lower_pair(allocation, members, tail_mass=1e-20)
    law = _law(allocation, members)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        for direction in Direction:
            truth = _profile(*law, epsilon, direction)
            found = pair.delta(epsilon, direction)
            # The rule errs by its kink, with the square of its step.
            assert found <= truth * (1 + 1e-4) + 1e-9
            if epsilon <= 0.3:
                assert found >= 0.6 * truth - 1e-5


@pytest.mark.parametrize(
    ("steps", "members", "sampled"),
    # By importance samples: some 2e-3 and 5e-2 of it are their error.
    [(100, 2, 1.7545), (100, 8, 6.864)],
)
def test_brackets_of_groups_are_about_what_samples_tell(steps, members, sampled):
    lower, upper = _bracket(steps, members)
    assert sampled * 0.98 < lower <= upper < sampled * 1.02
    assert upper < lower * (1.005 if members == 2 else 1.025)


@pytest.mark.parametrize(("members", "width"), [(2, 5e-3), (8, 0.025)])
def test_brackets_of_groups_in_many_steps_are_narrow(members, width):
    lower, upper = _bracket(1000, members)
    assert lower <= upper < lower * (1 + width)


def test_one_member_more_than_eight_tells_little_more():
    """A chain of nine would be at more than twice that."""
    eight, nine = (_bracket(100, members)[1] for members in (8, 9))
    assert eight <= nine <= 1.3 * eight


def test_lower_bounds_grow_with_the_group_however_large_it_is():
    """Of many members the sum of all outputs tells most, of however little noise."""
    lowers = [_bracket(100, members)[0] for members in (8, 40, 8000, 10**6, 2**53)]
    assert lowers == sorted(lowers)
    mean = 2**53 / 10
    assert lowers[-1] == pytest.approx(mean**2 / 2, rel=1e-8)


def test_more_than_eight_members_count_as_eight():
    allocation = Allocation((Steps(1.0, 0.01, 100),), 0.0, 0.0)
    eight, many = (
        allocated_group.lower_pair(allocation, members, tail_mass=1e-20)
        for members in (8, 1000)
    )
    assert eight.epsilon(1e-6, Direction.REMOVE) == many.epsilon(1e-6, Direction.REMOVE)


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize(
    "allocation",
    [
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(0.2, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(2.0, 0.05, 2),), 0.9, 0.0),
    ],
)
def test_upper_bounds_are_above_the_profile_of_two_steps(allocation, members):
    # Nothing else is known, so that what is found is the theorems' alone.
    nothing = dominating_pair.trivial_pair(dominating_pair.Bound.UPPER)
    pair = allocated_group_above.upper_pair(
        allocation, members, nothing, tail_mass=1e-24
    )
    law = _law(allocation, members)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        truth = _profile(*law, epsilon, Direction.REMOVE)
        found = pair.delta(epsilon, Direction.REMOVE)
        # The rule errs by its kink, with the square of its step.
        assert found >= truth * (1 - 1e-4) - 1e-9
        if members == 2 and truth > 1e-4:
            assert found <= 2 * truth


def test_a_pair_that_is_less_stays():
    allocation = Allocation((Steps(0.2, 0.01, 100),), 0.0, 0.0)
    known = dominating_pair.identity_pair(dominating_pair.Bound.UPPER)
    found = allocated_group_above.upper_pair(allocation, 4, known, tail_mass=1e-20)
    assert found.delta(0.01, Direction.REMOVE) <= 1e-12
