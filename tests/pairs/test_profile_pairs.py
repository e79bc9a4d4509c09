"""Pairs from profiles, and chains of pairs, against exact fractions and many digits."""

from fractions import Fraction
import functools
import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

POSITIVE = st.floats(1e-6, 1e6)


@given(st.lists(strategies.pairs(Bound.UPPER), min_size=1, max_size=3))
def test_the_maximum_of_profiles(pairs):
    whole = profile_pairs.maximum(
        [dominating_pair.DirectedPairs.same(pair) for pair in pairs]
    )
    for epsilon in np.linspace(-4, 4, 41):
        for direction in Direction:
            most = max(oracles.stored_delta(pair, epsilon, direction) for pair in pairs)
            found = whole.of(direction).delta(epsilon, direction)
            assert found >= min(most, 1)
            if len(pairs) < 3:
                assert found <= most * (1 + 1e-9) + 1e-9


@given(st.lists(strategies.pairs(Bound.LOWER), min_size=1, max_size=3))
def test_the_largest_of_lower_pairs(pairs):
    """The test that always decides for P is one of them: it is whole."""
    found = profile_pairs.largest_below(pairs)
    assert math.isclose(found.masses.sum() + found.zero_mass, 1, rel_tol=1e-12)
    whole = found.p_masses.sum() + found.infinity_mass
    assert math.isclose(whole, 1, rel_tol=1e-8)
    for epsilon in np.linspace(-4, 4, 41):
        most = max(
            oracles.stored_delta(pair, epsilon, Direction.REMOVE) for pair in pairs
        )
        stored = oracles.stored_delta(found, epsilon, Direction.REMOVE)
        assert most * (1 - 1e-9) - 1e-9 <= stored <= most


@pytest.mark.parametrize("error", ["mass_error", "ratio_error"])
def test_errors_of_lower_pairs_are_on_the_safe_side(error):
    coins = [strategies.coin(Bound.LOWER, **{error: share}) for share in (0.0, 0.1)]
    wide = profile_pairs.largest_below([coins[1], coins[1]])
    delta = oracles.stored_delta(coins[0], 0.2, Direction.REMOVE)
    share = math.exp(0.2)
    allowed = 0.75 / 1.1 - share * 0.5 * (1.1 if error == "mass_error" else 1)
    assert wide.delta(0.2, Direction.REMOVE) <= allowed < delta


@given(strategies.pairs(Bound.UPPER))
def test_a_reflection_has_the_profile_from_one_on_both_ways(pair):
    both = profile_pairs.joined(pair, dominating_pair.dual(pair))
    # If not, no two datasets have both branches: the twins are more than one.
    above = pair.ratios > 1
    rest = 1 - pair.infinity_mass - pair.p_masses[above].sum()
    is_convex = pair.masses[above].sum() <= rest
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        truth = oracles.stored_delta(pair, epsilon, Direction.REMOVE)
        for direction in Direction:
            found = both.delta(epsilon, direction)
            assert found <= truth * (1 + 1e-9) + 1e-12
            if not is_convex:
                continue
            assert min(truth, 1) <= found
            # Of the two datasets exchanged: 1 − κ + κ H, at κ = e^−ε.
            with mpmath.workdps(40):
                kappa = mpmath.exp(-mpmath.mpf(epsilon))
                exchanged = 1 - kappa + kappa * truth
            found = both.delta(-epsilon, direction)
            assert min(exchanged, 1) <= found <= exchanged * (1 + 1e-9) + 1e-12


@given(
    st.lists(POSITIVE, min_size=1, max_size=30, unique=True),
    st.integers(0, 10**6),
    st.floats(0.0, 0.5),
)
def test_atoms_have_the_greatest_convex_function_below(places, seed, sink):
    generator = np.random.default_rng(seed)
    # One of them twice.
    places = np.sort(np.array([*places, places[0]]))
    values = np.exp(-places / generator.uniform(0.1, 10)) + sink
    values = np.minimum(values * generator.uniform(0.8, 1.2, places.size), 0.999)
    ratios, masses, beyond = profile_pairs.atoms_above(places, values)
    assert (masses >= 0).all()
    all_places = np.append(0.0, places)
    all_values = np.minimum.accumulate(np.append(1.0, values))
    found = profile_pairs.values_at(all_places, ratios, masses, beyond)
    assert found[0] >= 1.0
    exact = [list(map(Fraction, each.tolist())) for each in (all_places, all_values)]
    # Lines that are nowhere above the values are nowhere above the function.
    for slope in map(Fraction, (-10.0, -1.0, -0.1, -0.01, -1e-4, 0.0)):
        at_zero = min(v - slope * p for p, v in zip(*exact, strict=True))
        for place, value in zip(exact[0], found.tolist(), strict=True):
            assert Fraction(value) >= at_zero + slope * place
    # And it is none above the values, but for a billionth.
    assert (found <= all_values * (1 + 1e-8) + 1e-240).all()


