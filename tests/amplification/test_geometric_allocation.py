"""The multiplicative grid's parts, each against enumeration in rational numbers."""

import collections
import dataclasses
from fractions import Fraction
import itertools
import math

import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
STEP = math.log(2)
UNIT = 2.0**-53
MASS_ERROR, RATIO_ERROR = 2.0**-20, 2.0**-30
KAPPAS = [Fraction(n, 8) for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 20, 40, 80)]


def pair_of(bound, ratios, masses, *, infinity=0.0, zero=0.0):
    return dominating_pair.DominatingPair(
        np.array(ratios),
        np.array(masses),
        infinity,
        zero,
        bound,
        MASS_ERROR,
        RATIO_ERROR,
    )


def law_of(masses, excess=None, **rest):
    """A law on 1/4, 1/2, 1, …"""
    defaults = {
        "origin": 0.25,
        "step": STEP,
        "zero_mass": 2.0**-5,
        "lost_mean": 2.0**-6,
        "mass_error": MASS_ERROR,
        "ratio_error": RATIO_ERROR,
    }
    return geometric.GeometricLaw(
        masses=np.array(masses),
        excess=None if excess is None else np.array(excess),
        **(defaults | rest),
    )


def close(values):
    return pytest.approx(values, rel=1e-14, abs=0)


def assert_adds_little(error, base, *, least, most):
    """The error is the base's and between `least` and `most` units of rounding more."""
    assert base + least * UNIT <= error <= base + most * UNIT


def copies_law(places, masses, count):
    """(place, mass) of a sum of copies, each place once."""
    law = {Fraction(0): Fraction(1)}
    for _ in range(count):
        total = collections.defaultdict(Fraction)
        for (a, p), (b, q) in itertools.product(
            law.items(), zip(oracles.exact(places), oracles.exact(masses), strict=True)
        ):
            total[a + b] += p * q
        law = total
    return list(law.items())


def atoms_of(law):
    places = [Fraction(0), *oracles.exact(law.places())]
    return list(zip(places, oracles.exact([law.zero_mass, *law.masses]), strict=True))


def enumerated(pairs, weights):
    """(ratio, Q-mass) of a weighted mean of one ratio of each pair."""
    law = [(Fraction(0), Fraction(1))]
    for pair, weight in zip(pairs, oracles.exact(weights), strict=True):
        atoms = list(
            zip(
                oracles.exact([0.0, *pair.ratios]),
                oracles.exact([pair.zero_mass, *pair.masses]),
                strict=True,
            )
        )
        law = [(a + weight * b, p * q) for a, p in law for b, q in atoms]
    return law


def assert_on_its_side(found, law, infinity, slack=Fraction(1, 2**44)):
    """The atoms as stored bound the law's divergences, but for rounding."""
    stored = list(
        zip(
            oracles.exact([0.0, *found.ratios]),
            oracles.exact([found.zero_mass, *found.masses]),
            strict=True,
        )
    )
    sink = Fraction(found.infinity_mass)
    for kappa in KAPPAS:
        signed = [
            oracles.remove_divergence(stored, kappa, sink)
            - oracles.remove_divergence(law, kappa, infinity),
            oracles.add_divergence(stored, kappa, Fraction(0))
            - oracles.add_divergence(law, kappa, Fraction(0)),
        ]
        for difference in signed:
            if found.bound is Bound.UPPER:
                assert difference >= -slack
            else:
                assert difference <= slack


def assert_near(found, law, infinity, tolerance):
    """Both divergences are within an absolute tolerance of the law's."""
    for kappa in KAPPAS:
        remove = found.infinity_mass + found.masses @ np.maximum(
            found.ratios - float(kappa), 0
        )
        add = found.zero_mass + found.masses @ np.maximum(
            1 - float(kappa) * found.ratios, 0
        )
        truth = oracles.remove_divergence(law, kappa, infinity)
        assert abs(remove - float(truth)) <= tolerance
        truth = oracles.add_divergence(law, kappa, Fraction(0))
        assert abs(add - float(truth)) <= tolerance


