"""Sinks of laws of atoms hold what was cut off."""

import functools

import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import conservation

Ledger = conservation.Ledger
Side = conservation.Side


MassError = conservation.MassError


@pytest.mark.parametrize(
    ("over", "ledger"),
    [
        (0.0, Ledger(1, Side(1.0, 1e-250))),
        (1e-22, Ledger(1, Side(1.0, 1.1e-22))),
        (float("nan"), Ledger()),
    ],
)
def test_sinks_hold_what_was_cut_off(over, ledger):
    with pytest.raises(MassError, match="keep in its sink"):
        atom_laws.Atoms(
            atom_laws.Axis.LOSS,
            Bound.UPPER,
            np.zeros(1),
            np.ones((1, 1)),
            infinity_mass=over,
            ledger=ledger,
        )


def test_masses_above_one_are_no_lost_tails():
    """A ledger multiplies what is cut off by masses that rounding made too large."""
    ledger = Ledger(2, Side(1 + 4e-6, 1e-22 * (1 + 4e-6)))
    atoms_of = functools.partial(
        atom_laws.Atoms,
        atom_laws.Axis.LOSS,
        Bound.UPPER,
        values=np.zeros(1),
        masses=np.ones((1, 1)),
        ledger=ledger,
    )
    atoms_of(infinity_mass=1e-22)
    with pytest.raises(MassError, match="keep in its sink"):
        atoms_of(infinity_mass=1e-22 * (1 - 3e-6))
