"""Masses that are lost, or lie at a wrong loss, are refused when they are made."""

import dataclasses
from fractions import Fraction
import itertools
import math

import dp_accounting
from hypothesis import given
from hypothesis import strategies as st
import nights
import numpy as np
import pytest
import registered

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.amplification import group_counts
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.correlated.chains import chain_steps
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.pairs import gaussian

Ledger = conservation.Ledger
Side = conservation.Side
MassError = conservation.MassError
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE

RATIOS, MASSES = np.array([0.5, 1.5]), np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("inner", "rate", "delta"),
    [
        (
            dp_accounting.SelfComposedDpEvent(Poisson(0.2, Gaussian(1.5)), 88_300),
            0.1,
            1e-6,
        ),
        *nights.at_night(
            (
                dp_accounting.SelfComposedDpEvent(
                    ext.RandomAllocationEvent(
                        dp_accounting.LaplaceDpEvent(1.23), 8, 12
                    ),
                    401,
                ),
                0.109,
                8.36e-7,
            )
        ),
        (ext.WindowedAllocationEvent((0.8, 0.4, 0.3), 5.85, 31, 3, 1), 0.156, 0.01),
    ],
)
def test_a_surplus_of_the_sinks_is_no_fault(inner, rate, delta):
    """A sample of λ has the δ of the whole at ln(1 + (e^ε − 1)/λ), over λ."""
    whole = ext.PLDAccountant().compose(inner).get_epsilon_bounds(delta / rate)[0]
    sample = ext.PLDAccountant().compose(ext.PLDSubsampleEvent(rate, inner))
    amplified = whole + math.log(rate + (1 - rate) * math.exp(-whole))
    assert sample.get_epsilon(delta) >= amplified


@pytest.mark.parametrize(
    ("ratios", "masses", "sinks", "bound", "name"),
    [
        # Lost, of P and of Q.
        (RATIOS * 0.999, MASSES, (0.0, 0.0), Bound.UPPER, "p_masses and infinity_mass"),
        (RATIOS / 0.999, MASSES * 0.999, (0.0, 0.0), Bound.UPPER, "masses and zero"),
        (np.ones(1), np.zeros(1), (1.0, 0.5), Bound.UPPER, "masses and zero_mass"),
        # At too small a loss.
        (RATIOS * 1.001, MASSES, (0.0, 0.0), Bound.UPPER, "p_masses"),
        (RATIOS / 1.1, MASSES * 1.001, (0.0, 0.0), Bound.LOWER, "masses"),
        (RATIOS, MASSES, (0.001, 0.0), Bound.LOWER, "p_masses"),
    ],
)
def test_pairs_of_no_two_laws_are_refused(ratios, masses, sinks, bound, name):
    with pytest.raises(ValueError, match=f"^{name}.* must sum to"):
        dominating_pair.DominatingPair(ratios, masses, *sinks, bound)
    # Within the errors that the pair claims it is one.
    dominating_pair.DominatingPair(ratios, masses, *sinks, bound, 0.5, 0.5)


def test_a_registered_pair_is_checked():
    class Event(dp_accounting.DpEvent):
        """Represents a mechanism whose user forgot half of its outputs."""

    class Half(mechanisms.OnePairMechanism):
        def pair(self, bound, accuracy):
            return dominating_pair.DominatingPair(RATIOS, MASSES / 2, 0.0, 0.0, bound)

    ext.PLDAccountant.register(Event, lambda event, reader: Half())
    accountant = ext.PLDAccountant().compose(Gaussian(1.0)).compose(Event())
    with pytest.raises(ValueError, match=r"sum to one.* Mend the pair.*Half"):
        accountant.get_epsilon(1e-6)


def shifted_by_a_cell(found, *_):
    cells, masses = found
    return cells - 1, masses


def swapped_shares(found, atoms, *_):
    cells, masses = found
    if atoms.law.bound is Bound.LOWER:
        return found
    return cells, np.concatenate(np.split(masses, 2, axis=1)[::-1], axis=1)


def overwritten(found, one, other):
    """As if what meets in a cell were not added."""
    if one is None:
        return found
    start, masses = found
    masses = masses.copy()
    place = other[0] - start
    masses[:, place : place + other[1].shape[1]] = other[1]
    return start, masses


def without_the_other(sink):
    return lambda found, one, *_: dataclasses.replace(
        found, **{sink: getattr(one, sink)}
    )