def recorded(monkeypatch, name):
    """Lists the calls of one of the module's functions: (arguments, result)."""
    calls = []
    function = getattr(geometric_allocation, name)

    def spy(*arguments):
        calls.append((arguments, function(*arguments)))
        return calls[-1][1]

    monkeypatch.setattr(geometric_allocation, name, spy)
    return calls


def test_an_upper_pair_is_split():
    pair = pair_of(
        Bound.UPPER, [0.5, 0.75, 2.0], [0.5, 0.25, 0.125], infinity=0.0625, zero=0.125
    )
    law = geometric_allocation.discretize(pair, STEP)
    assert law.origin == close(0.5)
    assert law.step == STEP
    assert law.masses[:3] == pytest.approx([0.625, 0.125, 0.125], rel=1e-14)
    assert law.excess is None
    assert law.zero_mass == 0.125
    assert law.lost_mean == 0.0625
    assert_adds_little(law.mass_error, MASS_ERROR, least=1, most=64)
    assert_adds_little(law.ratio_error, RATIO_ERROR, least=1, most=64)


def test_a_lower_pair_is_grouped():
    pair = pair_of(
        Bound.LOWER, [0.5, 0.75, 2.0], [0.5, 0.25, 0.125], infinity=0.0625, zero=0.125
    )
    law = geometric_allocation.discretize(pair, STEP)
    assert law.masses[:3] == close([0.75, 0.0, 0.125])
    assert law.places()[[0, 2]] == close([(0.25 + 0.1875) / 0.75, 2.0])
    assert law.zero_mass == 0.125
    assert law.lost_mean == 0.0625
    assert_adds_little(law.mass_error, MASS_ERROR, least=1, most=64)
    assert_adds_little(law.ratio_error, RATIO_ERROR, least=1, most=64)


# Places 1/4, 1/2, 1, 2, 4, 8; below 2^-10, 3·2^-10, …; above of mean 2.
MASSES = [2.0**-10, 2.0**-9, 0.5, 0.25, 2.0**-9, 2.0**-11]
BELOW = np.cumsum(MASSES)
ABOVE = np.cumsum((np.array(MASSES) * 2.0 ** np.arange(-2, 4))[::-1])[::-1] / 2


@pytest.mark.parametrize(
    ("tail_mass", "low", "high"),
    [
        (1e-9, 0, 5),
        (2.0**-10, 0, 5),
        (2.0**-10 * 1.01, 1, 5),
        (2.0**-9 * 0.99, 1, 5),
        (2.0**-9 * 1.01, 1, 4),
        (3 * 2.0**-10 * 1.01, 2, 4),
        (0.01, 2, 3),
        (0.3, 2, 2),
        (0.55, 3, 3),
        (0.9, 5, 5),
    ],
)
def test_trimming_an_upper_law(tail_mass, low, high):
    """What lies below is split to zero and the lowest, above to the highest and ∞."""
    law = law_of(MASSES)
    cut = geometric_allocation.trim(law, 2.0, tail_mass)
    places = 2.0 ** np.arange(-2, 4)
    masses = np.array(MASSES)
    down, up = masses[:low], masses[high + 1 :]
    expected = masses[low : high + 1].copy()
    expected[-1] += up.sum()
    expected[0] += (down * places[:low] / places[low]).sum()
    assert cut.origin == close(places[low])
    assert cut.step == STEP
    assert cut.masses == close(expected)
    assert cut.excess is None
    dropped = (down * (1 - places[:low] / places[low])).sum()
    assert cut.zero_mass == close(2.0**-5 + dropped)
    moved = (up * (places[high + 1 :] - places[high])).sum()
    assert cut.lost_mean == close(2.0**-6 + moved)
    assert_adds_little(cut.mass_error, MASS_ERROR, least=6, most=64)
    assert_adds_little(cut.ratio_error, RATIO_ERROR, least=4, most=64)
    assert law.masses.tolist() == MASSES


