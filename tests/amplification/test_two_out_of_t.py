"""k of t steps that differ, by enumerated outputs; and masses that underflow."""

import dataclasses
from fractions import Fraction
import itertools
import math

from asked import bounds
import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import oracles
import pytest
import strategies

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds

REMOVE = Direction.REMOVE


def test_losses_whose_masses_fit_no_float_are_no_warning():
    """Warnings are errors here: all masses were zero, and their shares 0 / 0."""
    fine = accuracy.Accuracy(1e-288)
    noise = additive_noise.laplace(0.0029756591)
    step = interface.pairs_of(noise, Bound.UPPER, fine).remove
    found = two_out_of_t.two_out_of_t(step, 10, tail_mass=1e-24)
    assert found.delta(600.0, REMOVE) > 0.1


def test_ratios_that_all_underflow_are_none():
    """The masses of all atoms whose H is positive may underflow."""
    law = two_out_of_t.GroupLaw(
        means=np.zeros(1),
        rows=np.zeros(1, dtype=np.int64),
        products=np.zeros(1),
        masses=np.ones(1),
        sizes=(2, 2),
        top=0.0,
        mass_error=0.0,
        place_error=0.0,
    )
    both = two_out_of_t._Sum(law, law)
    found = two_out_of_t._pair_of(both, 0.0)
    assert (found.infinity_mass, found.zero_mass) == (1.0, 1.0)


def test_ratios_all_of_whose_masses_underflow_are_none():
    """Only 0 and infinity are left: the pair is the trivial one, and no error."""
    steps = ext.RandomAllocationEvent(dp_accounting.LaplaceDpEvent(0.0016956), 4, 5)
    accountant = ext.PLDAccountant().compose(steps)
    (lower,), (upper,) = accountant.get_true_positive_rate_bounds([1e-290])
    assert 1e-290 <= lower <= upper <= 1.0


kinds = st.tuples(
    strategies.pairs(Bound.UPPER, most_atoms=2, sinks=False),
    st.integers(1, 2),
    st.integers(1, 3),
)


@settings(max_examples=20)
@given(st.lists(kinds, min_size=1, max_size=2))
def test_truth_is_between(kinds):
    lower, upper = (
        random_allocation.uneven_allocation(
            [
                random_allocation.Steps(dataclasses.replace(pair, bound=bound), *rest)
                for pair, *rest in kinds
            ],
            accuracy.Accuracy(1e-12),
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    total, steps = sum(count * weight for _, count, weight in kinds), []
    for pair, count, weight in kinds:
        atoms = zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
        steps += [[(weight * ratio / total, mass) for ratio, mass in atoms]] * count
    law = [
        (sum(ratio for ratio, _ in way), math.prod(mass for _, mass in way))
        for way in itertools.product(*steps)
    ]
    for epsilon in (0.0, 0.3, 1.5):
        places = [
            Fraction(math.exp(epsilon)) * (1 + s * Fraction(2**-50)) for s in (-1, 1)
        ]
        for direction, divergence in (
            (Direction.REMOVE, oracles.remove_divergence),
            (Direction.ADD, oracles.add_divergence),
        ):
            most, least = (divergence(law, kappa, Fraction(0)) for kappa in places)
            assert lower.delta(epsilon, direction) <= most
            assert upper.delta(epsilon, direction) >= least
            assert upper.delta(epsilon, direction) <= float(most) * (1 + 1e-3) + 1e-9


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


MANY_EPSILONS = np.linspace(-3.0, 6.0, 37)
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
        low, high = accountant.get_delta_bounds(MANY_EPSILONS, direction=direction)
        gaps = one - np.exp(MANY_EPSILONS)[:, np.newaxis] * other
        truth = np.maximum(gaps, 0.0).sum(axis=1)
        # The sum of a few thousand probabilities has errors of its own.
        error = 1e-15 * p.size
        assert (low <= truth * (1 + error) + error).all()
        assert (high >= truth * (1 - error) - error).all()


@pytest.mark.parametrize(
    ("num_selected", "steps"), nights.at_night((2, 6), (2, 60), (10, 60))
)
def test_steps_that_hardly_differ_are_alike(num_selected, steps):
    kinds, third = [Gaussian(1.0), Gaussian(1.0 + 1e-9)], steps // 3
    low, high = bounds(ext.RandomAllocationEvent(Gaussian(1.0), num_selected, steps))
    other_low, other_high = bounds(
        Schedule(kinds, [third, steps - third], steps, num_selected)
    )
    assert low <= other_high <= 1.07 * high
    assert 0.97 * low <= other_low <= high * (1 + 1e-6)


@pytest.mark.parametrize(
    ("schedule", "event"),
    [
        (
            Schedule([Gaussian(1.0)], [5], 5, 2),
            ext.RandomAllocationEvent(Gaussian(1.0), 2, 5),
        ),
        (
            Schedule([Gaussian(1.0), Gaussian(2.0)], [1, 2], 3, 3),
            dp_accounting.ComposedDpEvent([Gaussian(1.0)] + [Gaussian(2.0)] * 2),
        ),
    ],
)
def test_steps_of_one_kind_are_an_allocation_and_all_steps_a_composition(
    schedule, event
):
    assert bounds(schedule) == bounds(event)


@given(st.floats(1e-3, 1.0), st.floats(-3.0, 3.0))
def test_losses_times_a_share_are_no_smaller_than_they_should_be(share, epsilon):
    """Those of a coin, of both signs: E (1 − κ Z^s)₊ without the record."""
    coin = strategies.coin(Bound.UPPER)
    known = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(coin))
    fine = accuracy.Accuracy(1e-20)
    found = allocated._pairs_of_shrunk(known, share, Bound.UPPER, fine).add
    with mpmath.workdps(40):
        kappa = mpmath.exp(epsilon)
        truth = sum(
            mass * max(1 - kappa * mpmath.mpf(ratio) ** share, 0)
            for ratio, mass in zip(coin.ratios, coin.masses, strict=True)
        )
        delta = found.delta(epsilon, Direction.ADD)
        assert truth <= delta <= truth * (1 + 1e-9) + 1e-12


def test_released_counts_bound_many_runs():
    """Other bounds alone are 37 % above the lower one here."""
    epoch = Schedule([Gaussian(0.63), Gaussian(1.4)], [14, 4], 21, 2)
    lower, upper = ext.PLDAccountant().compose(epoch, 50).get_epsilon_bounds(0.1)
    assert 26.8 < lower < upper < 1.22 * lower
