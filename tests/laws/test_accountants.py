"""Laws of accountants: bounds, tests, state, copies, distributions and divergences."""

import copy
import math
import pickle
import threading

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from hypothesis import assume
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
from lawful import ADD
from lawful import LARGE
from lawful import MILD
from lawful import accountant_of
from lawful import brackets
from lawful import cases
from lawful import deltas
from lawful import law
import numpy as np
import pytest
from scipy import special
import tree_strategies

import dp_accounting_ext as ext
from dp_accounting_ext import pld

Composed = stock.ComposedDpEvent
SelfComposed = stock.SelfComposedDpEvent
Poisson = stock.PoissonSampledDpEvent
Mixture = stock.MixtureOfGaussiansDpEvent
rare_cases = st.tuples(
    tree_strategies.rare_parts(),
    st.sampled_from(privacy_accountant.NeighboringRelation),
)


@law
@given(cases | rare_cases, deltas, st.floats(0.0, 1.0))
def test_bounds_are_ordered(case, delta, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, high = accountant.get_epsilon_bounds(delta)
    assert 0 <= low <= high
    for epsilon in (0.0, share * (high if math.isfinite(high) else 3.0)):
        least, most = accountant.get_delta_bounds(epsilon)
        assert 0 <= least <= most <= 1


@law
@given(
    cases,
    # One after another: of the largest δ, of the smallest, of any.
    st.tuples(tree_strategies.log_scale(1e-14, 0.5), st.just(1e-40), deltas),
)
def test_arrays_are_their_numbers_whatever_was_asked_before(case, points):
    """Bit for bit: in an array, alone, again, and after other questions."""
    event, relation = case
    epsilons = [0.0, 0.5, 3.0]
    whole = accountant_of(event, relation=relation)
    of_deltas = np.array(whole.get_epsilon_bounds(np.array(points)))
    of_epsilons = np.array(whole.get_delta_bounds(np.array(epsilons)))
    alone = accountant_of(event, relation=relation)
    for accountant in (alone, whole):
        for i, (delta, epsilon) in enumerate(zip(points, epsilons, strict=True)):
            assert accountant.get_delta_bounds(epsilon) == tuple(of_epsilons[:, i])
            assert accountant.get_epsilon_bounds(delta) == tuple(of_deltas[:, i])
            assert accountant.get_epsilon(delta) == of_deltas[1, i]


@law
@given(cases, deltas | st.just(0.0))
def test_epsilon_at_delta_has_that_delta(case, delta):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    epsilon = accountant.get_epsilon(delta)
    assume(math.isfinite(epsilon))
    least, _ = accountant.get_delta_bounds(epsilon)
    assert least <= delta
    lower, _ = accountant.get_epsilon_bounds(delta)
    assert accountant.get_delta(math.nextafter(lower, -1.0)) >= delta or lower == 0


@law
@given(cases, st.lists(deltas | st.just(0.0), min_size=3, max_size=3))
def test_profiles_fall(case, points):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    small, *_, large = sorted(points)
    assert accountant.get_epsilon_bounds(large)[0] <= accountant.get_epsilon(small)
    assert accountant.get_delta_bounds(1.0)[0] <= accountant.get_delta(0.5)


@law
@given(
    cases,
    deltas,
    st.sampled_from(
        [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
    ),
)
def test_copies_of_accountants_are_independent(case, delta, copied):
    """Of either accountant, and of an empty one, which has yet to see a group."""
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    before = brackets(accountant, delta), accountant.ledger
    twin = copied(accountant)
    assert brackets(twin, delta) == before[0]
    twin.compose(Composed([event, stock.GaussianDpEvent(2.0)]))
    assert (brackets(accountant, delta), accountant.ledger) == before
    assert twin.ledger != before[1]
    noise = stock.GaussianDpEvent(2.0)
    for empty in (ext.PLDAccountant(), ext.RdpAccountant([2.0, 9.0])):
        copied(empty).compose(ext.GroupSubsampledEvent(3, noise))
        before = empty.compose(noise).get_delta(1.0), empty.ledger
        copied(empty).compose(noise, 5)
        assert (empty.get_delta(1.0), empty.ledger) == before


@law
@given(tree_strategies.cases(MILD), st.floats(0.0, 1.0))
def test_distributions_agree_with_the_accountant(case, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    top = accountant.get_epsilon(1e-6)
    assume(top < 100)
    low, high = (
        pld.from_event(
            event,
            neighboring_relation=relation,
            value_discretization_interval=max(top, 1e-3) / 100,
            pessimistic_estimate=side,
        ).get_delta_for_epsilon(share * top)
        for side in (False, True)
    )
    least, most = accountant.get_delta_bounds(share * top)
    assert low <= most * (1 + 1e-12)
    assert least <= high * (1 + 1e-12)


@law
@given(cases, deltas)
def test_threads_ask_the_same_accountant(case, delta):
    event, relation = case
    alone = brackets(accountant_of(event, relation=relation), delta)
    accountant, found = accountant_of(event, relation=relation), []
    threads = [
        threading.Thread(target=lambda: found.append(brackets(accountant, delta)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 3


rates = st.floats(-320.0, 0.0).map(lambda x: 10.0**x) | st.sampled_from(
    [0.0, 0.5, *tree_strategies.beside(1e-320, 1e-100)]
)


@law
@given(cases, rates, rates)
def test_rates_are_ordered_and_grow(case, one, other):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    small, large = sorted([one, other])
    low, high = accountant.get_true_positive_rate_bounds(small)
    low_2, high_2 = accountant.get_true_positive_rate_bounds(large)
    assert 0 <= low <= high <= 1 and low_2 <= high_2
    assert small <= high and low <= high_2


@law
@given(cases, rates | st.floats(0.001, 0.4), st.floats(0.0, 1.0))
def test_a_test_finds_no_more_than_delta_allows(case, rate, share):
    """TPR ≤ e^ε FPR + δ(ε) for every ε, with equality for one of them."""
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, _ = accountant.get_true_positive_rate_bounds(rate)
    epsilon = share * min(accountant.get_epsilon(1e-9), 700.0)
    # e^ε is rounded to the nearest float, and so is the product.
    allowed = math.exp(epsilon) * rate * (1 + 1e-13) + 5e-324
    assert low <= allowed + accountant.get_delta(epsilon) * (1 + 1e-15)


@law
@given(cases, st.floats(0.0, 1.0))
def test_mu_covers_what_the_tests_find(case, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, high = accountant.get_gdp_parameter_bounds(least_false_positive_rate=1e-6)
    assert 0 <= low <= high
    rate = 10 ** (-6 + share * 5.6)
    found, _ = accountant.get_true_positive_rate_bounds(rate)
    if math.isfinite(high):
        assert found <= special.ndtr(special.ndtri(rate) + high) * (1 + 1e-9)


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
@example(Mixture(0.457, [2.0, 0.5, 0.0], [0.0, 0.5, 0.5]), 12, None)
@example(Mixture(2.29, [0.5, 0.0, 0.5], [0.5, 0.1, 0.4]), 2, None)
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
def test_profiles_of_divergences_fall(event, one, other):
    accountant = renyi_of(event)
    small, large = sorted([one, other])
    assert accountant.get_epsilon(large) <= accountant.get_epsilon(small)
    assert accountant.get_delta(1.0) <= accountant.get_delta(0.5) <= 1
    found = accountant.get_epsilon(large)
    if math.isfinite(found):
        assert accountant.get_delta(found) <= large * (1 + 1e-6)
