"""The accountant as a user of dp_accounting meets it."""

from concurrent import futures
import copy
import math
import pickle
import sys
import threading
import time

import dp_accounting
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext

NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent


def allocation(sigma=1.0, selected=1, steps=1000):
    return ext.RandomAllocationEvent(Gaussian(sigma), selected, steps)


def composed(event, count=1, **options):
    return ext.PLDAccountant(**options).compose(event, count)


def test_the_contract_page():
    accountant = ext.PLDAccountant()
    accountant.compose(allocation(), 10)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert upper == accountant.get_epsilon(1e-6)
    assert 0.54004 <= lower <= upper <= 0.54006
    lower, upper = accountant.get_delta_bounds(1.0)
    assert upper == accountant.get_delta(1.0)
    assert 0 < lower <= upper < 1e-7
    assert isinstance(accountant, pld_privacy_accountant.PLDAccountant)


GRID = [
    # σ, t, k, epochs, δ: the issue's, at which a bracket is within 1e-4.
    (1.0, 10, 1, 1, 1e-6),
    (1.0, 100, 1, 1, 1e-6),
    (1.0, 1000, 1, 1, 1e-6),
    (1.0, 10_000, 1, 1, 1e-6),
    (1.0, 1_000_000, 1, 1, 1e-6),
    (0.5, 1000, 1, 1, 1e-6),
    (0.3, 100, 1, 1, 1e-6),
    (2.0, 1000, 1, 1, 1e-6),
    (5.0, 1000, 1, 1, 1e-8),
    (1.0, 1000, 1, 100, 1e-6),
    (0.8, 5000, 1, 10, 1e-10),
    (1.0, 1000, 1, 1, 1e-12),
]


@pytest.mark.parametrize(("sigma", "steps", "selected", "epochs", "delta"), GRID)
def test_brackets_are_within_1e_4(sigma, steps, selected, epochs, delta):
    accountant = composed(allocation(sigma, selected, steps), epochs)
    lower, upper = accountant.get_epsilon_bounds(delta)
    assert 0 < lower <= upper <= lower * (1 + 1e-4)
    # δ and ε invert one another.
    assert accountant.get_delta(upper) <= delta * (1 + 1e-3)


@pytest.mark.parametrize(
    ("sigma", "steps"), [(0.5, 100), (0.7, 1000), (1.0, 1000), (2.0, 100), (1.0, 10**4)]
)
def test_never_above_poisson_in_the_regime_of_figure_1(sigma, steps):
    poisson = dp_accounting.PoissonSampledDpEvent(1 / steps, Gaussian(sigma))
    stock = dp_accounting.pld.PLDAccountant().compose(poisson, steps)
    ours = composed(allocation(sigma, 1, steps)).get_epsilon(1e-6)
    assert ours <= stock.get_epsilon(1e-6)


def test_crossing_of_figure_7():
    """σ = 1, t = 2: neither scheme is the better one at every ε."""
    poisson = dp_accounting.PoissonSampledDpEvent(0.5, Gaussian(1.0))
    stock = dp_accounting.pld.PLDAccountant().compose(poisson, 2)
    ours = composed(allocation(1.0, 1, 2))
    at_zero = ours.get_delta_bounds(0.0)
    assert at_zero[0] > stock.get_delta(0.0)
    assert ours.get_delta(2.0) < stock.get_delta(2.0) * 0.98


@pytest.mark.parametrize("selected", [1, 2, 5, 8])
def test_all_steps_selected_is_plain_composition(selected):
    truth = composed(allocation(3.0, selected, selected))
    for delta in (1e-3, 1e-9):
        lower, upper = truth.get_epsilon_bounds(delta)
        mean = math.sqrt(selected) / 3.0
        assert oracles.gaussian_delta(mean, upper) <= delta
        assert oracles.gaussian_delta(mean, lower) >= delta
        assert upper <= lower * (1 + 1e-9)


