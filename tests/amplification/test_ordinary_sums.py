"""Sums of ordinary ratios: laws made by hand, exact numbers, or enumerated."""

from fractions import Fraction
import math

import numpy as np
import pytest

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import ordinary_sums
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LatticeAtoms = ordinary_sums.LatticeAtoms
UPPER, LOWER = Bound.UPPER, Bound.LOWER
U = 2.0**-53
SAFE = 1 + 3e-9  # More than the factors of bounds that are not tight anyway.


def summand(ratios, masses, bound, count=1, weight=1.0, *, zero=0.0):
    pair = dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), 0.0, zero, bound
    )
    return additive_window.Summand(pair, count, weight)


def window_of(low, high, tilts=(0.0,), *, threshold=math.inf, tail_mass=2.0**-40):
    """A window whose ends are reached by the tilts' ends, or by ±.5."""
    lowering, raising = (tilts[0], tilts[-1]) if len(tilts) > 1 else (-0.5, 0.5)
    return additive_window.Window(
        tail_mass=tail_mass,
        threshold=threshold,
        low=low,
        high=high,
        deviation=1.0,
        tilts=tilts,
        lowering=lowering,
        raising=raising,
    )


def sums_of(summands, low, high, points, tilts=(0.0,), **options):
    window = window_of(low, high, tilts, **options)
    return ordinary_sums.OrdinarySums(summands, window, points)


def law_of(atoms, counts):
    """{sum: mass} of independent copies of {place: mass}, exactly."""
    total = {Fraction(0): Fraction(1)}
    for law, count in zip(atoms, counts, strict=True):
        for _ in range(count):
            longer = {}
            for place, mass in total.items():
                for step, chance in law.items():
                    at = place + Fraction(step)
                    longer[at] = longer.get(at, 0) + mass * Fraction(chance)
            total = longer
    return total


def test_splitting_keeps_mass_and_mean():
    """At half a cell, at a lattice point, and two in one cell."""
    atoms = LatticeAtoms.of(
        np.array([0.5, 1.25, 1.375, 2.0]), np.array([4.0, 2.0, 8.0, 1.0]), 0.5, UPPER
    )
    assert (atoms.step, atoms.start) == (0.5, 1)
    np.testing.assert_array_equal(atoms.masses, [4.0, 3.0, 7.0, 1.0, 0.0])
    assert atoms.moments is None
    np.testing.assert_array_equal(atoms.places(), [0.5, 1.0, 1.5, 2.0, 2.5])


def test_grouping_is_at_the_nearest_point_and_keeps_the_mean():
    atoms = LatticeAtoms.of(
        np.array([0.75, 1.0, 1.1875, 2.125]), np.array([4.0, 2.0, 8.0, 1.0]), 0.5, LOWER
    )
    assert (atoms.step, atoms.start) == (0.5, 2)
    np.testing.assert_array_equal(atoms.masses, [14.0, 0.0, 1.0])
    np.testing.assert_array_equal(atoms.moments, [0.5, 0.0, 0.125])
    np.testing.assert_array_equal(atoms.places(), [1.0 + 0.5 / 14, 1.5, 2.125])


@pytest.mark.parametrize("bound", list(Bound))
def test_gathering_many_errs_as_little_as_one(bound):
    """Equal masses err to one side: each addition by as much, 1500 units in all."""
    number, mass = 40_000, 0.656 / 40_000
    atoms = LatticeAtoms.of(np.full(number, 3.0), np.full(number, mass), 1.0, bound)
    exact = number * Fraction(mass)
    error = abs(Fraction(float(atoms.masses[0])) - exact) / exact
    assert error <= 4 * U


def test_a_lower_bound_of_many_equal_masses_is_not_above_the_truth():
    """It was, by more than two parts in 10^10, when each addition's error adds up."""
    number, steps = 100_000, 100
    large = 0.093
    mass = (1 - large) / number
    low = (1 - 2 * large) / (1 - large)
    ratios = np.append(low * (1 + 1e-9 * np.arange(number) / number), 2.0)
    one = summand(ratios, np.append(np.full(number, mass), large), LOWER, steps)
    window = additive_window.window_of([one], 1e-14)
    found = additive_allocation.mean_of([one], window, points=16384)
    total = number * Fraction(mass) + Fraction(large)
    most = Fraction(float(ratios[-2]))
    mean = number * Fraction(mass) * most + 2 * Fraction(large)
    # Every mean of ratios is below e^5, so that this is linear in them.
    truth = float(total**steps) - math.exp(-5.0) * float(mean * total ** (steps - 1))
    value = found.delta(-5.0, dominating_pair.Direction.ADD)
    assert truth * (1 - 1e-8) < value <= truth


