"""The Wasserstein mechanism: bad parameters, lines and graphs."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm

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
    ((COST, 1.0, "uniform", 0.0), ValueError, "regularization must be positive"),
    ((COST, 1.0, "uniform", 1e301), ValueError, "at most 1e.300.* Found 1e.301"),
    ((COST, 1.0, "uniform", "x"), TypeError, "regularization must be a real number"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CALLS)
def test_bad_parameters(arguments, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"relative_gap": -1}, ValueError, "relative_gap must be positive. Found -1"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1"),
        ({"max_iterations": "a"}, TypeError, "max_iterations must be an integer"),
    ],
)
def test_options_of_the_entropic_projection_are_always_checked(options, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism(COST, 1.0, **options)
    with pytest.raises(error, match=message):
        wpm.project([0.5, 0.5], COST, np.full(3, 1 / 3), 1.0, **options)


def test_mechanisms_on_lines_and_graphs_agree_with_the_general_one():
    places = np.arange(12.0)
    masses = np.random.default_rng(0).dirichlet(np.full(12, 0.2), size=3)
    cost = wpm.cost_matrix(places, places, order=1)
    general = wpm.WassersteinProjectionMechanism(cost, 3.0)
    line = wpm.WassersteinProjectionMechanism.on_line(places, places, 3.0)
    edges = np.column_stack([np.arange(11), np.arange(1, 12)])
    path = wpm.WassersteinProjectionMechanism.on_graph(edges, np.ones(11), 3.0)
    for user in masses:
        least = wpm_oracles.reaching_cost(user, cost, general.project(user))
        for other in (line, path):
            found = wpm_oracles.reaching_cost(user, cost, other.project(user))
            assert found == pytest.approx(least, rel=1e-9)