def test_several_of_t_cost_less_than_their_blocks():
    """7 of 1000: six blocks of 143 and one of 142 dominate it, and are looser."""
    selected = composed(allocation(1.0, 7, 1000)).get_epsilon(1e-6)
    blocks = composed(allocation(1.0, 1, 143), 6).compose(allocation(1.0, 1, 142))
    assert selected < blocks.get_epsilon_bounds(1e-6)[0]


def test_more_noise_and_more_steps_never_hurt():
    epsilons = [composed(allocation(s)).get_epsilon(1e-6) for s in (0.6, 0.8, 1, 2, 9)]
    assert epsilons == sorted(epsilons, reverse=True)
    by_steps = [
        composed(allocation(1.0, 1, t)).get_epsilon(1e-6)
        for t in (1, 2, 9, 50, 51, 900)
    ]
    assert by_steps == sorted(by_steps, reverse=True)


@settings(max_examples=5, deadline=None)
@given(st.floats(0.4, 5.0), st.integers(1, 300), st.just(1), st.integers(1, 20))
@example(0.9, 3, 2, 3)
def test_bounds_are_ordered(sigma, steps, selected, epochs):
    accountant = composed(allocation(sigma, selected, steps), epochs)
    for delta in (0.5, 1e-5, 1e-20):
        lower, upper = accountant.get_epsilon_bounds(delta)
        assert 0 <= lower <= upper < math.inf
    lower, upper = accountant.get_delta_bounds(0.5)
    assert 0 <= lower <= upper <= 1


class TestTrees:
    def test_counts_are_composition(self):
        event = allocation(1.0, 1, 50)
        expected = composed(event, 6).get_epsilon(1e-6)
        nested = dp_accounting.SelfComposedDpEvent(
            dp_accounting.ComposedDpEvent(
                [event, dp_accounting.SelfComposedDpEvent(event, 2)]
            ),
            2,
        )
        assert composed(nested).get_epsilon(1e-6) == expected

    def test_stock_events_beside_allocations(self):
        accountant = ext.PLDAccountant()
        accountant.compose(allocation(1.0, 1, 100), 2).compose(Gaussian(4.0), 3)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, Gaussian(1.0)), 50)
        lower, upper = accountant.get_epsilon_bounds(1e-6)
        alone = composed(allocation(1.0, 1, 100), 2).get_epsilon_bounds(1e-6)
        assert alone[1] < lower <= upper <= lower * 1.01

    def test_laplace_beside_allocations(self):
        accountant = composed(allocation(1.0, 1, 100))
        alone = accountant.get_epsilon_bounds(1e-6)
        accountant.compose(dp_accounting.LaplaceDpEvent(5.0))
        lower, upper = accountant.get_epsilon_bounds(1e-6)
        assert lower >= alone[0] * (1 - 1e-6)
        assert alone[1] < upper <= alone[1] + 0.2 + 1e-3

    def test_gaussians_alone_are_the_closed_form(self):
        accountant = (
            ext.PLDAccountant().compose(Gaussian(2.0), 3).compose(Gaussian(5.0))
        )
        lower, upper = accountant.get_epsilon_bounds(1e-30)
        mean = math.sqrt(3 / 4 + 1 / 25)
        assert oracles.gaussian_delta(mean, lower) >= 1e-30
        assert oracles.gaussian_delta(mean, upper) <= 1e-30
        assert upper <= lower * (1 + 1e-9)

    def test_ledger_and_builder(self):
        accountant = composed(allocation(), 2).compose(allocation(), 3)
        assert accountant.ledger == dp_accounting.SelfComposedDpEvent(allocation(), 5)

    def test_round_trips(self):
        event = allocation(1.5, 2, 7)
        tree = dp_accounting.ComposedDpEvent([event, Gaussian(1.0)])
        assert dp_accounting.DpEvent.from_named_tuple(tree.to_named_tuple()) == tree
        assert pickle.loads(pickle.dumps(event)) == event
        assert {event: 1}[allocation(1.5, 2, 7)] == 1