def test_sums_of_atoms_have_sums_of_places():
    x = LatticeAtoms(0.5, 3, np.array([1.0, 2.0]), np.array([0.25, -0.5]))
    y = LatticeAtoms(0.5, -1, np.array([4.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.125]))
    both = x.convolved(y)
    assert (both.step, both.start) == (0.5, 2)
    np.testing.assert_array_equal(both.masses, [4.0, 8.0, 1.0, 2.0])
    np.testing.assert_array_equal(both.moments, [2.0, 0.0, 0.375, -0.25])
    np.testing.assert_array_equal(both.places(), [1.5, 1.5, 2.375, 2.375])


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("start", [-3, 4, 5])
@pytest.mark.parametrize("size", [1, 6, 7])
def test_halving_is_on_its_side_of_the_order(bound, start, size):
    """In fractions: all numbers are short, and nothing is rounded."""
    rng = np.random.default_rng(size)
    masses = 2.0 ** -rng.integers(1, 4, size)
    moments = None if bound is UPPER else masses * rng.integers(-2, 3, size) / 8
    atoms = LatticeAtoms(0.5, start, masses, moments)
    half = atoms.halved()
    assert (half.step, half.start) == (1.0, start // 2)

    def stick(law, kappa):
        shifts = np.zeros(law.masses.size) if law.moments is None else law.moments
        return sum(
            max((law.start + i) * Fraction(law.step) * m + s - kappa * m, Fraction(0))
            for i, (m, s) in enumerate(
                (Fraction(float(m)), Fraction(float(s)))
                for m, s in zip(law.masses, shifts, strict=True)
            )
        )

    assert stick(half, -9) == stick(atoms, -9)
    assert half.masses.sum() == atoms.masses.sum()
    sign = 1 if bound is UPPER else -1
    for kappa in [Fraction(n, 16) for n in range(-40, 80)]:
        assert sign * (stick(half, kappa) - stick(atoms, kappa)) >= 0
    for index, mass in enumerate(half.masses):
        if bound is UPPER and index:
            # All that is on the new lattice stays there.
            at = 2 * (half.start + index) - start
            own = masses[at] if 0 <= at < size else 0.0
            assert mass >= own


def test_sums_of_split_atoms_stay_on_the_lattice():
    x = LatticeAtoms(0.25, 3, np.array([1.0, 2.0]), None)
    y = LatticeAtoms(0.25, 5, np.array([4.0]), None)
    both = x.convolved(y)
    assert (both.start, both.moments) == (8, None)
    np.testing.assert_array_equal(both.places(), [2.0, 2.25])


@pytest.mark.parametrize("moments", [None, np.zeros(3)])
def test_a_part_of_a_mixture_has_its_roundings(moments):
    atoms = LatticeAtoms(0.5, 3, np.ones(3), moments)
    part = additive_allocation._Part.of(atoms)
    assert part.mass_error == 28 * U
    assert part.ratio_error == (0.0 if moments is None else 28 * U)


def test_where_there_is_no_mass_a_place_is_on_the_lattice():
    atoms = LatticeAtoms(2.0, 1, np.array([0.0, 0.5]), np.array([0.0, 0.25]))
    np.testing.assert_array_equal(atoms.places(), [2.0, 4.5])


# Four of 1 or 3, as likely; two of 2 or 4, the second thrice as likely.
RATIOS = ([1.0, 3.0], [0.5, 0.5], 4, 1.0), ([1.0, 2.0], [0.25, 0.75], 2, 2.0)
LAWS = {1.0: 0.5, 3.0: 0.5}, {2.0: 0.25, 4.0: 0.75}


def both(bound):
    return [summand(ratios, masses, bound, *rest) for ratios, masses, *rest in RATIOS]


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("counts", [(4, 2), (3, 2), (4, 1), (0, 2), (4, 0)])
def test_a_window_that_has_all_sums_shows_their_law(bound, counts):
    sums = sums_of(both(bound), 8.0, 20.0, 24)
    assert sums.step == 0.5
    law = sums.law(counts)
    truth = law_of(LAWS, counts)
    found = dict(zip(law.places(), law.masses, strict=True))
    assert {float(place) for place in truth} <= set(found)
    for place, mass in found.items():
        true = float(truth.get(Fraction(place), 0))
        if bound is UPPER:
            assert true <= mass <= true + 1e-13
        elif true:
            assert true * (1 - 1e-10) <= mass <= true
        else:
            assert mass == 0
    assert sums.zero == sums.lost == 0.0
    assert 0 <= sums.place_error < 1e-13


def test_lattices_end_where_all_sums_end():
    """Splitting adds a point at the top of each copy's lattice, of no mass here."""
    upper = sums_of(both(UPPER), 8.0, 20.0, 12)
    assert [factor.start for factor in upper._factors] == [1, 2]
    assert [factor.masses.size for factor in upper._factors] == [4, 4]
    assert upper._ends() == (8, 4 * 4 + 2 * 5)
    assert sums_of(both(LOWER), 8.0, 20.0, 12)._ends() == (8, 20)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        # Within a cell for each of the six copies, or not.
        (14.0, 19.0, (8, 26)),
        (15.0, 18.0, (15, 19)),
        (14.25, 19.25, (8, 26)),
        (15.75, 17.75, (15, 19)),
        (2.0, 40.0, (8, 26)),
    ],
)
def test_ends_move_to_those_of_all_sums_by_a_cell_a_copy(low, high, ends):
    sums = sums_of(both(UPPER), low, high, round(high - low))
    assert sums.step == 1.0
    assert sums._ends() == ends


def test_a_lattice_of_one_sum_has_two_points():
    one = sums_of([summand([1.0], [1.0], LOWER, 4)], 3.875, 4.125, 1)
    assert one._ends() == (16, 17)
    law = one.law([4])
    np.testing.assert_array_equal(law.places()[law.masses > 0], [4.0])


