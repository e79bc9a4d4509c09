"""The paper's search keeps its bound."""

import numpy as np
import pytest

from dp_accounting_ext import wpm


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_mirror_descent_keeps_the_papers_bound(epsilon):
    cost = np.random.default_rng(1).random((8, 6))
    best = wpm.minimax_base_measure(cost, epsilon)
    values = []
    for steps in (10, 1000):
        found = wpm.minimax_base_measure(cost, epsilon, mirror_descent_steps=steps)
        mass = found.base_measure.sum()
        assert np.exp(-epsilon / 2) - 1e-9 <= mass <= np.exp(epsilon / 2) + 1e-9
        assert found.value >= best.lower_bound
        assert found.lower_bound <= best.value
        values.append(found.value)
    assert values[1] < values[0]


def test_bad_steps():
    with pytest.raises(ValueError, match="mirror_descent_steps must be at least 1"):
        wpm.minimax_base_measure(np.eye(2), 1.0, mirror_descent_steps=0)
