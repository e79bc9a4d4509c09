"""Landmarks are near all inputs, and bounds from them hold."""

import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import landmarks
from dp_accounting_ext.wpm.costs import dense_cost


def test_no_input_is_further_than_the_radius():
    points = np.random.default_rng(0).random((3000, 2))
    cost = wpm.PointCost(points)
    found = landmarks.choose(cost)
    distances = cost.rows(found.inputs).min(axis=0)
    assert distances.max() == found.radius < 0.1


def test_what_is_no_metric_has_no_radius():
    cost = dense_cost.DenseCost(np.random.default_rng(0).random((40, 3)))
    found = landmarks.choose(cost)
    assert found.radius == np.inf and found.inputs.size == 40


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_bound_is_a_triangle(order):
    marks = landmarks.Landmarks(np.array([0]), 0.5)
    found = landmarks.bound_everywhere(4.0, marks, order)
    assert found == pytest.approx((4 ** (1 / order) + 0.5) ** order)
