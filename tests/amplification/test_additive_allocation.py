"""Means of ratios on a lattice: windows made by hand, so that sums are exact."""

import collections
from fractions import Fraction
import itertools
import math

import numpy as np
import oracles
import pytest

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import ordinary_sums
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Summand = additive_window.Summand
UNIT = floats.UNIT_ROUNDOFF
BOUNDS = list(Bound)
NOISE = 1e-9


def summand(ratios, masses, bound, count, weight=1.0, **options):
    options = {"infinity_mass": 0.0, "zero_mass": 0.0} | options
    pair = dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), bound=bound, **options
    )
    return Summand(pair, count, weight)


def window_to(high, threshold=math.inf, **options):
    """A window with a point every 1/64 for so many points."""
    numbers = {
        "tail_mass": 2.0**-100,
        "low": 0.0,
        "deviation": 0.5,
        "tilts": (0.0,),
        "lowering": -8.0,
        "raising": 8.0,
    }
    return additive_window.Window(high=high, threshold=threshold, **(numbers | options))


# .5 or 1, and now and then 8, 9 or 24: on lattices of 1/8 and 1/4.
PLACES = [0.5, 1.0, 8.0, 9.0, 24.0]
MASSES = [0.5, 0.5 - 7 * 2.0**-12, 2.0**-10, 2.0**-11, 2.0**-12]
LARGE = 7 * 2.0**-12
COUNT = 4
OPEN = window_to(4.0, 1.0)
POINTS = 256


def heavy(bound, count=COUNT, **options):
    return summand(PLACES, MASSES, bound, count, **options)


def mean_of(summands, window=OPEN, points=POINTS):
    return additive_allocation._Mean(summands, window, points)


def exact_law(*summands):
    """The law of the weighted sum, its places with their masses."""
    return oracles.sum_law(
        [
            (
                [0.0, *one.places()],
                [one.pair.zero_mass, *one.pair.masses],
                one.count,
            )
            for one in summands
        ]
    )


def mass_at(places, masses, place):
    return float(masses[np.abs(places - place) < 1e-9].sum())


def check_sides(pair, law, infinity=Fraction(0), slack=None):
    """The pair is on its side of a law of the mean, in both directions."""
    for kappa in (0.1, 0.4, 0.8, 1.0, 2.0, 3.0, 5.0, 7.0, 13.0, 19.0):
        slackened = Fraction(kappa) * (
            1 + Fraction(1, 2**40) * (1 if pair.bound is Bound.UPPER else -1)
        )
        truths = {
            dominating_pair.Direction.REMOVE: oracles.remove_divergence(
                law, slackened, infinity
            ),
            dominating_pair.Direction.ADD: oracles.add_divergence(
                law, slackened, Fraction(0)
            ),
        }
        for direction, truth in truths.items():
            found = pair.delta(math.log(kappa), direction)
            if pair.bound is Bound.UPPER:
                assert found >= truth
            else:
                assert found <= truth
            if slack is not None:
                assert abs(found - float(truth)) <= slack * float(truth) + NOISE


@pytest.mark.parametrize("bound", BOUNDS)
def test_sums_without_large_ratios_are_those_of_enumeration(bound):
    """All places are on the lattice: nothing is split, and grouping moves nothing."""
    first = summand([0.5, 1.5], [0.5, 0.5], bound, 3)
    second = summand([0.25, 1.0], [0.25, 0.75], bound, 2, 2.0)
    law = exact_law(first, second)
    found = additive_allocation.mean_of([first, second], window_to(9.0), points=9 * 640)
    assert found.bound is bound
    assert np.all(np.diff(found.ratios) > 0)
    for place, mass in law:
        value = mass_at(found.ratios, found.masses, float(place) / 7)
        assert value == pytest.approx(float(mass), rel=1e-12)
    assert found.masses.sum() == pytest.approx(1.0, rel=1e-10)
    assert np.all(found.masses > 0)
    assert found.infinity_mass == found.zero_mass == 0.0