@given(
    strategies.pairs(Bound.UPPER),
    strategies.pairs(Bound.UPPER),
    strategies.pairs(Bound.UPPER),
    st.floats(0.0, 4.0),
)
def test_two_profiles_joined_bound_what_both_bound(true, above, below, epsilon):
    """Each of the two bounds is loose in its own way, as if by another pair."""
    same = dominating_pair.DirectedPairs.same
    above = profile_pairs.maximum([same(true), same(above)]).remove
    below = profile_pairs.maximum([same(true), same(below)]).add
    both = profile_pairs.joined(above, below)
    for direction in Direction:
        truth = float(oracles.stored_delta(true, epsilon, direction))
        assert both.delta(epsilon, direction) >= min(truth, 1.0)
    assert both.masses.sum() + both.zero_mass >= 1.0 - 1e-15
    assert both.p_masses.sum() + both.infinity_mass >= 1.0 - 1e-15


@pytest.mark.parametrize("other", [1.1, 1e2, 1e9])
def test_of_two_profiles_joined_the_smaller_holds_at_one(other):
    """Neither of them is made larger by the other one, however far apart they are."""
    pairs = [
        gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-20)
        for sigma in (1.0, other)
    ]
    both = profile_pairs.joined(pairs[0], dominating_pair.dual(pairs[1]))
    (least,) = pairs[1].profile(Direction.REMOVE).deltas(np.zeros(1))
    for direction, pair in zip(Direction, pairs, strict=True):
        epsilons = np.array([0.0, 1e-3, 0.5, 2.0])
        own = pair.profile(Direction.REMOVE).deltas(epsilons)
        found = both.profile(direction).deltas(epsilons)
        assert (found <= np.minimum(own, least) * (1 + 1e-9) + 1e-11).all()


def test_where_masses_underflow_corners_are_held_by_the_value_beyond():
    """Slopes of 1e-130 over 1e250 are none in floats: all masses grew 1e21 times."""
    places = np.array([1.0, 1e20, 1e200, 1e250])
    bounds = np.array([0.5, 1e-10, 1e-130, 1e-140])
    pair = profile_pairs.pair_above(places, bounds)
    found = pair.profile(Direction.REMOVE).deltas(np.log(places))
    assert (found >= bounds).all()
    assert (found <= [0.501, 1.01e-10, 1e-22, 2e-130]).all()


@given(st.floats(0.3, 3.0), st.integers(20, 60), st.integers(20, 60))
def test_the_minimum_of_profiles(sigma, one, other):
    """It is a bound on what either bounds, and hardly above the less."""
    pair = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-20)
    pairs = [chained_pairs.reduced(pair, atoms) for atoms in (one, other)]
    same = dominating_pair.DirectedPairs.same
    least = profile_pairs.minimum([same(each) for each in pairs])
    for epsilon in np.linspace(0, 4, 21):
        truth = gaussian.delta(1 / sigma, epsilon, Bound.LOWER)
        for direction in Direction:
            found = least.of(direction).delta(epsilon, direction)
            each = [pair.delta(epsilon, direction) for pair in pairs]
            assert truth <= found <= min(each) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("mean", "seed"), [(1e-3, 1), (0.3, 1), (9.0, 5), (9.0, 9)])
def test_a_symmetric_pair_is_above_bounds_that_are_not_convex(mean, seed):
    """Masses that are moved across one have all of their digits, at ratios of e^80."""
    rng = np.random.default_rng(seed)
    largest = np.log10(mean**2 / 2 + 6 * mean)
    epsilons = np.append(0.0, np.sort(10.0 ** rng.uniform(-5, largest, 100)))
    truths = [gaussian.delta(mean, each, Bound.LOWER) for each in epsilons.tolist()]
    bounds = np.minimum(truths * rng.uniform(1.0, 1.3, len(truths)), 1.0)
    pair = profile_pairs.symmetric(np.exp(epsilons), np.minimum.accumulate(bounds))
    for direction in Direction:
        assert (pair.profile(direction).deltas(epsilons) >= truths).all()


DirectedPairs = dominating_pair.DirectedPairs

EPSILONS = (-2.0, -0.3, 0.0, 0.4, 1.5, 4.0)


