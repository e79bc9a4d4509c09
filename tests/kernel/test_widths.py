"""Brackets that were wide once: of a hundred mechanisms, of atoms at the middle."""

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext


def test_mechanisms_that_differ_are_as_tight_as_runs_of_one():
    accountant = ext.PLDAccountant()
    for share in np.linspace(0, 1, 100):
        noise = dp_accounting.GaussianDpEvent(0.7 + 2 * share)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, noise))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-4)


GAUSSIAN, LAPLACE = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
ALLOCATED, GROUP = ext.RandomAllocationEvent, ext.GroupSubsampledEvent
RARE = dp_accounting.PoissonSampledDpEvent(1e-4, GAUSSIAN(0.08))


@pytest.mark.parametrize(
    ("event", "runs", "delta", "width"),
    [
        # Exactly at a ratio of one there is an atom: of steps with equal chances.
        (ALLOCATED(LAPLACE(500.0), 1, 1000), 10_000, 1e-4, 1e-3),
        # Without a lower bound, if what cells' losses are above their nodes adds up.
        (LAPLACE(100.0), 10**8, 1e-6, 1e-3),
        # 3 and 23 % wide, if sums of ratios err by as much as their mean is large.
        (ALLOCATED(GAUSSIAN(10), 1, 10**7), 1, 1e-6, 2e-4),
        (ALLOCATED(GAUSSIAN(3), 1, 10**7), 3000, 1e-6, 2e-3),
        # 17 % wide where cells near zero grow by the ratios that they lost to zero.
        (ALLOCATED(GAUSSIAN(0.15), 1, 50_000), 1, 1e-7, 1e-5),
        (ALLOCATED(GAUSSIAN(0.12), 1, 300_000), 1, 1e-7, 1e-5),
        # 0 to 0.01 if rare ratios widen the cells of the others.
        (ALLOCATED(RARE, 1, 4_000_000), 1, 0.01, 0.0),
        # 9e-5 wide if the largest loss of a part is no node of the lattice.
        (dp_accounting.ComposedDpEvent([LAPLACE(2.28), LAPLACE(27.0)]), 1, 1e-4, 1e-5),
        # 0.0003 to 0.25 if what masses of a chain exceed one by becomes a rare loss.
        (
            ext.GroupSubsampledEvent(2, ALLOCATED(GAUSSIAN(50), 1, 652_158)),
            1,
            1e-12,
            3e-4,
        ),
        # 9 % wide if the second sum has columns over six deviations only.
        (
            ext.GroupSubsampledEvent(2, ALLOCATED(GAUSSIAN(0.6916), 1, 1481)),
            5,
            1.2e-11,
            0.07,
        ),
    ],
)
def test_what_was_wide_once(event, runs, delta, width):
    accountant = ext.PLDAccountant().compose(event, runs)
    lower, upper = accountant.get_epsilon_bounds(delta)
    assert lower <= upper <= lower * (1 + width)


def test_replaced_records_at_little_noise():
    """20 to 40 % wide, if cells near a threshold are as wide as the law's scale."""
    accountant = ext.PLDAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    accountant.compose(ALLOCATED(GAUSSIAN(0.314), 1, 3))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * 1.01


def test_matrix_mechanisms():
    """6 % wide; 41 % with a chain that suits a δ of 1e-15."""
    run = ext.MatrixAllocationEvent((1, 0.9, 0.8, 0.7), 8.0, 64, 5)
    lower, upper = ext.PLDAccountant().compose(run).get_epsilon_bounds(1e-6)
    assert lower <= upper <= 1.08 * lower
