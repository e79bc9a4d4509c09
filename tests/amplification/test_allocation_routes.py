"""Which route an allocation takes, with what accuracy, and in what stages."""

from fractions import Fraction
import itertools
import math
import types

import allocation_spies
import numpy as np
import oracles
import pytest

from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import allocation_routes
from dp_accounting_ext.amplification import allocation_stages
from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import exact_means
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Route = random_allocation.Route
TAIL = 2.0**-40


def atoms_of(pair):
    return pair.ratios.tolist(), pair.masses.tolist()


def window_of(monkeypatch, low, high):
    window = types.SimpleNamespace(low=low, high=high)
    return allocation_spies.spied(monkeypatch, additive_window, "window_of", window)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (allocation_spies.EVEN, False),
        (allocation_spies.pair_of([1.0], [1.0]), True),
        (
            allocation_spies.pair_of([2.0, 2.0], [0.25, 0.25], infinity=0.0, zero=0.0),
            True,
        ),
        (allocation_spies.pair_of([0.5], [1.0], infinity=0.5), True),
        (allocation_spies.pair_of([2.0], [0.5], zero=0.5), False),
        (allocation_spies.pair_of([1.0, 2.0], [0.0, 0.0], zero=1.0), True),
        (allocation_spies.pair_of([1.0, 2.0], [0.0, 0.5], zero=0.5), False),
    ],
)
def test_what_stays_as_it_is(pair, expected):
    """A ratio that is one number is its own mean; a zero beside it is another."""
    assert random_allocation.is_constant(pair) is expected
    found = random_allocation.random_allocation(pair, 2, tail_mass=1e-9, points=64)
    assert (found is pair) is expected


@pytest.mark.parametrize("route", [Route.GEOMETRIC, Route.ADDITIVE])
@pytest.mark.parametrize("points", [None, 77])
def test_the_route_that_is_asked_for(monkeypatch, route, points):
    asked = allocation_spies.spied(monkeypatch, allocation_routes, "choose_route")
    on_grid = allocation_spies.spied(monkeypatch, allocation_stages, "on_grid", "grid")
    on_lattice = allocation_spies.spied(
        monkeypatch, allocation_stages, "in_stages", "lattice"
    )
    found = random_allocation.random_allocation(
        allocation_spies.EVEN, 2, tail_mass=TAIL, route=route, points=points
    )
    if route is Route.GEOMETRIC:
        assert (found, on_lattice) == ("grid", [])
        ((pair, *rest),) = on_grid
        assert rest == [2, TAIL, points]
    else:
        lattice_points = points or allocation_stages.ADDITIVE_POINTS
        assert (found, on_grid) == ("lattice", [])
        ((pair, *rest),) = on_lattice
        assert rest == [2, TAIL, lattice_points]
    assert atoms_of(pair) == atoms_of(allocation_spies.EVEN)
    assert asked == []


@pytest.mark.parametrize("route", [Route.GEOMETRIC, Route.ADDITIVE])
def test_the_route_that_suits(monkeypatch, route):
    asked = allocation_spies.spied(
        monkeypatch, allocation_routes, "choose_route", route
    )
    allocation_spies.spied(monkeypatch, allocation_stages, "on_grid", Route.GEOMETRIC)
    allocation_spies.spied(monkeypatch, allocation_stages, "in_stages", Route.ADDITIVE)
    assert (
        random_allocation.random_allocation(allocation_spies.EVEN, 5, tail_mass=TAIL)
        is route
    )
    ((pair, *rest),) = asked
    assert (atoms_of(pair), rest) == (atoms_of(allocation_spies.EVEN), [5, TAIL])


@pytest.mark.parametrize("bound", list(Bound))
def test_ratios_without_mass_are_left_out(monkeypatch, bound):
    calls = allocation_spies.spied(monkeypatch, allocation_stages, "on_grid")
    pair = allocation_spies.pair_of(
        [0.25, 0.5, 1.5, 1e300],
        [0, 0.5, 0.25, 0],
        infinity=0.375,
        zero=0.25,
        bound=bound,
    )
    random_allocation.random_allocation(pair, 9, tail_mass=TAIL, route=Route.GEOMETRIC)
    (found, *_) = calls[0]
    assert atoms_of(found) == ([0.5, 1.5], [0.5, 0.25])
    assert (found.infinity_mass, found.zero_mass) == (0.375, 0.25)
    assert found.bound is bound