@pytest.mark.parametrize("grouped", [False, True])
def test_a_law_with_less_mass_than_may_be_trimmed(grouped):
    """Its highest atom is left, not an empty cell beyond."""
    masses = np.array([2.0**-10, 2.0**-11, 0.0, 0.0])
    cut = geometric_allocation.trim(
        law_of(masses, 0 * masses if grouped else None), 2.0, 0.5
    )
    assert cut.origin == close(0.5)
    kept = 2.0**-11 if grouped else 2.0**-10
    assert cut.masses.tolist() == [close(kept)]
    nothing = geometric_allocation.trim(law_of([0.0, 0.0]), 2.0, 0.5)
    assert nothing.masses.sum() == 0
    assert nothing.origin == close(0.25)


def test_the_trimmed_tails_are_those_asked_for():
    """The Q-mass below by itself, the P-mass above as a share of the mean."""
    assert BELOW[1] < 2.0**-10 * 3.01
    assert ABOVE[5] == 2.0**-9
    law = law_of(MASSES)
    assert geometric_allocation.trim(law, 4.0, 2.0**-10 * 0.99).masses.size == 6
    assert geometric_allocation.trim(law, 4.2, 2.0**-10 * 0.99).masses.size == 5


@pytest.mark.parametrize(("tail_mass", "low", "high"), [(1e-9, 0, 5), (0.01, 2, 3)])
def test_trimming_a_lower_law(tail_mass, low, high):
    """What lies below is dropped, what lies above joins the highest cell's group."""
    excess = np.array(MASSES) * [0.5, 0.25, 0.75, 0.5, 0.125, 0.25]
    law = law_of(MASSES, excess)
    cut = geometric_allocation.trim(law, 2.0, tail_mass)
    places = law.places()
    masses = np.array(MASSES)
    expected = masses[low : high + 1].copy()
    expected[-1] += masses[high + 1 :].sum()
    assert cut.masses == close(expected)
    assert cut.origin == close(2.0 ** (low - 2))
    assert cut.places()[:-1] == close(places[low:high])
    mean = masses[high:] @ places[high:] / masses[high:].sum()
    assert cut.places()[-1] == close(mean)
    assert cut.zero_mass == 2.0**-5
    assert cut.lost_mean == 2.0**-6
    assert law.excess.tolist() == excess.tolist()


def test_trimming_keeps_digits_of_what_goes_to_zero_and_infinity():
    """On a fine grid: a difference of neighbouring grid points has few digits."""
    step = 2.0**-40
    law = law_of([0.25, 0.5, 0.25], step=step, origin=1.0, zero_mass=0, lost_mean=0)
    cut = geometric_allocation.trim(law, 1.0, 0.3)
    assert cut.masses.size == 1
    assert cut.zero_mass == close(0.25 * step * (1 - step / 2))
    assert cut.lost_mean == close(0.25 * step * (1 + 3 * step / 2))


@pytest.mark.parametrize("grouped", [False, True])
def test_trimming_ends_that_are_further_apart_than_floats_reach(grouped):
    """A top at e^150 whose P-mass is negligible, beside a bulk at e^-600."""
    masses = np.zeros(751)
    masses[0], masses[750] = 0.5, math.exp(-180)
    excess = np.zeros(751) if grouped else None
    law = law_of(masses, excess, origin=math.exp(-600), step=1.0)
    cut = geometric_allocation.trim(law, 1.0, 1e-9)
    assert cut.masses.size == 1
    if grouped:
        assert cut.lost_mean == 2.0**-6
        assert cut.places()[0] == pytest.approx(2 * math.exp(-30), rel=1e-12)
    else:
        assert cut.lost_mean == pytest.approx(2.0**-6 + math.exp(-30), rel=1e-14)


def test_trimming_counts_each_rounded_term_once():
    law = law_of(np.full(1000, 1e-3), step=2.0**-10)
    cut = geometric_allocation.trim(law, 1.0, 1e-9)
    assert_adds_little(cut.mass_error, MASS_ERROR, least=1000, most=1100)