class TestSpecialValues:
    @pytest.mark.parametrize(
        "event",
        [
            allocation(0.0),
            ext.RandomAllocationEvent(dp_accounting.NonPrivateDpEvent(), 1, 5),
        ],
    )
    def test_no_noise_is_no_privacy(self, event):
        accountant = composed(event)
        assert accountant.get_epsilon(1e-6) == math.inf
        assert accountant.get_delta(3.0) == 1
        assert accountant.get_epsilon_bounds(1e-6) == (math.inf, math.inf)
        assert accountant.get_delta_bounds(3.0) == (1, 1)

    def test_no_op_steps_cost_nothing(self):
        event = ext.RandomAllocationEvent(dp_accounting.NoOpDpEvent(), 1, 5)
        assert composed(event).get_epsilon_bounds(1e-6) == (0.0, 0.0)

    def test_ends_of_delta_and_epsilon(self):
        accountant = composed(allocation(1.0, 1, 20))
        assert accountant.get_epsilon(-0.1) == math.inf
        assert accountant.get_epsilon(0.0) == math.inf
        assert accountant.get_epsilon(1.0) == 0.0
        assert accountant.get_epsilon(1.5) == 0.0
        assert accountant.get_delta(math.inf) == 0.0
        assert accountant.get_epsilon_bounds(1.0) == (0.0, 0.0)
        assert accountant.get_delta_bounds(math.inf) == (0.0, 0.0)
        assert 0.3 < accountant.get_delta(-0.5) < 1

    @pytest.mark.parametrize("delta", [0.5, 0.9])
    def test_large_deltas(self, delta):
        assert composed(allocation(1.0, 1, 1000)).get_epsilon_bounds(delta) == (
            0.0,
            0.0,
        )
        lower, upper = composed(allocation(0.5, 1, 3), 2).get_epsilon_bounds(delta)
        assert 0 <= lower <= upper <= lower * 1.001 + 1e-9

    def test_delta_of_1e_20_is_finite_and_tight(self):
        lower, upper = composed(allocation(), 10).get_epsilon_bounds(1e-20)
        assert 2.99 < lower <= upper < 2.992

    def test_small_deltas_from_epsilon(self):
        accountant = composed(allocation(1.0, 1, 100), 3)
        epsilon = accountant.get_epsilon(1e-40)
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert 0.99e-40 < lower <= upper < 1.01e-40

    @pytest.mark.parametrize("value", [math.nan, float("nan")])
    def test_nan_is_refused(self, value):
        accountant = composed(allocation(1.0, 1, 10))
        with pytest.raises(
            ValueError, match="target_delta must be a number. Found nan"
        ):
            accountant.get_epsilon(value)
        with pytest.raises(ValueError, match="target_epsilon"):
            accountant.get_delta_bounds(value)

    def test_numpy_scalars(self):
        event = ext.RandomAllocationEvent(
            Gaussian(np.float64(1.0)), np.int64(1), np.int32(9)
        )
        expected = composed(allocation(1.0, 1, 9)).get_epsilon(1e-6)
        assert composed(event).get_epsilon(np.float64(1e-6)) == expected


