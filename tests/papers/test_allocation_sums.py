"""Sums of ratios at a given number of points."""

import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import mean_estimation

Direction = allocation_sums.Direction


@pytest.mark.parametrize("route", allocation_sums.Route)
def test_brackets_hold_the_accountants(route):
    sums = allocation_sums.compute(1.0, 30, tail_mass=1e-12, route=route)
    event = ext.RandomAllocationEvent(mean_estimation.stock.GaussianDpEvent(1.0), 1, 30)
    low, high = ext.PLDAccountant().compose(event).get_epsilon_bounds(1e-6)
    lower, upper = (
        max(sums.epsilons(1e-6, direction)[side] for direction in Direction)
        for side in (0, 1)
    )
    assert max(low, lower) <= min(high, upper)
    assert 0 <= sums.gap(1e-6) < 1e-3
    assert sums.seconds > 0


@pytest.mark.parametrize("route", ["GEOMETRIC", "ADDITIVE"])
def test_more_points_are_tighter(route):
    route = allocation_sums.Route[route]
    gaps = [
        allocation_sums.compute(
            1.0, 30, tail_mass=1e-12, route=route, points=points, repeats=2
        ).gap(1e-6)
        for points in (1000, 4000)
    ]
    assert gaps[1] < 0.5 * gaps[0]