def outputs(pair, direction):
    """The atoms as they are, exactly, and the sink: of P and Q exchanged to add."""
    atoms = zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
    if direction is Direction.REMOVE:
        return list(atoms), Fraction(pair.infinity_mass)
    return [(1 / z, z * q) for z, q in atoms], Fraction(pair.zero_mass)


def least_over_splits(first, second, kappa):
    """The least H_κ₁ + κ₁ H_κ₂ with κ₁κ₂ = κ: at a ratio of one or of the other."""
    places = [z for z, _ in first[0]] + [kappa / z for z, _ in second[0]]
    return min(
        oracles.remove_divergence(first[0], place, first[1])
        + place * oracles.remove_divergence(second[0], kappa / place, second[1])
        for place in places
    )


def directed():
    pair = strategies.pairs(Bound.UPPER)
    return st.builds(DirectedPairs, pair, pair)


@given(directed(), directed())
def test_the_chain_is_the_least_over_all_splits(first, second):
    """This holds of pairs that differ by direction, too."""
    chained = chained_pairs.chain(first, second)
    for direction in Direction:
        links = [outputs(each.of(direction), direction) for each in (first, second)]
        if direction is Direction.ADD:
            links.reverse()
        for epsilon in EPSILONS:
            truth = least_over_splits(*links, Fraction(math.exp(epsilon)))
            found = chained.of(direction).delta(epsilon, direction)
            assert found >= min(truth, 1)
            assert found <= truth + Fraction(1, 10**9)


def test_masses_above_one_make_no_rare_loss():
    """By rounding, the masses of a pair may sum to more than one."""
    losses = np.linspace(-0.01, 0.01, 2_001)
    q = np.exp(-losses / 2 - (400 * losses) ** 2)
    p_mass, q_mass = (q * np.exp(losses)).sum(), q.sum()
    pair = dominating_pair.DominatingPair(
        np.exp(losses) * q_mass / p_mass,
        q / q_mass * (1 + 1e-9),
        0.0,
        0.0,
        Bound.UPPER,
        mass_error=1e-8,
    )
    chained = chained_pairs.chain_one_way(pair, pair)
    assert np.ptp(np.log(chained.ratios)) <= 2 * np.ptp(np.log(pair.ratios)) + 1e-8


@pytest.mark.parametrize("members", [1, 2, 3, 7, 8])
def test_powers_are_chains_of_one_pair(members):
    """With 512 atoms, ε is never below the closed form, and at most 1 % above it."""
    sigma = 5.0
    pair = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-60)
    few = chained_pairs.reduced(pair, 512)
    link = functools.partial(chained_pairs.chain_one_way, most_atoms=512)
    found = sums.repeated(few, members, link)
    assert found.ratios.size <= 514
    for delta in (1e-2, 1e-6, 1e-12):
        truth = gaussian.epsilon(members / sigma, delta, Bound.LOWER)
        assert truth <= found.epsilon(delta, Direction.REMOVE) <= 1.01 * truth + 1e-3


@pytest.mark.parametrize(
    ("loss", "span"),
    [(0.0, 0.0), (600.0, 1e-9), *nights.at_night((5.0, 1e-15), (0.1, 50.0))],
)
def test_losses_that_hardly_differ_are_split_as_others(loss, span):
    losses = np.linspace(loss, loss + span, 70_000)
    masses = np.exp(-losses) / losses.size
    rest = max(1 - float(masses.sum()), 0.0)
    many = dominating_pair.DominatingPair(
        np.exp(losses), masses, 0.0, rest, Bound.UPPER
    )
    few = chained_pairs.reduced(many)
    for epsilon in (loss / 2, loss + span / 2, loss + span + 0.1):
        truth = float(oracles.stored_delta(many, epsilon, Direction.REMOVE))
        found = few.delta(epsilon, Direction.REMOVE)
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("span", [1e-12, 0.1, 20.0])
def test_atoms_of_lower_pairs_that_share_a_cell_become_one(span):
    losses = np.sort(np.random.default_rng(1).uniform(-span, span, 5_000))
    q = np.exp(-((losses / span) ** 2) - losses / 2)
    q /= (1 + 1e-12) * max(q.sum(), (q * np.exp(losses)).sum())
    many = dominating_pair.DominatingPair(np.exp(losses), q, 0.0, 0.0, Bound.LOWER)
    few = chained_pairs.reduced(many, 500)
    assert few.ratios.size <= 500
    for direction in Direction:
        for epsilon in (-span / 2, 0.0, span / 3, 0.9 * span):
            truth = float(oracles.stored_delta(many, epsilon, direction))
            found = few.delta(epsilon, direction)
            assert 0.995 * truth - 1e-13 <= found <= truth