@pytest.mark.parametrize(("steps", "lost"), [(39, False), (41, True)])
@pytest.mark.parametrize("zero", [0.0, 0.125])
@pytest.mark.parametrize("bound", list(Bound))
def test_what_has_lost_its_mass_says_nothing(monkeypatch, bound, zero, steps, lost):
    """Half of it is there, and of a sum 2^-steps; 2^-40 may be trimmed."""
    calls = allocation_spies.spied(monkeypatch, allocation_stages, "on_grid", "grid")
    pair = allocation_spies.pair_of(
        [0.5, 1.5], [0.25, 0.25 - zero], zero=zero, bound=bound
    )
    found = random_allocation.random_allocation(
        pair, steps, tail_mass=TAIL, route=Route.GEOMETRIC
    )
    assert len(calls) == 1 - lost
    if lost:
        nothing = dominating_pair.trivial_pair(bound)
        assert found.bound is bound
        assert atoms_of(found) == atoms_of(nothing)
        assert found.infinity_mass == nothing.infinity_mass
    else:
        assert found == "grid"


def test_a_sum_as_rare_as_what_may_be_trimmed_is_not_lost():
    pair = allocation_spies.pair_of([0.5, 1.5], [0.25, 0.25], bound=Bound.LOWER)
    assert random_allocation.is_lost(pair, 1, 0.5) is False


def test_sums_fit_a_float(monkeypatch):
    """A ratio of which t are more than e^690 counts as infinite."""
    steps = 1000
    largest = 690 - math.log(steps)
    for loss, kept in ((largest - 0.01, True), (largest + 0.01, False)):
        calls = allocation_spies.spied(monkeypatch, allocation_stages, "on_grid")
        top = math.exp(loss)
        pair = allocation_spies.pair_of([0.5, 1.5, top], [0.75, 0.25, 0.125 / top])
        random_allocation.random_allocation(
            pair, steps, tail_mass=TAIL, route=Route.GEOMETRIC
        )
        (found, *_) = calls[0]
        assert found.ratios.tolist() == [0.5, 1.5, top][: 2 + kept]
        assert found.infinity_mass == pytest.approx(0 if kept else 0.125)


@pytest.mark.parametrize(
    ("highest", "num_steps", "points"),
    [
        # Eight doublings of a range of twenty, or less, at 4000 points.
        (20.0, 128, 4000),
        (1.0, 128, 4000),
        (20.0, 65, 4000),
        (80.0, 128, 8000),
        (20.0, 2, 8000),
        (80.0, 2, 16000),
        (20.0, 129, math.ceil(4000 * math.sqrt(1.2))),
        (20.0, 2**31, math.ceil(4000 * math.sqrt(1.2))),
    ],
)
def test_points_keep_the_cost(highest, num_steps, points):
    pair = allocation_spies.pair_of([1.0, math.exp(highest)], [0.5, 0.5])
    assert allocation_stages.points_for(pair, num_steps) == pytest.approx(points, abs=1)
    assert allocation_stages.points_for(pair, num_steps) >= points


@pytest.mark.parametrize(("points", "expected"), [(None, 8000), (77, 77)])
def test_the_grid_takes_the_points_it_is_given(monkeypatch, points, expected):
    calls = allocation_spies.spied(
        monkeypatch, geometric_allocation, "mean_of_copies", "mean"
    )
    settled = allocation_spies.spied(monkeypatch, exact_means, "settled", "settled")
    found = allocation_stages.on_grid(allocation_spies.EVEN, 2, TAIL, points)
    assert found == "settled"
    assert calls == [(allocation_spies.EVEN, 2, TAIL, expected)]
    assert settled == [("mean",)]


ADDITIVE, GEOMETRIC = Route.ADDITIVE, Route.GEOMETRIC


@pytest.mark.parametrize(
    ("ratios", "num_steps", "route"),
    [
        ([0.5, 1.5], 8, ADDITIVE),
        ([1.5, 1.5], 8, GEOMETRIC),
        ([0.5, 1.0], 8, ADDITIVE),
        # The range of the loss, and its upper end.
        ([1.0, 1 + 1e-8], 8, ADDITIVE),
        ([1.0, 1 + 0.9e-9], 8, GEOMETRIC),
        ([math.exp(-160), math.exp(-149)], 8, ADDITIVE),
        ([math.exp(-160), math.exp(-151)], 8, GEOMETRIC),
        ([math.exp(-148), 1.5], 8, ADDITIVE),
        ([math.exp(-151), 1.5], 8, GEOMETRIC),
        ([math.exp(140), math.exp(149)], 8, ADDITIVE),
        ([math.exp(140), math.exp(151)], 8, GEOMETRIC),
        ([math.exp(130), math.exp(140), math.exp(151)], 8, GEOMETRIC),
    ],
)
def test_the_lattice_is_for_many_steps_of_moderate_loss(
    monkeypatch, ratios, num_steps, route
):
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    window_of(monkeypatch, 1.0, 2.0)
    pair = allocation_spies.pair_of(ratios, np.full(len(ratios), 0.5))
    assert allocation_routes.choose_route(pair, num_steps, tail_mass=TAIL) is route


