"""Laws on a lattice: where their cells are fine."""

import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("axis", lattice_law.Axis)
def test_an_atom_at_the_middle_stays_there(axis, bound):
    middle = 0.0 if axis is lattice_law.Axis.LOSS else 1.0
    values = middle + 2.0**-20 * np.arange(-20, 21)
    masses = np.full((1 if bound is Bound.UPPER else 2, 41), 1 / 41)
    atoms = lattice_law.Atoms(axis, bound, values, masses)
    law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0), 1e-9)
    assert max(law.pieces) <= 1
