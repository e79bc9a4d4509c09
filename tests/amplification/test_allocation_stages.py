"""Means in stages: each the mean of all, with its share of the tail."""

from fractions import Fraction
import math
import types

import allocation_spies
import pytest

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import allocation_routes
from dp_accounting_ext.amplification import allocation_stages
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route
TAIL = 2.0**-40


@pytest.mark.parametrize(
    ("num_steps", "stages", "groups"),
    [
        (100, 1, 100),
        (161, 1, 161),
        (161, 2, 13),
        (200, 2, 10),
        (10000, 2, 100),
        (10**6, 3, 100),
        # Divisors at two thirds of the root and at one and a half, and just beyond.
        (164, 3, 4),
        (243, 3, 9),
        # None: 177 is 5 groups of 5 times 7, and 2 more; 1009 is 10 of 10 times 10.
        (177, 3, 5),
        (1009, 3, 10),
        # Nor any whose groups have one.
        (11, 3, 2),
        (319, 3, 7),
        # Few steps in many stages.
        (2, 2, 2),
        (3, 2, 2),
        (2, 4, 1),
        (5, 2, 2),
    ],
)
def test_numbers_of_groups(num_steps, stages, groups):
    """Near the root that makes all stages alike, a divisor where there is one."""
    assert allocation_stages.number_of_groups(num_steps, stages) == groups


class Tree:
    """Means that are only described: which sums are averaged, and how."""

    def __init__(self, monkeypatch):
        self.windows = allocation_spies.spied(
            monkeypatch, additive_window, "window_of", "window"
        )
        self.grids = []
        self.calls = []
        monkeypatch.setattr(additive_allocation, "mean_of", self.mean_of)
        monkeypatch.setattr(allocation_stages, "on_grid", self.on_grid)

    def mean_of(self, summands, window, *, points):
        self.calls.append((summands, window, points))
        return types.SimpleNamespace(summands=summands)

    def on_grid(self, *arguments):
        self.grids.append(arguments)
        return "grid"


def weight_of(node, leaf):
    """How much of a mean each leaf has, and how many leaves there are."""
    if node is leaf:
        return 1, {Fraction(1)}
    total = sum(
        s.count * Fraction(s.weight).limit_denominator(10**9) for s in node.summands
    )
    leaves, shares = 0, set()
    for summand in node.summands:
        number, own = weight_of(summand.pair, leaf)
        leaves += number * summand.count
        weight = Fraction(summand.weight).limit_denominator(10**9)
        shares |= {weight / total * share for share in own}
    return leaves, shares


@pytest.mark.parametrize("num_steps", [2, 160, 161, 200, 1009, 25_600, 25_601, 10**6])
def test_a_mean_of_means_is_the_mean(monkeypatch, num_steps):
    """Every step once, with the same weight."""
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    tree = Tree(monkeypatch)

    def of_few(pair, steps, *_):
        summands = [additive_window.Summand(pair, steps, 1.0)]
        return types.SimpleNamespace(summands=summands)

    monkeypatch.setattr(allocation_stages, "on_grid", of_few)
    found = allocation_stages.in_stages(allocation_spies.EVEN, num_steps, TAIL, 77)
    assert weight_of(found, allocation_spies.EVEN) == (
        num_steps,
        {Fraction(1, num_steps)},
    )
    assert {(window, points) for _, window, points in tree.calls} == {("window", 77)}
    stages = 1 if num_steps <= 160 else 2 if num_steps <= 25_600 else 3
    assert len(tree.calls) <= 2**stages - 1
    for summands, _, _ in tree.calls:
        assert all(summand.count > 0 for summand in summands)
        assert sum(s.count for s in summands) <= 1.5 * 160
        # As many as there are groups, one more of which may be smaller.
        groups, *rest = summands
        assert sum(s.count * s.weight for s in summands) == pytest.approx(groups.count)
        assert [s.count for s in rest] in ([], [1])


# Half of the points that five steps have alone, for their part of the sum is small.
FEW = math.ceil(allocation_stages.points_for(allocation_spies.EVEN, 5) / 2)


def test_few_steps_are_one_sum(monkeypatch):
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 160, TAIL, 77)
    summands = [additive_window.Summand(allocation_spies.EVEN, 160, 1.0)]
    assert tree.windows == [(summands, TAIL)]
    assert tree.calls == [(summands, "window", 77)]


def test_each_group_has_its_share_of_the_tail(monkeypatch):
    """161 steps: 13 groups of 12 and one of 5, each weighed by its size."""
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 161, 13 * TAIL, 77)
    assert [tail for _, tail in tree.windows] == [TAIL, 13 * TAIL]
    assert tree.grids == [(allocation_spies.EVEN, 5, TAIL, FEW)]
    last = tree.windows[-1][0]
    assert [(s.count, s.weight) for s in last] == [
        (13, 12 * 13 / 161),
        (1, 5 * 13 / 161),
    ]


def test_groups_that_are_all_large_ratios_are_summed_on_the_grid(monkeypatch):
    """The last stage is not, nor is the only one."""
    asked = allocation_spies.spied(monkeypatch, allocation_routes, "is_all_large", True)
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 161, 13 * TAIL, 77)
    assert tree.grids == [
        (allocation_spies.EVEN, 12, TAIL, None),
        (allocation_spies.EVEN, 5, TAIL, FEW),
    ]
    # Of the few that are left over it is not asked.
    assert [(steps, pair is allocation_spies.EVEN) for pair, steps in asked] == [
        (12, True),
    ]
    assert [s.pair for s in tree.calls[0][0]] == ["grid", "grid"]
    assert len(tree.calls) == 1
    asked.clear()
    allocation_stages.in_stages(allocation_spies.EVEN, 160, TAIL, 77)
    assert asked == []


def test_groups_that_are_not_all_large_ratios_stay_on_the_lattice(monkeypatch):
    allocation_spies.spied(monkeypatch, allocation_routes, "is_all_large", False)
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 1000, TAIL, 77)
    assert len(tree.calls) == 2
    assert tree.grids == []


def test_a_group_of_few_steps_is_summed_on_the_grid(monkeypatch):
    """What is left over may be two steps, whose tails no lattice shows."""
    allocation_spies.spied(monkeypatch, allocation_routes, "is_all_large", False)
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 13574, 117 * TAIL, 77)
    assert [steps for _, steps, *_ in tree.grids] == [2]
    assert tree.windows[-1][1] == 117 * TAIL


def test_rare_deltas_where_two_steps_are_left_over():
    """13,574 = 117 · 116 + 2: an infinite loss of 1e-21 would answer 130."""
    step = gaussian.dominating_pair_of(1.213, Bound.UPPER, tail_mass=1e-43)
    mean = allocation_stages.in_stages(step, 13574, 1e-36, 4096)
    assert mean.infinity_mass < 1e-30
    assert mean.epsilon(1e-24, Direction.REMOVE) < 5.0


def test_groups_of_one_size_are_averaged_once(monkeypatch):
    allocation_spies.spied(monkeypatch, allocation_routes, "is_all_large", True)
    tree = Tree(monkeypatch)
    allocation_stages.in_stages(allocation_spies.EVEN, 10**6, TAIL, 77)
    assert len(tree.grids) == 1
    assert len(tree.calls) == 2
