"""The Rényi accountant as a user of dp_accounting meets it."""

import copy
import math
import pickle
import sys
import threading
import time

import dp_accounting
from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import newer_events
import numpy as np
import pytest

from dp_accounting_ext import dp_event
from dp_accounting_ext import rdp_accountant
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
Unsupported = privacy_accountant.UnsupportedEventError
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
Response = dp_accounting.RandomizedResponseDpEvent
Group = dp_event.GroupSubsampledEvent
Allocation = dp_event.RandomAllocationEvent
Subsample = dp_event.PLDSubsampleEvent

ORDERS = [1.0, 1.5, 2.0, 2.5, 5.0, 16.0, 64.0]


def accountant(relation=NeighborRel.ADD_OR_REMOVE_ONE, orders=ORDERS):
    return rdp_accountant.RdpAccountant(orders, relation)


def rdp(event, count=1, **options):
    return accountant(**options).compose(event, count).rdp


def stock_rdp(event, relation=NeighborRel.ADD_OR_REMOVE_ONE, orders=ORDERS):
    return rdp_privacy_accountant.RdpAccountant(orders, relation).compose(event).rdp


class TestGroups:
    EVENT = Poisson(0.05, Gaussian(1.5))

    def test_events_of_nobody_stand_beside_groups(self):
        ours = accountant().compose(Group(2, self.EVENT))
        before = ours.get_epsilon(1e-6)
        after = ours.compose(dp_accounting.NoOpDpEvent()).get_epsilon(1e-6)
        assert after == pytest.approx(before, rel=1e-12)
        ours.compose(dp_accounting.NonPrivateDpEvent())
        assert ours.get_epsilon(1e-6) == math.inf
        assert ours.get_delta(5.0) == 1.0
        nothing = accountant().compose(Group(2, dp_accounting.NoOpDpEvent()))
        assert nothing.get_epsilon(1e-6) == 0
        everything = accountant().compose(Group(2, dp_accounting.NonPrivateDpEvent()))
        assert everything.get_epsilon(1e-6) == math.inf

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Group(16, EVENT), Gaussian(1.0)),
            (Group(16, EVENT), SelfComposed(Composed([Gaussian(1.0), EVENT]), 2)),
            (Group(4, Allocation(Gaussian(1.0), 1, 5)), Allocation(EVENT, 1, 3)),
            (Group(16, EVENT), Group(4, EVENT)),
        ],
    )
    def test_the_largest_group_sees_all_that_is_composed(self, first, second):
        size = first.group_size
        inner = second.event if isinstance(second, Group) else second
        expected = rdp(Composed([first, Group(size, inner)]))
        for events in ((first, second), (second, first)):
            ours = accountant()
            for event in events:
                assert ours.supports(event)
                ours.compose(event)
            np.testing.assert_allclose(ours.rdp, expected, rtol=1e-9)
            assert ours.ledger == Composed(list(events))
            np.testing.assert_allclose(rdp(Composed(list(events))), expected, rtol=1e-9)

    def test_a_group_that_cannot_see_what_was_composed_changes_nothing(self):
        fixed = WithoutReplacement(10, 2, Gaussian(1.0))
        ours = accountant(relation=NeighborRel.REPLACE_ONE).compose(fixed)
        before = ours.rdp, ours.ledger
        with pytest.raises((Unsupported, ValueError), match="group_size|dataset_size"):
            ours.compose(Group(16, Gaussian(1.0)))
        np.testing.assert_array_equal(ours.rdp, before[0])
        assert ours.ledger == before[1]

    @pytest.mark.parametrize(
        "inner",
        [
            Group(2, Gaussian(1.0)),
            Composed([Gaussian(1.0), stock_dp_event.UnsupportedDpEvent()]),
        ],
    )
    def test_other_inner_events_are_refused(self, inner):
        assert not accountant().supports(Group(2, inner))
        with pytest.raises(Unsupported, match="PLDAccountant|no event describes"):
            accountant().compose(Group(2, inner))

    def test_groups_inside_of_samples_are_refused(self):
        with pytest.raises(
            Unsupported, match=r"Wrap the whole: GroupSubsampledEvent\(3, Poisson"
        ):
            accountant().compose(Poisson(0.1, Group(3, Gaussian(1.0))))
        selected = stock_dp_event.RepeatAndSelectDpEvent(Group(3, Gaussian(1.0)), 1, 1)
        with pytest.raises(Unsupported, match="RepeatAndSelectDpEvent"):
            accountant().compose(selected)


