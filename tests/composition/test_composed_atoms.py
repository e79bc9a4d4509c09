"""A composed loss in a window, and what is read off it, against closed forms."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_atoms
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import lattice
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


def exact_power(numerators, count):
    """The law of a sum of so many copies, as whole numbers."""
    law, one = np.array([1], dtype=object), np.array(numerators, dtype=object)
    for _ in range(count):
        law = np.convolve(law, one)
    return law.tolist()


def composed(law, totals, place, interval=1e-3):
    composition = composed_atoms.Composition(totals, place, interval)
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
    exact = np.array(exact_power([4, 5, 7], count), dtype=object)
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


def exact_masses(count):
    """Those of −1, 0 and 1 with chances 4, 5 and 7 of 16, added up so often."""
    law = exact_power([4, 5, 7], count)
    return [Fraction(mass, 16**count) for mass in law]


def three_losses(bound, count, high):
    law = loss_distribution.LossDistribution(
        np.array([-1.0, 0.0, 1.0]), np.array([4, 5, 7]) / 16, 0.0, count, bound
    )
    ends = (float(-count), float(count))
    totals = composed_atoms.Totals(bound, count, ends, 0.0, 1.0, 0.0, 0.0)
    changes = (-0.5, 0.5, 8.0)
    place = anchors.Place(0.0, ends[0], high, ends[0], math.inf, high, changes)
    return composed(law, totals, place, 1.0)


def exact_sum(masses, epsilon):
    """The divergence at ε of the same, from −n to n."""
    largest = len(masses) // 2
    return sum(
        mass * (1 - Fraction(math.exp(epsilon - place)))
        for place, mass in enumerate(masses, -largest)
        if place > epsilon
    )


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("high", [8.0, 11.0, 14.0, 17.0])
def test_all_that_is_not_read_above_is_infinite(monkeypatch, stride, high):
    """To the last mass: a Chernoff bound, made exact here, would hide a few."""
    count = 30
    exact = exact_masses(count)

    def exactly_above(_, index):
        return float(sum(exact[max(index + count, 0) :])) * (1 + 2.0**-50)

    monkeypatch.setattr(composed_atoms, "_stride", lambda *_: stride)
    monkeypatch.setattr(lattice.TiltedProduct, "mass_above", exactly_above)
    atoms = three_losses(Bound.UPPER, count, high)
    epsilons = atoms.losses[0] - np.arange(5.0)
    for epsilon, delta in zip(epsilons, atoms.deltas(epsilons), strict=True):
        truth = exact_sum(exact, epsilon)
        assert truth * (1 - Fraction(1, 2**50)) <= delta <= 40 * truth


@pytest.mark.parametrize("bound", list(Bound))
def test_what_is_as_small_as_the_noise_of_a_transform(bound):
    count = 60
    exact = exact_masses(count)
    assert exact[-1] < 1e-21
    for high in range(count, count + 20):
        atoms = three_losses(bound, count, float(high))
        epsilons = np.arange(20.0, count)
        for epsilon, delta in zip(epsilons, atoms.deltas(epsilons), strict=True):
            truth = exact_sum(exact, epsilon)
            if bound is Bound.UPPER:
                assert truth * (1 - Fraction(1, 2**50)) <= delta <= 2 * truth + 1e-12
            else:
                assert truth / 2 - 1e-12 <= delta <= truth * (1 + Fraction(1, 2**50))


def constant(loss, count, bound):
    return loss_distribution.LossDistribution(
        np.array([loss]), np.array([1.0]), 0.0, count, bound
    )


def assert_on_its_side(laws, place, interval, epsilon):
    """Of constant losses the truth is known to any digit."""
    bound = laws[0].bound
    copies = sum(law.count for law in laws)
    ends = (place.low, place.high)
    totals = composed_atoms.Totals(bound, copies, ends, 0.0, 1.0, 0.0, 0.0)
    composition = composed_atoms.Composition(totals, place, interval)
    for law in laws:
        composition.add(law)
    (delta,) = composition.atoms().deltas(np.array([epsilon])).tolist()
    loss = sum(law.count * Fraction(float(law.losses[0])) for law in laws)
    with mpmath.workdps(60):
        above = mpmath.mpf(epsilon) - mpmath.mpf(loss.numerator) / loss.denominator
        truth = -mpmath.expm1(above)
        assert delta >= truth if bound is Bound.UPPER else delta <= truth


@pytest.mark.parametrize("bound", list(Bound))
def test_losses_that_rounding_moves_onto_the_lattice(bound):
    """A thousand copies each, all of which it moves to the wrong side."""
    interval, count = 0.1, 1000
    side = -1 if bound is Bound.UPPER else 1

    def moved(loss):
        return (round(loss / interval) * Fraction(interval) - Fraction(loss)) * side

    near = [float(x) for i in range(3900, 4096) for x in around(i * interval, 3)]
    chosen = [
        max((x for x in signed if (x / interval).is_integer()), key=moved)
        for signed in (near, [-x for x in near])
    ]
    assert min(map(moved, chosen)) > 100 * 2.0**-53
    # With one more that leaves half a nat.
    rest = 5 - count * sum(round(x / interval) for x in chosen)
    laws = [constant(x, count, bound) for x in chosen]
    laws.append(constant(rest * interval, 1, bound))
    place = anchors.Place(0.0, 0.3, 0.8, 0.3, math.inf, 0.5, (200.0,))
    for below in (1e-3, 1e-7):
        assert_on_its_side(laws, place, interval, 0.5 - below)


def around(number, most):
    """Yields the floats next to a number, so many on either side."""
    for way in (-math.inf, math.inf):
        at = number
        for _ in range(most + 1):
            yield at
            at = math.nextafter(at, way)


@pytest.mark.parametrize("bound", list(Bound))
def test_costs_are_rounded_far_from_the_first_loss(monkeypatch, bound):
    """Their exponents are differences of some 700 nats; noise would hide it."""
    monkeypatch.setattr(lattice.TiltedProduct, "_noise", lambda *_: 0.0)
    for step in range(1, 160):
        interval = (0.3, 0.37, 0.7, 0.123)[step % 4]
        loss = step * interval
        place = anchors.Place(0.0, -690.0, loss, -690.0, math.inf, 0.0, ())
        assert_on_its_side([constant(loss, 1, bound)], place, interval, loss - 1e-9)


@pytest.mark.parametrize("number", [30, 3000])
@pytest.mark.parametrize("bound", list(Bound))
def test_sums_of_so_many_masses_are_rounded(bound, number):
    """Each that is added is lost, or counts twice; those further down add nothing."""
    lost = bound is Bound.UPPER
    small = 2.0**-53 * (0.99 if lost else 1.01)
    gain = np.array([0.5, *[small / 2] * number, *[small] * 5000])
    losses = np.array([40.0] * (number + 1) + [0.0] * 5000)
    atoms = composed_atoms.Atoms.of(
        bound,
        0.0,
        losses,
        gain,
        gain * np.exp(-losses),
        sink=0.0,
        mass_error=0.0,
        ratio_error=0.0,
    )
    (delta,) = atoms.deltas(np.array([1.0])).tolist()
    truth = (1 - Fraction(math.exp(-39.0))) * sum(map(Fraction, gain[: number + 1]))
    assert delta >= truth if lost else delta <= truth
    # No more is allowed for than sums of as many need.
    assert abs(delta / float(truth) - 1) <= 3 * (number + 40) * 2.0**-53


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