@pytest.mark.parametrize("bound", BOUNDS)
def test_sums_with_large_ratios_are_beside_those_of_enumeration(bound):
    one = heavy(bound)
    law = exact_law(one)
    mean = mean_of([one])
    found = mean.pair()
    if bound is Bound.UPPER:
        assert found.masses.sum() == pytest.approx(1.0, rel=1e-11)
        total = float(sum(place * mass for place, mass in law)) / COUNT
        assert found.p_masses.sum() == pytest.approx(total, rel=1e-11)
    check_sides(found, [(place / COUNT, mass) for place, mass in law], slack=1e-3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_large_ratios_of_two_summands(bound):
    first = heavy(bound, 2)
    second = summand([0.25, 0.5, 6.0], [0.5, 0.5 - 2.0**-9, 2.0**-9], bound, 2, 2.0)
    law = [(place / 6, mass) for place, mass in exact_law(first, second)]
    window = window_to(4.0, 1.0)
    found = additive_allocation.mean_of([first, second], window, points=POINTS)
    check_sides(found, law, slack=1e-3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_zeros_are_kept_where_they_count(bound):
    one = summand([0.5, 1.0], [0.25, 0.5], bound, 3, zero_mass=0.25)
    found = mean_of([one]).pair()
    law = exact_law(one)
    check_sides(found, [(place / 3, mass) for place, mass in law])
    if bound is Bound.UPPER:
        assert found.zero_mass == pytest.approx(2.0**-6, rel=1e-12)
        assert found.zero_mass >= 2.0**-6
    else:
        assert found.zero_mass == 0.0
    assert np.all(found.ratios > 0)


@pytest.mark.parametrize("bound", BOUNDS)
def test_infinite_ratios_keep_their_share_of_the_mean(bound):
    first = summand([0.5, 1.0], [0.5, 0.5], bound, 3, infinity_mass=2.0**-3)
    second = summand([0.25, 0.5], [0.5, 0.5], bound, 2, 2.0, infinity_mass=2.0**-5)
    found = mean_of([first, second], window_to(8.0)).pair()
    exact = (3 * 2.0**-3 + 4 * 2.0**-5) / 7
    assert found.infinity_mass == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_leaves_the_windows_goes_to_the_sinks_of_upper_bounds(bound):
    """Zeros that are called negligible, tails and large ratios, each of them seen."""
    one = heavy(bound, infinity_mass=2.0**-4, zero_mass=2.0**-8)
    window = window_to(2.75, 1.0, low=2.25, tail_mass=2.0**-9)
    mean = mean_of([one], window, 32)
    found = mean.pair()
    if bound is Bound.LOWER:
        assert (found.infinity_mass, found.zero_mass) == (2.0**-4, 0.0)
        return
    assert mean._fine.lost > 0.01 and mean._fine.zero > 0.01
    assert mean._lost > 1e-4
    assert mean._zero > 1e-5
    lost = COUNT * 2.0**-4 + mean._lost + mean._fine.lost
    assert found.infinity_mass == pytest.approx(lost / COUNT, rel=1e-15)
    zero = mean._zero + mean._fine.zero
    assert found.zero_mass == pytest.approx(zero, rel=1e-15)


@pytest.mark.parametrize("bound", BOUNDS)
def test_errors_of_the_ratios_are_carried(bound):
    first = heavy(bound, 2, mass_error=2.0**-15, ratio_error=2.0**-20)
    second = summand(
        [0.25, 0.5], [0.5, 0.5], bound, 3, mass_error=2.0**-17, ratio_error=2.0**-18
    )
    mean = mean_of([first, second], window_to(4.0, 1.0))
    mean._fine.place_error = 2.0**-22
    found = mean.pair()
    mass_error = 2 * 2.0**-15 + 3 * 2.0**-17
    assert mass_error < found.mass_error < mass_error * (1 + 1e-6)
    ratio_error = 2.0**-18 + 2.0**-22
    if bound is Bound.LOWER:
        spread = mean._fine.spread()
        ratio_error += 2 * found.mass_error * spread
    assert ratio_error <= found.ratio_error < ratio_error * (1 + 1e-6)


def test_groups_do_not_move_with_errors_of_masses():
    """They count as exact; cells of 1/16, and places off the lattice by most of it."""
    one = summand(
        [0.5 + 1 / 40, 1.0 - 1 / 40], [0.5, 0.5], Bound.LOWER, 3, mass_error=2.0**-10
    )
    mean = mean_of([one], window_to(4.0), 64)
    reach = 3 * (1 / 40) / (1 / 16)
    spread = mean._fine.spread()
    assert reach / (3 * 16) < spread <= reach
    found = mean.pair()
    assert 16 * UNIT * spread <= found.ratio_error < 1e-12
    assert found.mass_error > 3 * 2.0**-10


@pytest.mark.parametrize("bound", BOUNDS)
def test_errors_of_the_lattices_are_added(bound):
    """The law's own, without any of the ratios': each is more than is left out."""
    one = heavy(bound)
    mean = mean_of([one], window_to(4.0, 1.0, tilts=(-(2.0**12), 0.0)))
    parts = [
        additive_allocation._Part.of(mean._fine.law([COUNT])),
        *mean_of([one])._with_large_ratios(),
    ]
    found = mean.pair()
    lattices = mean._fine.mass_error()
    own = max(part.mass_error for part in parts)
    assert lattices > 1e-13
    assert own > 1e-14
    assert found.mass_error == pytest.approx(lattices + own, rel=1e-9, abs=0)
    place = mean._fine.place_error
    place += max(part.ratio_error for part in parts) + 16 * UNIT
    assert max(part.ratio_error for part in parts) > 16 * UNIT
    if bound is Bound.LOWER:
        spread = mean._fine.spread()
        place += 16 * UNIT * spread
    assert found.ratio_error == pytest.approx(place, rel=1e-9, abs=0)


def test_a_part_counts_the_roundings_of_its_sums():
    atoms = ordinary_sums.LatticeAtoms(0.25, 2, np.array([0.5, 0.25, 0.25]), None)
    assert additive_allocation._Part.of(atoms, halvings=3).mass_error == 76 * UNIT
    part = additive_allocation._Part.of(atoms)
    np.testing.assert_array_equal(part.places, [0.5, 0.75, 1.0])
    np.testing.assert_array_equal(part.masses, [0.5, 0.25, 0.25])
    assert part.mass_error == 28 * UNIT
    assert part.ratio_error == 0.0


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_large_ratios_join_is_coarser_where_there_are_points(bound):
    mean = mean_of([heavy(bound)], points=8192)
    assert mean._fine.step == 4.0 / 8192
    assert mean._rest((1,)).step == 4 * mean._fine.step
    few = mean_of([heavy(bound)], points=1024)
    assert few._rest((1,)).step == few._fine.step == 4.0 / 1024


@pytest.mark.parametrize(
    ("count", "stride"), [(4, 1), (39, 1), (40, 2), (159, 2), (160, 4), (640, 8)]
)
def test_a_sum_is_coarser_the_more_copies_it_has(count, stride):
    mean = mean_of([heavy(Bound.UPPER, count)], window_to(4.0 * count))
    assert mean._stride() == stride


def test_without_large_ratios_no_copy_is_left_out():
    mean = mean_of([heavy(Bound.UPPER)], window_to(4.0, 24.0))
    assert mean._with_large_ratios() == []
    assert mean._fine._left_out == mean._most == 0
    some = mean_of([heavy(Bound.UPPER)], window_to(4.0, 1.0))
    assert some._fine._left_out == some._most >= 1


def test_a_sum_without_large_ratios_has_more_points(monkeypatch):
    made = []
    monkeypatch.setattr(
        additive_allocation, "_Mean", lambda *each: made.append(each[2]) or OfNone()
    )
    for threshold in (math.inf, 4.0):
        window = window_to(4.0, threshold)
        additive_allocation.mean_of([heavy(Bound.UPPER)], window, points=100)
    assert made == [110, 100]


class OfNone:
    def pair(self):
        return None


def test_large_ratios_are_above_the_threshold():
    mean = mean_of([heavy(Bound.UPPER, weight=0.5)], window_to(4.0, 4.0))
    ((places, masses),) = mean._large
    np.testing.assert_array_equal(places, [4.5, 12.0])
    np.testing.assert_array_equal(masses, [2.0**-11, 2.0**-12])


@pytest.mark.parametrize(
    ("counts", "number", "ways"),
    [
        ((3, 1), 1, [(0, 1), (1, 0)]),
        ((3, 1), 2, [(1, 1), (2, 0)]),
        ((3, 1), 4, [(3, 1)]),
        ((3, 1), 5, []),
        ((4,), 3, [(3,)]),
    ],
)
def test_ways_share_the_large_ratios(counts, number, ways):
    mean = mean_of([heavy(Bound.UPPER, count) for count in counts])
    assert sorted(mean._ways(number)) == ways


def test_masses_of_ways():
    second = summand([0.5, 2.0], [0.875, 0.125], Bound.UPPER, 3)
    mean = mean_of([heavy(Bound.UPPER), second])
    for way, exact in (
        ((0, 0), 1.0),
        ((1, 0), 4 * LARGE),
        ((2, 0), 6 * LARGE**2),
        ((3, 2), 4 * LARGE**3 * 3 * 0.125**2),
    ):
        assert exact < mean._expected_ways(way) <= exact * (1 + 2e-9)


def test_a_step_of_the_large_ratios_is_fine_beside_the_bulk():
    """Its share of the largest sums of interest, here 16, is a part of .5."""
    for points, step in (
        (7000, 1 / 32),
        (14000, 1 / 64),
        (3500, 0.05),
        (2**23, 0.001),
    ):
        mean = mean_of([heavy(Bound.UPPER)], window_to(12.0, 2.0))
        mean._points = points
        assert mean._grid_step(2) == step
        rarity = (mean._expected(2) / mean._expected(3)) ** 0.25
        assert rarity > 2
        assert mean._grid_step(3) == pytest.approx(min(rarity * step, 0.05))


def test_a_step_is_coarse_where_two_large_ratios_are_as_rare_as_tails():
    window = window_to(12.0, 2.0, tail_mass=2.0**-20)
    mean = mean_of([heavy(Bound.UPPER)], window)
    mean._points = 2**23
    rarity = (5e5 * 2.0**-20 / mean._expected(2)) ** 0.25
    assert mean._grid_step(2) == pytest.approx(0.001 * rarity)


def large_parts(bound, window=OPEN, points=POINTS):
    return mean_of([heavy(bound)], window, points)._with_one(0, (1,))


@pytest.mark.parametrize("bound", BOUNDS)
def test_one_large_ratio_is_added_octave_by_octave(bound, monkeypatch):
    """8 and 9 on a lattice of 1/8, 24 on one of 1/4: all sums are exact."""
    monkeypatch.setattr(additive_allocation, "_CELLS_WITH_ONE", 1 / 64)
    parts = large_parts(bound)
    assert len(parts) == 2
    rest = exact_law(summand(PLACES[:2], MASSES[:2], bound, COUNT - 1))
    for part, indices, step in zip(parts, ([2, 3], [4]), (1 / 8, 1 / 4), strict=True):
        expected = collections.defaultdict(float)
        for index in indices:
            for place, mass in rest:
                expected[float(place) + PLACES[index]] += (
                    COUNT * MASSES[index] * float(mass)
                )
        total = sum(expected.values())
        assert part.masses.sum() == pytest.approx(total, rel=1e-11)
        if step == 1 / 8:
            for place, mass in expected.items():
                found = mass_at(part.places, part.masses, place)
                assert found == pytest.approx(mass, rel=1e-10)
        mean_place = sum(place * mass for place, mass in expected.items())
        assert part.places @ part.masses == pytest.approx(mean_place, rel=1e-11)
        if bound is Bound.UPPER:
            np.testing.assert_allclose(np.diff(part.places), step, rtol=1e-12)


@pytest.mark.parametrize("bound", BOUNDS)
def test_one_large_ratio_off_the_lattice_keeps_its_side(bound):
    """Splitting raises the second moment, grouping lowers it; means stay."""
    places, masses = [0.53, 0.97, 8.06, 9.19], [0.5, 0.375, 0.0625, 0.0625]
    one = summand(places, masses, bound, 3)
    parts = mean_of([one])._with_one(0, (1,))
    (part,) = parts
    rest = summand(places[:2], masses[:2], bound, 2)
    large = summand(places[2:], masses[2:], bound, 1)
    law = [(float(place), 3 * float(mass)) for place, mass in exact_law(rest, large)]
    mean = sum(place * mass for place, mass in law)
    assert part.places @ part.masses == pytest.approx(mean, rel=1e-10)
    for kappa in (8.95, 9.1, 9.35, 9.8, 10.5, 11.0):
        exact = sum(mass * max(place - kappa, 0.0) for place, mass in law)
        found = np.maximum(part.places - kappa, 0.0) @ part.masses
        if bound is Bound.UPPER:
            assert exact * (1 - 1e-12) <= found <= exact + 0.01
        else:
            assert exact - 0.01 <= found <= exact * (1 + 1e-12)


def test_what_large_ratios_join_leaves_the_window_as_often_as_they_are():
    """A window without half of the sums: of one copy's large ratios at most."""
    places, masses = [0.5, 1.0, 8.0], [0.5, 0.5 - 2.0**-12, 2.0**-12]
    one = summand(places, masses, Bound.UPPER, COUNT)
    mean = mean_of([one], window_to(2.75, 1.0, low=2.5, tail_mass=2.0**-10), 32)
    mean.pair()
    zero, lost = mean._fine.zero, mean._fine.lost
    assert zero > 0.1
    mean._rest((1,))
    assert 0 < mean._fine.zero - zero <= COUNT * 2.0**-12 * (1 + 1e-8)
    assert 0 < mean._fine.lost - lost <= COUNT * 2.0**-12 * COUNT


@pytest.mark.parametrize(
    ("points", "deviation", "step"),
    [
        (384, 0.5, 1 / 8),  # Four cells in a deviation.
        (1536, 0.5, 1 / 32),  # Sixteen.
        (48, 0.5, 1 / 2),  # One at least,
        (384, 2.0**-6, 1 / 96),  # and not finer than what they join.
    ],
)
def test_a_lattice_of_large_ratios_resolves_the_bulk(points, deviation, step):
    parts = large_parts(Bound.UPPER, window_to(4.0, 1.0, deviation=deviation), points)
    np.testing.assert_allclose(np.diff(parts[0].places), step, rtol=1e-12)
    np.testing.assert_allclose(np.diff(parts[1].places), 2 * step, rtol=1e-12)


def test_octaves_begin_at_the_first_large_ratio(monkeypatch):
    """From 3: the second begins at 6, the fourth at 24; the third is empty."""
    monkeypatch.setattr(additive_allocation, "_CELLS_WITH_ONE", 1 / 64)
    places = [0.5, 1.0, 3.0, 5.75, 6.0, 11.5, 24.0]
    masses = [0.5, 0.5 - 5 * 2.0**-12, *[2.0**-12] * 5]
    mean = mean_of([summand(places, masses, Bound.UPPER, COUNT)])
    parts = mean._with_one(0, (1,))
    masses = [part.masses.sum() * 2**12 / COUNT for part in parts]
    all_ordinary = (1 - 5 * 2.0**-12) ** 3
    assert masses == pytest.approx([2 * all_ordinary, 2 * all_ordinary, all_ordinary])
    for part, step in zip(parts, (1 / 8, 1 / 4, 1.0), strict=True):
        np.testing.assert_allclose(np.diff(part.places), step, rtol=1e-12)


def test_a_lattice_of_far_large_ratios_has_no_more_cells_than_points():
    """A bulk of 2^-30 beside ratios from 4096 to 8000: 2^45 cells of its own size."""
    places = [1.0, 1.0 + 2.0**-30, 4096.0, 8000.0]
    masses = [0.5, 0.5 - 2.0**-11, 2.0**-12, 2.0**-12]
    one = summand(places, masses, Bound.UPPER, 2)
    window = additive_window.window_of([one], 1e-9)
    assert window.threshold == places[1]
    mean = mean_of([one], window, 256)
    (part,) = mean._with_one(0, (1,))
    step = (8000.0 - 4096.0) / 256
    np.testing.assert_allclose(np.diff(part.places), step, rtol=1e-9)
    assert part.masses.size < 2 * 256
    expected = 2 * 2.0**-12 * (1 - 2.0**-11) * (4096.0 + 8000.0 + 2 * (1 + 2.0**-31))
    assert part.places @ part.masses == pytest.approx(expected, rel=1e-6)


def test_no_large_ratio_is_no_part():
    plain = summand([0.5, 1.0], [0.5, 0.5], Bound.UPPER, 2)
    mean = mean_of([plain, heavy(Bound.UPPER, 2)])
    assert mean._with_one(0, (1, 0)) == []
    assert len(mean._with_one(1, (0, 1))) == 2
    # One large ratio: two octaves; two: of the second, for the first has none.
    assert len(mean._with_large_ratios()) == 3


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("way", [(2, 0), (1, 1), (0, 2), (2, 1), (4, 0)])
def test_several_large_ratios_are_added_to_what_is_left(bound, way):
    """Against the sum that is conditional on which copies are large."""
    second = summand([0.25, 6.0], [1 - 2.0**-9, 2.0**-9], bound, 2, 2.0)
    summands = [heavy(bound), second]
    mean = mean_of(summands, window_to(6.0, 1.0))
    part = mean._with_several(way)
    sets, pieces = 1, []
    for one, number in zip(summands, way, strict=True):
        ordinary = one.places() <= 1.0
        sets *= math.comb(one.count, number)
        for some, count in ((ordinary, one.count - number), (~ordinary, number)):
            places, masses = one.places()[some], one.pair.masses[some]
            pieces.append(summand(places, masses, bound, count))
    law = exact_law(*pieces)
    mass = sets * float(sum(mass for _, mass in law))
    first = sets * float(sum(place * mass for place, mass in law))
    second_moment = sets * float(sum(place**2 * mass for place, mass in law))
    # The least sums' places are lost to a lower bound, if anything is.
    assert part.masses.sum() == pytest.approx(mass, rel=1e-9, abs=0)
    assert part.places @ part.masses == pytest.approx(first, rel=1e-9)
    spread = part.places**2 @ part.masses / second_moment
    assert spread == pytest.approx(1.0, rel=0.01)
    assert spread >= 1 - 1e-9 if bound is Bound.UPPER else spread <= 1 + 1e-9
    assert 0 < part.mass_error < 1e-10
    assert 0 < part.ratio_error < 1e-12


@pytest.mark.parametrize("bound", BOUNDS)
def test_sums_of_large_ratios_alone(bound):
    second = summand([0.25, 6.0], [1 - 2.0**-9, 2.0**-9], bound, 2, 2.0)
    mean = mean_of([heavy(bound), second], window_to(6.0, 1.0))
    for way, mass, place in (
        ((1, 1), LARGE * 2.0**-9, 12.0 + 74 / 7),
        ((2, 1), LARGE**2 * 2.0**-9, 12.0 + 2 * 82 / 7),
        ((0, 3), 2.0**-27, 36.0),
    ):
        law = mean._sum_of_large(way)
        assert law.step == mean._grid_step(sum(way))
        assert (law.excess is None) is (bound is Bound.UPPER)
        assert law.masses.sum() == pytest.approx(mass, rel=1e-12, abs=0)
        average = law.places() @ law.masses / mass
        # 8, 9 and 24 are 4, 2 and 1 in 7.
        expected = place if way != (2, 1) else 12.0 + 2 * (32 + 18 + 24) / 7
        assert average == pytest.approx(expected, rel=1e-12)
        assert mean._sum_of_large(way) is law


def test_more_large_ratios_than_count_go_to_the_sinks():
    """Two are rarer than the tail: their mass, and their mean, are lost."""
    second = summand([0.5, 16.0], [1 - 2.0**-11, 2.0**-11], Bound.UPPER, 2)
    summands = [heavy(Bound.UPPER), second]
    mean = mean_of(summands, window_to(8.0, 1.0, tail_mass=2.0**-10))
    parts = mean._with_large_ratios()
    assert len(parts) == 3
    mass = 6 * LARGE**2 + 4 * LARGE * 2 * 2.0**-11 + 2.0**-22
    assert mass < mean._zero <= mass * (1 + 1e-8)
    # 16 is more than the mean of 8, 9 and 24; six copies have means of 1 at most.
    lost = mass * (2 * 16.0 + 6)
    assert lost < mean._lost <= lost * (1 + 1e-8)


def test_rare_large_ratios_alone_are_never_lost():
    mean = mean_of([heavy(Bound.UPPER)], window_to(4.0, 1.0, tail_mass=0.5))
    assert len(mean._with_large_ratios()) == 2
    assert mean._zero == pytest.approx(6 * LARGE**2, rel=1e-8, abs=0)


@pytest.mark.parametrize(("most", "parts"), [(1, 2), (2, 3), (4, 5), (16, 5)])
def test_no_more_large_ratios_than_can_be_left_out(monkeypatch, most, parts):
    monkeypatch.setattr(additive_allocation, "_MOST_LARGE", most)
    mean = mean_of([heavy(Bound.UPPER)], window_to(4.0, 1.0, tail_mass=2.0**-60))
    assert len(mean._with_large_ratios()) == parts
    lost = {1: 6 * LARGE**2, 2: 4 * LARGE**3}.get(most, 0.0)
    assert mean._zero == pytest.approx(lost, rel=1e-8, abs=0)
    mean_of_large = (most + 1) * 74 / 7
    assert mean._lost == pytest.approx(lost * (mean_of_large + COUNT), rel=1e-8, abs=0)


@pytest.mark.parametrize("bound", BOUNDS)
def test_all_copies_may_be_large(bound):
    """Nothing is left beside the large ratios: this found no place but zero."""
    places, masses = [0.25, 0.5, 60.0], [0.5, 0.5 - 2.0**-7, 2.0**-7]
    one = summand(places, masses, bound, 2)
    window = window_to(1.0, 0.5, deviation=0.125)
    found = additive_allocation.mean_of([one], window, points=64)
    law = [(place / 2, mass) for place, mass in exact_law(one)]
    check_sides(found, law)
    if bound is Bound.UPPER:
        top = float(found.masses[found.ratios > 50].sum())
        assert top == pytest.approx(2.0**-14, rel=1e-9, abs=0)


def test_the_atoms_are_in_order():
    pairs = [mean_of([heavy(bound)]).pair() for bound in BOUNDS]
    assert all(np.all(np.diff(pair.ratios) >= 0) for pair in pairs)
    for first, second in itertools.pairwise(pairs):
        assert first.ratios[0] < 1 < second.ratios[-1]