def test_a_window_below_all_sums_is_their_least():
    """A coarse lattice may group copies far above where they are."""
    sums = sums_of(both(UPPER), 0.0, 1.0, 1)
    assert sums._ends() == (8, 9)
    law = sums.law([4, 2])
    assert law.masses[0] >= 2.0**-8
    assert law.masses.sum() >= 1.0


def test_a_circle_has_room_for_three_windows():
    """Of a length that real transforms like: 33 has a factor of 11."""
    sums = sums_of(both(UPPER), 15.0, 18.0, 3, (-0.5, 0.0, 0.25))
    assert [tilted.size for tilted in sums._sums] == [12] * 3
    sums = sums_of(both(UPPER), 13.0, 18.0, 10, (-0.5, 0.0, 0.25))
    assert sums._ends() == (26, 37)
    assert [tilted.size for tilted in sums._sums] == [36] * 3
    assert [tilted.tilt for tilted in sums._sums] == [-0.25, 0.0, 0.125]
    for tilted in sums._sums:
        assert tilted._changes == [15 / 36, 30 / 36, 60 / 36, 120 / 36]


NARROW = {"low": 11.5, "high": 16.5, "points": 20, "tilts": (-1.0, 0.0, 0.75)}


def enumerated(sums, counts):
    """(indices, masses) of the sum of the split or grouped copies."""
    masses = np.ones(1)
    start = 0
    for factor, count in zip(sums._factors, counts, strict=True):
        start += factor.start * count
        for _ in range(count):
            masses = np.convolve(masses, factor.masses)
    return start + np.arange(masses.size), masses


@pytest.mark.parametrize("counts", [(4, 2), (3, 2), (0, 1)])
@pytest.mark.parametrize("tilt", [-2.0, -0.5, 0.5, 2.0])
def test_beyond_an_index_is_chernoffs_bound(counts, tilt):
    sums = sums_of(both(UPPER), **NARROW)
    indices, masses = enumerated(sums, counts)
    for index in range(-2, 60):
        found = sums._beyond(counts, tilt, index)
        bound, *eased = (
            float(masses @ np.exp(share * tilt * sums.step * (indices - index)))
            for share in ordinary_sums._EASED_TILTS
        )
        least, largest = indices[0], indices[-1]
        if index > largest if tilt > 0 else index < least:
            assert found == 0.0
        else:
            assert min([bound, *eased, 1.0]) <= found <= min(bound, 1.0) * SAFE
        side = indices >= index if tilt > 0 else indices <= index
        assert masses[side].sum() <= found


@pytest.mark.parametrize("counts", [(4, 2), (3, 2), (4, 1)])
@pytest.mark.parametrize("weight", [1.0, 0.125])
def test_an_upper_law_sends_what_is_outside_to_its_ends_and_the_sinks(counts, weight):
    sums = sums_of(both(UPPER), **NARROW)
    law = sums.law(counts, weight)
    indices, masses = enumerated(sums, counts)
    first, last = law.start, law.start + law.masses.size - 1
    moved = 8 * (4 - counts[0]) + 14 * (2 - counts[1])
    assert (first, last) == (46 - moved, 67 - moved)
    truth = masses[first - indices[0] : last + 1 - indices[0]]
    below, above = masses[indices < first], masses[indices > last]
    shares = ordinary_sums._EASED_TILTS
    below_bound = min(
        masses @ np.exp(-share * 0.25 * (indices - (first - 1))) for share in shares
    )
    above_bound = min(
        masses @ np.exp(share * 0.75 * 0.25 * (indices - (last + 1)))
        for share in shares
    )
    tilted = masses * np.exp(0.75 * 0.25 * indices)
    raised = law.masses - truth
    assert np.all(raised > 0)
    assert np.all(raised[1:-1] < 1e-12)
    assert below.sum() < below_bound < raised[0] <= below_bound * SAFE
    assert above.sum() < above_bound < raised[-1] <= above_bound * SAFE
    assert weight * below_bound <= sums.zero <= weight * below_bound * SAFE
    # The mean under the whole tilt is larger than that under a part of it.
    mean = above_bound * float(tilted @ indices / tilted.sum()) * 0.25
    assert weight * mean <= sums.lost <= weight * mean * SAFE
    assert weight * (above @ indices[indices > last]) * 0.25 < sums.lost
    if weight == 1.0:
        default = sums_of(both(UPPER), **NARROW)
        default.law(counts)
        assert (default.zero, default.lost) == (sums.zero, sums.lost)
    before = sums.zero, sums.lost
    sums.law(counts, weight)
    assert (sums.zero, sums.lost) == (2 * before[0], 2 * before[1])


OFFSET = ([1.0625, 2.9375], [0.5, 0.5], 4, 1.0), ([1.03125, 2.0], [0.25, 0.75], 2, 2.0)


