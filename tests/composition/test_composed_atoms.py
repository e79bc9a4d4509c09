"""A composed loss in a window, and what is read off it, against closed forms."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_atoms
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


def exact_delta(law, epsilon, side):
    """Returns δ of a law as rational numbers, κ moved by 2^-40 to a side."""
    kappa = Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**40))
    total = Fraction(law.infinity_mass)
    for mass, loss in zip(law.masses, law.losses, strict=True):
        share = 1 - kappa / Fraction(math.exp(loss))
        total += Fraction(mass) * max(share, Fraction(0))
    return total


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_one_law_read_at_any_place(data):
    bound = data.draw(st.sampled_from(list(Bound)))
    direction = data.draw(st.sampled_from(list(Direction)))
    pair = data.draw(strategies.pairs(bound, most_atoms=8))
    law = loss_distribution.from_pair(pair, direction, 1)
    atoms = composed_atoms.of_one(law)
    side = 1 if bound is Bound.UPPER else -1
    # At the losses themselves too, where the number of those above changes.
    epsilons = np.array([*law.losses, -1.0, 0.0, 0.3, 2.0])
    found = atoms.deltas(epsilons)
    for epsilon, delta in zip(epsilons.tolist(), found.tolist(), strict=True):
        # Tight to 2^-30; certain without any tolerance but that of κ above.
        safe = exact_delta(law, epsilon, side)
        assert delta == pytest.approx(min(float(safe), 1.0), abs=2**-30)
        assert (Fraction(delta) - safe) * side >= 0 or delta in (0.0, 1.0)
    deltas = np.array([0.9, 0.5, 0.1, 0.01, 1e-6])
    for delta, epsilon in zip(deltas, atoms.epsilons(deltas).tolist(), strict=True):
        if -math.inf < epsilon < math.inf:
            there = exact_delta(law, epsilon, side)
            assert (Fraction(delta) - there) * side >= 0
        if epsilon == math.inf:
            assert law.infinity_mass >= delta * (1 - 1e-9)


def runs(bound, sigma=5.0, count=50):
    law = loss_distribution.from_pair(
        gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-20),
        Direction.REMOVE,
        count,
    )
    totals = composed_atoms.Totals(
        bound=bound,
        copies=count,
        ends=(count * float(law.losses[0]), count * float(law.losses[-1])),
        infinity_mass=count * law.infinity_mass,
        most_mass=1 + 1e-9,
        mass_error=count * law.mass_error,
        ratio_error=count * law.ratio_error,
    )
    return law, totals


def composed(law, totals, place):
    composition = composed_atoms.Composition(totals, place, 1e-3)
    composition.add(law)
    return composition.atoms()


MEAN, DEVIATION = 1.0, math.sqrt(2.0)


@pytest.mark.parametrize("stride", [1, 30])
@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("tilt", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("ends", [(-4.0, 0.3), (-0.5, 4.0), (-9.0, 9.0)])
def test_any_window_is_certified(monkeypatch, bound, tilt, ends, stride):
    """Too narrow, too low, too high, read at few losses: loose, and on its side."""
    monkeypatch.setattr(composed_atoms, "_stride", lambda *_: stride)
    law, totals = runs(bound)
    place = anchors.Place(
        tilt,
        MEAN + ends[0] * DEVIATION,
        MEAN + ends[1] * DEVIATION,
        MEAN - DEVIATION,
        math.inf,
        MEAN,
        (-1.0, 0.5, 2.0),
    )
    atoms = composed(law, totals, place)
    epsilons = np.array(
        [MEAN - 2 * DEVIATION, MEAN - DEVIATION, MEAN, MEAN + 0.2, MEAN + 4 * DEVIATION]
    )
    for epsilon, delta in zip(epsilons, atoms.deltas(epsilons), strict=True):
        truth = oracles.gaussian_delta(math.sqrt(2.0), epsilon)
        assert delta >= truth if bound is Bound.UPPER else delta <= truth
    deltas = np.array([0.3, 1e-3, 1e-6])
    for delta, epsilon in zip(deltas, atoms.epsilons(deltas), strict=True):
        if atoms.lowest <= epsilon <= atoms.highest and math.isfinite(epsilon):
            truth = oracles.gaussian_delta(math.sqrt(2.0), epsilon)
            assert truth <= delta if bound is Bound.UPPER else truth >= delta


def test_fewer_losses_are_read_of_many_copies():
    """A few thousand, and no bound is looser for it."""
    found = []
    for finer in (10.0, 1e9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(composed_atoms, "_FINER", finer)
            each = []
            for bound in Bound:
                law, totals = runs(bound, 200.0, 40_000)
                place = anchors.Place(3.0, -5.0, 9.0, -1.0, 5.0, 0.5, (-1.0, 0.5))
                composition = composed_atoms.Composition(totals, place, 1e-4)
                composition.add(law)
                each.append(composition.atoms())
            found.append(each)
    (upper, lower), (fine_upper, fine_lower) = found
    assert upper.losses.size < 9000 < 60_000 < fine_upper.losses.size
    assert lower.losses.size < 9000
    epsilons = np.linspace(0.0, 4.0, 30)
    for sparse, fine in ((upper, fine_upper), (lower, fine_lower)):
        np.testing.assert_allclose(
            sparse.deltas(epsilons), fine.deltas(epsilons), rtol=3e-5
        )
    assert (lower.deltas(epsilons) <= upper.deltas(epsilons)).all()


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("high", [0.4, 2.0, 9.0])
def test_split_and_grouped_once_more_against_exact_sums(monkeypatch, bound, high):
    """On the lattice: what is read at every third loss is all there is."""
    monkeypatch.setattr(composed_atoms, "_stride", lambda *_: 3)
    count, interval = 250, 1 / 64
    numerators = np.array([4, 5, 7], dtype=object)
    exact = np.array([1], dtype=object)
    for _ in range(count):
        exact = np.convolve(exact, numerators)
    law = loss_distribution.LossDistribution(
        np.array([-interval, 0.0, interval]),
        np.array([4, 5, 7]) / 16,
        0.0,
        count,
        bound,
    )
    ends = (-count * interval, count * interval)
    totals = composed_atoms.Totals(bound, count, ends, 0.0, 1 + 1e-9, 0.0, 0.0)
    place = anchors.Place(1.0, -1.0, high, -0.2, 4.0, 0.3, (-0.5, 0.5))
    composition = composed_atoms.Composition(totals, place, interval)
    composition.add(law)
    atoms = composition.atoms()
    steps = np.arange(-6, 80)
    found = atoms.deltas(steps * interval)
    losses = (np.arange(exact.size) - count) * interval
    masses = np.array([float(Fraction(mass, 16**count)) for mass in exact])
    tight = []
    for step, delta in zip(steps.tolist(), found.tolist(), strict=True):
        truth = math.fsum(masses * np.maximum(-np.expm1(step * interval - losses), 0.0))
        if bound is Bound.UPPER:
            assert delta >= truth * (1 - 1e-13)
        else:
            assert delta <= truth * (1 + 1e-13)
        tight.append(abs(delta / truth - 1))
    if high > 5 and bound is Bound.UPPER:
        # At every third loss a split changes nothing; in between, little.
        assert np.sort(tight)[25] < 1e-9
        assert max(tight) < 0.1


def test_what_is_not_read_is_not_kept_but_counts():
    law, totals = runs(Bound.UPPER)
    places = [
        anchors.Place(0.0, -8.0, 10.0, -1.0, highest, 1.0, (0.5,))
        for highest in (2.0, math.inf)
    ]
    short, whole = (composed(law, totals, p) for p in places)
    assert short.nbytes < 0.5 * whole.nbytes
    epsilons = np.array([-0.9, 0.0, 1.9])
    np.testing.assert_array_equal(short.deltas(epsilons), whole.deltas(epsilons))
    # Above what is kept it still is a bound.
    assert short.deltas(np.array([3.0])) >= whole.deltas(np.array([3.0]))
    deltas = whole.deltas(epsilons)
    np.testing.assert_allclose(short.epsilons(deltas), epsilons, atol=1e-9)


@pytest.mark.parametrize(
    ("start", "step", "number"),
    [(5.0, -1e-3, 2000), (-700.0, -0.4, 300), (3.0, 0.0, 7)],
)
def test_exponentials(start, step, number):
    found = composed_atoms._exponentials(start, step, number)
    places = np.maximum(start + step * np.arange(number), -740)
    np.testing.assert_allclose(found, np.exp(places), rtol=2e-13, atol=1e-305)
    assert composed_atoms._exponentials(2000.0, -1.0, 3).max() <= math.exp(700.0)
