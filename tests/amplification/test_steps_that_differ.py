"""Several of a schedule's steps: beside sums over all sets of steps and all outputs."""

import itertools
import math

import dp_accounting
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import pytest
import strategies

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import known_bounds

Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.dp_event.DiscreteLaplaceDpEvent
Schedule = ext.ScheduledAllocationEvent


def laws_of(kinds, num_steps):
    """Returns each step's probabilities of its outputs, without and with the record.

    The outputs of discrete Laplace noise beyond either center are one.
    """
    steps = []
    for (parameter, sensitivity), count in kinds:
        decay = math.exp(-parameter)

        def law(center, decay=decay, sensitivity=sensitivity):
            scale = (1 - decay) / (1 + decay)
            inner = [scale * decay ** abs(x - center) for x in range(1, sensitivity)]
            low, high = (decay ** abs(x - center) for x in (0, sensitivity))
            return np.array([low / (1 + decay), *inner, high / (1 + decay)])

        steps += [(law(0), law(sensitivity))] * count
    silent = np.ones(1), np.ones(1)
    return steps + [silent] * (num_steps - len(steps))


def enumerated(kinds, num_steps, num_selected):
    """Returns the probabilities of all outputs without the record, and with it."""
    steps = laws_of(kinds, num_steps)

    def law(chosen):
        found = np.ones(1)
        for i, step in enumerate(steps):
            found = np.multiply.outer(found, step[i in chosen]).ravel()
        return found

    sets = list(itertools.combinations(range(num_steps), num_selected))
    return law(()), sum(law(chosen) for chosen in sets) / len(sets)


EPSILONS = np.linspace(-3.0, 6.0, 37)
CASES = [
    ([((1.3, 1), 2), ((0.6, 2), 2)], 4, 2),
    ([((5.0, 1), 1), ((0.2, 1), 4)], 5, 2),
    ([((1.3, 1), 2), ((0.6, 2), 2)], 6, 3),
    ([((0.7, 3), 3)], 6, 2),
    ([((0.7, 3), 3)], 6, 5),
    ([((0.5, 1), 1), ((1.0, 1), 1), ((0.9, 2), 1)], 7, 4),
    ([((1e-3, 1), 5)], 8, 3),
    ([((20.0, 1), 2), ((0.5, 1), 3)], 6, 3),
]


@pytest.mark.parametrize(
    ("kinds", "num_steps", "num_selected"),
    CASES[:1] + nights.at_night(*CASES[1:]),
)
def test_bounds_are_on_their_sides_of_all_outputs(kinds, num_steps, num_selected):
    q, p = enumerated(kinds, num_steps, num_selected)
    events = [Laplace(*kind) for kind, _ in kinds]
    counts = [count for _, count in kinds]
    accountant = ext.PLDAccountant().compose(
        Schedule(events, counts, num_steps, num_selected)
    )
    for direction, one, other in (("remove", p, q), ("add", q, p)):
        low, high = accountant.get_delta_bounds(EPSILONS, direction=direction)
        gaps = one - np.exp(EPSILONS)[:, np.newaxis] * other
        truth = np.maximum(gaps, 0.0).sum(axis=1)
        # The sum of a few thousand probabilities has errors of its own.
        error = 1e-15 * p.size
        assert (low <= truth * (1 + error) + error).all()
        assert (high >= truth * (1 - error) - error).all()


@pytest.mark.parametrize(
    ("event", "width"),
    [
        (Schedule([Gaussian(2.0)], [700], 1000, 10), 0.02),
        (Schedule([Gaussian(1.0), Gaussian(1.2)], [1500, 1500], 3000, 3), 0.015),
        *nights.at_night(
            (Schedule([Gaussian(1.0)], [50], 100, 10), 0.01),
            (
                Schedule(
                    [Gaussian(0.8), dp_accounting.LaplaceDpEvent(1)], [5, 5], 12, 2
                ),
                0.08,
            ),
        ),
    ],
)
def test_brackets_are_narrow(event, width):
    low, high = ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-6)
    assert (1 - width) * high <= low <= high


@pytest.mark.parametrize("num_selected", [2, *nights.at_night(10)])
def test_steps_that_hardly_differ_are_alike(num_selected):
    alike = ext.RandomAllocationEvent(Gaussian(1.0), num_selected, 60)
    kinds = [Gaussian(1.0), Gaussian(1.0 + 1e-9)]
    unlike = Schedule(kinds, [20, 40], 60, num_selected)
    (low, high), (other_low, other_high) = (
        ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-5)
        for event in (alike, unlike)
    )
    assert low <= other_high <= 1.07 * high
    assert 0.97 * low <= other_low <= high * (1 + 1e-6)


def test_steps_that_never_ran_make_less_privacy_loss():
    bounds = [
        ext.PLDAccountant()
        .compose(Schedule([Gaussian(1.0)], [ran], 12, 2))
        .get_epsilon_bounds(1e-5)
        for ran in (5, 12)
    ]
    (_, less), (more, _) = bounds
    assert less < more


def test_one_kind_that_runs_in_all_steps_is_a_random_allocation():
    schedule = Schedule([Gaussian(1.0)], [20], 20, 3)
    allocation = ext.RandomAllocationEvent(Gaussian(1.0), 3, 20)
    found, expected = (
        ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-5)
        for event in (schedule, allocation)
    )
    assert found == expected


def test_all_steps_are_a_composition():
    kinds = [Gaussian(1.0), Gaussian(2.0)]
    together = dp_accounting.ComposedDpEvent([kinds[0], kinds[1], kinds[1]])
    found, expected = (
        ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-5)
        for event in (Schedule(kinds, [1, 2], 3, 3), together)
    )
    assert found == expected


def test_many_kinds_have_an_upper_bound():
    kinds = [Gaussian(1 + i / 10) for i in range(8)]
    event = Schedule(kinds, [2] * 8, 20, 3)
    low, high = ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-5)
    most = ext.RandomAllocationEvent(kinds[0], 3, 20)
    assert low == 0
    assert 0 < high < ext.PLDAccountant().compose(most).get_epsilon(1e-5)


def test_a_step_without_noise_is_refused_with_a_remedy():
    event = Schedule([Gaussian(0.0), Gaussian(1.0)], [2, 2], 6, 2)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="num_selected=1"):
        ext.PLDAccountant().compose(event)


@pytest.mark.parametrize("num_selected", [0, 7, 1.5, "2"])
def test_a_wrong_number_of_selected_steps_is_refused(num_selected):
    event = Schedule([Gaussian(1.0)], [4], 6, num_selected)
    with pytest.raises((ValueError, TypeError), match="num_selected"):
        ext.PLDAccountant().compose(event)


@given(st.floats(1e-3, 1.0), st.floats(-3.0, 3.0))
def test_losses_times_a_share_are_no_smaller_than_they_should_be(share, epsilon):
    """Those of a coin, of both signs: E (1 − κ Z^s)₊ without the record."""
    coin = strategies.coin(Bound.UPPER)
    known = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(coin))
    shrunk = allocated._Shrunk(known, share)
    found = shrunk.pairs(Bound.UPPER, accuracy.Accuracy(1e-20)).add
    with mpmath.workdps(40):
        kappa = mpmath.exp(epsilon)
        truth = sum(
            mass * max(1 - kappa * mpmath.mpf(ratio) ** share, 0)
            for ratio, mass in zip(coin.ratios, coin.masses, strict=True)
        )
        delta = found.delta(epsilon, Direction.ADD)
        assert truth <= delta <= truth * (1 + 1e-9) + 1e-12