def test_the_narrowest_range_is_for_the_grid(monkeypatch):
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    window_of(monkeypatch, 1.0, 2.0)
    monkeypatch.setattr(
        allocation_routes, "_NARROWEST_LOSS", allocation_spies.EVEN.loss_range()
    )
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, 8, tail_mass=TAIL)
        is GEOMETRIC
    )


def test_a_range_of_just_150_is_moderate(monkeypatch):
    pair = allocation_spies.pair_of([1.0, math.exp(150.0)], [0.5, 0.5])
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    window_of(monkeypatch, 1.0, 2.0)
    assert pair.loss_range() == 150.0
    assert allocation_routes.choose_route(pair, 8, tail_mass=TAIL) is ADDITIVE


@pytest.mark.parametrize(
    ("large", "deviation", "route"),
    [
        (math.inf, 1.0, ADDITIVE),
        (5.0, 1.0, ADDITIVE),
        (5.0 + 1e-9, 1.0, GEOMETRIC),
        (8.5, 2.0, ADDITIVE),
        (9.5, 2.0, GEOMETRIC),
    ],
)
def test_the_grid_is_for_large_ratios_far_from_the_bulk(
    monkeypatch, large, deviation, route
):
    """More than four standard deviations above the mean ratio."""
    calls = allocation_spies.bulk_of(monkeypatch, large, deviation)
    window_of(monkeypatch, 1.0, 2.0)
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, 8, tail_mass=TAIL)
        is route
    )
    assert [(pair is allocation_spies.EVEN, steps) for pair, steps in calls] == [
        (True, 8)
    ] * len(calls)


def test_the_grid_is_for_sums_that_are_all_large_ratios(monkeypatch):
    allocation_spies.bulk_of(monkeypatch, 2.0, 1.0)
    window_of(monkeypatch, 1.0, 2.0)
    asked = allocation_spies.spied(monkeypatch, allocation_routes, "is_all_large", True)
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, 9, tail_mass=TAIL)
        is GEOMETRIC
    )
    assert asked == [(allocation_spies.EVEN, 9)]


@pytest.mark.parametrize(
    ("low", "high", "route"),
    [(1.0, 16.0, ADDITIVE), (1.0, 16.1, GEOMETRIC), (2.0, 31.0, ADDITIVE)],
)
def test_the_grid_is_for_sums_of_many_sizes(monkeypatch, low, high, route):
    """Those that add a record see the least sums relatively."""
    allocation_spies.bulk_of(monkeypatch, math.inf, 1.0)
    calls = window_of(monkeypatch, low, high)
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, 9, tail_mass=TAIL)
        is route
    )
    assert calls == [([additive_window.Summand(allocation_spies.EVEN, 9)], TAIL)]


NO_JUMPS, JUMPS = (math.inf, 1.0), (1.5, 1.0)


@pytest.mark.parametrize(
    ("bulk", "num_steps", "low", "high", "route"),
    [
        # The sum of seven is from 3.5 to 10.5, its mean 7.
        (NO_JUMPS, 7, 5.0, 9.0, ADDITIVE),
        (NO_JUMPS, 7, 4.3, 9.0, GEOMETRIC),
        (NO_JUMPS, 7, 5.0, 9.7, GEOMETRIC),
        (NO_JUMPS, 7, 4.4, 9.6, ADDITIVE),
        (JUMPS, 7, 5.0, 9.0, GEOMETRIC),
        (NO_JUMPS, 8, 4.3, 11.0, ADDITIVE),
        (JUMPS, 8, 4.3, 11.0, ADDITIVE),
    ],
)
def test_few_steps_are_for_the_lattice_where_it_shows_no_end(
    monkeypatch, bulk, num_steps, low, high, route
):
    allocation_spies.bulk_of(monkeypatch, *bulk)
    window_of(monkeypatch, low, high)
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, num_steps, tail_mass=TAIL)
        is route
    )