def test_trimming_grows_the_ratios_error_with_the_exponents_that_it_rounds():
    """The new origin is e to the power of a rounded number."""
    law = law_of([1e-9, 0.5, 0.5], origin=2.0**-900, step=100 * STEP)
    cut = geometric_allocation.trim(law, 1.0, 1e-3)
    true = Fraction(2) ** -800
    assert abs(Fraction(cut.origin) / true - 1) <= Fraction(
        cut.ratio_error - RATIO_ERROR
    )
    exponents = 1000 * STEP
    assert_adds_little(
        cut.ratio_error, RATIO_ERROR, least=2 * exponents, most=3 * exponents
    )
    steep = 100 * STEP
    assert_adds_little(
        cut.mass_error, MASS_ERROR, least=3 * (1 + steep), most=40 * (1 + steep)
    )


LIMIT = math.log(2) / 4000  # For 1000 points, of a law that does not spread.


@pytest.mark.parametrize(
    ("masses", "rest", "points", "expected"),
    [
        # As many cells as make the points about half full.
        ([0.5, 0.5], {}, 42, 16),
        ([0.5, 0.5], {}, 43, 32),
        ([0.5, 0.0, 0.5], {}, 16, 8),
        # A grid fine enough for any sum, though there are points left.
        ([1.0], {"step": 512 * 0.95 * LIMIT}, 1000, 512),
        ([1.0], {"step": 512 * LIMIT}, 1000, 512),
        ([1.0], {"step": 512 * 1.05 * LIMIT}, 1000, 1024),
        ([1.0], {"step": LIMIT}, 1000, 1),
        # Places that floats hardly hold.
        ([0.5, 0.5], {"origin": 1e-120}, 43, 1),
        ([0.5, 0.5], {"origin": 1e-95}, 43, 32),
        ([0.5, 0.0], {"origin": 1.0, "step": 250.0}, 43, 1),
        ([0.5, 0.0], {"origin": 1.0, "step": math.log(1.5e100)}, 43, 1),
        ([0.5, 0.0], {"origin": 1.0, "step": math.log(0.9e100)}, 43, 32),
    ],
)
def test_refinement(masses, rest, points, expected):
    law = law_of(masses, **rest)
    assert geometric_allocation._refinement(law, points) == expected


def test_refinement_where_places_are_just_held(monkeypatch):
    monkeypatch.setattr(geometric_allocation, "_SMALLEST_MEAN", 1.0)
    assert geometric_allocation._refinement(law_of([1.0], origin=1.0), 43) == 64


@pytest.mark.parametrize("scale", [0.26, 0.99])
@pytest.mark.parametrize("share", [0.75, 0.9])
def test_refinement_resolves_the_deviation(share, scale):
    """Two thousand points a standard deviation are enough, whatever is left."""
    places = scale * np.array([1.0, 2.0])
    masses = np.array([share, 1 - share])
    mean = places @ masses
    deviation = math.sqrt((places / mean - 1) ** 2 @ masses)
    law = law_of(masses, origin=scale)
    refinement = geometric_allocation._refinement(law, 10**6)
    assert law.step / refinement <= deviation / 2000 < 2 * law.step / refinement


def base_law(grouped, steps=40):
    """Mass 7/8 of mean 1 on a fine grid, three atoms, and zero."""
    bound = Bound.LOWER if grouped else Bound.UPPER
    pair = pair_of(bound, [0.5, 1.0, 2.0], [0.25, 0.375, 0.25], zero=0.125)
    return geometric_allocation.discretize(pair, STEP / steps)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("count", range(1, 8))
