"""Programs over measures: optimum and bound of functions with known minima."""

import math

import numpy as np
import pytest

from dp_accounting_ext.wpm.base_measures import cutting_planes
from dp_accounting_ext.wpm.projections import linear_program


def test_the_least_of_two_tangents():
    """max(1 − y_0, y_0) over 1 ≤ Σy ≤ e: one half."""
    cuts = cutting_planes.Cuts(2, 1.0, np.ones(1))
    slopes = np.array([[-1.0, 0.0], [1.0, 0.0]])
    cuts.add(np.array([1.0, 0.0]), slopes, np.zeros(2, dtype=np.intp))
    most, bound = cuts.solve()
    assert most[0] == pytest.approx(0.5) and bound == pytest.approx(0.5)
    assert 1 - 1e-12 <= most.sum() <= math.e


def test_a_cap_is_kept():
    """The least y_1 where 1 − y_1 ≤ 0.25."""
    cuts = cutting_planes.Cuts(2, 1.0, np.ones(1), cap=0.25)
    cuts.add(np.zeros(1), np.array([[0.0, 1.0]]), np.zeros(1, dtype=np.intp))
    cuts.add_capped(np.ones(1), np.array([[0.0, -1.0]]))
    most, bound = cuts.solve()
    assert most[1] == pytest.approx(0.75) and bound <= 0.75 + 1e-12


def test_a_failing_solver_is_no_answer(monkeypatch):
    def fails(*_, **__):
        raise linear_program.SolverError("no")

    cuts = cutting_planes.Cuts(2, 1.0, np.ones(1))
    cuts.add(np.zeros(1), np.ones((1, 2)), np.zeros(1, dtype=np.intp))
    monkeypatch.setattr(cutting_planes.linear_program, "solve", fails)
    assert cuts.solve() is None
