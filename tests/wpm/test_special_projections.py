"""The line and graphs against the general projection."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import graph_projection
from dp_accounting_ext.wpm.projections.exact import line_projection


@settings(max_examples=80, deadline=None)
@given(wpm_oracles.seeds)
def test_line_is_exact_and_proves_it(seed):
    generator = np.random.default_rng(seed)
    k, size = generator.integers(1, 30, 2)
    inputs, outputs = generator.random(k), generator.random(size)
    if seed % 3 == 0:
        inputs, outputs = np.round(9 * inputs), np.round(9 * outputs)
    cost = wpm.cost_matrix(inputs, outputs, order=1)
    masses = generator.dirichlet(np.full(k, 0.3))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    polytope = wpm_oracles.polytope_of(
        wpm_oracles.random_measure(generator, size, epsilon), epsilon
    )
    line = line_projection.make_line(inputs, outputs)
    found = line_projection.solve(masses, line, polytope)
    general = column_generation.solve(masses, cost, polytope)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
    slack = 1e-11 * (1 + cost.max())
    assert found.values[0] == pytest.approx(general.values[0], rel=1e-9, abs=slack)
    bound = duality.lower_bound(masses, found.prices[0], cost, polytope)
    assert found.values[0] - bound <= slack


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_graph_is_exact_and_proves_it(seed):
    generator = np.random.default_rng(seed)
    nodes = int(generator.integers(2, 25))
    tree = [(node, int(generator.integers(node))) for node in range(1, nodes)]
    more = generator.integers(0, nodes, (nodes // 2, 2)).tolist()
    edges = np.array(tree + more)
    graph = graph_projection.make_graph(edges, generator.uniform(0.1, 2, len(edges)))
    cost = graph_projection.distances(graph)
    masses = generator.dirichlet(np.full(nodes, 0.3))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    polytope = wpm_oracles.polytope_of(
        wpm_oracles.random_measure(generator, nodes, epsilon), epsilon
    )
    found = graph_projection.solve(masses, graph, polytope)
    general = column_generation.solve(masses, cost, polytope)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
    slack = 1e-11 * (1 + cost.max())
    assert found.values[0] == pytest.approx(general.values[0], rel=1e-9, abs=slack)
    bound = duality.lower_bound(masses, found.prices[0], cost, polytope)
    assert found.values[0] - bound <= slack


def test_parallel_edges_count_as_the_shortest():
    graph = graph_projection.make_graph([(0, 1), (1, 0), (1, 1)], [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(graph_projection.distances(graph), [[0, 2], [2, 0]])


@pytest.mark.parametrize(
    ("edges", "lengths", "error", "message"),
    [
        ([(0.5, 1)], [1], TypeError, "edges must be pairs of integers"),
        ([0, 1], [1], ValueError, r"edges must be pairs of nodes.*Found shape \(2,\)"),
        ([(0, -1)], [1], ValueError, "edges must be pairs of nodes"),
        ([(0, 1)], [1, 2], ValueError, r"each of the 1 edges. Found shape \(2,\)"),
        ([(0, 1)], [0], ValueError, "lengths must be positive and finite. Found 0.0"),
        ([(0, 1), (2, 3)], [1, 1], ValueError, "cost must be .* finite. Found inf"),
    ],
)
def test_bad_graphs(edges, lengths, error, message):
    with pytest.raises(error, match=message):
        wpm.WassersteinProjectionMechanism.on_graph(edges, lengths, 1.0)


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
