"""Replaced records under 1 of t, against quadrature, published numbers and others."""

import math

import dp_accounting
import nights
import numpy as np
import pytest
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Direction

Allocation = replaced_allocation.Allocation
Steps = replaced_allocation.Steps
Relation = dp_accounting.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent

_TAIL = 1e-20


def _one_step(shift, kappa, constant):
    """Returns E (X − κ X′ + c)₊ for one normal variable, in closed form."""
    root = np.sqrt(constant**2 + 4 * kappa * math.exp(-(shift**2)))
    # The positive root of u² + c u − κ e^{−s²}, whichever form keeps its digits.
    with np.errstate(divide="ignore"):
        u = np.where(
            constant > 0,
            2 * kappa * math.exp(-(shift**2)) / (constant + root),
            (root - constant) / 2,
        )
    y = np.log(u) / shift + shift / 2
    return (
        special.ndtr(shift - y)
        - kappa * special.ndtr(-shift - y)
        + constant * special.ndtr(-y)
    )


def _nodes(number):
    """Returns nodes of the trapezoidal rule, and weights for a normal variable."""
    nodes = np.linspace(-12.0, 12.0, number)
    density = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    return nodes, density * (nodes[1] - nodes[0])


def _profile(allocation, kappa):
    """Returns H_κ of up to three steps, by the trapezoidal rule over all but one."""
    each = [
        (steps.shift, steps.probability)
        for steps in allocation.steps
        for _ in range(steps.count)
    ]
    (shift, chance), *others = each
    nodes, density = _nodes(401 if len(others) == 2 else 20001)
    constant, weight = np.zeros(1), np.ones(1)
    for other, share in others:
        # Weights follow the old record, so that its rare outputs are not missed.
        terms = share * (
            np.exp(other * nodes - other**2 / 2)
            - kappa * np.exp(-other * nodes - other**2 / 2)
        )
        constant = np.add.outer(constant, terms).ravel()
        weight = np.multiply.outer(weight, density).ravel()
    constant = (constant + allocation.null_probability * (1 - kappa)) / chance
    value = chance * float((weight * _one_step(shift, kappa, constant)).sum())
    return value + allocation.infinity_mass


_FEW_STEPS = [
    *nights.at_night(
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(2.5, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(1.0, 1 / 3, 3),), 0.0, 0.0),
    ),
    Allocation((Steps(0.7, 0.2, 2), Steps(1.3, 0.35, 1)), 0.25, 0.0),
    Allocation((Steps(1.5, 0.3, 2),), 0.375, 0.025),
    Allocation((Steps(0.8, 0.3, 1),), 0.7, 0.0),
]


@pytest.mark.parametrize("allocation", _FEW_STEPS)
def test_bounds_hold_and_are_near_the_profile_of_few_steps(allocation):
    upper = replaced_allocation.upper_pair(allocation, tail_mass=_TAIL)
    lower = replaced_allocation.lower_pair(allocation, tail_mass=_TAIL)
    for epsilon in (0.0, 0.05, 0.3, 0.9, 1.7, 3.0):
        truth = _profile(allocation, math.exp(epsilon))
        if truth - allocation.infinity_mass < 1e-9:
            continue
        for way in Direction:
            above, below = upper.delta(epsilon, way), lower.delta(epsilon, way)
            assert below <= truth <= above
            assert above - allocation.infinity_mass <= 1.06 * (
                truth - allocation.infinity_mass
            )
            assert below - allocation.infinity_mass >= 0.95 * (
                truth - allocation.infinity_mass
            )
        # Who exchanges the datasets has the profile's reflection.
        swapped = 1 - math.exp(-epsilon) * (1 - truth)
        for way in Direction:
            assert lower.delta(-epsilon, way) <= swapped <= upper.delta(-epsilon, way)


def _two_of_three(shift, rate, kappa):
    """Returns H_κ of 2 of 3 steps on samples, by that rule over all but one."""
    nodes, weights = _nodes(401)
    old, new = (
        1 - rate + rate * np.exp(way * shift * nodes - shift**2 / 2) for way in (1, -1)
    )
    gain, cost = (np.add.outer(each, each).ravel() * rate for each in (old, new))
    both = np.outer(old, old) - kappa * np.outer(new, new)
    constant = both.ravel() + (1 - rate) / rate * (gain - kappa * cost)
    values = gain * _one_step(shift, kappa * cost / gain, constant / gain)
    return float(np.outer(weights, weights).ravel() @ values) / 3


@pytest.mark.parametrize(
    ("sigma", "rate"),
    [(4.0, 1.0), (2.0, 0.01), *nights.at_night((0.4, 1.0), (0.7, 0.2))],
)
def test_bounds_hold_of_two_of_three_steps(sigma, rate):
    step = dp_accounting.PoissonSampledDpEvent(rate, Gaussian(sigma))
    event = ext.RandomAllocationEvent(step if rate < 1 else Gaussian(sigma), 2, 3)
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.5, 4.0, 9.0):
        truth = _two_of_three(1 / sigma, rate, math.exp(epsilon))
        if truth > 1e-11:
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= truth <= upper
            assert lower >= 0.5 * truth or epsilon > 1


def _bounds(event):
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event)
    return accountant.get_epsilon_bounds(1e-6)


@pytest.mark.nightly
def test_nested_allocations_are_one():
    inner = ext.RandomAllocationEvent(Gaussian(1.0), 1, 3)
    one = _bounds(ext.RandomAllocationEvent(Gaussian(1.0), 1, 6))
    assert _bounds(ext.RandomAllocationEvent(inner, 1, 2)) == pytest.approx(
        one, rel=2e-3
    )


@pytest.mark.nightly
def test_mass_below_all_cells_is_raised_where_ratios_are_far_below_zero():
    """The check of means refused it: raised mass at −158,720 lowers them by 5e-11."""
    twice = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(0.4062), 2)
    step = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(0.7591), twice])
    sample = dp_accounting.SampledWithReplacementDpEvent(
        100, 1, ext.RandomAllocationEvent(step, 1, 2)
    )
    accountant = ext.PLDAccountant(Relation.REPLACE_SPECIAL).compose(sample, 1000)
    lower, upper = accountant.get_epsilon_bounds(1e-10)
    assert 0 <= lower <= upper < math.inf
