"""Schedules in cells, step by step of the proof; and a sampling scheme of one's own."""

import dataclasses
from fractions import Fraction
import itertools
import math

import attr
import dp_accounting
import enumerated_batches as enumerated
import hypothesis
from hypothesis import strategies as st
from mechanism_laws import deltas
import mpmath
import numpy as np
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import schedules
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.validation import fields

SHIFTS = st.floats(0.05, 4.0)
nightly = pytest.mark.nightly


def _above(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def delta(shift, epsilon, end=mpmath.inf):
    """H(N(s, 1) ‖ N(0, 1)) with outputs above `end`, and below s − end, as one."""
    shift, end = mpmath.mpf(shift), mpmath.mpf(end)
    point = epsilon / shift + shift / 2
    kappa = mpmath.exp(epsilon)
    if point > end:
        return max(_above(end - shift) - kappa * _above(end), mpmath.mpf(0))
    if point < shift - end:
        # All outputs but the lowest atom are in the best set, and it may be.
        below = shift - end
        without = _above(below - shift) - kappa * _above(below)
        return max(without, 1 - kappa)
    return _above(point - shift) - kappa * _above(point)


@hypothesis.given(SHIFTS, st.floats(1e-3, 0.5), st.floats(0.01, 0.99), st.floats(-9, 9))
def test_one_run_is_between_the_coins(high, width, place, scale):
    """At every ε, by closed forms with 40 digits."""
    low = high * (1 - width)
    shift = low + place * (high - low)
    epsilon = scale * high
    with mpmath.workdps(40):
        one = np.array([shift])
        upper, lower = (
            mpmath.mpf(float(schedules._coins(low, high, one, bound)[0]))
            for bound in (Bound.UPPER, Bound.LOWER)
        )
        above = (1 - upper) * delta(low, epsilon) + upper * delta(high, epsilon)
        assert delta(shift, epsilon) <= above
        assert 0 < lower <= upper
        kept = high + schedules._KEPT
        seen = high * kept - high**2 / 2
        end = schedules._lower_end(low, kept, seen)
        least, most = delta(low, epsilon, end), delta(high, epsilon, kept)
        assert least <= most  # So that more heads are more.
        assert (1 - lower) * least + lower * most <= delta(shift, epsilon)


@hypothesis.given(SHIFTS, st.floats(0, 1e-9))
def test_alike_shifts_are_far_from_the_ends_of_their_cell(shift, apart):
    """Differences of areas would have no digits otherwise."""
    runs = {shift: 1, shift * (1 - 1e-15 - apart): 3}
    for bound in Bound:
        cell = schedules._cell_of(0.9, 0.1, runs, bound)
        low, high, weight = cell.arguments
        assert high.p[-1][0] > shift * 1.00009
        assert low.p[-1][0] < shift * 0.99991
        assert weight == pytest.approx(0.5, abs=0.01)


@hypothesis.given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=6)
)
def test_one_coin_has_as_many_heads(coins):
    """The number of heads is ordered at every point, by exact convolution."""
    law = np.ones(1)
    for coin, count in coins:
        for _ in range(count):
            law = np.convolve(law, [1 - coin, coin])
    tails = law[::-1].cumsum()[::-1]
    probabilities, counts = (
        np.array(each, dtype=float) for each in zip(*coins, strict=True)
    )
    numbers = np.arange(law.size)
    for bound, sign in ((Bound.UPPER, 1), (Bound.LOWER, -1)):
        coin = schedules._one_coin(probabilities, counts, bound)
        common = stats.binom.sf(numbers - 1, law.size - 1, coin)
        # The convolution has a rounding error of its own.
        assert (sign * (common - tails) >= -1e-13).all()


@hypothesis.given(st.integers(321, 900), st.integers(1, 40), st.randoms())
def test_every_run_is_in_one_bin(number, most, random):
    runs = {1 / (1 + i / 300): random.randint(1, most) for i in range(number)}
    bins = schedules._bins(runs)
    together = {}
    for each in bins:
        assert sum(each.values()).bit_count() == 1
        for shift, count in each.items():
            assert count >= 1
            together[shift] = together.get(shift, 0) + count
    assert together == runs


def _schedule(count):
    noises = np.linspace(1.0, 2.0, count).tolist()
    return dp_accounting.ComposedDpEvent(
        [
            dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(x))
            for x in noises
        ]
    )


@pytest.mark.parametrize(
    ("runs", "cells", "width"),
    [(24, 16, 0.06), pytest.param(400, schedules._CELLS, 1e-3, marks=nightly)],
)
def test_a_schedule_is_bounded_as_its_runs_are(monkeypatch, runs, cells, width):
    """The bracket is a little wider than that of all runs composed one by one."""

    def asked(most):
        monkeypatch.setattr(schedules, "_CELLS", most)
        accountant = ext.PLDAccountant().compose(_schedule(runs))
        rates = accountant.get_true_positive_rate_bounds(1e-3)
        return *accountant.get_epsilon_bounds([1e-5, 1e-9]), *rates

    lower, upper, low_rate, high_rate = asked(cells)
    least, most, low, high = asked(10**6)
    assert (lower <= least).all() and (most <= upper).all()
    assert (upper - lower <= width * upper).all()
    assert low_rate <= low <= high <= high_rate <= (1 + width) * low_rate


@pytest.mark.parametrize(
    ("runs", "cells", "width"),
    [(2100, 40, 0.02), pytest.param(10_000, schedules._CELLS, 1e-3, marks=nightly)],
)
def test_thousands_of_runs_are_composed_beside_others(monkeypatch, runs, cells, width):
    """More than 2000 different ones were refused."""
    monkeypatch.setattr(schedules, "_CELLS", cells)
    accountant = ext.PLDAccountant().compose(_schedule(runs))
    alone = accountant.get_epsilon_bounds(1e-6)
    accountant.compose(dp_accounting.LaplaceDpEvent(5.0))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert alone[1] < upper < alone[1] + 0.2
    assert upper - lower < width * upper