BAD_FIELDS = [
    (Gaussian(math.nan), ValueError, "noise_multiplier must be a number. Found nan"),
    (Gaussian("1"), TypeError, "noise_multiplier must be a real number"),
    (Gaussian(-1.0), ValueError, "must be non-negative.*-1.0"),
    (dp_accounting.LaplaceDpEvent(math.nan), ValueError, "noise_multiplier"),
    (Group(0, Gaussian(1.0)), ValueError, "group_size must be at least 1. Found 0"),
    (Group(2.5, Gaussian(1.0)), TypeError, "group_size must be an integer. Found 2.5"),
    (Group(True, Gaussian(1.0)), TypeError, "group_size must be an integer"),
    (Group(2, Gaussian(-1.0)), ValueError, "noise_multiplier.*non-negative.*-1.0"),
    (Group(2, Poisson(1.2, Gaussian(1.0))), ValueError, r"in \[0, 1\]. Found 1.2"),
    (Group(2, Subsample(math.nan, Gaussian(1.0))), ValueError, "sampling_probability"),
    (Group(2, SelfComposed(Gaussian(1.0), 0)), ValueError, "count must be at least 1"),
    (Group(2, SelfComposed(Gaussian(1.0), 1.5)), TypeError, "count must be an integer"),
    (Subsample("a", Gaussian(1.0)), TypeError, "sampling_probability"),
    (Subsample(-0.1, Gaussian(1.0)), ValueError, r"in \[0, 1\]. Found -0.1"),
    (Subsample(1.5, Composed([])), ValueError, r"in \[0, 1\]. Found 1.5"),
    (Poisson(0.5, Composed([Gaussian(-2)])), ValueError, "non-negative.*Found -2"),
    (Allocation(Gaussian(-1.0), 1, 5), ValueError, "noise_multiplier.*-1.0"),
    (Allocation(Gaussian(1.0), 7, 5), ValueError, "at most num_steps. Found 7 of 5"),
    (Allocation(Gaussian(1.0), 0, 5), ValueError, "num_selected must be at least 1"),
    (Allocation(Gaussian(1.0), 1, 2.0), TypeError, "num_steps must be an integer"),
    (SelfComposed(Gaussian(1.0), -1), ValueError, "count must be at least 1. Found -1"),
    (
        SelfComposed(Gaussian(1.0), 2.5),
        TypeError,
        "count must be an integer. Found 2.5",
    ),
]
BAD_BATCHES = [
    (WithoutReplacement(5, 7, Gaussian(1.0)), ValueError, "sample_size.*7 of 5"),
    (WithoutReplacement(0, 0, Gaussian(1.0)), ValueError, "source_dataset_size"),
    (WithoutReplacement(5, -1, Gaussian(1.0)), ValueError, "sample_size.*Found -1"),
    (WithoutReplacement(5, 1.5, Gaussian(1.0)), TypeError, "sample_size"),
    (WithoutReplacement(5, 2, Response(1.5, 2)), ValueError, "noise_parameter"),
]


