"""Draws and losses, beside sums over all sets of steps and closed forms."""

import itertools
import math

import dp_accounting
import min_sep_oracles
import numpy as np
import oracles
import pytest
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import sampling
from dp_accounting_ext.verify import verification

Answer = verification.Answer
COLUMN = (1.0, 0.6, 0.3)
GAUSSIAN = dp_accounting.GaussianDpEvent(1.5)
LAPLACE = dp_accounting.LaplaceDpEvent(2.0)
SAMPLE = dp_accounting.PoissonSampledDpEvent(0.4, GAUSSIAN)
groups, epochs = min_sep_oracles.law_of_groups, min_sep_oracles.law_of_epochs
ROWS = ((1.0, 0, 0, 0), (0.5, 0.9, 0, 0), (0, 0.4, 1.0, 0), (0, 0, 0.2, 0.7))


def mechanism_of(event):
    mechanism = kinds.mechanism_of(event)
    sizes = channels.Sizes(channels.Side.LOW)
    reading = mechanisms.Reading(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, sizes
    )
    return mechanism.drawable(reading, 0.0)


def windows(window, cycle, cycles, rate):
    """At most one step from the window of each cycle."""
    law = {(): 1 - rate, **{(step,): rate / window for step in range(window)}}
    found = {}
    for way in itertools.product(law, repeat=cycles):
        steps = tuple(i * cycle + step for i, own in enumerate(way) for step in own)
        found[steps] = math.prod(law[own] for own in way)
    return found