def test_sums_of_copies_against_enumeration(count, grouped):
    law = base_law(grouped)
    found = geometric_allocation.self_convolve(law, count, 1e-12, 400)
    places = [0.0, 0.5, 1.0, 2.0]
    masses = [0.125, 0.25, 0.375, 0.25]
    exact = copies_law(places, masses, count)
    stored = atoms_of(found)
    sink = Fraction(found.lost_mean)
    for kappa in KAPPAS:
        for divergence in (
            oracles.remove_divergence(stored, kappa, sink)
            - oracles.remove_divergence(exact, kappa, Fraction(0)),
            oracles.add_divergence(stored, kappa, Fraction(0))
            - oracles.add_divergence(exact, kappa, Fraction(0)),
        ):
            loss = float(-divergence if grouped else divergence)
            assert -1e-11 <= loss <= 2e-3
    assert found.mass_error >= count * MASS_ERROR
    assert found.mass_error <= count * MASS_ERROR * (1 + 1e-5)
    assert found.ratio_error >= RATIO_ERROR
    assert found.ratio_error <= RATIO_ERROR * (1 + 1e-3)


def test_one_copy_is_the_law_itself():
    law = base_law(False)
    assert geometric_allocation.self_convolve(law, 1, 0.5, 100) is law


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (2, [2]),
        (3, [2, 3]),
        (4, [2, 4]),
        (5, [2, 2, 3, 5]),
        (13, [2, 3, 4, 6, 7, 13]),
        (16, [2, 4, 8, 16]),
        (24, [2, 3, 6, 12, 24]),
    ],
)
def test_each_level_trims_its_share(monkeypatch, count, sizes):
    """Two sums a level at most; what a sum of n trims counts count / n times."""
    trims = recorded(monkeypatch, "trim")
    geometric_allocation.self_convolve(base_law(False), count, 2.0**-30, 50)
    arguments = sorted((mean, tail) for (_, mean, tail), _ in trims)
    assert arguments == [(n, 2.0**-30 * n / count) for n in sizes]


def test_sums_are_refined_from_level_to_level(monkeypatch):
    """Each level's grid is as fine as the one before allows, on 200 points."""
    asked = recorded(monkeypatch, "_refinement")
    found = geometric_allocation.self_convolve(base_law(False, 20), 16, 1e-12, 200)
    assert [points for (_, points), _ in asked] == [200] * 4
    assert [law.step for (law, _), _ in asked] == [
        STEP / 20 / math.prod(r for _, r in asked[:i]) for i in range(4)
    ]
    assert found.step == STEP / 20 / math.prod(r for _, r in asked)
    assert found.step <= STEP / 80
    assert 100 <= found.masses.size <= 450


def test_the_smaller_of_two_sums_is_refined(monkeypatch):
    asked = recorded(monkeypatch, "_refinement")
    made = recorded(monkeypatch, "trim")
    geometric_allocation.self_convolve(base_law(False), 13, 1e-12, 200)
    sizes = {id(result): mean for (_, mean, _), result in made}
    assert [sizes[id(law)] for (law, _), _ in asked[1:]] == [3, 6]
    assert asked[0][0][0].masses.size == base_law(False).masses.size


@pytest.mark.parametrize("bound", list(Bound))
def test_copies_against_enumeration(bound):
    pair = pair_of(
        bound, [0.5, 1.0, 2.0], [0.25, 0.375, 0.125], infinity=0.25, zero=0.25
    )
    for count in (1, 2, 3, 5):
        found = geometric_allocation.mean_of_copies(
            pair, count, tail_mass=1e-12, points=400
        )
        exact = copies_law([0.0, *pair.ratios], [0.25, *pair.masses], count)
        law = [(place / count, mass) for place, mass in exact]
        assert found.bound is bound
        assert_on_its_side(found, law, Fraction(0.25))
        assert_near(found, law, Fraction(0.25), 1e-4)
        assert found.infinity_mass == close(0.25)
        assert np.all(np.diff(found.ratios) >= 0)
        assert count * MASS_ERROR <= found.mass_error <= 1.001 * count * MASS_ERROR