class TestBadInput:
    @pytest.mark.parametrize(
        ("event", "error", "message", "relation"),
        [(*case, NeighborRel.ADD_OR_REMOVE_ONE) for case in BAD_FIELDS]
        + [(*case, NeighborRel.REPLACE_ONE) for case in BAD_BATCHES],
    )
    def test_fields_are_refused_and_nothing_is_changed(
        self, event, error, message, relation
    ):
        good = Gaussian(2.0)
        if isinstance(event, Group):
            good = Group(2, good)
        for tree in (event, SelfComposed(event, 3), Composed([good, event])):
            ours = accountant(relation)
            with pytest.raises(error, match=message):
                ours.compose(tree)
            assert np.all(ours.rdp == 0)
            assert ours.ledger == dp_accounting.NoOpDpEvent()
            # Nor is it known whose privacy would have been accounted for.
            assert ours.supports(Gaussian(1.0))
            assert relation is NeighborRel.REPLACE_ONE or ours.supports(
                Group(3, Gaussian(1.0))
            )

    def test_what_was_composed_before_stays(self):
        ours = accountant().compose(Gaussian(2.0), 2)
        before = ours.rdp
        failing = stock_dp_event.RepeatAndSelectDpEvent(Gaussian(1.0), 0.5, 1)
        with pytest.raises(ValueError, match="mean must be"):
            ours.compose(failing)
        with pytest.raises(Unsupported):
            ours.compose(Composed([Gaussian(1.0), stock_dp_event.UnsupportedDpEvent()]))
        np.testing.assert_array_equal(ours.rdp, before)
        assert ours.ledger == SelfComposed(Gaussian(2.0), 2)

    @pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
    def test_counts(self, count):
        with pytest.raises((TypeError, ValueError), match="count must be"):
            accountant().compose(Gaussian(1.0), count)

    def test_no_events(self):
        with pytest.raises(TypeError, match="DpEvent"):
            accountant().compose("Gaussian")

    @pytest.mark.parametrize("order", [0.5, math.nan, -3])
    def test_orders(self, order):
        with pytest.raises(ValueError, match="orders must be"):
            accountant(orders=[2.0, order])


