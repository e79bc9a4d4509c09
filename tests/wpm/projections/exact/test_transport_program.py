"""The linear program of a transport problem, beside the interior point method."""

import numpy as np
import pytest

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.exact import interior_point
from dp_accounting_ext.wpm.projections.exact import transport_program


@pytest.mark.parametrize("penalty", [0.3, 2.0])
def test_both_ways_have_one_optimum(penalty):
    generator = np.random.default_rng(0)
    inputs, outputs = np.divmod(np.flatnonzero(generator.random(60) < 0.7), 10)
    supply = generator.uniform(-0.1, 0.4, 6)
    lower = generator.uniform(0, 0.05, 10)
    problem = interior_point.Problem(
        generator.random(inputs.size),
        inputs,
        outputs,
        supply,
        ldp_polytope.LdpPolytope(lower, lower + 0.2),
        penalty,
    )
    middle = interior_point.solve(
        problem, np.zeros(6), np.zeros(10), relative_gap=1e-11
    )
    corner = transport_program.solve(problem)
    values = [
        float(found.amounts @ problem.cost[found.arcs]) + penalty * found.unmoved
        for found in (middle, corner)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-8)
    np.testing.assert_allclose(middle.potentials, corner.potentials, atol=1e-6)
