"""The lattice of the joint law of two sums."""

import numpy as np

from dp_accounting_ext.amplification import plane_sums
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair


def test_masses_of_few_digits_are_on_the_safe_side():
    """A mass of 1e-290, split, would be below what floats hold: raised."""
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1.5, 2.0e3]), np.array([0.5, 0.5, 1e-290]), 0.0, 0.0, Bound.UPPER
    )
    steps = step_laws.Steps.of([step_laws.Kind(pair, 4)], 2)
    scores = step_laws.scores(pair.ratios, 0.5)[::2]
    step = float(scores[0][-1]) * (1 - 1e-13)
    grid = plane_sums.Grid(0.0, np.ones(2), 0.0, step, 0.25, 64, 16, 1)
    for masses, count in steps.with_record([2]):
        factor = grid.factor(scores, masses, count)
        assert factor.masses.min() >= 1e-300
        assert factor.masses.size == 2 * 2 * 3