class TestHost:
    def test_is_a_stock_accountant(self):
        ours = rdp_accountant.RdpAccountant()
        assert isinstance(ours, rdp_privacy_accountant.RdpAccountant)
        assert ours.orders.tolist() == list(rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
        assert ours.neighboring_relation is NeighborRel.ADD_OR_REMOVE_ONE

    def test_support_does_not_change_state(self):
        ours = accountant()
        assert ours.supports(Group(2, Gaussian(1.0)))
        assert ours.supports(Gaussian(1.0))
        assert np.all(ours.rdp == 0)

    def test_copies_are_independent(self):
        ours = accountant().compose(Group(2, Gaussian(2.0)))
        twin = copy.deepcopy(ours)
        twin.compose(Group(2, Gaussian(2.0)))
        np.testing.assert_allclose(twin.rdp, 2 * ours.rdp)

    def test_ledger(self):
        ours = accountant().compose(Group(2, Gaussian(2.0)), np.int64(2))
        ours.compose(Group(2, Gaussian(2.0)))
        assert ours.ledger == SelfComposed(Group(2, Gaussian(2.0)), 3)

    @pytest.mark.parametrize(
        "make",
        [
            lambda noise: Allocation(Gaussian(noise), 1, 50),
            lambda noise: Group(2, SelfComposed(Poisson(0.05, Gaussian(noise)), 20)),
        ],
    )
    def test_calibration_with_its_default_bracket(self, make):
        def fresh():
            return accountant(orders=[1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])

        noise = dp_accounting.calibrate_dp_mechanism(fresh, make, 1.0, 1e-6)
        assert fresh().compose(make(noise)).get_epsilon(1e-6) <= 1.0
        assert fresh().compose(make(noise * 0.999)).get_epsilon(1e-6) > 0.99

    def test_stock_events_are_the_stock_s(self):
        tree = Composed(
            [
                SelfComposed(Poisson(0.01, Gaussian(1.1)), 100),
                Gaussian(4.0),
                dp_accounting.LaplaceDpEvent(9.0),
                dp_accounting.ZCDpEvent(0.01),
            ]
        )
        orders = [2.0, 4.0, 8.0, 32.0]
        ours = accountant(orders=orders).compose(tree)
        stock = rdp_privacy_accountant.RdpAccountant(orders).compose(tree)
        np.testing.assert_allclose(ours.rdp, stock.rdp, rtol=1e-10)
        for name, target in (("get_epsilon", 1e-6), ("get_delta", 2.0)):
            assert getattr(ours, name)(target) == pytest.approx(
                getattr(stock, name)(target), rel=1e-9
            )


event_table.register_stock_events(newer_events.MODULE)


class TestThreads:
    def test_no_run_is_lost_to_a_refused_one(self, monkeypatch):
        ours = accountant()
        after = rdp_accountant._State.after

        def slowly(*arguments):
            state = after(*arguments)
            time.sleep(1e-4)
            return state

        monkeypatch.setattr(rdp_accountant._State, "after", slowly)
        refused = Composed([Gaussian(10.0), stock_dp_event.UnsupportedDpEvent()])
        errors = []

        def work(seed):
            for number in range(50):
                if (number + seed) % 3:
                    ours.compose(Gaussian(10.0))
                else:
                    try:
                        ours.compose(refused)
                    except Unsupported:
                        continue
                    errors.append(number)
                ours.get_epsilon(1e-6)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        runs = sum((n + s) % 3 != 0 for s in range(8) for n in range(50))
        assert not errors
        assert ours.ledger == SelfComposed(Gaussian(10.0), runs)
        np.testing.assert_allclose(ours.rdp, runs * rdp(Gaussian(10.0)))

    @pytest.mark.parametrize(
        "duplicate",
        [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_copies_share_nothing(self, duplicate):
        ours = accountant().compose(Group(2, Gaussian(2.0)))
        before = ours.rdp, ours.ledger, ours.get_delta(1.0)
        twin = duplicate(ours)
        twin.compose(Group(2, Gaussian(2.0)), 5)
        assert twin.ledger == SelfComposed(Group(2, Gaussian(2.0)), 6)
        np.testing.assert_array_equal(ours.rdp, before[0])
        assert (ours.ledger, ours.get_delta(1.0)) == before[1:]
        fresh = duplicate(accountant())
        fresh.compose(Group(3, Gaussian(2.0)))
        assert twin.get_delta(1.0) > before[2]


class TestLimits:
    def test_groups(self):
        with pytest.raises(ValueError, match="at most 1024. Found 100000000"):
            accountant().compose(Group(10**8, Gaussian(1.0)))

    def test_rates(self):
        for sample in (
            Poisson(1e-200, Gaussian(1.0)),
            Group(2, Poisson(1e-200, Gaussian(1.0))),
        ):
            with pytest.raises(
                ValueError, match="sampling_probability must be 0 or at"
            ):
                accountant().compose(sample)

    def test_orders_of_any_size(self):
        ours = accountant(orders=[1.0, 1e9, math.inf])
        ours.compose(Poisson(0.1, Gaussian(1.0)))
        ours.compose(Poisson(0.1, dp_accounting.LaplaceDpEvent(1.0)))
        ours.compose(dp_accounting.LaplaceDpEvent(1.0))
        assert not np.isnan(ours.rdp).any()
        assert ours.rdp[2] == math.inf
        with pytest.raises(ValueError, match="at least one order"):
            accountant(orders=[])


def test_arrays_have_the_answers_of_numbers():
    accountant = rdp_accountant.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(3.0), 4)
    deltas = np.array([[0.0, 1e-9], [1e-3, 0.5]])
    epsilons = accountant.get_epsilon(deltas)
    assert epsilons.shape == (2, 2)
    expected = [accountant.get_epsilon(delta) for delta in deltas.flat]
    assert epsilons.ravel().tolist() == expected
    found = accountant.get_delta([0.0, 1.0])
    assert found.tolist() == [accountant.get_delta(e) for e in (0.0, 1.0)]
    assert type(accountant.get_delta(1)) is float
    with pytest.raises(ValueError, match="target_delta must be non-negative"):
        accountant.get_epsilon([1e-3, -1.0])