NEAR_ONE = {
    "ratios": [1 - 3 * 2.0**-14, 1 - 2.0**-14, 1 + 2.0**-13, 1 + 2.0**-11],
    "masses": [0.25, 0.5, 0.1875, 0.0625],
}


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("sink", [0.0, 2.0**-46])
def test_copies_near_one_against_enumeration(bound, sink):
    """Certified on its side of the truth; zeros are rare, and ratios agree."""
    pair = pair_of(bound, **NEAR_ONE, infinity=sink, zero=sink)
    pair = dataclasses.replace(pair, mass_error=2.0**-50, ratio_error=2.0**-50)
    places, masses = [0.0, *pair.ratios], [sink, *pair.masses]
    for count in (2, 3, 5):
        found = geometric_allocation.mean_of_copies(
            pair, count, tail_mass=2.0**-40, points=2000
        )
        law = [(p / count, mass) for p, mass in copies_law(places, masses, count)]
        for epsilon in (0.0, 2.0**-15, 2.0**-13, 2.0**-12, 2.0**-5):
            with mpmath.workdps(40):
                kappa = Fraction(str(mpmath.exp(epsilon)))
            truths = {
                Direction.REMOVE: oracles.remove_divergence(law, kappa, Fraction(sink)),
                Direction.ADD: oracles.add_divergence(law, kappa, Fraction(0)),
            }
            for direction, truth in truths.items():
                delta = Fraction(found.delta(epsilon, direction))
                assert (delta >= truth) if bound is Bound.UPPER else (delta <= truth)
                assert abs(delta - truth) <= truth / 200 + Fraction(1, 2**38)


def test_copies_near_one_keep_what_all_of_them_have_apart():
    """Of two ratios the lower is one deviation, their half distance, over it."""
    pair = pair_of(Bound.UPPER, [1 - 2.0**-10, 1 + 2.0**-10], [0.5, 0.5])
    found = geometric_allocation.mean_of_copies(pair, 2, tail_mass=2.0**-40, points=64)
    over = (found.ratios - (1 - 2.0**-9)) * 2**10
    assert over == pytest.approx([1, 3 ** (40 / 64), 3 ** (41 / 64), 3], rel=1e-9)
    # Errors of ratios are those of what is over it, on a scale 1000 times as large.
    assert RATIO_ERROR <= found.ratio_error <= 4 * RATIO_ERROR
    often = dataclasses.replace(pair, masses=np.array([0.5, 0.25]), zero_mass=0.25)
    found = geometric_allocation.mean_of_copies(often, 2, tail_mass=2.0**-40, points=64)
    assert found.zero_mass == close(0.0625)


def test_copies_on_a_grid_of_the_points_asked_for():
    """The loss's range, or a tenth of a nat where it is narrower, over the points."""
    for ratios, step in (
        ([2.0**-3, 2.0**5], 8 * math.log(2) / 64),
        ([1 - 2.0**-6, 1 + 2.0**-6], 0.1 / 64),
    ):
        pair = pair_of(Bound.UPPER, ratios, [0.375, 0.5], zero=0.125)
        found = geometric_allocation.mean_of_copies(pair, 1, tail_mass=0.1, points=64)
        steps = np.diff(np.log(found.ratios)) / step
        assert steps == pytest.approx(np.rint(steps), abs=1e-9)
        assert steps.max() == pytest.approx(math.log(ratios[1] / ratios[0]) / step, 1)
        last = float(steps[-1])
        assert last == pytest.approx(1.0) or steps.size == 1


@pytest.mark.parametrize(("count", "share"), [(1, 1.0), (2, 0.5), (16, 0.125)])
def test_copies_trim_the_tail_mass_over_all_levels(monkeypatch, count, share):
    """A level has at most two sums, each of which may trim half of its share."""
    sums = recorded(monkeypatch, "self_convolve")
    pair = pair_of(Bound.UPPER, [0.5, 1.5], [0.5, 0.5])
    geometric_allocation.mean_of_copies(pair, count, tail_mass=2.0**-30, points=50)
    ((law, copies, budget, points), _) = sums[0]
    assert (copies, budget, points) == (count, 2.0**-30 * share, 50)
    assert law.step == close(math.log(3) / 50)