def grouped(counts):
    """{index: (mass, mean place)} of sums grouped by the sum of nearest indices."""
    groups = {(0, Fraction(0)): Fraction(1)}
    for (ratios, masses, _, weight), count in zip(OFFSET, counts, strict=True):
        for _ in range(count):
            longer = {}
            for (index, place), chance in groups.items():
                for ratio, mass in zip(ratios, masses, strict=True):
                    value = Fraction(weight * ratio)
                    key = index + round(value / Fraction(1, 4)), place + value
                    longer[key] = longer.get(key, 0) + chance * Fraction(mass)
            groups = longer
    totals = {}
    for (index, place), mass in groups.items():
        total, mean = totals.get(index, (Fraction(0), Fraction(0)))
        totals[index] = total + mass, (mean * total + place * mass) / (total + mass)
    return totals


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("counts", [(4, 2), (3, 2)])
@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("tilts", [(0.0,), (-1.0, 0.0, 0.75)])
def test_a_coarser_law_is_on_its_side_of_the_order(
    bound, counts, stride, tilts, monkeypatch
):
    """In fractions: at every place between, and for both ends of the law."""
    monkeypatch.setattr(ordinary_sums, "_FEWEST_POINTS", 1)
    summands = [
        summand(ratios, masses, bound, *rest) for ratios, masses, *rest in OFFSET
    ]
    options = {} if len(tilts) == 1 else {"tail_mass": 2.0**-90}
    sums = sums_of(summands, 8.0, 20.0, 48, tilts, **options)
    law = sums.law(counts, 1.0, stride)
    assert law.step == stride * sums.step == stride / 4
    places = {
        float(weight * ratio): mass
        for ratios, masses, _, weight in OFFSET[:1]
        for ratio, mass in zip(ratios, masses, strict=True)
    }
    second = {2.0 * ratio: mass for ratio, mass in zip(*OFFSET[1][:2], strict=True)}
    truth = law_of((places, second), counts)
    found = [
        (Fraction(float(place)), Fraction(float(mass)))
        for place, mass in zip(law.places(), law.masses, strict=True)
        if mass
    ]
    error = Fraction(sums.mass_error() + sums.place_error) + 64 * Fraction(U)
    scale = 1 + error if bound is UPPER else 1 - error
    lost = Fraction(sums.lost)
    for kappa in [Fraction(n, 16) for n in range(0, 400, 3)]:
        for side in (1, -1):
            exact = sum(m * max(side * (x - kappa), 0) for x, m in truth.items())
            ours = sum(m * max(side * (x * scale - kappa), 0) for x, m in found)
            ours = ours * scale if side > 0 else ours
            if side < 0:
                ours = sum(m * max(kappa - x / scale, 0) for x, m in found) * scale
            if bound is UPPER:
                assert exact <= ours + lost
            else:
                assert ours <= exact


@pytest.mark.parametrize("counts", [(4, 2), (3, 2), (4, 1)])
def test_a_lower_law_has_the_means_of_groups_in_the_window(counts):
    summands = [
        summand(ratios, masses, LOWER, *rest) for ratios, masses, *rest in OFFSET
    ]
    sums = sums_of(summands, **NARROW)
    law = sums.law(counts, 0.25)
    truth = grouped(counts)
    assert sums.lost == sums.zero == 0.0
    assert 0.0 < sums.place_error < 1e-12
    kept = 0
    for index, mass, place in zip(
        law.start + np.arange(law.masses.size), law.masses, law.places(), strict=True
    ):
        true, mean = truth.get(int(index), (Fraction(0), Fraction(0)))
        assert mass <= true
        if mass:
            kept += 1
            assert mass > float(true) * (1 - 1e-9)
            error = abs(Fraction(float(place)) - mean)
            assert error <= Fraction(sums.place_error + 16 * U) * mean
    window = range(law.start, law.start + law.masses.size)
    assert kept == len(set(window) & set(truth)) > 1


@pytest.mark.parametrize("bound", list(Bound))
def test_what_folds_onto_a_narrow_window_is_negligible(bound):
    """The circle is shorter than the range of all sums."""
    many = summand([0.5, 4.5], [0.5, 0.5], bound, 1600)
    sums = sums_of([many], 3520.0, 4480.0, 1920, (-0.05, 0.0, 0.05), tail_mass=1e-30)
    first, last = sums._ends()
    assert (first, last) == (7040, 8961)
    size = sums._sums[0].size
    assert first + size < 1600 * 9
    assert last - size > 1600
    law = sums.law([1600])
    assert (law.start, law.masses.size) == (first, 1922)
    truth = np.zeros(1922)
    for copies in range(680, 921):
        truth[1600 + 8 * copies - first] = math.comb(1600, copies) / 2**1600
    inner = slice(1, -1)
    if bound is UPPER:
        assert np.all(law.masses >= truth)
        assert np.all(law.masses[inner] <= truth[inner] * (1 + 1e-8) + 1e-12)
    else:
        assert np.all(law.masses <= truth)
        assert np.all(law.masses >= truth * (1 - 1e-8))


class Constant:
    """A tilted sum whose numbers are given."""

    def __init__(
        self,
        values,
        noise,
        *,
        tilt=0.0,
        log_scale=0.0,
        moments=0.0,
        moment_noise=0.0,
        folded=0.0,
        offset=0.0,
    ):
        values = np.array(values, dtype=np.float64)
        moments = np.broadcast_to(np.array(moments), values.shape)
        self._masses = lattice.TiltedValues(values, noise, log_scale, tilt)
        self._moments = lattice.TiltedValues(moments, moment_noise, log_scale, tilt)
        self._folded = folded
        self._offset = offset
        self.asked = []

    def masses(self, *arguments):
        self.asked.append(arguments)
        return self._masses

    def moments(self, *arguments):
        self.asked.append(arguments)
        return self._moments

    def folded_mass(self, *arguments):
        self.asked.append(arguments)
        return self._folded

    def largest_offset(self):
        return self._offset

    def noise(self, counts):
        """More than is asked for without a tilt: all tilts are."""
        return math.inf