class TestBadInput:
    @pytest.mark.parametrize(
        ("event", "error", "message"),
        [
            (
                allocation(-1.0),
                ValueError,
                "noise_multiplier must be non-negative.*-1.0",
            ),
            (allocation(math.inf), ValueError, "noise_multiplier.*inf"),
            (allocation(math.nan), ValueError, "noise_multiplier.*nan"),
            (allocation("1"), TypeError, "noise_multiplier must be a real number"),
            (
                allocation(1.0, 0, 5),
                ValueError,
                "num_selected must be at least 1. Found 0",
            ),
            (
                allocation(1.0, 1, 0),
                ValueError,
                "num_steps must be at least 1. Found 0",
            ),
            (allocation(1.0, 7, 5), ValueError, "at most num_steps. Found 7 of 5"),
            (allocation(1.0, 1.5, 5), TypeError, "num_selected must be an integer"),
            (allocation(1.0, 1, 10.0), TypeError, "num_steps must be an integer"),
            (allocation(1.0, True, 10), TypeError, "num_selected must be an integer"),
        ],
    )
    def test_bad_fields(self, event, error, message):
        accountant = composed(allocation(1.0, 1, 9))
        before = accountant.get_epsilon(1e-6), accountant.ledger
        for tree in (
            event,
            dp_accounting.ComposedDpEvent([Gaussian(1.0), event]),
            dp_accounting.SelfComposedDpEvent(event, 3),
        ):
            with pytest.raises(error, match=message):
                accountant.compose(tree)
        assert (accountant.get_epsilon(1e-6), accountant.ledger) == before

    @pytest.mark.parametrize("count", [0, -1])
    def test_bad_counts(self, count):
        accountant = ext.PLDAccountant()
        with pytest.raises(ValueError):
            accountant.compose(allocation(), count)
        with pytest.raises(ValueError):
            accountant.compose(dp_accounting.SelfComposedDpEvent(allocation(), -1))
        with pytest.raises((TypeError, ValueError)):
            accountant.compose(dp_accounting.SelfComposedDpEvent(allocation(), 2.5))
        assert accountant.ledger == dp_accounting.NoOpDpEvent()

    def test_a_replaced_record_is_one_that_leaves_and_one_that_joins(self):
        accountant = ext.PLDAccountant(NeighborRel.REPLACE_ONE)
        assert accountant.supports(allocation())
        lower, upper = accountant.compose(allocation()).get_epsilon_bounds(1e-6)
        single = composed(allocation()).get_epsilon_bounds(1e-6)
        assert single[0] <= lower <= upper
        assert single[1] < upper < 3 * single[1]

    def test_replace_special_is_the_papers_relation(self):
        special = ext.PLDAccountant(NeighborRel.REPLACE_SPECIAL).compose(allocation())
        assert special.get_epsilon(1e-6) == composed(allocation()).get_epsilon(1e-6)

    def test_inner_events_without_a_mechanism_are_refused_by_name(self):
        inner = dp_accounting.UnsupportedDpEvent()
        event = ext.RandomAllocationEvent(inner, 1, 5)
        accountant = ext.PLDAccountant()
        assert not accountant.supports(event)
        with pytest.raises(
            privacy_accountant.UnsupportedEventError, match="caused by subevent Unsupp"
        ):
            accountant.compose(event)

    @pytest.mark.parametrize("interval", [0.0, -1e-4, math.nan, math.inf, "1"])
    def test_bad_intervals(self, interval):
        with pytest.raises(
            (TypeError, ValueError), match="value_discretization_interval"
        ):
            ext.PLDAccountant(value_discretization_interval=interval)


