"""Sums of laws, exact or on a lattice, against exact fractions."""

from fractions import Fraction
import functools
import itertools
import math

import dp_accounting
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import pytest
import registered

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums
from dp_accounting_ext.kernel import law_sums

Axis = lattice_law.Axis
Law = lattice_law.Law
_UNIT = 2**50


@st.composite
def laws(draw, most_atoms=4):
    """P's and Q's probabilities, dyadic; some of them as rare as 1e-15."""
    size = draw(st.integers(2, most_atoms))

    def law():
        logs = draw(st.lists(st.floats(-34.0, 0.0), min_size=size, max_size=size))
        weights = [math.exp(x) for x in logs]
        units = [int(w / sum(weights) * _UNIT) + 1 for w in weights]
        units[units.index(max(units))] += _UNIT - sum(units)
        return [Fraction(u, _UNIT) for u in units]

    return law(), law()


def composed(p, q, count):
    """Returns the two laws of so many runs, by enumeration."""
    ways = list(itertools.product(range(len(p)), repeat=count))
    return (
        [math.prod((law[i] for i in way), start=Fraction(1)) for way in ways]
        for law in (p, q)
    )


def allocated(p, q, count):
    """Returns the two laws of 1 of so many steps, by enumeration."""
    base, mean = [], []
    for way in itertools.product(range(len(p)), repeat=count):
        without = math.prod((q[i] for i in way), start=Fraction(1))
        base.append(without)
        mean.append(sum(without / q[i] * p[i] for i in way) / count)
    return mean, base