def with_constants(bound, *constants, ends, **options):
    """Two copies of 1 to 7, on a lattice of step 2; its transforms replaced."""
    one = summand([1.0, 7.0], [0.5, 0.5], bound, 2)
    sums = sums_of([one], 2.0, 14.0, 6, (-0.5, 0.5), **options)
    sums._plain, sums._sums = constants[0], list(constants)
    sums._first, sums._last = ends
    return sums


def test_an_upper_bound_has_the_noise_added():
    """Also to values below zero. Each index has the tilt that errs least there."""
    high = Constant([9, 9, 9, 0.5, -0.25], 0.125, tilt=1.0, log_scale=3.5)
    low = Constant([0.75, -0.5, 2.0, 9, 9], 0.125, tilt=-1.0, log_scale=-3.5)
    sums = with_constants(UPPER, high, low, ends=(1, 5))
    sums._beyond = lambda counts, tilt, index: 0.0
    law = sums.law([2])
    assert (law.start, law.step) == (1, 2.0)
    assert high.asked == low.asked == [([2], 1, None)]
    raised = np.array([0.875, 0.125, 2.125, 0.625, 0.125])
    scale = np.exp([-2.5, -1.5, -0.5, -0.5, -1.5])
    np.testing.assert_allclose(law.masses, raised * scale, rtol=1e-15)


def quotients(mass, moment, noise, offset_noise):
    """The largest error of moment / mass within their noise."""
    ends = [
        (moment + a * offset_noise) / (mass + b * noise)
        for a in (-1, 1)
        for b in (-1, 1)
    ]
    return max(abs(end - moment / mass) for end in ends)


@pytest.mark.parametrize("moment", [0.25, -0.25, 0.0])
def test_a_lower_bound_has_the_noise_removed_and_knows_its_means(moment):
    """What folds counts as noise, of the moments with the largest offset."""
    noise, offset_noise, folded = Fraction(1, 2**23), Fraction(1, 2**21), 2.0**-25
    offset = 8.0
    one = Constant(
        [1.0, 0.5, 0.25],
        float(noise),
        moments=moment,
        moment_noise=float(offset_noise),
        folded=folded,
        offset=offset,
    )
    sums = with_constants(LOWER, one, ends=(3, 5), tail_mass=0.0)
    law = sums.law([2])
    assert one.asked == [([2], 3, None), ([2], 3, 5), ([2], 3, None)]
    noise += Fraction(folded)
    offset_noise += Fraction(folded) * 8
    np.testing.assert_array_equal(
        law.masses, [1.0 - float(noise), 0.5 - float(noise), 0.25 - float(noise)]
    )
    shifts = moment / np.array([1.0, 0.5, 0.25])
    reach = 2.0 * np.array(
        [
            float(quotients(Fraction(mass), Fraction(moment), noise, offset_noise))
            for mass in (1.0, 0.5, 0.25)
        ]
    )
    # All but the first, which has most mass, move down by as much as they may be off.
    places = 2.0 * (np.array([3.0, 4.0, 5.0]) + shifts) - reach * [0, 1, 1]
    np.testing.assert_allclose(law.places(), places, rtol=1e-14)
    middle = reach[0] + 2 * (reach[1:] @ law.masses[1:]) / law.masses[0]
    assert sums.place_error == pytest.approx(middle / places[0], rel=1e-6)
    assert sums.place_error >= middle / places[0]


def test_a_lower_bound_scales_with_the_tilt():
    high = Constant([9, 9, 9, 0.5, 4.0], 2.0**-40, tilt=1.0, log_scale=3.5)
    low = Constant([0.75, 1.0, 2.0, 9, 9], 2.0**-40, tilt=-1.0, log_scale=-3.5)
    sums = with_constants(LOWER, high, low, ends=(1, 5))
    law = sums.law([2])
    assert high.asked == [([2], 1, None), ([2], 4, 5), ([2], 1, None)]
    assert low.asked == [([2], 1, None), ([2], 1, 3), ([2], 1, None)]
    values = np.array([0.75, 1.0, 2.0, 0.5, 4.0]) - 2.0**-40
    scale = np.exp([-2.5, -1.5, -0.5, -0.5, -1.5])
    np.testing.assert_allclose(law.masses, values * scale, rtol=1e-15)
    np.testing.assert_array_equal(law.places(), [2.0, 4.0, 6.0, 8.0, 10.0])


