"""The event of a draw and its dominating pair."""

from fractions import Fraction
import itertools

from dp_accounting import dp_event as host_event
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import dp_event


def pair_divergence(truth, lie, order):
    """H_κ(P ‖ Q) of the binary response that runs with probability truth + lie."""
    nothing = 1 - truth - lie
    return (
        max(truth - order * lie, 0.0)
        + max(lie - order * truth, 0.0)
        + max(nothing * (1 - order), 0.0)
    )


def extreme_laws(polytope, generator, count=12):
    """Vertices of the polytope: outputs filled up in random orders."""
    for _ in range(count):
        order = generator.permutation(polytope.lower.size)
        law = polytope.lower.copy()
        left = 1 - law.sum()
        for place in order:
            added = min(left, polytope.upper[place] - law[place])
            law[place] += added
            left -= added
        yield law


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_pair_dominates_all_laws_of_the_polytope(seed):
    """At all orders, below one too, up to the rounding of the laws themselves."""
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.01, 0.5, 2.0, 8.0]))
    measure = wpm_oracles.random_measure(generator, 6, epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth, lie = dp_event.dominating_probabilities(epsilon, float(measure.sum()))
    laws = list(extreme_laws(polytope, generator))
    orders = np.exp(np.linspace(-1.2, 1.2, 13) * epsilon)
    for one in laws[:6]:
        for other in laws[6:]:
            for order in orders:
                found = np.maximum(one - order * other, 0.0).sum()
                allowed = pair_divergence(truth, lie, order)
                assert found <= allowed + 1e-13 * (1 + order)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("place", [-0.8, -0.2, 0.3, 0.9])
def test_pair_is_attained(epsilon, place):
    """By two laws on many small outputs that fill opposite ends."""
    size = 20_000
    measure = np.full(size, np.exp(place * epsilon / 2) / size)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    one, other = (
        next(extreme_laws_in(polytope, order))
        for order in (np.arange(size), np.arange(size)[::-1])
    )
    truth, lie = dp_event.dominating_probabilities(epsilon, float(measure.sum()))
    for order in np.exp(np.linspace(0, 1, 5) * epsilon):
        found = np.maximum(one - order * other, 0.0).sum()
        assert found == pytest.approx(
            pair_divergence(truth, lie, order), rel=5e-3, abs=1e-9
        )


def extreme_laws_in(polytope, order):
    widths = (polytope.upper - polytope.lower)[order]
    before = np.cumsum(widths) - widths
    law = polytope.lower.copy()
    law[order] += np.clip(1 - polytope.lower.sum() - before, 0, widths)
    yield law


@settings(deadline=None)
@given(st.floats(1e-6, 100), st.floats(-1, 1))
def test_probabilities_are_rounded_towards_less_privacy(epsilon, place):
    mass = float(np.exp(place * epsilon / 2))
    truth, lie = dp_event.dominating_probabilities(epsilon, mass)
    assert 0 <= lie <= truth and Fraction(truth) + Fraction(lie) <= 1 + Fraction(
        1, 2**50
    )
    with mpmath.workprec(400):
        low = mpmath.exp(-mpmath.mpf(epsilon) / 2)
        share = min(1 - low * mass, mass / low - 1) * mpmath.coth(
            mpmath.mpf(epsilon) / 2
        )
        share = min(max(share, 0), 1)
        exact = share / (1 + low * low)
        assert mpmath.mpf(truth) >= exact
        assert mpmath.mpf(truth) <= exact + mpmath.mpf(2) ** -45 / mpmath.tanh(
            mpmath.mpf(epsilon) / 2
        )
        # The loss of what is released is at least that of the exact pair.
        assert mpmath.mpf(lie) <= mpmath.mpf(truth) * low * low


def test_probability_is_one_where_the_measure_is_best():
    epsilon = 1.0
    mass = 2 / (np.exp(epsilon / 2) + np.exp(-epsilon / 2))
    truth, lie = dp_event.dominating_probabilities(epsilon, mass)
    assert truth + lie == pytest.approx(1.0, abs=1e-13)
    assert truth / lie == pytest.approx(np.e, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "mass", "message"),
    [
        (-1.0, 1.0, "epsilon must be positive and finite. Found -1.0"),
        (1.0, 3.0, "base_measure must have a sum in .* Found 3; scale it"),
    ],
)
def test_bad_events(epsilon, mass, message):
    with pytest.raises(ValueError, match=message):
        dp_event.dominating_probabilities(epsilon, mass)


