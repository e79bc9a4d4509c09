"""Laws on a lattice keep their masses, and those that are cut off, and their middle."""

from fractions import Fraction
import functools
import math

import dp_accounting
from hypothesis import given
from hypothesis import strategies as st
import nights
import numpy as np
import pytest
import registered

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums

Axis = lattice_law.Axis


@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, 1e-290, 1e-9, 0.3, 1.0]), min_size=4, max_size=4
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 5),
)
def test_power_series_lose_only_tails_of_rows(rows, count):
    """Q's masses in the first row stay; what others lose is no more than is cut off."""
    masses = np.array([[0.1, 0.4, 0.4, 0.1], *rows])
    atoms = lattice_law.Atoms(
        Axis.RATIO,
        Bound.LOWER,
        np.array([0.01, 0.02, 0.5, 3.0]),
        masses,
        degrees=tuple(range(len(masses))),
    )
    law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0, 16), 1e-3)
    tail = 1e-4
    found = lattice_sums.times(law, count, tail).atoms()
    exact = [Fraction(1)] + [Fraction(0)] * len(rows)
    totals = [sum(map(Fraction, row)) for row in masses.tolist()]
    for _ in range(count):
        exact = [
            sum(exact[k] * totals[d - k] for k in range(d + 1))
            for d in range(len(totals))
        ]
    # Each of fewer copies has lost at most its share, beside sums that are no larger.
    rest = max(1, max(totals)) ** count * len(totals)
    for degree, (row, truth) in enumerate(zip(found.masses, exact, strict=True)):
        total = sum(map(Fraction, row.tolist()))
        assert total <= truth * (1 + Fraction(found.mass_error)) + Fraction(1e-280)
        lost = 2 * tail * float(rest) * len(totals) if degree else tail
        assert total >= truth * (1 - Fraction(found.mass_error)) - Fraction(lost)


def test_nothing_is_lost_of_an_upper_law():
    """What goes to the sinks, and what stays, is all there was, and no more."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        losses = np.sort(rng.normal(0.0, 10 ** rng.uniform(-4, 1.5), 50))
        p = rng.dirichlet(np.full(50, 0.1)) + 1e-250
        atoms = lattice_law.Atoms(Axis.LOSS, Bound.UPPER, losses, p[np.newaxis])
        q = float((p * np.exp(-losses)).sum())
        for count in (3, 40, 1000):
            law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0, 8), 1e-9)
            total = lattice_sums.times(law, count, 1e-12).atoms()
            own, other = total.p_and_q
            slack = math.exp(total.mass_error + 1e-12)
            mine = own.sum() + total.infinity_mass
            assert mine / slack <= p.sum() ** count <= mine * slack
            if q < 1:
                theirs = other.sum() + total.zero_mass
                assert theirs / slack - 1e-8 <= q**count <= theirs * slack


def test_a_law_that_underflows_is_all_in_its_sinks():
    masses = np.full((1, 2), 1e-100)
    atoms = lattice_law.Atoms(Axis.LOSS, Bound.UPPER, np.array([0.0, 1.0]), masses)
    law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0, 8), 1e-9)
    total = lattice_sums.times(law, 16, 1e-12).atoms()
    assert not total.values.size
    assert (
        0
        < min(total.infinity_mass, total.zero_mass)
        <= max(total.infinity_mass, total.zero_mass)
        < 1e-9
    )


@pytest.mark.parametrize("count", [192, *nights.at_night(5000)])
def test_losses_that_are_merged_over_wide_cells_keep_their_mass(count):
    """Losses of 690 nats beside Gaussian noise that nearly reveals a record.

    The discrete event has the loss 690 but for a probability of 1e-75. So ε is the sum
    of the losses and of the Gaussian mechanism's own ε.
    """
    masses = (1.0, 1.2e-75, 1.4e-150, 1.7e-225, math.exp(-690.0))
    event = registered.DiscreteEvent(masses, masses[::-1])
    noise = dp_accounting.GaussianDpEvent(0.0868)
    gaussian = ext.PLDAccountant().compose(noise, 2048)
    accountant = ext.PLDAccountant().compose(noise, 2048).compose(event, count)
    alone = gaussian.get_epsilon_bounds(1e-16)
    lower, upper = accountant.get_epsilon_bounds(1e-16)
    loss = count * 690.0
    assert lower <= (loss + alone[1]) * (1 + 1e-9)
    assert (loss + alone[0]) * (1 - 1e-9) <= upper < 1.006 * lower
    if count == 192:  # Wider cells leave some mass out of the lower law.
        assert accountant.get_delta_bounds(loss)[0] > 0.9999


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("axis", lattice_law.Axis)
def test_an_atom_at_the_middle_stays_there(axis, bound):
    middle = 0.0 if axis is lattice_law.Axis.LOSS else 1.0
    values = middle + 2.0**-20 * np.arange(-20, 21)
    masses = np.full((1 if bound is Bound.UPPER else 2, 41), 1 / 41)
    atoms = lattice_law.Atoms(axis, bound, values, masses)
    law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0), 1e-9)
    assert max(law.pieces) <= 1


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
