"""Failures of the solver."""

import numpy as np
import pytest

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import column_generation


def test_a_failing_program_is_an_error_of_its_own(monkeypatch):
    class Failed:
        status, message = 4, "no"

    monkeypatch.setattr(linear_program.optimize, "linprog", lambda *_, **__: Failed)
    polytope = ldp_polytope.LdpPolytope(np.full(2, 0.2), np.full(2, 0.8))
    with pytest.raises(linear_program.SolverError, match="could not be solved: no"):
        column_generation.solve(np.full(2, 0.5), np.eye(2), polytope)
