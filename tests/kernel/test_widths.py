"""Brackets that were wide once: of a hundred mechanisms, of atoms at the middle."""

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law

Bound = dominating_pair.Bound


def test_mechanisms_that_differ_are_as_tight_as_runs_of_one():
    accountant = ext.PLDAccountant()
    for share in np.linspace(0, 1, 100):
        noise = dp_accounting.GaussianDpEvent(0.7 + 2 * share)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, noise))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-4)


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("axis", lattice_law.Axis)
def test_an_atom_at_the_middle_stays_there(axis, bound):
    middle = 0.0 if axis is lattice_law.Axis.LOSS else 1.0
    values = middle + 2.0**-20 * np.arange(-20, 21)
    masses = np.full((1 if bound is Bound.UPPER else 2, 41), 1 / 41)
    atoms = lattice_law.Atoms(axis, bound, values, masses)
    law = lattice_law.on_lattice(atoms, lattice_law.Resolution(), 1e-9, both=False)
    assert max(law.pieces) <= 1


def test_many_runs_of_tiny_losses():
    """Exactly at a ratio of one there is an atom: of steps with equal chances."""
    step = ext.RandomAllocationEvent(dp_accounting.LaplaceDpEvent(500.0), 1, 1000)
    accountant = ext.PLDAccountant().compose(step, 10_000)
    lower, upper = accountant.get_epsilon_bounds(1e-4)
    assert lower <= upper <= lower * (1 + 1e-3)


def test_a_hundred_million_runs():
    """Without a lower bound, if what cells' losses are above their nodes adds up."""
    accountant = ext.PLDAccountant()
    accountant.compose(dp_accounting.LaplaceDpEvent(100.0), 10**8)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-3)


@pytest.mark.parametrize(("noise", "epochs", "width"), [(10, 1, 2e-4), (3, 3000, 2e-3)])
def test_very_many_steps(noise, epochs, width):
    """3 and 23 % wide, if sums of ratios err by as much as their mean is large."""
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(noise), 1, 10**7)
    accountant = ext.PLDAccountant().compose(epoch, epochs)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + width)


@pytest.mark.parametrize(("noise", "steps"), [(0.15, 50_000), (0.12, 300_000)])
def test_little_noise_in_many_steps(noise, steps):
    """17 % wide where cells near zero grow by the ratios that they lost to zero."""
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(noise), 1, steps)
    lower, upper = ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-7)
    assert lower <= upper <= lower * (1 + 1e-5)


@pytest.mark.parametrize(("noise", "steps"), [(0.314, 3), (0.4, 10)])
def test_replaced_records_at_little_noise(noise, steps):
    """20 to 40 % wide, if cells near a threshold are as wide as the law's scale."""
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(noise), 1, steps)
    accountant = ext.PLDAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    lower, upper = accountant.compose(event).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * 1.01


def test_an_allocation_of_rare_samples():
    """As wide as it is large, if rare ratios widen the cells of the others."""
    step = dp_accounting.PoissonSampledDpEvent(
        1e-4, dp_accounting.GaussianDpEvent(0.08)
    )
    event = ext.RandomAllocationEvent(step, 1, 4_000_000)
    lower, upper = ext.PLDAccountant().compose(event).get_epsilon_bounds(0.01)
    assert lower == upper == 0


def test_few_runs_of_bounded_losses():
    """2.8e-4 wide if the largest loss of a part is no node of the lattice."""
    accountant = ext.PLDAccountant()
    for noise in (2.28, 27.0):
        accountant.compose(dp_accounting.LaplaceDpEvent(noise))
    lower, upper = accountant.get_epsilon_bounds(1e-4)
    assert lower <= upper <= lower * (1 + 1e-5)


@pytest.mark.parametrize(
    ("strategy", "noise", "bins", "epochs"),
    [((1, 0.5, 0.25), 1.5, 100, 1), ((1, 0.9, 0.8, 0.7), 8.0, 64, 5)],
)
def test_matrix_mechanisms(strategy, noise, bins, epochs):
    """7 and 6 % wide; 20 and 41 % with a chain that suits a δ of 1e-15."""
    run = ext.MatrixAllocationEvent(strategy, noise, bins, epochs)
    lower, upper = ext.PLDAccountant().compose(run).get_epsilon_bounds(1e-6)
    assert lower <= upper <= 1.08 * lower
