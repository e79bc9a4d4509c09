"""Laws of `RdpAccountant`, and of it beside the privacy losses of the same tree."""

import math

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
from lawful import ADD
from lawful import LARGE
from lawful import MILD
from lawful import accountant_of
from lawful import deltas
from lawful import law
import numpy as np
import pytest
import tree_strategies

import dp_accounting_ext as ext

# What the table of Rényi divergences has theorems for, mostly; it refuses the rest.
gaussians = tree_strategies.gaussians(LARGE)
noises = (
    gaussians | tree_strategies.edge_leaves(given=False) | tree_strategies.leaves(LARGE)
)
steps = st.integers(1, 12)
coefficients = st.just(0.0) | tree_strategies.log_scale(1e-30, 1.0)
strategies = st.lists(coefficients, min_size=1, max_size=3).map(
    lambda tail: (1.0, *tail)
)
amplified = st.one_of(
    st.builds(stock.PoissonSampledDpEvent, tree_strategies.rates(LARGE), noises),
    steps.flatmap(
        lambda t: st.builds(
            ext.RandomAllocationEvent, noises, st.integers(1, min(t, 2)), st.just(t)
        )
    ),
    st.builds(
        lambda event, count, rest: ext.ScheduledAllocationEvent(
            [event], [count], count + rest
        ),
        noises,
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    st.builds(
        lambda strategy, sigma, epochs: ext.MatrixAllocationEvent(
            strategy, sigma, len(strategy), epochs
        ),
        strategies,
        tree_strategies.log_scale(0.03, 4.0, 40),
        st.just(1),
    ),
)
trees = noises | amplified | amplified | tree_strategies.mixed_trees(LARGE, ADD)
allocations = st.builds(
    ext.RandomAllocationEvent,
    tree_strategies.gaussians(MILD),
    st.just(1),
    st.integers(2, 12),
)
orders = st.lists(
    st.floats(1.05, 200.0).map(lambda a: round(a, 2)), min_size=1, max_size=3
)


def renyi_of(*events, orders=None):
    accountant = ext.RdpAccountant(orders)
    try:
        for event in events:
            accountant.compose(event)
    except privacy_accountant.UnsupportedEventError:
        assume(False)
    return accountant


@law
@given(trees, deltas)
def test_it_is_never_below_what_is_certain_of_the_losses(event, delta):
    accountant = renyi_of(event)
    try:
        lower, _ = (known := accountant_of(event)).get_epsilon_bounds(delta)
    except privacy_accountant.UnsupportedEventError:
        return
    assert lower <= accountant.get_epsilon(delta)
    for epsilon in (0.0, lower / 2, min(lower, 1e4)):
        assert known.get_delta_bounds(epsilon)[0] <= accountant.get_delta(epsilon)


@law
@given(allocations | trees, orders)
def test_divergences_grow_with_the_order_and_are_numbers(event, orders):
    every = sorted({*orders, 2.0, 2.5, 3.0})
    rdp = renyi_of(event, orders=every).rdp
    assert (rdp >= 0).all()
    assert (rdp[:-1] <= rdp[1:] * (1 + 1e-9)).all()


@law
@given(trees, orders)
def test_no_divergence_is_above_what_a_step_by_itself_has(event, orders):
    """α-divergences between the orders asked for are bounded by interpolation alone."""
    alone = [renyi_of(event, orders=[order]).rdp[0] for order in orders]
    assert renyi_of(event, orders=orders).rdp.tolist() == pytest.approx(alone)


@law
@given(noises, steps, orders | st.none())
def test_a_schedule_of_one_step_is_the_step(event, number, orders):
    whole = renyi_of(event, orders=orders).rdp
    one = renyi_of(ext.ScheduledAllocationEvent([event], [1], 1), orders=orders).rdp
    many = renyi_of(ext.RandomAllocationEvent(event, 1, number), orders=orders).rdp
    # A mean of ratios is no farther from one than the ratios.
    finite = np.isfinite(whole)
    assert one[finite] == pytest.approx(whole[finite], rel=1e-6)
    assert (one[finite] >= whole[finite] * (1 - 1e-12)).all()
    assert (many[finite] <= whole[finite] * (1 + 1e-6)).all()


@law
@given(trees, trees, orders)
def test_composition_adds(event, other, orders):
    whole = renyi_of(event, other, orders=orders).rdp
    parts = renyi_of(event, orders=orders).rdp + renyi_of(other, orders=orders).rdp
    assert whole == pytest.approx(parts, rel=1e-12)
    twice = renyi_of(stock.SelfComposedDpEvent(event, 2), orders=orders).rdp
    assert twice == pytest.approx(renyi_of(event, event, orders=orders).rdp, rel=1e-12)


@law
@given(trees, deltas, deltas)
def test_profiles_fall(event, one, other):
    accountant = renyi_of(event)
    small, large = sorted([one, other])
    assert accountant.get_epsilon(large) <= accountant.get_epsilon(small)
    assert accountant.get_delta(1.0) <= accountant.get_delta(0.5) <= 1
    found = accountant.get_epsilon(large)
    if math.isfinite(found):
        assert accountant.get_delta(found) <= large * (1 + 1e-6)