@pytest.mark.parametrize("bound", list(Bound))
def test_the_pair_of_a_mean(bound):
    grouped = bound is Bound.LOWER
    masses = [0.25, 0.0, 0.5, 0.125]
    # The first cell's mean is beyond the third's place: 5/4 and 1.
    excess = np.array(masses) * [4.0, 0.0, 0.0, 0.5] if grouped else None
    found = geometric_allocation._mean(law_of(masses, excess), bound, 4)
    if grouped:
        assert found.ratios == close([1 / 4, 1.25 / 4, 3 / 4])
        assert found.masses.tolist() == [0.5, 0.25, 0.125]
    else:
        assert found.ratios == close([0.25 / 4, 1 / 4, 2 / 4])
        assert found.masses.tolist() == [0.25, 0.5, 0.125]
    assert_adds_little(found.ratio_error, RATIO_ERROR, least=1, most=4)
    assert found.infinity_mass == 2.0**-8
    assert found.zero_mass == 2.0**-5
    assert found.bound is bound
    assert found.mass_error == MASS_ERROR


def test_the_pair_of_a_sum_without_mass_has_no_atoms():
    found = geometric_allocation._mean(law_of([0.0, 0.0]), Bound.UPPER, 2)
    assert found.ratios.size == found.masses.size == 0
    assert found.zero_mass == 2.0**-5


STEPS = [
    ([0.25, 1.0, 1.5], [0.25, 0.25, 0.25], 0.125, 0.25),
    ([0.5, 2.0], [0.5, 0.25], 0.25, 0.25),
    ([0.75, 1.25], [0.5, 0.5], 0.0, 0.0),
]
WEIGHTS = [0.5, 0.125, 0.375]


def steps_of(bound):
    return [
        pair_of(bound, ratios, masses, infinity=infinity, zero=zero)
        for ratios, masses, infinity, zero in STEPS
    ]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("bound", list(Bound))
def test_a_weighted_mean_against_enumeration(bound, number):
    pairs, weights = steps_of(bound)[:number], WEIGHTS[:number]
    weights[-1] += 1 - sum(weights)
    found = geometric_allocation.weighted_mean(
        pairs, weights, tail_mass=1e-12, points=2000
    )
    law = enumerated(pairs, weights)
    infinity = sum(
        (
            Fraction(w) * Fraction(p.infinity_mass)
            for p, w in zip(pairs, weights, strict=True)
        ),
        Fraction(0),
    )
    assert found.bound is bound
    assert found.infinity_mass == pytest.approx(float(infinity), rel=1e-11)
    assert_on_its_side(found, law, infinity, slack=Fraction(1, 2**38))
    assert_near(found, law, infinity, 2e-4)
    zero = math.prod(pair.zero_mass for pair in pairs)
    assert found.zero_mass == pytest.approx(zero, abs=2e-12)
    errors = number * MASS_ERROR
    assert errors < found.mass_error <= errors * 1.001
    assert found.ratio_error > RATIO_ERROR
    if bound is Bound.UPPER:
        assert found.ratio_error <= RATIO_ERROR * 1.001


def test_a_weighted_mean_of_copies_is_their_mean():
    """Against the sum by doubling, within what both grids leave."""
    pair = steps_of(Bound.UPPER)[1]
    for number in (2, 4):
        ways = (
            geometric_allocation.weighted_mean(
                [pair] * number, [1 / number] * number, tail_mass=1e-12, points=2000
            ),
            geometric_allocation.mean_of_copies(
                pair, number, tail_mass=1e-12, points=2000
            ),
        )
        for epsilon in (0.0, 0.2, 0.5):
            for direction in dominating_pair.Direction:
                first, second = (way.hockey_stick(epsilon, direction) for way in ways)
                assert first == pytest.approx(second, abs=1e-5)


