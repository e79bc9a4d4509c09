"""Pairs with fewer atoms: never on the wrong side of the pairs that they stand for."""

import tracemalloc

import numpy as np
import oracles
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import few_atoms


@pytest.mark.parametrize(
    ("loss", "span"), [(0.0, 0.0), (5.0, 1e-15), (600.0, 1e-9), (0.1, 50.0)]
)
def test_losses_that_hardly_differ_are_split_as_others(loss, span):
    losses = np.linspace(loss, loss + span, 70_000)
    masses = np.exp(-losses) / losses.size
    rest = max(1 - float(masses.sum()), 0.0)
    many = dominating_pair.DominatingPair(
        np.exp(losses), masses, 0.0, rest, Bound.UPPER
    )
    few = few_atoms.reduced(many)
    for epsilon in (loss / 2, loss + span / 2, loss + span + 0.1):
        truth = float(oracles.stored_delta(many, epsilon, Direction.REMOVE))
        found = few.delta(epsilon, Direction.REMOVE)
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-6) + 1e-9


def test_many_atoms_are_split_in_little_memory():
    losses = np.linspace(-5.0, 5.0, 1_000_000)
    q = np.exp(-(losses**2) - losses / 2)
    q /= (1 + 1e-12) * max(q.sum(), (q * np.exp(losses)).sum())
    rest = [1 - float(mass.sum()) for mass in (q * np.exp(losses), q)]
    many = dominating_pair.DominatingPair(np.exp(losses), q, *rest, Bound.UPPER)
    tracemalloc.start()
    try:
        assert few_atoms.reduced(many).ratios.size < 70_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Eight arrays of a million numbers; all at once they were seventeen.
    assert most < 9 * losses.nbytes


@pytest.mark.parametrize("span", [1e-12, 0.1, 20.0])
def test_atoms_of_lower_pairs_that_share_a_cell_become_one(span):
    losses = np.sort(np.random.default_rng(1).uniform(-span, span, 5_000))
    q = np.exp(-((losses / span) ** 2) - losses / 2)
    q /= (1 + 1e-12) * max(q.sum(), (q * np.exp(losses)).sum())
    many = dominating_pair.DominatingPair(np.exp(losses), q, 0.0, 0.0, Bound.LOWER)
    few = few_atoms.reduced(many, 500)
    assert few.ratios.size <= 500
    for direction in Direction:
        for epsilon in (-span / 2, 0.0, span / 3, 0.9 * span):
            truth = float(oracles.stored_delta(many, epsilon, direction))
            found = few.delta(epsilon, direction)
            assert 0.995 * truth - 1e-13 <= found <= truth