def smaller_losses(found, given, axis):
    if axis is law_sums.Axis.RATIO:
        return found
    return dataclasses.replace(found, values=found.values - 1e-7)


def fewer(found, *_):
    return found * (1 - 1e-8)


def much_fewer(found, *_):
    return found * (1 - 1e-6)


def without_last(found, *_):
    return np.append(found[:-1], 0.0)


def half(found, *_):
    return found[0], 0.5 * found[1]


def swapped(found, *_):
    return found[0], found[1][::-1]


def lower(found, *_):
    return dataclasses.replace(found, values=found.values - 1e-6)


def fewer_masses(found, *_):
    return dataclasses.replace(found, masses=found.masses * (1 - 1e-6))


SGD = dp_accounting.SelfComposedDpEvent(Poisson(0.0123, Gaussian(1.01)), 1000), ADD
EPOCHS = (
    dp_accounting.SelfComposedDpEvent(
        ext.RandomAllocationEvent(Gaussian(1.01), 1, 1003), 10
    ),
    ADD,
)
COIN = registered.DiscreteEvent((1, 1), (1, 3))
SOME = ext.RandomAllocationEvent(COIN, 4, 7), ADD
REPLACED = ext.RandomAllocationEvent(Gaussian(1.01), 1, 21), REPLACE
MATRIX = ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 8, 1), ADD
# Where a fault is put in, what it does, and what then refuses itself.
FAULTS = {
    "cells one to the left": (atom_laws, "on_nodes", shifted_by_a_cell, SGD, EPOCHS),
    "shares of a split swapped": (atom_laws, "on_nodes", swapped_shares, SGD, EPOCHS),
    "what meets is overwritten": (lattice_law, "added", overwritten, SGD, EPOCHS),
    "sums of products a little too small": (sums, "convolve", fewer, SGD, EPOCHS),
    "the last product of a sum is lost": (sums, "convolve", without_last, SGD, EPOCHS),
    "a sink of a sum without the other's": (
        *(atom_laws.Law, "plus", without_the_other("infinity_mass")),
        *(SGD, EPOCHS),
    ),
    "Q's sink of a sum without the other's": (
        *(atom_laws.Law, "plus", without_the_other("zero_mass")),
        *(SGD, EPOCHS),
    ),
    "losses 1e-7 too small": (law_sums, "of_pair", smaller_losses, SGD, EPOCHS),
    "masses that are gathered lose digits": (sums, "gather", fewer, SGD, EPOCHS),
    "a half of a piece goes nowhere": (lattice_law, "halved", half, SGD, EPOCHS),
    "k of t, shares swapped": (tilted_sums, "shares", swapped, SOME),
    "k of t, a spectrum that lost mass": (sums, "repeated", much_fewer, SOME),
    "replaced, terms too small": (replaced_allocation, "_atoms", lower, REPLACED),
    "replaced, masses lost": (replaced_allocation, "_atoms", fewer_masses, REPLACED),
    "correlated noise, moves lose mass": (chain_steps, "hats", much_fewer, MATRIX),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_refuses_itself(fault, monkeypatch):
    module, name, change, *questions = FAULTS[fault]
    # No pair of another test's, and none for another one's.
    monkeypatch.setattr(mechanisms.interface, "_PAIRS", Forgetful())
    before = getattr(module, name)
    monkeypatch.setattr(
        module, name, lambda *args, **named: change(before(*args, **named), *args)
    )
    for event, relation in questions:
        accountant = ext.PLDAccountant(relation).compose(event)
        with pytest.raises(ArithmeticError, match=r"please report what was composed"):
            accountant.get_epsilon_bounds(1e-6)


def test_cells_of_noise_are_whole():
    """Of a group under 1 of t."""
    cells = gaussian.NormalCells.of((0.0, 1.0), -5.0, 8.0)
    steps = replaced_allocation.Steps(1.0, 0.01, 100)
    noise = group_counts._Noise(steps, 0.0, 2, fewer_masses(cells), 0.0)
    with pytest.raises(MassError, match="masses of a step's noise must sum to 1"):
        noise.at_ends(np.full(cells.ends.size - 1, 0.5))


@pytest.mark.parametrize("held", [0.0, 0.9e-22, float("nan")])
def test_a_tail_that_its_maker_forgot(held):
    conservation.check_total("tail", 1e-22, 1e-22 * (1 + 1e-12), 1e-33, more=math.inf)
    with pytest.raises(MassError, match="The tail must sum to 1e-22"):
        conservation.check_total("tail", held, 1e-22, 1e-33, more=math.inf)


class Forgetful:
    """A memory that keeps nothing."""

    def get(self, key, make):
        return make()


def test_a_law_of_other_terms_is_refused(monkeypatch):
    plus = lattice_law.LatticeLaw.plus

    def once(self, other):
        """As if a binary digit of the count were passed over."""
        return (
            self
            if other.law.ledger.terms == 1 != self.law.ledger.terms
            else plus(self, other)
        )

    monkeypatch.setattr(lattice_law.LatticeLaw, "plus", once)
    accountant = ext.PLDAccountant().compose(Poisson(0.0124, Gaussian(1.02)), 1001)
    with pytest.raises(ArithmeticError, match="terms of a law must sum to 1001"):
        accountant.get_epsilon(1e-6)


masses = st.lists(st.integers(0, 6), min_size=2, max_size=4).filter(any)


@given(masses, masses, st.integers(0, 3), st.integers(0, 3))
def test_ledgers_of_sums(first, second, cut, other_cut):
    """Of two laws on integers, the last values of which are cut off."""
    laws, ledgers = [], []
    for weights, gone in ((first, cut), (second, other_cut)):
        law = [Fraction(w, sum(weights)) for w in weights]
        mean = sum(i * p for i, p in enumerate(law)) or Fraction(1)
        kept = len(law) - min(gone, len(law) - 1)
        laws.append((law[:kept], law))
        q_gone = float(sum(law[kept:]))
        p_gone = float(sum(i * p for i, p in enumerate(law) if i >= kept))
        ledgers.append(
            (
                Ledger(1, Side(1.0, q_gone), Side(1.0, q_gone)),
                Ledger(1, Side(float(mean), p_gone), Side(1.0, q_gone)),
            )
        )
    (kept, _), (other, _) = laws
    both = conservation.of_losses(ledgers[0][0], ledgers[1][0])
    finite = float(sum(kept) * sum(other))
    assert both.terms == 2
    assert both.q.whole - both.q.cut == pytest.approx(finite, abs=1e-12)
    both = conservation.of_ratios(ledgers[0][1], ledgers[1][1])
    mean = sum(
        (i + j) * p * q
        for (i, p), (j, q) in itertools.product(enumerate(kept), enumerate(other))
    )
    if all(any(law[1:]) for _, law in laws):
        assert both.p.whole - both.p.cut == pytest.approx(float(mean), abs=1e-12)
    assert both.q.whole - both.q.cut == pytest.approx(finite, abs=1e-12)


def test_losses_are_those_of_the_masses():
    """Each mass alone is right, and one loss is not."""
    losses = np.array([-1.0, 1.0])
    p = np.array([0.2, 0.8])
    p[0] = (1 - 0.8 * np.exp(-1.0)) / np.e
    p /= p.sum()
    with pytest.raises(MassError):
        profile.LossPair(
            losses, p, p[::-1].copy(), 0.0, 0.0, Bound.UPPER, 0.0, 0.0, Ledger()
        )


def test_what_is_missing_of_q_counts_the_error_of_losses():
    """The loss may be .01 larger, and Q's finite mass then so much smaller."""
    ledger = Ledger(1, Side(1.0, 0.1), Side(1.0, 0.1, underflow=0.2))
    law = atom_laws.Law(
        atom_laws.Axis.LOSS,
        Bound.UPPER,
        infinity_mass=0.1,
        zero_mass=0.3,
        ratio_error=0.01,
        ledger=ledger,
    )
    atoms = atom_laws.Atoms(law, np.zeros(1), np.array([[0.9]]))
    assert 1 - 0.9 * math.exp(-0.01) <= law_sums.read(atoms).zero_mass < 0.2


def test_no_answer_is_nan():
    with pytest.raises(MassError, match="Bounds on δ must be numbers. Found nan"):
        conservation.check_numbers("Bounds on δ", np.array([0.0, np.nan]))


def test_a_whole_that_is_too_small_for_floats_is_no_fault():
    """Ten lower laws each of which has next to nothing of Q left."""
    p, q = np.array([0.5, 0.25]), np.array([3e-305, 2e-305])
    ledger = Ledger(10, Side(0.75), Side(0.0))
    losses = np.log(p / q)
    conservation.check_law(losses, (p, q), None, ledger, 1e-9)
    with pytest.raises(conservation.MassError, match="masses of Q"):
        conservation.check_law(losses, (p, q * 1e6), None, ledger, 1e-9)
