"""Each direction by itself: a record leaves, or a record joins."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest

import dp_accounting_ext as ext

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
Gaussian = dp_accounting.GaussianDpEvent
EPSILONS = [-1.0, -0.3, 0.0, 0.2, 1.0, 3.0]


def normal(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def sampled_gaussian(epsilon, rate, noise, direction):
    """δ of one Poisson sample, from the threshold of its best test, in 40 digits.

    The likelihood ratio of the output x is 1 − q + q X, and X = e^{x/σ − 1/(2σ²)}
    increases with x, which has the law N(0, 1) or N(1/σ, 1).
    """
    with mpmath.workdps(40):
        rate, shift = mpmath.mpf(rate), 1 / mpmath.mpf(noise)
        level = mpmath.exp(epsilon if direction == "remove" else -mpmath.mpf(epsilon))
        ratio = (level - (1 - rate)) / rate
        if ratio <= 0:
            # All outputs, or none of them.
            return 1 - mpmath.exp(epsilon) if direction == "remove" else mpmath.mpf(0)
        at = mpmath.log(ratio) / shift + shift / 2
        without, with_it = normal(-at), normal(shift - at)
        p, q = (1 - rate) * without + rate * with_it, without
        if direction == "remove":
            return p - mpmath.exp(epsilon) * q
        return (1 - q) - mpmath.exp(epsilon) * (1 - p)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 0.7), (0.9, 2.0)])
def test_a_poisson_sample_against_its_closed_form(rate, noise, direction):
    event = dp_accounting.PoissonSampledDpEvent(rate, Gaussian(noise))
    accountant = ext.PLDAccountant().compose(event)
    bounds = accountant.get_delta_bounds(EPSILONS, direction=direction)
    for epsilon, lower, upper in zip(EPSILONS, *bounds, strict=True):
        truth = sampled_gaussian(epsilon, rate, noise, direction)
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
