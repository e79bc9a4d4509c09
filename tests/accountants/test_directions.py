"""Each direction by itself: a record leaves, or a record joins."""

import math

import dp_accounting
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
Gaussian = dp_accounting.GaussianDpEvent
EPSILONS = [-1.0, -0.3, 0.0, 0.2, 1.0, 3.0]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 0.7), (0.9, 2.0)])
def test_a_poisson_sample_against_its_closed_form(rate, noise, direction):
    event = dp_accounting.PoissonSampledDpEvent(rate, Gaussian(noise))
    p = ((0.0, 1 - rate), (1 / noise, rate))
    accountant = ext.PLDAccountant().compose(event)
    bounds = accountant.get_delta_bounds(EPSILONS, direction=direction)
    for epsilon, lower, upper in zip(EPSILONS, *bounds, strict=True):
        truth = oracles.shift_mixture_deltas(p, ((0.0, 1.0),), epsilon)[direction]
        assert lower <= truth <= upper
        assert upper - lower <= 1e-4 * truth + 1e-12


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_of_two_steps_against_quadrature(direction):
    """The ratio is the mean of those of both steps; the grid is a hundredth wide."""
    nodes = np.arange(-9, 10, 0.01)
    x, y = np.meshgrid(nodes, nodes, sparse=True)
    ratio = (np.exp(x - 0.5) + np.exp(y - 0.5)) / 2
    without = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi) * 0.01**2
    event = ext.RandomAllocationEvent(Gaussian(1.0), 1, 2)
    accountant = ext.PLDAccountant().compose(event)
    for epsilon in EPSILONS:
        sign = ratio - math.exp(epsilon)
        if direction == "add":
            sign = 1 - math.exp(epsilon) * ratio
        truth = float((without * np.maximum(sign, 0)).sum())
        lower, upper = accountant.get_delta_bounds(epsilon, direction=direction)
        assert lower * (1 - 1e-5) <= truth <= upper * (1 + 1e-5)


EVENTS = [
    ext.RandomAllocationEvent(Gaussian(1.0), 3, 20),
    ext.PLDSubsampleEvent(0.3, dp_accounting.LaplaceDpEvent(1.0)),
    ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 10, 2),
    dp_accounting.ComposedDpEvent(
        [
            dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(1.0)),
            ext.ScheduledAllocationEvent([Gaussian(1.0), Gaussian(2.0)], [3, 4], 9),
        ]
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_larger_direction_is_the_answer(event):
    accountant = ext.PLDAccountant().compose(event, 2)
    for ask, given in (
        (accountant.get_epsilon_bounds, [1e-9, 1e-5, 0.1]),
        (accountant.get_delta_bounds, [-0.5, 0.1, 2.0]),
    ):
        both = np.maximum(ask(given, direction="remove"), ask(given, direction="add"))
        np.testing.assert_allclose(both, ask(given), rtol=1e-9)


def test_no_direction_of_another_name_or_of_a_group():
    accountant = ext.PLDAccountant().compose(Gaussian(1.0))
    for wrong in ("both", "", 1, ["remove"]):
        with pytest.raises(ValueError, match="direction must be 'remove', 'add' or"):
            accountant.get_epsilon_bounds(1e-6, direction=wrong)
    accountant.compose(ext.GroupSubsampledEvent(3, Gaussian(9.0)))
    with pytest.raises(ValueError, match="for a group of 3 records"):
        accountant.get_delta_bounds(1.0, direction="add")


def test_a_replaced_record_has_two_equal_directions():
    event = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, Gaussian(1.0))
    accountant = ext.PLDAccountant(REPLACE_ONE).compose(event, 5)
    every = [
        accountant.get_epsilon_bounds(1e-6, direction=direction)
        for direction in (None, "remove", "add")
    ]
    np.testing.assert_allclose(every[1:], [every[0]] * 2, rtol=1e-9)
