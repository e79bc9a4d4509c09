"""The guarantee, in exact arithmetic, whatever is proposed."""

from fractions import Fraction
import math
import secrets

from hypothesis import given
from hypothesis import settings
import mpmath
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext.wpm import integer_weights
from dp_accounting_ext.wpm.projections import ldp_polytope


def random_bounds(generator):
    epsilon = float(np.exp(generator.uniform(np.log(1e-3), np.log(100.0))))
    size = int(generator.integers(1, 25))
    measure = wpm_oracles.random_measure(generator, size, epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    return integer_weights.make_bounds(polytope, epsilon), polytope, epsilon


def proposals(generator, polytope):
    """What a solver might say: good, off by rounding, and any nonsense."""
    size = polytope.lower.size
    shape = (2, size)
    prices = generator.normal(size=shape)
    inside = np.stack([ldp_polytope.cheapest(row, polytope) for row in prices])
    return np.concatenate(
        [
            inside,
            inside * (1 + 1e-6 * generator.normal(size=shape)),
            generator.dirichlet(np.full(size, 0.1), size=2),
            np.eye(size)[:1],
            np.zeros((1, size)),
            np.full((1, size), np.nan),
            np.where(np.arange(size) == 0, np.inf, 0.1)[np.newaxis],
            -inside[:1],
            1e300 * np.ones((1, size)),
            generator.normal(size=shape),
        ]
    )


@settings(max_examples=150, deadline=None)
@given(wpm_oracles.seeds)
def test_weights_are_private_whatever_was_proposed(seed):
    """Some 13 rows an example: thousands of pairs, in rational arithmetic."""
    generator = np.random.default_rng(seed)
    bounds, polytope, epsilon = random_bounds(generator)
    weights = integer_weights.round_to_weights(proposals(generator, polytope), bounds)
    limits = np.stack([bounds.lower, bounds.upper])
    wpm_oracles.assert_private(weights, bounds.total, epsilon)
    ratio = wpm_oracles.exponential_lower_bound(epsilon)
    for low, high in zip(*limits.tolist(), strict=True):
        assert Fraction(high) <= ratio * low


@settings(max_examples=100, deadline=None)
@given(wpm_oracles.seeds)
def test_members_of_the_polytope_keep_their_place(seed):
    generator = np.random.default_rng(seed)
    bounds, polytope, _ = random_bounds(generator)
    prices = generator.normal(size=(3, polytope.lower.size))
    inside = np.stack([ldp_polytope.cheapest(row, polytope) for row in prices])
    weights = integer_weights.round_to_weights(inside, bounds)
    shares = weights.astype(float) / float(bounds.total)
    np.testing.assert_allclose(shares, inside, rtol=0, atol=1e-6)


def test_usual_settings_lose_nothing_that_a_float_shows():
    measure = np.random.default_rng(0).dirichlet(np.full(400, 2.0))
    polytope = wpm_oracles.polytope_of(measure, 4.0)
    bounds = integer_weights.make_bounds(polytope, 4.0)
    inside = ldp_polytope.cheapest(np.arange(400.0), polytope)[np.newaxis]
    weights = integer_weights.round_to_weights(inside, bounds)
    assert bounds.bits == 62 and weights.dtype == np.int64
    np.testing.assert_allclose(weights / 2.0**62, inside, rtol=1e-9, atol=0)


def test_the_check_stands_behind_the_repair(monkeypatch):
    """Weights that do not sum to W never leave, even if nothing makes them fit."""
    polytope = wpm_oracles.polytope_of(np.full(5, 0.2), 1.0)
    bounds = integer_weights.make_bounds(polytope, 1.0)
    monkeypatch.setattr(integer_weights, "_repair", lambda *_: None)
    rows = np.random.default_rng(0).dirichlet(np.ones(5), size=20)
    weights = integer_weights.round_to_weights(rows, bounds)
    wpm_oracles.assert_private(weights, bounds.total, 1.0)


def test_check_sees_each_fault():
    polytope = wpm_oracles.polytope_of(np.full(4, 0.25), 1.0)
    bounds = integer_weights.make_bounds(polytope, 1.0)
    good = bounds.public_weights
    shifts = np.zeros((5, 4), dtype=np.int64)
    shifts[1, 0] = 1  # the sum
    shifts[2] = [bounds.upper[0] + 1 - good[0], 0, 0, -1]
    shifts[2, 3] = -shifts[2, 0]  # above one bound, and below another
    shifts[3] = [1, -1, 0, 0]  # allowed
    shifts[4] = [bounds.lower[0] - 1 - good[0], 0, 0, 0]
    found = integer_weights.are_valid(good + shifts, bounds)
    np.testing.assert_array_equal(found, [True, False, False, True, False])


def test_sums_are_exact_where_sixty_four_bits_overflow():
    weights = np.full((1, 12), 2**62, dtype=np.int64)
    assert integer_weights.exact_sums(weights)[0] == 12 * 2**62
    # 2^64 + 2^62 is 2^62 modulo 2^64: five weights that would pass for one.
    weights = np.full((1, 5), 2**62, dtype=np.int64)
    assert integer_weights.exact_sums(weights)[0] != 2**62


def exact_bounds(lower, upper, epsilon):
    return integer_weights.make_bounds(
        ldp_polytope.LdpPolytope(np.array(lower), np.array(upper)), epsilon
    )


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_bounds_are_the_shares_as_integers(epsilon):
    """Rounded down, but never to nothing; outputs without mass stay without."""
    lower = [0.0, 2.0**-80, 0.25, 0.3125, 0.25]
    bounds = exact_bounds(lower, np.array(lower) * math.exp(epsilon), epsilon)
    ratio = wpm_oracles.exponential_lower_bound(epsilon)
    for share, low, high in zip(
        lower, bounds.lower.tolist(), bounds.upper.tolist(), strict=True
    ):
        assert low == (max(1, int(Fraction(share) * 2**62)) if share else 0)
        assert high == min(math.floor(ratio * low), bounds.total)
    assert bounds.bits == 62
    public = bounds.public_weights[np.newaxis]
    assert integer_weights.are_valid(public, bounds).all()
    places = np.array([2, 3, 4])
    room = (bounds.upper - bounds.lower)[places].astype(float)
    filled = (bounds.public_weights - bounds.lower)[places] / room
    np.testing.assert_allclose(filled, filled[0], rtol=1e-15)


def test_an_epsilon_too_small_for_integers():
    with pytest.raises(ValueError) as error:
        exact_bounds([0.25] * 3, [0.25 + 2.0**-54] * 3, 1e-25)
    assert str(error.value) == (
        "epsilon must leave room between the least and the greatest weights of "
        "3 outputs. Found 1e-25."
    )


def test_bits_resolve_the_least_weight_that_matters():
    """To 24 bits, of 62 at least; shares below 2^−40 do not count."""

    def bits(lower, upper, epsilon=60.0):
        found = exact_bounds([lower, 0.25], [upper, 0.5], epsilon)
        assert (found.lower.dtype == object) == (found.bits > 62)
        return found.bits

    assert bits(2.0**-38, 0.5) == 62
    assert bits(2.0**-39, 0.5) == 63
    assert bits(2.0**-40, 0.5) == 64
    assert bits(2.0**-45, 2.0**-40) == 69
    assert bits(2.0**-45, 2.0**-41) == 62
    assert bits(2.0**-232, 0.5, 170.0) == 256
    with pytest.raises(ValueError, match="needs 257"):
        bits(2.0**-233, 0.5, 170.0)


def test_bounds_that_underflow_say_what_they_need():
    """2^−40 e^−ε is the least that an output of share 2^−40 can have."""
    with mpmath.workprec(100):
        needed = int(mpmath.ceil(40 + 800 / mpmath.log(2)))
    with pytest.raises(ValueError, match=f"Found 800.0, which needs {24 + needed}"):
        exact_bounds([0.0, 0.25], [0.5, 0.5], 800.0)


def test_proposals_are_scaled_before_they_are_rounded():
    """A row and its multiple are one proposal, if the sum is within a factor of two."""
    generator = np.random.default_rng(0)
    polytope = wpm_oracles.polytope_of(generator.dirichlet(np.ones(6)), 2.0)
    bounds = integer_weights.make_bounds(polytope, 2.0)
    row = np.round(ldp_polytope.cheapest(generator.normal(size=6), polytope), 12)
    row[0] += 1 - row.sum()
    shares = [
        integer_weights.round_to_weights(scale * row[np.newaxis], bounds)[0] / 2.0**62
        for scale in (1.0, 0.53, 0.75, 1.25, 1.9)
    ]
    for share in shares:
        np.testing.assert_allclose(share, row, rtol=0, atol=1e-11)


def test_proposals_far_from_a_law_get_the_public_weights():
    polytope = wpm_oracles.polytope_of(np.array([0.5, 0.25, 0.25]), 2.0)
    bounds = integer_weights.make_bounds(polytope, 2.0)
    row = np.array([0.25, 0.25, 0.5])
    nonsense = [[np.inf, -np.inf, 0.5], [np.nan] * 3, [0.0] * 3, [-1.0, 2.0, 0.0]]
    rows = np.stack([0.5 * row, 2.0 * row, 2.5 * row, *nonsense])
    found = integer_weights.round_to_weights(rows, bounds)
    np.testing.assert_array_equal(found, np.tile(bounds.public_weights, (7, 1)))
    assert integer_weights.are_valid(found, bounds).all()
    near = integer_weights.round_to_weights(
        np.stack([0.5000001 * row, 1.9999999 * row]), bounds
    )
    assert not (near == bounds.public_weights).all(axis=1).any()


def test_law_of_draws_is_the_weights_by_enumeration(monkeypatch):
    """Every value that randbits can return, once."""
    bits, weights = 8, np.array([[0, 100, 1, 155, 0]])
    values = iter(range(2**bits))
    asked = []

    def randbits(count):
        asked.append(count)
        return next(values)

    monkeypatch.setattr(secrets, "randbits", randbits)
    draws = np.concatenate(
        [integer_weights.draw(weights, bits) for _ in range(2**bits)]
    )
    np.testing.assert_array_equal(np.bincount(draws, minlength=5), weights[0])
    assert asked == [bits] * 2**bits


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_every_integer_has_as_many_octets(bits):
    """All strings that a generator can return, as few as hold the bits."""

    class Octets:
        def __init__(self):
            self.count = 0

        def bytes(self, length):
            assert length == -(-bits // 8)
            self.count += 1
            return (self.count - 1).to_bytes(length, "little")

    rng, spare = Octets(), -bits % 8
    found = [integer_weights.uniform(bits, rng) for _ in range(2 ** (bits + spare))]
    assert found == [number >> spare for number in range(2 ** (bits + spare))]


@pytest.mark.parametrize("exponent", [1e-300, 1e-9, 0.01, 0.1, 1.0, 2.5, 40.0, 160.0])
def test_rational_bounds_enclose_the_exponential(exponent):
    low, high = integer_weights.exponential_bounds(Fraction(exponent))
    with mpmath.workprec(1500):
        truth = mpmath.exp(mpmath.mpf(exponent))
        assert mpmath.mpf(low.numerator) / low.denominator <= truth
        assert mpmath.mpf(high.numerator) / high.denominator >= truth
    assert high - low <= Fraction(1, 2**240) * high
