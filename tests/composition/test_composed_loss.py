"""Composition against closed forms and enumeration."""

from collections.abc import Sequence
from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import memory
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


class Asked:
    """A composed loss, of which one number at a time is asked."""

    def __init__(self, laws, interval, delta=1e-30):
        self.loss = composed_loss.ComposedLoss(laws, interval, delta)

    def epsilon(self, delta):
        return float(self.loss.epsilons(np.array([delta]))[0])

    def delta(self, epsilon):
        return float(self.loss.deltas(np.array([epsilon]))[0])


def gaussian_runs(sigma, count, bound, direction, interval=1e-4):
    pair = gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-60)
    law = loss_distribution.from_pair(pair, direction, count)
    return Asked([law], interval)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("sigma", "count"), [(1.0, 2), (5.0, 100), (30.0, 1000), (200.0, 10**5)]
)
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-15, 1e-30])
def test_gaussian_runs_against_the_closed_form(sigma, count, delta, direction):
    """No tolerance on the safe side; 5e-5 relative on the other, at any δ."""
    lower, upper = (
        gaussian_runs(sigma, count, bound, direction).epsilon(delta)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    mean = math.sqrt(count) / sigma
    assert oracles.gaussian_delta(mean, upper) <= delta
    if lower > 0:
        assert oracles.gaussian_delta(mean, lower) >= delta
    assert upper - lower <= 5e-5 * upper + 1e-9


@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.5, 3.0, 9.0])
@pytest.mark.parametrize("direction", list(Direction))
def test_delta_against_the_closed_form(epsilon, direction):
    truth = oracles.gaussian_delta(1.0, epsilon)
    lower, upper = (
        gaussian_runs(5.0, 25, bound, direction).delta(epsilon)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert lower <= truth <= upper
    if epsilon >= 0:
        assert upper <= lower * (1 + 3e-3)


@pytest.mark.parametrize("most_copies", [0, 100])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_discrete_laws_against_enumeration(most_copies, data):
    """Different mechanisms with counts, sinks included, as rational numbers.

    On a lattice, and atom by atom, where it is as good as exact.
    """
    direction = data.draw(st.sampled_from(list(Direction)))
    bound = data.draw(st.sampled_from(list(Bound)))
    pairs = [data.draw(strategies.pairs(bound, most_atoms=3)) for _ in range(2)]
    counts = [data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))]
    laws = [
        loss_distribution.from_pair(pair, direction, count)
        for pair, count in zip(pairs, counts, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composed_loss, "_MOST_COPIES", most_copies)
        found = Asked(laws, 1e-3)
    law, sink = oracles.composed_law(pairs, counts)
    for epsilon in (0.0, 0.4, 1.7, 4.0):
        side = 1 if bound is Bound.UPPER else -1
        kappa = Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**50))
        if direction is Direction.REMOVE:
            truth = oracles.remove_divergence(law, kappa, sink)
        else:
            truth = oracles.add_divergence(law, kappa, Fraction(0))
        value = found.delta(epsilon)
        # 2^-40 is what the masses drawn lack of one, as floats.
        if bound is Bound.UPPER:
            assert value >= min(truth, 1) - Fraction(1, 2**40)
        else:
            assert value <= truth + Fraction(1, 2**40)
        if 1e-6 < truth < 1:
            assert value == pytest.approx(float(truth), rel=0.02, abs=2e-3)
            if most_copies:
                assert value == pytest.approx(float(truth), abs=1e-9)


def total_variation_of_two(losses, masses):
    """Returns δ at ε = 0 of two runs, all pairs of losses added up."""
    return math.fsum(
        p * q * -math.expm1(-x - y)
        for x, p in zip(losses.tolist(), masses.tolist(), strict=True)
        for y, q in zip(losses.tolist(), masses.tolist(), strict=True)
        if x + y > 0
    )


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("scale", [1e-6, 1e-3])
def test_narrow_losses_are_tight_at_zero(bound, scale):
    """Of two runs, with a rare loss that makes the window wide; none on a lattice."""
    losses = scale * np.append(np.linspace(-1.0, 1.0, 500), 700.0)
    masses = np.append(np.linspace(1.0, 2.0, 500), 1e-6)
    masses /= masses.sum()
    law = loss_distribution.LossDistribution(losses, masses, 0.0, 2, bound)
    truth = total_variation_of_two(losses, masses)
    found = Asked([law], math.inf, 1e-9).delta(0.0)
    if bound is Bound.UPPER:
        assert truth < found < truth * (1 + 1e-4)
    else:
        assert truth * (1 - 1e-4) < found < truth


