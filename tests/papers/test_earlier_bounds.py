"""What papers state and we do better: bounds that hold, beside what they bound."""

import functools

import numpy as np
from papers import earlier_groups
from papers import mirror_descent
import pytest

from dp_accounting_ext import wpm


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_post_hoc_bounds_of_a_group(size, epsilon):
    """Step by step is below the closed form, and above what is true."""
    single = functools.partial(earlier_groups.gaussian_delta, 0.3)
    geometric = earlier_groups.post_hoc_geometric(single, size, epsilon)
    linear = earlier_groups.post_hoc_linear(single, size, epsilon)
    truth = earlier_groups.gaussian_delta(0.3 * size, epsilon)
    assert truth <= geometric <= linear


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_mirror_descent_brackets_the_minimax_cost(epsilon):
    cost = np.abs(np.subtract.outer(np.arange(5.0), np.arange(4.0)))
    best = wpm.minimax_base_measure(cost, epsilon)
    values = []
    for steps in (50, 500):
        _, value, below = mirror_descent.mirror_descent_base_measure(
            cost, epsilon, steps
        )
        assert below <= best.value
        assert best.lower_bound <= value
        values.append(value)
    assert values[1] < values[0]