def test_a_lower_bound_has_no_values_near_their_noise():
    """Up to a tenth, and with it; what is left of a tilt may be nothing."""
    values = [1.0, 1.001, 0.999, 0.0, -1.0]
    near = Constant(values, 0.075, folded=0.025)
    sums = with_constants(LOWER, near, ends=(1, 5))
    np.testing.assert_array_equal(sums.law([2]).masses > 0, [0, 1, 0, 0, 0])
    none = Constant([0.0] * 5, 2.0**-50, tilt=1.0, log_scale=3.5)
    some = Constant([0.5] * 5, 2.0**-50, tilt=-1.0, log_scale=-3.5)
    for constants in [(none, some), (some, none)]:
        sums = with_constants(LOWER, *constants, ends=(1, 5))
        np.testing.assert_array_equal(sums.law([2]).masses > 0, [1, 1, 1, 0, 0])


def test_a_tilt_may_own_nothing():
    """The other is everywhere better."""
    idle = Constant([1.0] * 3, 2.0**-20)
    best = Constant([0.5] * 3, 2.0**-60)
    for constants in [(idle, best), (best, idle)]:
        for bound in Bound:
            sums = with_constants(bound, *constants, ends=(1, 3))
            sums._beyond = lambda counts, tilt, index: 0.0
            np.testing.assert_array_equal(sums.law([2]).masses[1], 0.5)


def test_a_lower_bound_has_no_masses_at_places_that_are_not_known():
    """The error of a mean may be a tenth of it, less a little."""
    for index, kept in [(1, [0, 1]), (2, [1, 1])]:
        one = Constant([1.0, 1.0], 2.0**-80, moment_noise=0.1)
        sums = with_constants(LOWER, one, ends=(index, index + 1))
        np.testing.assert_array_equal(sums.law([2]).masses > 0, kept)
    # A mean that is near zero is less certain.
    one = Constant([1.0, 1.0], 2.0**-80, moments=[-0.5, 0.0], moment_noise=0.075)
    sums = with_constants(LOWER, one, ends=(1, 2))
    np.testing.assert_array_equal(sums.law([2]).masses > 0, [0, 1])


def hockey_sticks(places, masses, kappa):
    """E (Z − κ)₊ and E (κ − Z)₊, in fractions."""
    pairs = [(x - kappa, m) for x, m in zip(places, masses, strict=True)]
    return (
        sum(m * x for x, m in pairs if x > 0),
        sum(-m * x for x, m in pairs if x < 0),
    )


@pytest.mark.parametrize("signs", [(1, 1, 1, 1), (-1, 1, -1, 1), (0, -1, 1, -1)])
def test_settled_places_are_less_in_the_order_wherever_they_were(signs):
    """In fractions: the places may be off by all of their errors, either way."""
    indices = np.array([2, 8, 9, 40])
    masses = np.array([2.0**-12, 0.5, 2.0**-6, 2.0**-20])
    moments = masses * np.array([0.25, -0.5, 0.125, 1.0])
    errors = np.array([2.0**-14, 2.0**-44, 1e-10, 2.0**-5])
    sums = sums_of([summand([1.0, 3.0], [0.5, 0.5], LOWER, 8, 4.0)], 32.0, 96.0, 32)
    sums.place_error = 0.0
    before = [Fraction(x) for x in indices * sums.step + moments / masses]
    true = [
        x * (1 + sign * Fraction(error))
        for x, sign, error in zip(before, signs, errors, strict=True)
    ]
    kept = masses.copy()
    sums._settle(indices, kept, moments, errors)
    np.testing.assert_array_equal(kept, masses)
    exact = [Fraction(mass) for mass in masses]
    settled = [Fraction(x) for x in indices * sums.step + moments / masses]
    # The third may be certain enough, and then keeps its own error.
    if settled[2] == before[2]:
        settled[2] = true[2]
    drift = sum(exact[i] * (true[i] - settled[i]) for i in (0, 2, 3))
    settled[1] = true[1] + drift / exact[1]
    assert abs(settled[1] / before[1] - 1) <= sums.place_error < 1e-5
    for kappa in [Fraction(n, 8) for n in range(800)]:
        less, more = (hockey_sticks(x, exact, kappa) for x in (settled, true))
        assert less[0] <= more[0] and less[1] <= more[1]


def test_an_uncertain_place_too_near_to_the_middle_is_dropped():
    indices, masses = np.array([8, 9]), np.array([0.5, 0.25])
    moments, errors = np.zeros(2), np.array([0.0, 0.06])
    sums = sums_of([summand([1.0, 3.0], [0.5, 0.5], LOWER, 8, 4.0)], 32.0, 96.0, 32)
    sums._settle(indices, masses, moments, errors)
    assert masses.tolist() == [0.5, 0.0]


def test_nothing_is_settled_without_masses():
    sums = sums_of([summand([1.0, 3.0], [0.5, 0.5], LOWER, 8, 4.0)], 32.0, 96.0, 32)
    sums.place_error = 0.25
    sums._settle(np.array([8, 9]), np.zeros(2), np.zeros(2), np.ones(2))
    assert sums.place_error == 0.25


def test_windows_move_with_the_copies_left_out():
    """By the means of the copies that are missing: 2 and 3.5, 8 and 14 cells."""
    sums = sums_of(both(UPPER), **NARROW)
    for counts, moved in [((4, 2), 0), ((3, 2), 8), ((4, 0), 28), ((1, 1), 38)]:
        indices = sums._indices_for(counts)
        assert (indices[0], indices[-1]) == (46 - moved, 67 - moved)
        assert np.all(np.diff(indices) == 1)
        assert indices.dtype == np.int64
    indices = sums._indices_for((0, 1))
    assert (indices[0], indices[-1]) == (0, 67 - 46)