@pytest.mark.parametrize("bound", list(Bound))
def test_losses_at_the_ends_are_on_the_lattice(bound):
    """Two of them cancel, half of the time, and are not spread over two cells."""
    end = 1 / 3000
    losses = np.append(np.append(-end, np.linspace(-0.9, 0.9, 400) * end), end)
    masses = np.append(np.append(0.2, np.full(400, 1e-3)), 0.4)
    law = loss_distribution.LossDistribution(losses, masses, 0.0, 2, bound)
    upper = bound is Bound.UPPER
    truth = total_variation_of_two(losses, masses)
    found = Asked([law], math.inf, 1e-9).delta(0.0)
    assert (truth <= found) if upper else (truth >= found)
    assert found == pytest.approx(truth, rel=3e-6)


def test_the_order_of_laws_does_not_matter():
    laws = [
        loss_distribution.from_pair(
            gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-30),
            Direction.REMOVE,
            count,
        )
        for sigma, count in ((3.0, 5), (7.0, 20), (1.5, 1))
    ]
    values = [
        Asked(list(order), 1e-4).epsilon(1e-8) for order in itertools.permutations(laws)
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-6)


@pytest.mark.parametrize("bound", list(Bound))
def test_constant_losses_add_up(bound):
    law = loss_distribution.LossDistribution(
        np.array([0.5]), np.array([0.9]), 0.1, 2, bound
    )
    zero = loss_distribution.LossDistribution(
        np.array([0.0]), np.array([1.0]), 0.0, 7, bound
    )
    found = Asked([law, zero], 1e-4)
    for epsilon in (-1.0, 0.0, 0.7, 2.0):
        truth = 0.19 + 0.81 * max(-math.expm1(epsilon - 1.0), 0.0)
        assert found.delta(epsilon) == pytest.approx(truth, rel=1e-12)
    assert Asked([zero, zero], 1e-4).delta(0.0) <= 1e-14


def test_a_law_with_no_finite_loss():
    infinite = loss_distribution.LossDistribution(
        np.zeros(0), np.zeros(0), 0.25, 2, Bound.UPPER
    )
    other = loss_distribution.LossDistribution(
        np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.0, 200, Bound.UPPER
    )
    found = Asked([infinite, other], 1e-4)
    assert found.delta(3.0) == pytest.approx(1 - 0.75**2)
    assert (found.epsilon(0.3), found.epsilon(0.5)) == (math.inf, 0.0)


def test_nothing_composed_loses_nothing():
    empty = Asked([], 1e-4)
    assert empty.epsilon(1e-6) == 0.0
    assert empty.delta(0.1) == 0.0
    assert empty.delta(-1.0) == pytest.approx(-math.expm1(-1.0))


def test_a_sink_above_delta_is_an_infinite_loss():
    law = loss_distribution.LossDistribution(
        np.array([0.0, 1.0]), np.array([0.5, 0.4]), 0.1, 2, Bound.UPPER
    )
    profile = Asked([law], 1e-4)
    assert profile.epsilon(0.1) == math.inf
    assert profile.epsilon(0.3) < 2.0
    assert profile.delta(5.0) == pytest.approx(0.19, rel=1e-9)


def test_a_coarse_interval_stays_certified():
    for interval in (0.5, 0.05, 0.005):
        upper = gaussian_runs(5.0, 100, Bound.UPPER, Direction.REMOVE, interval)
        assert oracles.gaussian_delta(2.0, upper.epsilon(1e-6)) <= 1e-6


@pytest.mark.parametrize("bound", list(Bound))
def test_rare_losses_go_to_the_safe_side(bound):
    law = loss_distribution.from_pair(
        gaussian.dominating_pair_of(2.0, bound, tail_mass=1e-20), Direction.REMOVE, 3
    )
    sketch = composed_loss._Sketch.of(law, 1, 2e6)
    short, raised = sketch.shortened(law, 0.0), sketch.shortened(law, 20.0)
    assert raised.losses.size < short.losses.size < law.losses.size
    for changed in (short, raised):
        factor = dominating_pair.allowance(
            bound, changed.masses.size, changed.mass_error, 0.0
        )[1]
        total = sum(oracles.exact([*changed.masses, changed.infinity_mass]))
        whole = sum(oracles.exact([*law.masses, law.infinity_mass]))
        if bound is Bound.UPPER:
            assert Fraction(factor) * total >= whole
        else:
            assert total <= whole
            assert changed.masses.sum() < law.masses.sum()
            assert changed.infinity_mass == law.infinity_mass