@pytest.mark.parametrize(
    ("bulk", "tail_mass", "route"),
    [
        (NO_JUMPS, 1.1e-90, ADDITIVE),
        (NO_JUMPS, 0.9e-90, GEOMETRIC),
        ((1.5, 0.25 / 60), 1.1e-72, ADDITIVE),
        ((1.5, 0.25 / 60), 0.9e-72, GEOMETRIC),
    ],
)
def test_the_rarest_tails_are_for_the_grid(monkeypatch, bulk, tail_mass, route):
    """There Fourier sums have nothing left; with large ratios sooner."""
    monkeypatch.setattr(allocation_routes, "_HEAVIEST_RATIO", 1e3)
    allocation_spies.bulk_of(monkeypatch, *bulk)
    window_of(monkeypatch, 1.0, 2.0)
    assert (
        allocation_routes.choose_route(allocation_spies.EVEN, 12, tail_mass=tail_mass)
        is route
    )


@pytest.mark.parametrize(
    ("sigma", "num_steps", "delta", "route"),
    [
        (4.763, 9, 8.4e-29, GEOMETRIC),
        (4.763, 11, 8.4e-29, GEOMETRIC),
        (4.763, 12, 8.4e-29, ADDITIVE),
        (4.763, 9, 1e-20, ADDITIVE),
        (10.0, 7, 1e-6, ADDITIVE),
        (100.0, 2, 1e-6, ADDITIVE),
        (1000.0, 3, 1e-30, GEOMETRIC),
        (10.0, 2, 1e-6, GEOMETRIC),
        (2.0, 7, 1e-6, GEOMETRIC),
        (1.0, 10, 1e-6, GEOMETRIC),
        (1.0, 1000, 1e-6, ADDITIVE),
        (1.0, 1000, 1e-100, GEOMETRIC),
        (6.0, 9, 1e-6, ADDITIVE),
        (6.0, 9, 1e-16, ADDITIVE),
        (0.5, 1000, 1e-6, GEOMETRIC),
    ],
)
def test_routes_of_gaussians(sigma, num_steps, delta, route):
    tail_mass = delta * 1e-6
    for bound in Bound:
        pair = gaussian.dominating_pair_of(
            sigma, bound, tail_mass=tail_mass / num_steps / 100
        )
        found = allocation_routes.choose_route(pair, num_steps, tail_mass=tail_mass)
        assert found is route


