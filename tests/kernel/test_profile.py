"""Profiles of laws without finite losses."""

import dataclasses
import math

import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import profile

Side = conservation.Side


@pytest.mark.parametrize(
    ("bound", "sink", "epsilon"),
    [(Bound.UPPER, 1.0, math.inf), (Bound.LOWER, 0.2, 0.0)],
)
def test_what_has_no_finite_loss(bound, sink, epsilon):
    """All that is asked of it is read off its sinks."""
    none = np.zeros(0)
    nothing = conservation.Ledger(1, Side(1.0, 1.0), Side(1.0, 1.0))
    law = profile.LossPair(none, none, none, sink, sink, bound, 0.0, 0.0, nothing)
    for direction in Direction:
        found = law.profile(direction)
        assert found.deltas(np.array([0.0, 9.0])) == pytest.approx([sink, sink])
        assert found.epsilons(np.array([0.1, 0.5])).tolist() == [math.inf, epsilon]
    lower = dataclasses.replace(law, zero_mass=0.5, bound=Bound.LOWER).swapped()
    assert (lower.infinity_mass, lower.zero_mass) == (0.5, sink)
    # Of a δ beyond all its mass nothing is known from below, however large a loss is.
    p = np.array([0.1])
    masses = p, p * math.exp(-99.0)
    most = conservation.Ledger(1, Side(1.0, 0.9), Side(1.0, 1.0))
    rare = profile.LossPair(
        np.array([99.0]), *masses, 0.0, 0.0, Bound.LOWER, 0.0, 0.0, most
    )
    found = rare.profile(Direction.REMOVE).epsilons(np.array([0.05, 0.5]))
    assert found == pytest.approx([99.0 + math.log(0.5), 0.0])