@pytest.mark.parametrize("bound", list(Bound))
@pytest.mark.parametrize("direction", list(Direction))
def test_simple_bounds_are_no_smaller_than_the_tight_ones(bound, direction):
    """Of Gaussians, and so above the truth where the tight ones are."""
    loss = gaussian_runs(5.0, 100, bound, direction).loss
    deltas = np.geomspace(0.5, 1e-25, 40)
    epsilons = loss.epsilons(deltas)
    if bound is Bound.UPPER:
        simple = loss.simple.epsilons(deltas)
        assert (simple >= epsilons).all()
        assert (simple <= 1.3 * epsilons + 1.5).all()
        assert (loss.simple.deltas(epsilons) >= loss.deltas(epsilons)).all()


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("sigma", "count"), [(1.0, 2), (5.0, 100), (30.0, 1000)])
def test_rough_answers_are_certain_and_near(sigma, count, direction):
    loss = gaussian_runs(sigma, count, Bound.UPPER, direction).loss
    mean = math.sqrt(count) / sigma
    for delta in (0.3, 1e-6, 1e-25):
        (tight,) = loss.epsilons(np.array([delta]))
        (rough,) = loss.roughly.epsilons(np.array([delta]))
        assert oracles.gaussian_delta(mean, rough) <= delta
        assert tight < rough < tight * (1 + 2e-3) + 1e-9
        assert oracles.gaussian_delta(mean, tight) <= loss.roughly.deltas(
            np.array([tight])
        )


@pytest.mark.parametrize("seed", range(6))
def test_laws_bound_those_with_p_and_q_exchanged(seed):
    """Two runs of many atoms: all pairs of them, tails that were left out as well."""
    random = np.random.default_rng(seed)
    ratios = np.sort(np.exp(random.normal(0.0, 1.5, 400)))
    masses = random.exponential(1.0, 400) ** 4
    masses *= (1 - 1e-3) / masses.sum()
    if seed % 2:  # Only a few of the largest ratios are rare.
        masses[-30:] *= 1e-12
    pair = dominating_pair.DominatingPair(ratios, masses, 0.2, 1e-3, Bound.UPPER)
    law = loss_distribution.from_pair(pair, Direction.REMOVE, 2)
    loss = composed_loss.ComposedLoss([law], 1e-3, 1e-4)
    dual = loss.simple_dual(1 - (1 - pair.zero_mass) ** 2)
    products = np.multiply.outer(ratios, ratios).ravel()
    chances = np.multiply.outer(masses, masses).ravel()
    epsilons = np.array([0.0, 0.5, 1.5, 3.0, 5.0])
    exact = [
        1 - (1 - 1e-3) ** 2 + math.fsum(chances * np.maximum(1 - k * products, 0.0))
        for k in np.exp(epsilons).tolist()
    ]
    found = dual.deltas(epsilons)
    assert (found >= exact).all()
    assert (found <= 10 * np.array(exact)).all()
    assert (dual.epsilons(np.array(exact)) >= epsilons).all()
    for epsilon, delta in zip(epsilons.tolist(), exact, strict=True):
        assert dual.delta(epsilon) == dual.deltas(np.array([epsilon]))[0]
        assert dual.epsilon(delta) == dual.epsilons(np.array([delta]))[0]


@pytest.mark.parametrize("left_out", [1e-7, 0.2])
def test_moments_of_a_dual_count_what_the_laws_leave_out(left_out):
    ratios = np.geomspace(0.2, 4.0, 300)
    masses = np.full(300, 1.0 / 300)
    pair = dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.UPPER)
    law = loss_distribution.from_pair(pair, Direction.REMOVE, 2)
    dual = composed_loss.ComposedLoss([law], 1e-3, left_out / 1e-7).simple_dual(0.0)
    assert dual.tilts.size > 10
    for tilt, exponent in zip(dual.tilts.tolist(), dual.exponents, strict=True):
        moment = 2 * math.log(math.fsum(masses * ratios**-tilt))
        factor = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
        assert exponent >= moment + factor