def test_a_multiple_that_has_lost_digits_says_so():
    """An origin below 2^-1022 is off by more than a unit of rounding."""
    law = law_of([0.5, 0.5], origin=2.0**-1000)
    for weight, most in ((0.75, 2), (1 / 3 * 2.0**-60, 2.0**41)):
        scaled = geometric_allocation._scaled(law, weight)
        true = Fraction(weight) * Fraction(law.origin)
        error = abs(Fraction(scaled.origin) / true - 1)
        assert error <= Fraction(scaled.ratio_error - RATIO_ERROR)
        assert_adds_little(scaled.ratio_error, RATIO_ERROR, least=1, most=most)
        assert scaled.lost_mean == weight * 2.0**-6
        assert scaled.masses is law.masses


def test_trimming_to_an_origin_that_has_lost_digits_says_so():
    law = law_of([1e-9, 0.5, 0.5], origin=2.0**-1062.4)
    cut = geometric_allocation.trim(law, 1.0, 1e-3)
    assert RATIO_ERROR + 2.0**-14 <= cut.ratio_error <= RATIO_ERROR + 2.0**-11


def test_a_weighted_mean_has_the_points_asked_for(monkeypatch):
    """Of the widest ratio, and no less than a tenth of a nat."""
    laws = recorded(monkeypatch, "discretize")
    for number, step in ((3, math.log(6) / 32), (0, 0.1 / 32)):
        pairs = steps_of(Bound.UPPER)[:number]
        pairs += [pair_of(Bound.UPPER, [1 - 2.0**-6, 1 + 2.0**-6], [0.5, 0.5])]
        laws.clear()
        geometric_allocation.weighted_mean(
            pairs, [1 / len(pairs)] * len(pairs), tail_mass=1e-12, points=32
        )
        assert [law.step for _, law in laws] == [close(step)] * (number + 1)


def test_a_weighted_mean_trims_its_share_at_each_sum(monkeypatch):
    """Relative to the mean so far."""
    trims = recorded(monkeypatch, "trim")
    geometric_allocation.weighted_mean(
        steps_of(Bound.UPPER), WEIGHTS, tail_mass=3 * 2.0**-30, points=32
    )
    assert [(mean, tail) for (_, mean, tail), _ in trims] == [
        (0.625, 2.0**-30),
        (1.0, 2.0**-30),
    ]


def test_steps_that_say_nothing_have_their_weight():
    known = pair_of(Bound.UPPER, [0.5, 1.5], [0.5, 0.5])
    nothing = dominating_pair.trivial_pair(Bound.UPPER)
    found = geometric_allocation.weighted_mean(
        [nothing, known], [0.25, 0.75], tail_mass=1e-12, points=100
    )
    assert found.infinity_mass == close(0.25)
    assert found.ratios[[0, -1]] == pytest.approx([0.375, 1.125], rel=0.012)
    found = geometric_allocation.weighted_mean(
        [nothing, nothing], [0.25, 0.75], tail_mass=1e-12, points=100
    )
    assert (found.ratios.size, found.infinity_mass, found.zero_mass) == (0, 1, 1)


@pytest.mark.parametrize("bound", list(Bound))
def test_a_rare_step_with_losses_of_700(bound):
    """Its lowest ratio over the others' has no place among floats."""
    lowest, rare = math.exp(-700), 2.0**-20
    wide = dominating_pair.DominatingPair(
        np.array([lowest, 2.0]), np.array([0.5, 0.5]), 0.0, 0.0, bound
    )
    narrow = dominating_pair.DominatingPair(
        np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, bound
    )
    for order in (1, -1):
        found = geometric_allocation.weighted_mean(
            [wide, narrow][::order],
            [rare, 1 - rare][::order],
            tail_mass=1e-9,
            points=500,
        )
        law = enumerated([wide, narrow], [rare, 1 - rare])
        assert_on_its_side(found, law, Fraction(0), slack=Fraction(1, 2**40))
        assert found.p_masses.sum() + found.infinity_mass == pytest.approx(1, rel=1e-9)