class TestHost:
    def test_deep_copies_are_independent(self):
        accountant = composed(allocation(1.0, 1, 30))
        twin = copy.deepcopy(accountant)
        twin.compose(allocation(1.0, 1, 30))
        assert twin.get_epsilon(1e-6) > accountant.get_epsilon(1e-6)
        assert accountant.get_epsilon(1e-6) == composed(
            allocation(1.0, 1, 30)
        ).get_epsilon(1e-6)

    def test_supports_does_not_change_state(self):
        accountant = ext.PLDAccountant()
        assert accountant.supports(allocation())
        assert accountant.get_epsilon(1e-6) == 0.0

    @pytest.mark.parametrize(
        ("selected", "steps", "tolerance"), [(1, 100, 1e-6), (2, 10, 0.5)]
    )
    def test_calibration_with_its_default_bracket(self, selected, steps, tolerance):
        sigma = dp_accounting.calibrate_dp_mechanism(
            ext.PLDAccountant,
            lambda noise: allocation(noise, selected, steps),
            1.0,
            1e-6,
            tol=tolerance,
        )
        assert composed(allocation(sigma, selected, steps)).get_epsilon(1e-6) <= 1.0
        less = allocation(sigma - 2 * tolerance, selected, steps)
        less = composed(less).get_epsilon(1e-6)
        assert less > 1.0 - 1e-4

    def test_calibrating_ten_epochs_is_fast(self):
        begin = time.process_time()
        sigma = dp_accounting.calibrate_dp_mechanism(
            ext.PLDAccountant,
            lambda noise: dp_accounting.SelfComposedDpEvent(allocation(noise), 10),
            2.0,
            1e-6,
        )
        assert time.process_time() - begin < 5
        assert 0.6663 < sigma < 0.6665

    def test_a_finer_interval_is_no_worse(self):
        event = allocation(1.0, 1, 100)
        values = [
            composed(event, 20, value_discretization_interval=interval).get_epsilon(
                1e-6
            )
            for interval in (1e-2, 1e-4, 1e-5)
        ]
        assert values[0] >= values[1] * (1 - 1e-9) >= values[2] * (1 - 2e-9)


class TestManyQuestions:
    """Arrays in, arrays out; and no answer depends on what else was asked."""

    EVENTS = (
        dp_accounting.PoissonSampledDpEvent(0.01, Gaussian(1.0)),
        dp_accounting.LaplaceDpEvent(3.0),
        allocation(1.0, 1, 20),
        ext.GroupSubsampledEvent(
            2, dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(2.0))
        ),
    )
    DELTAS = (-0.1, 0.0, 1e-30, 1e-12, 1e-6, 1e-3, 0.2, 1.0, 3.0)
    EPSILONS = (-math.inf, -50.0, -0.5, 0.0, 0.3, 1.0, 4.0, 1e4, math.inf)

    @pytest.mark.parametrize("count", [1, 7])
    @pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
    def test_arrays_have_the_answers_of_numbers(self, event, count):
        together, apart = composed(event, count), composed(event, count)
        for name, values in (
            ("get_epsilon", self.DELTAS),
            ("get_delta", self.EPSILONS),
            ("get_epsilon_bounds", self.DELTAS),
            ("get_delta_bounds", self.EPSILONS),
        ):
            found = np.array(getattr(together, name)(np.array(values)))
            # In another order, and with other questions before.
            alone = [getattr(apart, name)(value) for value in values[::-1]][::-1]
            np.testing.assert_array_equal(found.T, np.array(alone))

    def test_shapes_are_kept(self):
        accountant = composed(self.EVENTS[1], 2)
        deltas = np.geomspace(1e-9, 0.1, 6).reshape(2, 3)
        epsilons = accountant.get_epsilon(deltas)
        assert epsilons.shape == (2, 3)
        assert accountant.get_epsilon(deltas[0].tolist()).shape == (3,)
        lower, upper = accountant.get_delta_bounds(epsilons)
        assert lower.shape == upper.shape == (2, 3)
        assert (lower <= deltas * (1 + 1e-9)).all()
        assert accountant.get_delta(np.zeros((0, 4))).shape == (0, 4)
        assert type(accountant.get_epsilon(np.float32(1e-3))) is float
        assert type(accountant.get_delta(np.array(1.0))) is float

    @pytest.mark.parametrize(
        ("value", "error"),
        [
            (np.array([1e-3, math.nan]), ValueError),
            (np.array([True]), TypeError),
            (np.array(["1"]), TypeError),
            ([1e-3, "1"], TypeError),
            ([[1e-3], [1e-3, 1e-4]], TypeError),
            ([1e-3, None], TypeError),
        ],
    )
    def test_bad_arrays(self, value, error):
        accountant = composed(self.EVENTS[1])
        for name in ("get_epsilon", "get_epsilon_bounds"):
            with pytest.raises(error, match="target_delta must be"):
                getattr(accountant, name)(value)
        for name in ("get_delta", "get_delta_bounds"):
            with pytest.raises(error, match="target_epsilon must be"):
                getattr(accountant, name)(value)

    def test_what_is_composed_later_is_in_later_answers(self):
        accountant = composed(self.EVENTS[0], 10)
        before = accountant.get_epsilon(1e-6)
        twin = pickle.loads(pickle.dumps(accountant))
        accountant.compose(self.EVENTS[0], 10)
        assert accountant.get_epsilon(1e-6) > before
        alone = composed(self.EVENTS[0], 20)
        assert accountant.get_epsilon_bounds(1e-6) == alone.get_epsilon_bounds(1e-6)
        assert twin.get_epsilon(1e-6) == before