def test_ratios_that_p_has_none_of_are_infinite_to_the_dual():
    """P has 2e-324 of what Q has 2e-20 of, which in a float is nothing."""
    ratios = np.append(math.exp(-700.0), np.linspace(0.5, 2.0, 300))
    masses = np.append(2e-20, np.full(300, 1.0 / 300))
    pair = dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.UPPER)
    law = loss_distribution.from_pair(pair, Direction.REMOVE, 3)
    assert law.masses[0] == 0
    dual = composed_loss.ComposedLoss([law], 1e-3, 1e-4).simple_dual(0.0)
    assert (dual.deltas(np.array([1.0, 600.0])) >= 5.9e-20).all()


def test_nothing_is_known_of_a_dual_without_a_lattice():
    law = loss_distribution.LossDistribution(
        np.zeros(1), np.ones(1), 0.0, 3, Bound.UPPER
    )
    dual = composed_loss.ComposedLoss([law], 1e-3, 1e-4).simple_dual(0.0)
    assert dual.epsilon(0.5) == dual.epsilons(np.array([0.5]))[0] == math.inf
    assert dual.delta(1.0) == dual.deltas(np.array([1.0]))[0] == 1.0


def test_an_answer_does_not_depend_on_others():
    """Asked alone, after others, together or after all is forgotten: the same bits."""
    deltas = np.array([0.4, 1e-2, 1e-6, 3e-7, 1e-15, 1e-29])
    epsilons = np.array([-3.0, 0.0, 0.1, 2.0, 2.5, 9.0, 21.0])
    for bound in Bound:
        together = gaussian_runs(5.0, 100, bound, Direction.ADD).loss
        all_epsilons = together.epsilons(deltas)
        all_deltas = together.deltas(epsilons)
        backwards = gaussian_runs(5.0, 100, bound, Direction.ADD)
        assert [backwards.delta(e) for e in epsilons[::-1]] == [*all_deltas[::-1]]
        composed_loss._MEMORY.clear()
        assert [backwards.epsilon(d) for d in deltas[::-1]] == [*all_epsilons[::-1]]
        for delta, epsilon in zip(deltas, all_epsilons, strict=True):
            alone = gaussian_runs(5.0, 100, bound, Direction.ADD)
            assert alone.epsilon(delta) == epsilon


def test_what_is_kept_is_bounded(monkeypatch):
    small = memory.Memory(8_000_000)
    monkeypatch.setattr(composed_loss, "_MEMORY", small)
    loss = gaussian_runs(5.0, 100, Bound.UPPER, Direction.ADD).loss
    deltas = np.geomspace(0.5, 1e-25, 200)
    first = loss.epsilons(deltas)
    assert 0 < small.nbytes <= 8_000_000
    assert (loss.epsilons(deltas) == first).all()


def test_laws_are_made_when_they_are_asked_for():
    """Gone through once, and once more for every stretch that is asked for."""

    class Laws(Sequence):
        asked = 0

        def __len__(self):
            return 20

        def __getitem__(self, place):
            if place >= len(self):
                raise IndexError
            self.asked += 1
            pair = gaussian.dominating_pair_of(
                20.0 + place, Bound.UPPER, tail_mass=1e-12
            )
            return loss_distribution.from_pair(pair, Direction.ADD, 1)

    lazy = Laws()
    asked = Asked(lazy, 1e-4, 1e-6)
    assert lazy.asked == 20
    epsilon = asked.epsilon(1e-5)
    assert lazy.asked == 40
    assert epsilon == Asked(list(Laws()), 1e-4, 1e-6).epsilon(1e-5)
    mean = math.sqrt(sum((20.0 + place) ** -2 for place in range(20)))
    assert oracles.gaussian_delta(mean, epsilon) <= 1e-5
    assert asked.epsilon(1.01e-5) < epsilon
    assert lazy.asked == 40


def test_a_narrow_window_stays_certified(monkeypatch):
    monkeypatch.setattr(anchors, "_UPPER_EXPONENT", 1.0)
    monkeypatch.setattr(anchors, "_LOWER_EXPONENT", 1.0)
    monkeypatch.setattr(anchors, "_LEAST_EXPONENT", 0.5)
    monkeypatch.setattr(anchors, "_FOLDED_EXPONENT", 0.5)
    for delta in (1e-2, 1e-8):
        lower, upper = (
            gaussian_runs(5.0, 50, bound, Direction.REMOVE).epsilon(delta)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        mean = math.sqrt(50) / 5.0
        assert oracles.gaussian_delta(mean, upper) <= delta
        assert lower == 0 or oracles.gaussian_delta(mean, lower) >= delta
