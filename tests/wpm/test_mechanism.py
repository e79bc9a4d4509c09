"""The Wasserstein mechanism: bad parameters, lines and graphs."""

import math

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import checks

COST = np.ones((2, 3))
BAD_CALLS = [
    (([[1, -1.0]], 1.0), ValueError, "cost must be non-negative.*Found -1.0 in row 0"),
    (([[1, np.nan]], 1.0), ValueError, "cost must be non-negative.*Found nan in row 0"),
    (([[1, np.inf]], 1.0), ValueError, "cost must be .* finite. Found inf"),
    (([1.0, 2.0], 1.0), ValueError, r"cost must be a matrix.*Found shape \(2,\)"),
    ((np.ones((0, 3)), 1.0), ValueError, r"cost must be a matrix.*shape \(0, 3\)"),
    (([["a"]], 1.0), TypeError, "cost must be an array of real numbers"),
    (([[1], [1, 2]], 1.0), TypeError, "cost must be .* unequal lengths"),
    ((COST, 0.0), ValueError, "epsilon must be positive and finite. Found 0.0"),
    ((COST, -1.0), ValueError, "epsilon must be positive and finite. Found -1.0"),
    ((COST, np.inf), ValueError, "epsilon must be positive and finite. Found inf"),
    ((COST, np.nan), ValueError, "epsilon must be a number. Found nan"),
    ((COST, 161.0), ValueError, "epsilon must be at most 160. Found 161.0"),
    ((COST, "1"), TypeError, "epsilon must be a real number. Found '1'"),
    ((COST, 1.0, "best"), ValueError, "base_measure must be .*Found 'best'"),
    ((COST, 1.0, [1, 1]), ValueError, r"each of the 3 outputs. Found shape \(2,\)"),
    ((COST, 1.0, [1, 1, -1]), ValueError, "non-negative and finite. Found -1.0 at"),
    ((COST, 1.0, [1, 1, np.nan]), ValueError, "and finite. Found nan at index 2"),
    ((COST, 1.0, [1, 1, 1]), ValueError, "have a sum in .* Found 3; scale it"),
    ((COST, 1.0, [0.1] * 3), ValueError, "have a sum in .* Found 0.3; scale it"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CALLS)
def test_bad_parameters(arguments, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism(*arguments)


@pytest.mark.parametrize("gap", [-1, 0, 1, 2.0])
def test_bad_gaps(gap):
    with pytest.raises(ValueError, match=r"relative_gap must be in \(0, 1\). Found"):
        wpm.WassersteinProjectionMechanism(COST, 1.0, relative_gap=gap)
    with pytest.raises(ValueError, match=r"relative_gap must be in \(0, 1\). Found"):
        wpm.project([0.5, 0.5], COST, np.full(3, 1 / 3), 1.0, relative_gap=gap)


def test_a_sum_that_rounding_put_outside_is_brought_back():
    mass = math.exp(0.5) * (1 + 1e-12)
    found = checks.base_measure([mass], 1, 1.0)
    assert found[0] == pytest.approx(math.exp(0.5), rel=1e-15)
    assert found[0] <= math.exp(0.5)


def test_mechanisms_on_lines_and_graphs_agree_with_the_general_one():
    places = np.arange(12.0)
    masses = np.random.default_rng(0).dirichlet(np.full(12, 0.2), size=3)
    line = wpm.from_points(places, 3.0)
    general = wpm.WassersteinProjectionMechanism(line.cost.matrix(), 3.0)
    edges = np.column_stack([np.arange(11), np.arange(1, 12)])
    cost = wpm.GraphCost.from_edges(edges, np.ones(11))
    path = wpm.WassersteinProjectionMechanism(cost, 3.0)
    for user in masses:
        least, *others = (
            wpm_oracles.reaching_cost(user, cost.matrix(), found.project(user))
            for found in (general, line, path)
        )
        assert others == pytest.approx([least] * 2, rel=2e-6)