# Events, the laws of a record's steps by their definitions, and the number of steps.
SCHEMES = {
    "bins": (ext.MatrixAllocationEvent(COLUMN, 1.1, 3, 2), groups(1.0, 3, 6), 6),
    "bins of rows": (ext.MatrixAllocationEvent(ROWS, 1.1, 2, 2), groups(1.0, 2, 4), 4),
    "windows": (
        ext.WindowedAllocationEvent((1.0, 0.5), 1.1, 2, 2, 2, 0.7),
        windows(2, 3, 2, 0.7),
        6,
    ),
    "apart, warm": (
        ext.MinSepSamplingEvent((1.0, 0.5), 1.1, 0.3, 2, 6),
        min_sep_oracles.law_of_steps(0.3, 2, 6, warm=True),
        6,
    ),
    "apart, cold": (
        ext.MinSepSamplingEvent((1.0, 0.5, 0.2), 1.1, 0.3, 3, 6, False),
        min_sep_oracles.law_of_steps(0.3, 3, 6, warm=False),
        6,
    ),
    "groups": (
        ext.CyclicPoissonEvent((1.0, 0.6, 0.3, 0.2), 1.1, 0.4, 2, 7),
        groups(0.4, 2, 7),
        7,
    ),
    "samples": (
        ext.PoissonMatrixEvent(COLUMN, 1.1, 0.3, 6),
        groups(0.3, 1, 6),
        6,
    ),
    "two of three": (
        ext.SelectedStepsMatrixEvent(COLUMN, 1.1, 2, 3, 2),
        epochs(2, 3, 2),
        6,
    ),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("value", [1.0, -0.7, 2.5])
def test_losses_are_sums_over_all_sets(name, value):
    event, law, number = SCHEMES[name]
    mechanism = mechanism_of(event)
    outputs = np.random.default_rng(0).normal(0.5, 2.0, (5, number))
    c, variance = np.array(event.strategy), 1.1**2
    if c.ndim == 1:
        c = min_sep_oracles.toeplitz(c, number)
    found = mechanism.loss(outputs @ c / variance, 1, value)
    ratios = np.zeros(5)
    for steps, probability in law.items():
        mean = value * c[:, steps].sum(axis=1)
        ratios += probability * np.exp((outputs @ mean - mean @ mean / 2) / variance)
    np.testing.assert_allclose(found, np.log(ratios), rtol=1e-10, atol=1e-12)


def direct(event, x, members, value):
    """The density of the outputs of steps over that without members, by definition."""
    selected = getattr(event, "num_selected", 1)
    steps = int(event.num_steps)
    ways = [*itertools.combinations(range(steps), selected)]
    total = 0.0
    for way in itertools.product(ways, repeat=members):
        ratio = 1.0
        for step, output in enumerate(x):
            ratio *= step_ratio(event, step, output, sum(step in s for s in way), value)
        total += ratio / len(ways) ** members
    return total


def step_ratio(event, step, output, number, value):
    if isinstance(event, ext.ScheduledAllocationEvent):
        first = int(event.counts[0])
        if step >= sum(event.counts):
            return 1.0
        inner = event.events[0 if step < first else 1]
    else:
        inner = event.event
    if isinstance(inner, dp_accounting.PoissonSampledDpEvent):
        rate = inner.sampling_probability
        return sum(
            math.comb(number, i)
            * rate**i
            * (1 - rate) ** (number - i)
            * density(inner.event, output, i * value)
            for i in range(number + 1)
        )
    return density(inner, output, number * value)


def density(noise, output, shift):
    scale = noise.noise_multiplier
    if isinstance(noise, dp_accounting.LaplaceDpEvent):
        return math.exp((abs(output) - abs(output - shift)) / scale)
    return math.exp((output**2 - (output - shift) ** 2) / (2 * scale**2))


ALLOCATIONS = [
    (ext.RandomAllocationEvent(GAUSSIAN, 1, 4), 1),
    (ext.RandomAllocationEvent(GAUSSIAN, 1, 4), 3),
    (ext.RandomAllocationEvent(LAPLACE, 2, 4), 1),
    (ext.RandomAllocationEvent(SAMPLE, 1, 3), 2),
    (ext.RandomAllocationEvent(SAMPLE, 3, 4), 1),
    (ext.ScheduledAllocationEvent([GAUSSIAN, LAPLACE], [2, 1], 5), 1),
    (ext.ScheduledAllocationEvent([GAUSSIAN, LAPLACE], [2, 1], 5), 2),
    (ext.ScheduledAllocationEvent([GAUSSIAN, LAPLACE], [2, 1], 5, 2), 1),
]


@pytest.mark.parametrize(("event", "members"), ALLOCATIONS)
@pytest.mark.parametrize("value", [1.0, -1.3])
def test_losses_of_allocations_are_sums_over_all_ways(event, members, value):
    mechanism = mechanism_of(event)
    counts = getattr(event, "counts", None) or [event.num_steps]
    x = np.random.default_rng(1).normal(0.3, 2.0, (4, sum(counts)))
    ends = np.cumsum([0, *counts])
    outputs = [x[:, a:b].ravel() for a, b in itertools.pairwise(ends)]
    if getattr(event, "event", None) is SAMPLE:  # It has a list of one run's outputs.
        outputs = [outputs]
    found = mechanism.loss(outputs, members, value)
    expected = [math.log(direct(event, row, members, value)) for row in x]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_members_contribute_in_some_steps_only_where_states_are_too_many():
    event = ext.PoissonMatrixEvent((1.0,) * 12, 6.0, 0.1, 20)
    (stages,) = mechanism_of(event).scheme.stages
    silent = [not stage.numbers.any() for stage in stages]
    assert silent == [False] * 5 + [True] * 11 + [False] * 4
    assert max(stage.squares.size for stage in stages) <= 64


MECHANISMS = {
    "many bands": (ext.PoissonMatrixEvent((1.0,) * 12, 12.0, 0.1, 20), 1),
    "group of two kinds": (
        ext.ScheduledAllocationEvent([GAUSSIAN, SAMPLE], [2, 1], 4),
        3,
    ),
    **{name: (event, 1) for name, (event, *_) in SCHEMES.items()},
    **{f"allocation {i}": each for i, each in enumerate(ALLOCATIONS)},
    "sampled": (ext.PLDSubsampleEvent(0.5, SCHEMES["bins"][0]), 1),
    "sampled allocation": (ext.PLDSubsampleEvent(0.5, ALLOCATIONS[2][0]), 1),
    "sampled group": (ext.PLDSubsampleEvent(0.5, ALLOCATIONS[0][0]), 2),
    "composed": (
        dp_accounting.ComposedDpEvent(
            [SCHEMES["windows"][0], ext.RandomAllocationEvent(GAUSSIAN, 2, 3)]
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("everywhere", [False, True])
def test_draws_have_the_density_that_losses_say(name, everywhere):
    """E e^{−loss} is 1 under each law, and its own mean that of a function of Q."""
    event, members = MECHANISMS[name]
    mechanism = mechanism_of(event)
    drawn = mechanism.everywhere() if everywhere else mechanism
    rng, size = np.random.default_rng(2), 20_000
    value = -0.3
    outputs = drawn.draw(rng, np.full(size, members), value)
    weights = np.exp(-drawn.loss(outputs, members, value))
    error = 5 * weights.std() / math.sqrt(size)
    assert abs(weights.mean() - 1) < error < 0.15
    # The law of 0.3 has the same total, by draws from the first.
    other = np.exp(mechanism.loss(outputs, members, 0.3)) * weights
    assert abs(other.mean() - 1) < 5 * other.std() / math.sqrt(size)


def test_tables_merge_what_only_one_law_has():
    law = channels.exact([0.5, 0.3, 0.2, 0.0], [0, 0.3, 0.5, 0.2])
    table = mechanisms.Table.of([law], -1.0)
    np.testing.assert_allclose(table.q, [0.8, 0.2])
    np.testing.assert_allclose(np.exp(table.losses) * table.q, [0.3, 0.7])
    with pytest.raises(channels.NoTheoremError, match="reveals all"):
        mechanisms.Table.of([channels.EVERYTHING], 0.0)


def test_tables_are_drawn_as_their_losses_say():
    law = channels.exact([0.7, 0.2, 0.1], [0.1, 0.5, 0.4])
    table = mechanisms.Table.of([law], -1.0)
    rng, size = np.random.default_rng(3), 50_000
    for value in (-1.0, 0.3, 1.0):
        outputs = table.draw(rng, np.ones(size, int), value)
        weights = np.exp(-table.loss(outputs, 1, value))
        assert abs(weights.mean() - 1) < 5 * weights.std() / math.sqrt(size) + 1e-12


def gaussian_delta(epsilon, mean):
    return float(oracles.gaussian_delta(mean, epsilon))


def test_bounds_are_below_closed_forms_and_near():
    """Of Gaussian noise of mean 1."""
    noise = mechanisms.Noise("gaussian", 1.0)
    claims = [
        Answer("ε", gaussian_delta(3.0, 1.0), 0.0, 2.5),
        Answer("δ", -0.5, 0.0, 1.0),
        Answer("δ", 1.0, 0.0, 1.0),
        Answer("true positive rate", 0.01, 0.0, 1.0),
    ]
    found = sampling.lower_bounds(
        noise, 1, replaced=False, claims=claims, seconds=0.3, seed=4
    )
    truth = [
        3.0,
        1 - math.exp(-0.5) + math.exp(-0.5) * gaussian_delta(0.5, 1.0),
        gaussian_delta(1.0, 1.0),
        float(special.ndtr(special.ndtri(0.01) + 1)),
    ]
    for low, true in zip(found, truth, strict=True):
        assert 0.8 * true < low <= true
    assert found[0] > 2.9


def test_the_failure_probability_of_a_bound():
    """Of 2000 means of rare values, none is above the truth; most are near."""
    rng = np.random.default_rng(5)
    bounds = [
        sampling._at_least((rng.random(4000) < 0.3).astype(float), 1.0, 4000)
        for _ in range(2000)
    ]
    assert max(bounds) < 0.3
    assert np.mean(bounds) > 0.2


def test_most_draws_count_for_bounds_whatever_the_time(monkeypatch):
    """The time for the first draws alone would be enough for all draws."""
    monkeypatch.setattr(sampling, "_MOST", 200_000)
    noise, delta = mechanisms.Noise("gaussian", 1.0), gaussian_delta(5.0, 1.0)
    claims = [Answer("ε", delta, 0.0, 4.5), Answer("δ", 5.0, 0.0, 1.0)]
    _, found = sampling.lower_bounds(
        noise, 1, replaced=False, claims=claims, seconds=60.0, seed=4
    )
    assert 0.9 * delta < found <= delta
