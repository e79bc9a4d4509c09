"""Plans made exact, by hand."""

import numpy as np

from dp_accounting_ext.wpm.projections.exact import transport_plan


def test_rows_are_made_exact_and_what_was_forgotten_goes_to_the_nearest():
    masses = np.array([0.75, 0.25])
    cost = np.array([[1.0, 2.0], [4.0, 3.0]])
    value, columns = transport_plan.feasible(
        masses, cost, np.array([0, 0]), np.array([0, 1]), np.array([1.0, 2.0])
    )
    assert columns.tolist() == [0.25, 0.75]
    assert value == 0.25 * 1 + 0.5 * 2 + 0.25 * 3
