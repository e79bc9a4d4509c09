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
import numpy as np
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
    assert 0.54004 <= lower <= upper <= 0.54007
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

    @pytest.mark.parametrize("value", [math.nan, float("nan")])
    def test_nan_is_refused(self, value):
        accountant = composed(allocation(1.0, 1, 10))
        with pytest.raises(
            ValueError, match="target_delta must be a number. Found nan"
        ):
            accountant.get_epsilon(value)
        with pytest.raises(ValueError, match="target_epsilon"):
            accountant.get_delta_bounds(value)


class TestHost:
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