class TestCopies:
    """What is composed on a copy, or in another thread, is not on the original."""

    @pytest.mark.parametrize(
        "copied", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
    )
    def test_they_share_nothing(self, copied):
        accountant = ext.PLDAccountant().compose(Gaussian(4.0))
        before = accountant.get_epsilon_bounds(1e-6)
        ledger = accountant.ledger
        twin = copied(accountant)
        assert twin.get_epsilon_bounds(1e-6) == before
        twin.compose(Gaussian(0.5), 3)
        assert accountant.get_epsilon_bounds(1e-6) == before
        assert accountant.ledger == ledger != twin.ledger
        assert twin.neighboring_relation is accountant.neighboring_relation
        empty = ext.PLDAccountant()
        copied(empty).compose(ext.GroupSubsampledEvent(3, Gaussian(1.0)))
        assert empty.compose(Gaussian(4.0)).get_epsilon_bounds(1e-6) == before

    def test_questions_while_others_compose(self):
        """Frequent switches: every answer is one of some number of runs."""
        accountant = ext.PLDAccountant()
        answers, stopped = [], threading.Event()

        def ask():
            while not stopped.is_set():
                answers.append(accountant.get_epsilon(1e-6))
                assert isinstance(accountant.ledger, dp_accounting.DpEvent)
                copy.copy(accountant)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with futures.ThreadPoolExecutor(6) as pool:
                asking = [pool.submit(ask) for _ in range(2)]
                runs = [
                    pool.submit(accountant.compose, Gaussian(10.0 + index % 40))
                    for index in range(200)
                ]
                for run in runs:
                    run.result()
                refused = pool.submit(accountant.compose, Gaussian(-1.0))
                assert isinstance(refused.exception(), ValueError)
                stopped.set()
                for each in asking:
                    each.result()
        finally:
            stopped.set()
            sys.setswitchinterval(interval)
        alone = ext.PLDAccountant()
        for index in range(200):
            alone.compose(Gaussian(10.0 + index % 40))
        expected = alone.get_epsilon_bounds(1e-6)
        assert accountant.get_epsilon_bounds(1e-6) == pytest.approx(expected, rel=1e-12)
        assert max(answers) <= expected[1] * (1 + 1e-12)


def test_a_tiny_delta_is_as_tight_as_others():
    """A law of too few atoms finds the wrong window for it: it was 57 % wide."""
    training = dp_accounting.PoissonSampledDpEvent(0.00387791692, Gaussian(3.209017674))
    lower, upper = (
        ext.PLDAccountant().compose(training, 13735).get_delta_bounds(3.60922446)
    )
    assert 1e-130 < lower <= upper <= lower * 1.01


def test_noise_that_dense_losses_add_takes_no_longer_cells():
    """Of a mixture each loss is likely, whatever atoms stand for it."""
    shifts = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(
        4.12, [0.0, 1.0, 2.0], [0.2, 0.5, 0.3]
    )
    lower, upper = ext.PLDAccountant().compose(shifts, 28023).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 2.5e-6)