def test_windows_move_to_zero_at_most():
    """Also where large ratios have most of the mean, so that all is moved below."""
    heavy = summand([0.5, 2048.0], [1 - 2.0**-12, 2.0**-12], UPPER, 16)
    sums = sums_of([heavy], 7.0, 9.0, 2, threshold=1.0)
    indices = sums._indices_for([0])
    assert indices[0] == 0
    assert indices.size >= 1
    below = sums_of(both(UPPER), 0.0, 1.0, 1)._indices_for([0, 0])
    assert below[0] == 0
    assert 1 <= below.size <= 2


def factor_of(bound, *arguments, low=0.0, high=4.0, points=8, **options):
    """The sums of one summand, and its factor."""
    names = ("zero", "count", "weight")
    given = {name: options.pop(name) for name in names if name in options}
    sums = sums_of([summand(*arguments, bound, **given)], low, high, points, **options)
    return sums, sums._factors[0]


@pytest.mark.parametrize("bound", list(Bound))
def test_factors_are_ordinary_ratios_in_steps(bound):
    """A threshold is ordinary itself."""
    arguments = [0.5, 0.75, 1.25, 2.5], [0.125, 0.125, 0.25, 0.5]
    sums, factor = factor_of(bound, *arguments, count=3, weight=2.0, threshold=2.5)
    assert (factor.start, factor.count) == (2, 3)
    split = [0.125, 0.125, 0.0, 0.25, 0.0]
    if bound is UPPER:
        np.testing.assert_array_equal(factor.masses, split)
        assert factor.moments is None
    else:
        np.testing.assert_array_equal(factor.masses, split[:-1])
        np.testing.assert_array_equal(factor.moments, np.zeros(4))
    assert (sums.lost, sums.zero) == (0.0, 0.0)
    assert sums.place_error == 0.0


def test_moments_of_factors_are_in_steps():
    _, factor = factor_of(LOWER, [0.5625, 1.0], [0.25, 0.75])
    np.testing.assert_array_equal(factor.masses, [0.25, 0.75])
    np.testing.assert_array_equal(factor.moments, [0.25 * 0.125, 0.0])


def test_ratios_beyond_the_window_lose_what_they_have_above_it():
    """The mean is 2, the window has a width of 4: 6 is the largest of a copy."""
    arguments = [1.0, 6.0, 10.0], [0.875, 0.09375, 0.03125]
    mean = 0.875 + 0.5625 + 0.3125
    shifted = {"low": 5.0, "high": 9.25, "points": 17}
    cap = 4.25 + mean
    assert cap == 6.0
    sums, factor = factor_of(UPPER, *arguments, count=3, weight=1.0, **shifted)
    assert factor.indices[-1] * sums.step == 6.25
    np.testing.assert_array_equal(factor.masses[[0, 20, 21]], [0.875, 0.125, 0.0])
    lost = 3 * 4.0 * 0.03125
    assert lost <= sums.lost <= lost * SAFE
    sums, factor = factor_of(LOWER, *arguments, count=3, **shifted)
    assert factor.indices[-1] * sums.step == 6.0
    np.testing.assert_array_equal(factor.masses[[0, 20]], [0.875, 0.09375])
    assert sums.lost == 0.0


@pytest.mark.parametrize("mass", [1.0, 0.5, 2.0**-30])
def test_bounds_with_little_mass_keep_their_ratios(mass):
    """The window is measured from the mean of what there is."""
    pair = summand([0.75, 1.25, 3.0], np.array([0.5, 0.375, 0.125]) * mass, LOWER).pair
    _, factor = factor_of(LOWER, pair.ratios, pair.masses, low=2.0, high=3.0, points=8)
    np.testing.assert_array_equal(factor.masses[[0, 4]], [0.5 * mass, 0.375 * mass])
    assert factor.masses.size == 5


def test_an_allocation_with_little_mass_has_a_lower_bound():
    """No ratio was below the mean, which counted what is missing as zero."""
    narrow = summand([0.99, 1.01], [0.25, 0.25], LOWER).pair
    found = random_allocation.random_allocation(narrow, 20, tail_mass=1e-18)
    assert found.masses.sum() == pytest.approx(2.0**-20, rel=1e-9)
    assert found.masses.sum() <= 2.0**-20
    assert found.ratios[[0, -1]] == pytest.approx([0.99, 1.01], rel=1e-12)


def test_what_several_summands_lose_adds_up():
    low = summand([1.0, 14.0], [0.75, 0.125], UPPER, 3, zero=0.125)
    sums, _ = factor_of(UPPER, [1.0, 14.0], [0.875, 0.125], count=3)
    two = summand([1.0, 14.0], [0.875, 0.125], UPPER, 3)
    twice = sums_of([two, two], 0.0, 4.0, 8)
    assert twice.lost == 2 * sums.lost > 0
    negligible = {"tail_mass": 0.5}
    once = sums_of([low], 0.0, 4.0, 8, **negligible)
    both = sums_of([low, low], 0.0, 4.0, 8, **negligible)
    assert both.zero == 2 * once.zero > 0
    assert both.lost > 2 * once.lost > 0
    scale = 8 * 745 * 2.0**-53  # Undoing the tilt, once.
    assert both.mass_error() - scale > 1.9 * (once.mass_error() - scale) > 0


