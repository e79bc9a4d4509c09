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


def test_a_profile_with_fewer_losses_is_above_it():
    losses = np.linspace(-6.0, 6.0, 3001)
    masses = np.exp(-((losses - 1.0) ** 2))
    masses *= 0.9 / masses.sum()
    many = profile.Profile.of(losses, masses, 0.1, Bound.UPPER, 1e-12, 1e-12)
    few = many.with_losses(300)
    assert few.losses.size == 300
    epsilons = np.append(np.linspace(-9.0, 9.0, 5000), losses)
    deltas = np.append(many.deltas(epsilons), 0.1 + np.geomspace(1e-12, 0.89, 99))
    for of, asked in (("deltas", epsilons), ("epsilons", deltas[deltas < 1])):
        least, found = (getattr(each, of)(asked) for each in (many, few))
        assert (found >= least).all()
        far = (of == "epsilons") & (asked < 0.101)  # The tails are the last to show.
        assert np.allclose(found[~far], least[~far], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("values", [np.zeros(9), np.arange(9) * 1e-310, np.ones(1)])
def test_losses_that_are_one_stay_as_they_are(values):
    law = values, np.full(values.size, 0.1)
    every = profile.Profile.of(*law, 0.1, Bound.UPPER, 0.0, 0.0)
    assert every.with_losses(5) is every
