"""Groups under 1 of t, from below, against quadrature and what is known of one."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import allocated_group
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
    ratio = np.zeros((nodes.size, nodes.size))
    choices = [*range(len(each)), None]
    for draws in itertools.product(choices, repeat=members):
        chance, moved = 1.0, [0.0] * len(each)
        for draw in draws:
            chance *= allocation.silent if draw is None else each[draw][1]
            if draw is not None:
                moved[draw] += each[draw][0]
        logs = [move * nodes - move**2 / 2 for move in moved]
        ratio += chance * np.exp(np.add.outer(*logs))
    return ratio, density


def _profile(ratio, density, epsilon, direction):
    """Returns δ, by the trapezoidal rule."""
    kappa = math.exp(epsilon)
    if direction is Direction.REMOVE:
        values = np.maximum(ratio - kappa, 0.0)
    else:
        values = np.maximum(1 - kappa * ratio, 0.0)
    return float(density @ values @ density)


@pytest.mark.parametrize("members", [1, 2, 3])
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


def test_of_one_member_it_is_the_allocation():
    allocation = Allocation((Steps(1.0, 0.01, 100),), 0.0, 0.0)
    pair = allocated_group.lower_pair(allocation, 1, tail_mass=1e-20)
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, 100)
    exact = ext.PLDAccountant().compose(event).get_epsilon(1e-6)
    found = pair.epsilon(1e-6, Direction.REMOVE)
    assert exact * 0.999 <= found <= exact


def test_more_than_eight_members_count_as_eight():
    allocation = Allocation((Steps(1.0, 0.01, 100),), 0.0, 0.0)
    eight, many = (
        allocated_group.lower_pair(allocation, members, tail_mass=1e-20)
        for members in (8, 1000)
    )
    assert eight.epsilon(1e-6, Direction.REMOVE) == many.epsilon(1e-6, Direction.REMOVE)