@nightly
def test_few_runs_with_large_shifts_among_many_have_cells_of_their_own(monkeypatch):
    """Noise that grows as a root; the bracket was 8 % wide."""
    monkeypatch.setattr(schedules, "_CELLS", 40)
    noises = (0.7 + np.sqrt(np.arange(3000)) / 50).tolist()
    sampled = dp_accounting.PoissonSampledDpEvent
    steps = [sampled(0.002, dp_accounting.GaussianDpEvent(x)) for x in noises]
    accountant = ext.PLDAccountant().compose(dp_accounting.ComposedDpEvent(steps))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= 0.61208 and upper >= 0.61201  # Of 640 cells: these two numbers.
    assert upper - lower < 0.01 * upper


def test_only_what_is_exactly_a_sampled_gaussian_is_put_in_cells():
    """What is one for an upper bound alone must not have a lower one."""
    gaussian = additive_noise.Gaussian(2.0)
    assert schedules.is_scheduled(subsampled.on_poisson_sample(0.1, gaussian))
    above = known_bounds.between(None, gaussian)
    for inner in (above, compositions.Composition(((gaussian, 2),))):
        assert not schedules.is_scheduled(subsampled.on_poisson_sample(0.1, inner))


NeighborRel = dp_accounting.NeighboringRelation
RATE = Fraction(1, 4)
COMMON = ["c", "d"]
LAPLACE = mechanisms.NeighboringBatches(
    discrete_outputs.DiscreteLaplace(math.log(2), 1)
)
EPSILONS = (0.0, 0.2, 0.7, 1.4)


@dataclasses.dataclass(frozen=True)
class Everybody(mechanisms.Scheme):
    """One coin for all: the whole dataset, or an empty batch."""

    rate: float

    def coupled(self, removed, inserted):
        everybody = mechanisms.Coupled(
            ((float(removed), 1.0),), ((float(inserted), 1.0),), probability=self.rate
        )
        return [everybody, mechanisms.Coupled(probability=1 - self.rate)]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EverybodyEvent(dp_accounting.DpEvent):
    """Represents Gaussian noise on the sum over such a batch."""

    rate: float
    noise_multiplier: float


def read(event, reader):
    rate = fields.sampling_probability(event.rate)
    noise = mechanisms.Noise(fields.noise_multiplier(event.noise_multiplier))
    return Everybody(rate).one(noise, reader.neighboring_relation)


def outputs(dataset, value):
    """Returns the law of noisy sums over batches of a dataset, exactly."""
    whole, empty = sum(map(value, dataset)), 0
    return enumerated.mixed(
        [(RATE, enumerated.noisy(whole)), (1 - RATE, enumerated.noisy(empty))]
    )


@pytest.mark.parametrize("split", [(1, 0), (0, 1), (1, 1), (2, 1), (3, 0)])
@pytest.mark.parametrize("others", list(itertools.product((-1, 0, 1), repeat=2)))
def test_a_scheme_bounds_what_is_enumerated(split, others):
    removed, inserted = split
    mechanism = Everybody(float(RATE)).split(LAPLACE, removed, inserted)
    value = {"a": 1, "b": -1, **dict(zip(COMMON, others, strict=True))}
    first = COMMON + [f"a{i}" for i in range(removed)]
    second = COMMON + [f"b{i}" for i in range(inserted)]
    p, q = (outputs(each, lambda record: value[record[0]]) for each in (first, second))
    for epsilon in EPSILONS:
        kappa = Fraction(math.nextafter(math.exp(epsilon), math.inf))
        remove, add = deltas(mechanism, epsilon)
        assert enumerated.hockey_stick(p, q, kappa) <= remove
        assert enumerated.hockey_stick(q, p, kappa) <= add
        # Nothing was said to be attained.
        assert deltas(mechanism, epsilon, Bound.LOWER) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("relation", "moved"),
    [
        (NeighborRel.ADD_OR_REMOVE_ONE, 1),
        (NeighborRel.REPLACE_ONE, 2),
        (NeighborRel.REPLACE_SPECIAL, 1),
    ],
)
def test_a_registered_scheme_is_accounted_for(relation, moved):
    """Where the coin is told, δ is its chance times that of noise on the dataset."""
    ext.PLDAccountant.register(EverybodyEvent, read)
    accountant = ext.PLDAccountant(relation).compose(EverybodyEvent(0.25, 3.0))
    noise = dp_accounting.GaussianDpEvent(3.0 / moved)
    alone = ext.PLDAccountant().compose(noise)
    for epsilon in EPSILONS:
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower == 0
        truth = 0.25 * alone.get_delta_bounds(epsilon)[0]
        assert truth <= upper <= truth * (1 + 1e-4)
    of_three = ext.GroupSubsampledEvent(3, EverybodyEvent(0.25, 3.0))
    grouped = ext.PLDAccountant(relation).compose(of_three).get_delta(0.5)
    assert accountant.get_delta(0.5) < grouped < 0.25


@pytest.mark.parametrize("chance", [0.5, math.nan])
def test_a_scheme_whose_parts_are_no_law_is_refused(chance):
    class Half(Everybody):
        def coupled(self, removed, inserted):
            return [mechanisms.Coupled(probability=chance)]

    with pytest.raises(ValueError, match=r"probabilities of parts must"):
        Half(0.5).split(LAPLACE, 1, 0)