@pytest.mark.parametrize(
    ("sigma", "num_steps", "delta", "widest"),
    [
        (10.0, 7, 1e-6, 2e-6),
        (100.0, 5, 1e-15, 2e-6),
        (6.0, 9, 1e-40, 1e-4),
        (3.0, 200, 1e-24, 2e-4),
        (1.0, 3000, 1e-90, 2e-4),
    ],
)
def test_the_chosen_route_is_tight(sigma, num_steps, delta, widest):
    """By the other one: 1e-5, 1e-5, 4e-2, 2e-2 and no bound at all."""
    tail_mass = delta * 1e-6
    lower, upper = (
        random_allocation.random_allocation(
            gaussian.dominating_pair_of(
                sigma, bound, tail_mass=tail_mass / num_steps / 100
            ),
            num_steps,
            tail_mass=tail_mass,
        ).epsilon(delta, Direction.REMOVE)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert lower <= upper <= lower * (1 + widest)


@pytest.mark.parametrize("tail_mass", [1e-12, 1e-21, 1e-36])
def test_few_steps_of_bounded_noise_are_for_the_grid(tail_mass):
    """Whose largest sum has an atom."""
    pair = additive_noise.laplace(10.0).pairs(Bound.UPPER, 1e-40).remove
    for num_steps in (2, 3, 5, 7):
        found = allocation_routes.choose_route(pair, num_steps, tail_mass=tail_mass)
        assert found is GEOMETRIC


@pytest.mark.parametrize(
    ("large", "deviation", "expected"),
    [
        (math.inf, 1e-30, False),
        (1.0, 1.0, True),
        (5.0, 1.0, False),
        # A lattice of 10^7 standard deviations reaches the highest ratio, or not.
        (10.0, 1e-7, True),
        (10.0, 0.9e-6, True),
        (10.0, 1.1e-6, False),
    ],
)
def test_sums_that_are_all_large_ratios(monkeypatch, large, deviation, expected):
    """Jumps that have most of the mean, or that no lattice has room for."""
    pair = allocation_spies.pair_of([0.5, 2.0, 10.0], [0.5, 0.25, 0.025])
    calls = allocation_spies.bulk_of(monkeypatch, large, deviation)
    assert allocation_routes.is_all_large(pair, 9) is expected
    assert [(found is pair, steps) for found, steps in calls] == [(True, 9)]


@pytest.mark.parametrize(
    ("high", "large", "expected"),
    [(0.5, 1.0, False), (0.51, 1.0, True), (0.51, 2.0, False)],
)
def test_half_of_the_mean_in_large_ratios_is_not_most(
    monkeypatch, high, large, expected
):
    pair = allocation_spies.pair_of([0.5, 2.0], [0.5, high / 4], infinity=0.5)
    allocation_spies.bulk_of(monkeypatch, large, 1.0)
    assert allocation_routes.is_all_large(pair, 9) is expected


def test_the_reach_of_a_lattice_is_ten_million_deviations(monkeypatch):
    allocation_spies.bulk_of(monkeypatch, 2.0, 1.5e-7)
    assert allocation_routes.is_all_large(allocation_spies.EVEN, 9) is False


def test_the_bulk_is_what_is_not_one_in_a_thousand_sums():
    pair = allocation_spies.pair_of([0.5, 1.5, 1000.0], [0.5, 0.5, 1e-7])
    large, deviation = allocation_routes.bulk(pair, 100)
    assert large == 1.5
    assert deviation == pytest.approx(math.sqrt(100 * 0.25))
    large, deviation = allocation_routes.bulk(allocation_spies.EVEN, 100)
    assert large == math.inf
    assert deviation == pytest.approx(math.sqrt(100 * 0.25))


@pytest.mark.parametrize("bound", list(Bound))
def test_an_uneven_allocation_against_enumeration(bound, monkeypatch):
    """Two of one step and one of another: each has a third of the mean."""
    monkeypatch.setattr(random_allocation, "UNEVEN_POINTS", 4000)
    first = allocation_spies.pair_of(
        [0.5, 1.5], [0.5, 0.25], infinity=0.375, zero=0.25, bound=bound
    )
    second = allocation_spies.pair_of([0.25, 1.75], [0.5, 0.5], bound=bound)
    found = random_allocation.uneven_allocation(
        [(first, 2), (second, 1)], tail_mass=1e-12
    )
    laws = [
        list(
            zip(
                oracles.exact([0.0, *pair.ratios]),
                oracles.exact([pair.zero_mass, *pair.masses]),
                strict=True,
            )
        )
        for pair in (first, first, second)
    ]
    law = [
        (sum(place for place, _ in way) / 3, math.prod(mass for _, mass in way))
        for way in itertools.product(*laws)
    ]
    for epsilon in (-1.0, -0.2, 0.0, 0.2, 0.5):
        kappa = Fraction(math.exp(epsilon))
        truths = (
            oracles.remove_divergence(law, kappa, Fraction(1, 4)),
            oracles.add_divergence(law, kappa, Fraction(0)),
        )
        for direction, truth in zip(Direction, truths, strict=True):
            value = found.delta(epsilon, direction)
            assert value == pytest.approx(float(truth), abs=1e-5)
            if bound is Bound.UPPER:
                assert value >= float(truth) * (1 - 1e-15)
            else:
                assert value <= float(truth) * (1 + 1e-15)


def test_uneven_steps_share_the_tail_mass(monkeypatch):
    each = allocation_spies.spied(
        monkeypatch, random_allocation, "random_allocation", "mean"
    )
    total = allocation_spies.spied(
        monkeypatch, geometric_allocation, "weighted_mean", "all"
    )
    other = allocation_spies.pair_of([0.5, 1.5], [0.5, 0.5])
    found = random_allocation.uneven_allocation(
        [(allocation_spies.EVEN, 3), (other, 5)], tail_mass=TAIL
    )
    assert found == "all"
    assert [(pair is allocation_spies.EVEN, *rest) for pair, *rest in each] == [
        (True, 3, TAIL / 2),
        (False, 5, TAIL / 2),
    ]
    assert total == [(["mean", "mean"], [3 / 8, 5 / 8], TAIL / 2, 16384)]


def test_steps_that_are_all_alike_are_one_allocation(monkeypatch):
    each = allocation_spies.spied(
        monkeypatch, random_allocation, "random_allocation", "mean"
    )
    assert (
        random_allocation.uneven_allocation(
            [(allocation_spies.EVEN, 3)], tail_mass=TAIL
        )
        == "mean"
    )
    assert each == [(allocation_spies.EVEN, 3, TAIL)]
