"""Sums of ratios at a given number of points."""

import dataclasses

import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import mean_estimation

Direction = allocation_sums.Direction


@pytest.mark.parametrize("route", allocation_sums.Route)
def test_brackets_hold_the_accountants(route):
    (sums,) = allocation_sums.compute(1.0, 30, route)
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
    rows = allocation_sums.compute(1.0, 30, route, (1000, 4000), repeats=2)
    assert [row.points for row in rows] == [1000, 4000]
    coarse, fine = (row.gap(1e-6) for row in rows)
    assert fine < 0.5 * coarse


def test_the_exponent_is_that_of_time_over_accuracy():
    coarse, fine = allocation_sums.compute(
        1.0, 30, allocation_sums.Route.GEOMETRIC, (500, 1000)
    )
    ratio = coarse.gap(1e-6) / fine.gap(1e-6)
    rows = [
        dataclasses.replace(coarse, seconds=1.0),
        dataclasses.replace(fine, seconds=ratio**2),
    ]
    assert allocation_sums.cost_exponent(rows, 1e-6) == pytest.approx(2.0, rel=1e-12)