def over_one(*laws):
    """Returns laws as numerators over one denominator, and that: quick to compare."""
    one = math.lcm(*{mass.denominator for law in laws for mass in law})
    return [[m.numerator * (one // m.denominator) for m in law] for law in laws], one


def delta(p, q, one, kappa):
    """Returns δ at a float κ of laws whose masses are so many of `one`."""
    more, less = kappa.as_integer_ratio()
    total = sum(max(less * a - more * b, 0) for a, b in zip(p, q, strict=True))
    return Fraction(total, less * one)


def pair_of(p, q, bound):
    ratios, masses = zip(
        *sorted((float(a / b), float(b)) for a, b in zip(p, q, strict=True)),
        strict=True,
    )
    return dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), 0.0, 0.0, bound, 2e-16, 2e-16
    )


def on_the_lattice(atoms, count, cells):
    """Returns the sum by the lattice alone, however few atoms there are."""
    fine = accuracy.Accuracy(1e-30, cells)
    law = lattice_sums.on_lattice(atoms, fine, 1e-30 ** (1 / count))
    return lattice_sums.times(law, count, 1e-30).atoms()


def profiles(p, q, axis, count, cells):
    """Returns lower and upper profiles in a direction; exact sums without cells."""
    found = {}
    for bound in Bound:
        atoms = law_sums.of_pair(pair_of(p, q, bound), axis)
        if cells:
            atoms = on_the_lattice(atoms, count, cells)
        else:
            fine = accuracy.Accuracy(1e-30)
            atoms = law_sums.sum_of([(lambda atoms=atoms: atoms, count)], bound, fine)
        found[bound] = law_sums.read(atoms, count if axis is Axis.RATIO else 1)
    return found


def places(p, q, shares):
    """Returns ε at atoms, a hair beside them, and elsewhere between the ends."""
    losses = sorted({math.log(a / b) for a, b in set(zip(p, q, strict=True))})
    low, high = losses[0] - 0.1, losses[-1] + 0.1
    near = [losses[int(share * (len(losses) - 1))] for share in shares]
    away = [low + share * (high - low) for share in shares]
    return [*near, *(x * (1 - 1e-12) for x in near), *(x + 1e-9 for x in near), *away]


@given(
    law=laws(),
    axis=st.sampled_from(list(Axis)),
    count=st.integers(1, 5),
    cells=st.sampled_from([0, 4, 16, 64]),
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_truth_is_between(law, axis, count, cells, shares):
    """No tolerance: floats are compared with fractions as the numbers they are."""
    p, q = law
    if p == q:
        return
    both = (composed if axis is Axis.LOSS else allocated)(p, q, count)
    (first, second), unit = over_one(*map(list, both))
    found = profiles(p, q, axis, count, cells)
    for direction in Direction:
        one, other = first, second
        if direction is Direction.ADD:
            one, other = second, first
        lower, upper = (found[b].profile(direction) for b in (Bound.LOWER, Bound.UPPER))
        asked = np.array(places(one, other, shares))
        for epsilon, low, high in zip(
            asked, lower.deltas(asked), upper.deltas(asked), strict=True
        ):
            # e^ε lies between its float's neighbors, and δ falls in between.
            kappa = math.exp(epsilon)
            least = delta(one, other, unit, math.nextafter(kappa, math.inf))
            most = delta(one, other, unit, math.nextafter(kappa, 0.0))
            assert low <= most
            assert high >= least
            if not cells:
                assert high - low <= 1e-9 * (1 + abs(epsilon))
            if 0 < least < 1:
                targets = np.array([float(least)])
                (under,), (over,) = lower.epsilons(targets), upper.epsilons(targets)
                assert under <= over
                if over < 700:
                    near = delta(one, other, unit, math.exp(over))
                    assert near <= Fraction(targets[0])


@st.composite
def some_atoms(draw):
    """A law of either axis and side, its values equally far apart or not."""
    axis, bound = draw(st.sampled_from(list(Axis))), draw(st.sampled_from(list(Bound)))
    places = draw(st.sampled_from([(0, 1), (0, 1, 2, 3), (0, 1, 5), (0, 2, 3, 9)]))
    places = np.array(places) - (2 if axis is Axis.LOSS else 0)
    values = draw(st.sampled_from([0.1, 1 / 3, 7.0, 1e-9])) * places
    mass = st.floats(-40.0, 0.0).map(math.exp)
    rows = [[draw(mass) for _ in places] for _ in range(1 + (bound is Bound.LOWER))]
    return lattice_law.Atoms(Law(axis, bound), values, np.array(rows))


def exact_sums(atoms, count):
    """Yields the value of each way to add up, and the masses of its rows."""
    columns = [atoms.values.tolist(), *atoms.masses.tolist()]
    outputs = zip(*(map(Fraction, column) for column in columns), strict=True)
    for way in itertools.product(outputs, repeat=count):
        values, *rows = zip(*way, strict=True)
        masses = [math.prod(row, start=Fraction(1)) for row in rows]
        if atoms.law.axis is Axis.RATIO and len(rows) == 2:
            masses[1] = masses[0] * sum(b / a for a, b in zip(*rows, strict=True))
        yield sum(values), masses


@given(some_atoms(), st.integers(2, 4))
def test_exact_sums_err_by_what_they_claim(atoms, count):
    """Values by the shift, masses by the error."""
    found = law_sums.sum_of(
        [(lambda: atoms, count)], atoms.law.bound, accuracy.Accuracy(0.0)
    )
    exact = np.zeros(found.masses.shape, dtype=object)
    for value, masses in exact_sums(atoms, count):
        place = int(np.abs(found.values - float(value)).argmin())
        size = 1 if atoms.law.axis is Axis.LOSS else value
        off = abs(Fraction(float(found.values[place])) - value)
        assert off <= Fraction(found.law.ratio_error) * size
        exact[:, place] += masses
    claimed = Fraction(min(found.law.mass_error, found.law.row_error))
    for mass, truth in zip(found.masses.ravel(), exact.ravel(), strict=True):
        assert abs(Fraction(float(mass)) - truth) <= claimed * truth


@given(
    losses=st.lists(st.floats(-300.0, 300.0), min_size=1, max_size=4, unique=True),
    sinks=st.sampled_from([(0.0, 0.0), (0.25, 0.125)]),
    axis=st.sampled_from(list(Axis)),
    bound=st.sampled_from(list(Bound)),
)
def test_readings_err_by_what_they_claim(losses, sinks, axis, bound):
    """Of a pair whose numbers are exact: its law, and the two laws read off that."""
    ratios = np.unique(np.exp(losses))
    masses = np.minimum(1 / ratios, 1.0) / 7
    if bound is Bound.UPPER:
        # What the atoms lack of either law is in its sink.
        sinks = 1 - float((ratios * masses).sum()), 1 - float(masses.sum())
    given = dominating_pair.DominatingPair(ratios, masses, *sinks, bound)
    atoms = law_sums.of_pair(given, axis)
    found = law_sums.read(atoms)
    lost = axis is Axis.RATIO and bool(sinks[1])
    sign = 1 if bound is Bound.UPPER else -1
    for sink, truth in zip((found.infinity_mass, found.zero_mass), sinks, strict=True):
        assert 0 <= sign * (sink - truth) <= 1e-8
    with mpmath.workdps(40):
        for i, (z, q) in enumerate(zip(ratios.tolist(), masses.tolist(), strict=True)):
            loss, p = mpmath.log(mpmath.mpf(z)), Fraction(z) * Fraction(q)
            if axis is Axis.LOSS:
                assert abs(atoms.values[i] - loss) <= atoms.law.ratio_error
            row = atoms.p_and_q[0][i + lost]
            assert abs(Fraction(float(row)) - p) <= Fraction(atoms.law.mass_error) * p
            assert abs(found.losses[i] - loss) <= found.ratio_error
            for mass, truth in (
                (found.p_masses[i], p),
                (found.q_masses[i], Fraction(q)),
            ):
                near = Fraction(float(mass)) - truth
                assert abs(near) <= Fraction(math.expm1(found.mass_error)) * truth


def test_cells_of_thousands_of_nats_leave_lower_laws_numbers():
    p, q = [Fraction(1, 3), Fraction(2, 3)], [1 - Fraction(1, 10**80)]
    law = pair_of(p, [*q, 1 - q[0]], Bound.LOWER)
    atoms = law_sums.of_pair(law, Axis.LOSS)
    fine = accuracy.Accuracy(1e-30, 4)
    summed = law_sums.sum_of([(lambda: atoms, 20000)], Bound.LOWER, fine)
    assert np.isfinite(summed.masses).all()
    assert (summed.masses > 0).all()
    if summed.values.size:
        found = law_sums.read(summed).profile(Direction.REMOVE)
        deltas = found.deltas(np.array([0.0, 1e3, 2.4e6, 3.7e6]))
        assert ((deltas >= 0) & (deltas <= 1)).all()
        assert deltas[-1] == 0


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
    series = Law(Axis.RATIO, Bound.LOWER, degrees=tuple(range(len(masses))))
    atoms = lattice_law.Atoms(series, np.array([0.01, 0.02, 0.5, 3.0]), masses)
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
        assert total <= truth * (1 + Fraction(found.law.mass_error)) + Fraction(1e-280)
        lost = 2 * tail * float(rest) * len(totals) if degree else tail
        assert total >= truth * (1 - Fraction(found.law.mass_error)) - Fraction(lost)


def test_a_law_that_underflows_is_all_in_its_sinks():
    masses = np.full((1, 2), 1e-100)
    losses = Law(Axis.LOSS, Bound.UPPER)
    atoms = lattice_law.Atoms(losses, np.array([0.0, 1.0]), masses)
    law = lattice_sums.on_lattice(atoms, accuracy.Accuracy(0.0, 8), 1e-9)
    total = lattice_sums.times(law, 16, 1e-12).atoms()
    assert not total.values.size
    assert (
        0
        < min(total.law.infinity_mass, total.law.zero_mass)
        <= max(total.law.infinity_mass, total.law.zero_mass)
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
        Law(Axis.LOSS, Bound.UPPER, infinity_mass=over, ledger=ledger)


def test_masses_above_one_are_no_lost_tails():
    """A ledger multiplies what is cut off by masses that rounding made too large."""
    ledger = Ledger(2, Side(1 + 4e-6, 1e-22 * (1 + 4e-6)))
    law_of = functools.partial(Law, Axis.LOSS, Bound.UPPER, ledger=ledger)
    law_of(infinity_mass=1e-22)
    with pytest.raises(MassError, match="keep in its sink"):
        law_of(infinity_mass=1e-22 * (1 - 3e-6))


@pytest.mark.parametrize("side", ["p", "q"])
def test_a_sink_of_everything_holds_whatever_was_cut_off(side):
    """The masses of 20 terms, each of which sums to 1.02, multiply to 1.5."""
    ledger = Ledger(20, **{side: Side(1.52, 1.52)})
    for sink in (1.0, 0.6):
        sinks = (sink, 0.0) if side == "p" else (0.0, sink)
        check = functools.partial(conservation.check_sinks, *sinks, ledger)
        if sink == 1:
            check(of_losses=True)
        else:
            with pytest.raises(MassError, match="keep in its sink"):
                check(of_losses=True)