def test_event_goes_through_its_named_tuple():
    event = wpm.PrivateSamplingEvent(1.5, 0.9)
    found = host_event.DpEvent.from_named_tuple(event.to_named_tuple())
    assert found == event and isinstance(found, wpm.PrivateSamplingEvent)
    assert len({event, found}) == 1
    with pytest.raises(AttributeError):
        event.epsilon = 2.0


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_event_of_a_mechanism_covers_its_integer_bounds(seed):
    """All laws within the integers, by sets of outputs, in exact arithmetic."""
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.01, 1.0, 5.0, 40.0]))
    cost = generator.random((3, 5))
    measure = wpm_oracles.random_measure(generator, 5, epsilon)
    mechanism = wpm.WassersteinProjectionMechanism(cost, epsilon, measure)
    bounds, event = mechanism.integer_bounds, mechanism.dp_event
    low, high, whole = bounds.lower.tolist(), bounds.upper.tolist(), bounds.total
    truth, lie = dp_event.dominating_probabilities(event.epsilon, event.total_mass)
    for chosen in itertools.product([False, True], repeat=5):
        rows = list(zip(chosen, low, high, strict=True))
        one = min(
            sum(h for inside, _, h in rows if inside),
            whole - sum(w for inside, w, _ in rows if not inside),
        )
        other = max(
            sum(w for inside, w, _ in rows if inside),
            whole - sum(h for inside, _, h in rows if not inside),
        )
        for share in (0.0, 0.3, 0.9):
            order = Fraction(float(np.exp(share * epsilon)))
            found = Fraction(one, whole) - order * Fraction(other, whole)
            nothing = (1 - Fraction(truth) - Fraction(lie)) * (1 - order)
            allowed = Fraction(truth) - order * Fraction(lie) + max(nothing, 0)
            assert found <= max(allowed, 0)


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_the_measure_that_is_known_bounds_all_laws(seed):
    """Few uneven outputs: over all sets, in rational arithmetic of the floats."""
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.05, 0.5, 2.0, 6.0]))
    size = int(generator.integers(1, 8))
    measure = generator.dirichlet(np.full(size, generator.choice([0.3, 3.0])))
    measure = measure + 1e-6
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / measure.sum()
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    mass = dp_event.equivalent_mass(epsilon, measure)
    truth, lie = dp_event.dominating_probabilities(epsilon, mass)
    low, high = polytope.lower, polytope.upper
    for order in np.exp(np.linspace(0, 1, 9) * epsilon):
        worst = 0.0
        for chosen in range(2**size):
            inside = (chosen >> np.arange(size)) & 1 == 1
            one = min(high[inside].sum(), 1 - low[~inside].sum())
            other = max(low[inside].sum(), 1 - high[~inside].sum())
            worst = max(worst, one - order * other)
        assert worst <= pair_divergence(truth, lie, order) + 1e-13 * (1 + order)
    plain, _ = dp_event.dominating_probabilities(epsilon, float(measure.sum()))
    assert truth <= plain * (1 + 1e-8)


def test_a_skewed_measure_reveals_less_than_its_sum_tells():
    """One output with nearly all mass cannot be half full."""
    epsilon = 1.0
    measure = np.array([0.98, 0.01, 0.01])
    mass = dp_event.equivalent_mass(epsilon, measure)
    known, _ = dp_event.dominating_probabilities(epsilon, mass)
    plain, _ = dp_event.dominating_probabilities(epsilon, float(measure.sum()))
    assert known < 0.2 * plain
    fine = np.full(1000, 1e-3)
    assert dp_event.equivalent_mass(epsilon, fine) == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("place", [-0.8, -0.2, 0.3, 0.9])
def test_the_lower_pair_is_attained(epsilon, place):
    """By laws on many outputs, without tolerance but for their own grain."""
    size = 20_000
    mass = np.exp(place * epsilon / 2)
    polytope = wpm_oracles.polytope_of(np.full(size, mass / size), epsilon)
    one, other = (
        next(extreme_laws_in(polytope, order))
        for order in (np.arange(size), np.arange(size)[::-1])
    )
    truth, lie = dp_event.attained_probabilities(epsilon, float(mass))
    above, below = dp_event.dominating_probabilities(epsilon, float(mass))
    assert truth <= above and truth / lie <= above / below * (1 + 1e-14)
    assert truth == pytest.approx(above, rel=1e-12)
    grain = polytope.upper[0]
    for order in np.exp(np.linspace(0, 1, 5) * epsilon):
        found = np.maximum(one - order * other, 0.0).sum()
        assert found + grain >= pair_divergence(truth, lie, order)