@pytest.mark.parametrize("bound", list(Bound))
def test_zeros_that_count_are_ordinary(bound):
    sums, factor = factor_of(
        bound, [1.0, 2.0], [0.25, 0.5], count=2, zero=0.25, tail_mass=2.0**-40
    )
    assert factor.start == 0
    np.testing.assert_array_equal(factor.masses[:5], [0.25, 0.0, 0.25, 0.0, 0.5])
    assert (sums.lost, sums.zero) == (0.0, 0.0)


def test_zeros_that_do_not_count_make_a_sum_zero():
    """And what the other copies had goes to infinity."""
    arguments = [1.0, 2.0], [0.25, 0.5]
    options = {"count": 2, "weight": 0.5, "zero": 0.125, "tail_mass": 0.25}
    sums, factor = factor_of(UPPER, *arguments, **options)
    assert factor.start == 1
    np.testing.assert_array_equal(factor.masses, [0.25, 0.5, 0.0])
    assert 0.25 <= sums.zero <= 0.25 * SAFE
    assert 0.25 * 1.0 <= sums.lost <= 0.25 * SAFE
    sums, factor = factor_of(LOWER, *arguments, **options)
    np.testing.assert_array_equal(factor.masses, [0.25, 0.5])
    assert (sums.lost, sums.zero) == (0.0, 0.0)


@pytest.mark.parametrize("tilts", [(0.0,), (-0.5, 0.0, 0.5), (-0.5, 0.0)])
def test_the_mass_error_is_that_of_the_worst_tilt(tilts):
    many = summand(np.full(9000, 2.0), np.full(9000, 2.0**-14), LOWER, 3)
    other = summand([1.0, 2.0], [0.5, 0.5], LOWER, 2)
    sums = sums_of([many, other], 2.0, 10.0, 8, tilts)
    worst = max(tilted.mass_error() for tilted in sums._sums)
    assert sums.mass_error() == worst


def test_a_group_spreads_by_its_copies_offsets():
    """A quarter cell for four copies, an eighth for two: 1.25 cells of 24."""
    first = summand([1.0625, 3.0], [0.5, 0.5], LOWER, 4)
    second = summand([1.0, 2.0 - 2.0**-5], [0.5, 0.5], LOWER, 2)
    low = sums_of([first, second], 6.0, 16.0, 40)
    assert low._first == 24
    assert low.spread() == 1.25 / 24
    wide = sums_of([summand([0.125, 1.0], [0.5, 0.5], LOWER, 4)], 0.5, 4.0, 14)
    assert wide._first == 0
    assert wide.spread() == 1.0


def test_groups_of_groups_spread_further(monkeypatch):
    """By half of the widest stride, four cells."""
    monkeypatch.setattr(ordinary_sums, "_FEWEST_POINTS", 1)
    first = summand([1.0625, 3.0], [0.5, 0.5], LOWER, 4)
    second = summand([1.0, 2.0 - 2.0**-5], [0.5, 0.5], LOWER, 2)
    low = sums_of([first, second], 6.0, 16.0, 40)
    assert low.spread() == (1.25 + 4) / 24


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_stencils_split_and_group_all_of_a_mass(stride):
    """At each place the shares sum to one, and the mean is kept, in fractions."""
    split, grouped = ordinary_sums._split(stride), ordinary_sums._grouped(stride)
    for place in range(stride):
        shares = {
            index: Fraction(float(weight))
            for index in range(-2 * stride, 3 * stride, stride)
            for offset, weight in zip(split.offsets, split.weights, strict=True)
            if index + offset == place
        }
        assert sum(shares.values()) == 1
        assert sum(index * share for index, share in shares.items()) == place
    at = sorted((grouped.offsets % stride).tolist())
    assert at == list(range(stride)) and np.all(grouped.weights == 1)
    assert ordinary_sums._split(1) is ordinary_sums._grouped(1) is None


def test_a_group_spreads_by_its_index_at_most():
    """Ten copies by three eighths of a cell, at index 1."""
    many = summand([0.1875, 1.0], [0.5, 0.5], LOWER, 10)
    one = summand([0.5, 1.0], [0.5, 0.5], LOWER, 1)
    sums = sums_of([many, one], 2.0, 8.0, 12)
    assert sums._first == 1
    assert sums.spread() == 1.0


def test_at_index_zero_a_group_spreads_as_far_as_it_is():
    """A mean near zero moves, relatively, by all that its masses may."""
    near = summand([2.0**-20, 2.0**-4, 2.0], [0.25, 0.25, 0.5], LOWER, 1)
    assert sums_of([near], 0.0, 2.0, 8).spread() == 1.0
    far = summand([0.375, 2.0], [0.5, 0.5], LOWER, 6)
    sums = sums_of([far], 2.25, 12.0, 39)
    assert sums._first == 12
    assert sums.spread() == 3.0 / 12
    cell = summand([0.375, 2.0], [0.5, 0.5], LOWER, 30)
    sums = sums_of([cell], 11.25, 60.0, 195)
    assert sums.spread() == 15.0 / 60
