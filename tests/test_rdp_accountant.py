"""The Rényi accountant as a user of dp_accounting meets it."""

import copy
import importlib.util
import math
import pickle
import sys
import threading
import time

import attr
import dp_accounting
from dp_accounting import dp_event as stock_dp_event
from dp_accounting import privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import mpmath
import newer_events
import numpy as np
import pytest

from dp_accounting_ext import dp_event
from dp_accounting_ext import rdp_accountant
from dp_accounting_ext.reading import renyi_events
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import group_subsampling
from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import random_allocation
from dp_accounting_ext.renyi import randomized_response

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

    def test_is_the_group_s_divergence(self):
        rows = group_subsampling.group_rdp(ORDERS, 4, 0.05, 1.5)
        got = rdp(Group(4, self.EVENT))
        np.testing.assert_allclose(got, rows.max(axis=0), rtol=1e-12)
        assert np.all(got >= rows)

    def test_splits_are_composed_and_the_largest_taken_last(self, monkeypatch):
        """Two mechanisms whose worst splits are not the same."""
        curves = {
            1.0: np.array([[1.0, 5.0], [4.0, 2.0]]),
            2.0: np.array([[3.0], [1.0]]),
        }
        monkeypatch.setattr(
            group_subsampling, "group_rdp", lambda o, k, r, noise: curves[round(noise)]
        )
        ours = accountant(orders=[2.0, 3.0])
        ours.compose(
            Group(1, Composed([Gaussian(1.0), SelfComposed(Gaussian(2.0), 2)]))
        )
        assert ours.rdp == pytest.approx([7.0, 11.0])
        epsilon, delta = ours.get_epsilon(1e-3), ours.get_delta(3.0)
        rows = [[7.0, 11.0], [6.0, 4.0]]
        convert = rdp_privacy_accountant.compute_epsilon
        expected = max(convert([2.0, 3.0], row, 1e-3)[0] for row in rows)
        assert epsilon == pytest.approx(expected)
        convert = rdp_privacy_accountant.compute_delta
        assert delta == pytest.approx(
            max(convert([2.0, 3.0], row, 3.0)[0] for row in rows)
        )

    def test_the_optimal_order_is_of_the_worst_split(self, monkeypatch):
        curves = np.array([[10.0, 0.1], [0.1, 10.0]])
        monkeypatch.setattr(group_subsampling, "group_rdp", lambda *_: curves)
        ours = accountant(orders=[2.0, 64.0]).compose(Group(1, Gaussian(1.0)))
        # Row by row the better order gives 3.3 and 0.1; the largest RDPs give 10.
        epsilon, order = ours.get_epsilon_and_optimal_order(0.01)
        assert epsilon == pytest.approx(0.1 + math.log(0.5) - math.log(0.02))
        assert order == 2.0
        delta, order = ours.get_delta_and_optimal_order(5.0)
        assert delta == pytest.approx(math.exp(0.1 - 5 + math.log(0.5)) / 2)
        assert order == 2.0

    def test_counts_and_trees_are_composition(self):
        expected = 6 * rdp(Group(3, self.EVENT))
        for event, count in (
            (Group(3, self.EVENT), 6),
            (Group(3, SelfComposed(self.EVENT, 6)), 1),
            (Group(3, Composed([self.EVENT, SelfComposed(self.EVENT, 2)])), 2),
            (SelfComposed(Composed([Group(3, self.EVENT)] * 2), 3), 1),
        ):
            np.testing.assert_allclose(rdp(event, count), expected, rtol=1e-14)

    def test_a_group_of_one_is_a_single_record(self):
        got = rdp(Group(1, self.EVENT), orders=[2.0, 5.0, 16.0])
        expected = stock_rdp(self.EVENT, orders=[2.0, 5.0, 16.0])
        np.testing.assert_allclose(got, expected, rtol=1e-9)

    def test_without_sampling_it_is_a_distance(self):
        np.testing.assert_allclose(
            rdp(Group(4, Gaussian(2.0))), stock_rdp(Gaussian(0.5)), rtol=1e-10
        )

    @pytest.mark.parametrize(
        ("size", "rate", "noise", "steps", "epsilon", "delta"),
        [
            (1, 0.01, 1.0, 1000, 1.0, 2.612421e-3),
            (2, 0.01, 1.0, 1000, 4.0, 9.217114e-6),
            (4, 0.01, 1.0, 1000, 4.0, 2.773747e-2),
            (16, 1e-3, 5.0, 1000, 0.25, 2.921025e-4),
        ],
    )
    def test_delta_is_above_the_tight_one(
        self, size, rate, noise, steps, epsilon, delta
    ):
        """δ of the all-remove split, from privacy loss distributions."""
        event = Group(size, Poisson(rate, Gaussian(noise)))
        ours = rdp_accountant.RdpAccountant().compose(event, steps)
        assert delta < ours.get_delta(epsilon) < 12 * delta
        assert ours.get_epsilon(delta) > epsilon

    def test_several_queries_on_one_sample(self):
        inner = Composed([Gaussian(2.0), SelfComposed(Gaussian(2.0), 3)])
        for sampled in (Poisson(0.1, inner), Subsample(0.1, inner)):
            np.testing.assert_allclose(
                rdp(Group(2, sampled)), rdp(Group(2, Poisson(0.1, Gaussian(1.0))))
            )

    def test_zero_out_is_add_or_remove(self):
        np.testing.assert_array_equal(
            rdp(Group(2, self.EVENT), relation=NeighborRel.REPLACE_SPECIAL),
            rdp(Group(2, self.EVENT)),
        )

    def test_a_replaced_group_is_twice_as_far(self):
        """Of no sample 2K norms; on one, between K and 2K members who leave."""
        relation = NeighborRel.REPLACE_ONE
        np.testing.assert_allclose(
            rdp(Group(2, Gaussian(3.0)), relation=relation, orders=[2.0, 9.0]),
            np.array([2.0, 9.0]) * 16 / 18,
            rtol=1e-6,
        )
        replaced = rdp(Group(2, self.EVENT), relation=relation)[:20]
        assert np.all(rdp(Group(2, self.EVENT))[:20] < replaced)
        assert np.all(replaced < rdp(Group(4, self.EVENT))[:20] * (1 + 1e-6))

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

    def test_a_group_of_one_stands_beside_single_records(self):
        both = rdp(Composed([Group(1, self.EVENT), self.EVENT]))
        np.testing.assert_allclose(both, 2 * rdp(self.EVENT), rtol=1e-9)

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
        ("first", "second"),
        [
            (Gaussian(1.0), Group(4, Gaussian(2.0))),
            (Group(4, Gaussian(2.0)), Gaussian(1.0)),
            (Group(4, Gaussian(2.0)), Group(2, Gaussian(1.0))),
            (Gaussian(1.0), Gaussian(2.0)),
        ],
    )
    def test_what_another_thread_composes_meanwhile_counts(
        self, monkeypatch, first, second
    ):
        ours = accountant()
        compute, others = ours._state_of, [second]

        def overtaken(counts, size):
            if others:
                ours.compose(others.pop())
            return compute(counts, size)

        monkeypatch.setattr(ours, "_state_of", overtaken)
        ours.compose(first)
        expected = rdp(Composed([first, second]))
        np.testing.assert_allclose(ours.rdp, expected, rtol=1e-9)
        assert ours.ledger == Composed([second, first])

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


class TestAllocations:
    def test_is_the_allocation_s_divergence(self):
        expected = random_allocation.allocation_rdp(ORDERS, 1.0, 3, 100)
        got = rdp(Allocation(Gaussian(1.0), 3, 100))
        np.testing.assert_allclose(got, expected, rtol=1e-12)
        assert np.all(got >= expected)
        np.testing.assert_allclose(
            rdp(SelfComposed(Allocation(Gaussian(1.0), 3, 100), 2), 5), 10 * expected
        )

    def test_beside_stock_events(self):
        events = [Allocation(Gaussian(1.0), 1, 10), Poisson(0.1, Gaussian(2.0))]
        np.testing.assert_allclose(rdp(Composed(events)), sum(map(rdp, events)))

    def test_all_steps_are_plain_composition(self):
        np.testing.assert_allclose(
            rdp(Allocation(Gaussian(2.0), 4, 4)),
            stock_rdp(SelfComposed(Gaussian(2.0), 4)),
            rtol=1e-10,
        )

    def test_epsilon_is_above_the_tight_one(self):
        """[0.171727, 0.171733] by privacy loss distributions at σ = 1, t = 1000."""
        ours = rdp_accountant.RdpAccountant()
        ours.compose(Allocation(Gaussian(1.0), 1, 1000), 10)
        # Ten epochs: 0.54005.
        assert 0.54 < ours.get_epsilon(1e-6) < 1.0
        poisson = rdp_privacy_accountant.RdpAccountant()
        poisson.compose(Poisson(1e-3, Gaussian(1.0)), 10_000)
        assert ours.get_epsilon(1e-6) < poisson.get_epsilon(1e-6) * 1.05

    def test_several_queries_a_step(self):
        both = Composed([Gaussian(2.0), SelfComposed(Gaussian(2.0), 3)])
        np.testing.assert_allclose(
            rdp(Allocation(both, 1, 7)), rdp(Allocation(Gaussian(1.0), 1, 7))
        )

    def test_special_steps(self):
        assert np.all(rdp(Allocation(Gaussian(0.0), 1, 5)) == math.inf)
        assert np.all(
            rdp(Allocation(dp_accounting.NonPrivateDpEvent(), 1, 5)) == np.inf
        )
        assert np.all(rdp(Allocation(dp_accounting.NoOpDpEvent(), 1, 5)) == 0)

    def test_a_replaced_record_is_out_and_another_in(self):
        replaced = rdp(
            Allocation(Gaussian(2.0), 1, 5),
            relation=NeighborRel.REPLACE_ONE,
            orders=[2.0, 4.0],
        )
        one = rdp(Allocation(Gaussian(2.0), 1, 5), orders=[2.0, 4.0])
        assert np.all(one < replaced) and np.all(replaced < 6 * one)

    def test_allocations_of_other_noise_are_those_of_their_pairs(self):
        laplace = dp_accounting.LaplaceDpEvent(1.0)
        one = rdp(Poisson(0.2, laplace), orders=[2.0, 8.0])
        allocated = rdp(Allocation(laplace, 1, 5), orders=[2.0, 8.0])
        assert np.all(one < allocated) and np.all(allocated < 8 * one)


class TestSubsamples:
    @pytest.mark.parametrize("inner", [Gaussian(1.3), SelfComposed(Gaussian(2.0), 4)])
    def test_is_poisson_sampling(self, inner):
        got = rdp(Subsample(0.02, inner), 3)
        np.testing.assert_array_equal(got, rdp(Poisson(0.02, inner), 3))
        whole = [2.0, 5.0, 16.0]
        expected = 3 * stock_rdp(Poisson(0.02, inner), orders=whole)
        found = rdp(Subsample(0.02, inner), 3, orders=whole)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        # The stock's series is loose at broken orders, and divides by zero at one.
        assert np.all(np.diff(got) > 0)

    def test_ends_of_the_rate(self):
        assert np.all(rdp(Subsample(0, Gaussian(0.0))) == 0)
        np.testing.assert_array_equal(
            rdp(Subsample(1, Gaussian(2.0))), rdp(Gaussian(2.0))
        )
        assert np.all(rdp(Subsample(0.5, Composed([]))) == 0)

    def test_refusals(self):
        for sample in (Subsample, Poisson):
            special = accountant(NeighborRel.REPLACE_SPECIAL)
            with pytest.raises(Unsupported, match="cannot run on a sample"):
                special.compose(sample(0.1, Response(0.5, 2)))

    def test_a_replaced_record_of_a_sample(self):
        """Between one that leaves and two that do."""
        orders = [1.5, 2.0, 6.0]
        replaced = rdp(
            Poisson(0.1, Gaussian(2.0)),
            relation=NeighborRel.REPLACE_ONE,
            orders=orders,
        )
        one = rdp(Poisson(0.1, Gaussian(2.0)), orders=orders)
        assert np.all(one < replaced) and np.all(replaced < 4 * one)

    def test_integer_noise_multipliers_are_composed(self):
        """The stock accountant takes the first of them for all."""
        inner = Composed([Gaussian(1), Gaussian(1)])
        for rate in (1.0, 0.25):
            expected = stock_rdp(Poisson(rate, Gaussian(0.5**0.5)), orders=[2.0, 9.0])
            got = rdp(Poisson(rate, inner), orders=[2.0, 9.0])
            np.testing.assert_allclose(got, expected, rtol=1e-10)

    @pytest.mark.parametrize("rate", [1e-12, 1e-9, 1e-6])
    def test_rare_samples_are_not_lost_to_rounding(self, rate):
        """At small rates it is α r² (e^{1/σ²} − 1) / 2; the stock's may be negative."""
        orders = np.array([1.0, 1.5, 2.0, 3.0, 8.0])
        got = rdp(Poisson(rate, Gaussian(1.0)), orders=orders.tolist())
        np.testing.assert_allclose(
            got[2:4], orders[2:4] * rate**2 * math.expm1(1) / 2, rtol=1e-4
        )
        assert np.all(np.diff(got) > 0)


class TestReplaceOne:
    RELATION = NeighborRel.REPLACE_ONE

    def test_gaussian_has_twice_the_sensitivity(self):
        got = rdp(Gaussian(3.0), 2, relation=self.RELATION)
        np.testing.assert_allclose(got, 2 * 4 * np.array(ORDERS) / (2 * 9))

    def test_epsilon_is_above_the_tight_one_and_the_stock_s_is_not(self):
        tight = dp_accounting.pld.PLDAccountant(self.RELATION)
        tight.compose(Gaussian(3.0), 10)
        ours = rdp_accountant.RdpAccountant(neighboring_relation=self.RELATION)
        ours.compose(Gaussian(3.0), 10)
        stock = rdp_privacy_accountant.RdpAccountant(neighboring_relation=self.RELATION)
        stock.compose(Gaussian(3.0), 10)
        assert (
            stock.get_epsilon(1e-6) < tight.get_epsilon(1e-6) < ours.get_epsilon(1e-6)
        )
        assert ours.get_epsilon(1e-6) < 1.1 * tight.get_epsilon(1e-6)

    def test_laplace_has_twice_the_sensitivity(self):
        got = rdp(dp_accounting.LaplaceDpEvent(3.0), 2, relation=self.RELATION)
        expected = 2 * stock_rdp(dp_accounting.LaplaceDpEvent(1.5))
        np.testing.assert_allclose(got, expected)
        nothing = rdp(dp_accounting.LaplaceDpEvent(0.0), relation=self.RELATION)
        assert np.all(nothing == math.inf)

    def test_a_batch_of_all_records_is_no_sample(self):
        for inner in (Gaussian(2.0), SelfComposed(Gaussian(4.0), 4)):
            got = rdp(WithoutReplacement(50, 50, inner), relation=self.RELATION)
            expected = rdp(Gaussian(2.0), relation=self.RELATION)
            np.testing.assert_allclose(got[1:], expected[1:])

    def test_batches_are_below_the_stock_s_in_units_of_the_distance(self):
        got = rdp(WithoutReplacement(50, 5, Gaussian(4)), relation=self.RELATION)
        orders = ORDERS[1:]
        expected = stock_rdp(
            WithoutReplacement(50, 5, Gaussian(2.0)), self.RELATION, orders
        )
        assert np.all(got[1:] < expected)
        assert np.all(got[1:] > 0.1 * expected)
        assert np.all(np.diff(got) > 0)

    def test_batches_are_above_the_one_step_profile(self):
        """P = (1 − w) N(0) + w N(2), Q = N(0): an event of the tight pair."""
        ours = rdp_accountant.RdpAccountant(neighboring_relation=self.RELATION)
        ours.compose(WithoutReplacement(10, 1, Gaussian(2.0)))
        for epsilon in (0.1, 0.3, 0.5):
            kappa = math.expm1(epsilon) / 0.1 + 1
            distance, loss = 1.0, math.log(kappa)
            tail = [math.erfc(x / 2**0.5) / 2 for x in (loss - 0.5, loss + 0.5)]
            delta = 0.1 * (tail[0] - kappa * tail[1])
            assert distance == 2 / 2.0
            assert delta < ours.get_delta(epsilon)

    def test_empty_batches_and_no_noise(self):
        def of(size, noise):
            event = WithoutReplacement(10, size, Gaussian(noise))
            return accountant(self.RELATION).compose(event)

        assert of(0, 0.0).get_epsilon(0) == 0
        assert of(3, 0.0).get_epsilon(0.29) == math.inf
        assert of(3, 0.0).get_delta(1.0) == pytest.approx(0.3)
        assert of(10, 0.0).get_delta(1.0) == 1

    def test_randomized_response_on_a_batch(self):
        got = rdp(
            WithoutReplacement(1000, 1, Response(0.5, 2)), 7, relation=self.RELATION
        )
        expected = 7 * randomized_response.batch_rdp(ORDERS, 0.5, 1e-3)
        np.testing.assert_allclose(got, expected)
        alone = rdp(Response(0.5, 2), relation=self.RELATION, orders=ORDERS[1:])
        whole = rdp(WithoutReplacement(9, 9, Response(0.5, 2)), relation=self.RELATION)
        np.testing.assert_allclose(whole[1:], alone, rtol=1e-10)
        single = rdp(WithoutReplacement(9, 3, Response(0.0, 1)), relation=self.RELATION)
        assert np.all(single == 0)

    def test_more_buckets_are_those_of_their_pair(self):
        """Sampling makes it less, and a whole batch is the response itself."""
        orders = [2.0, 8.0, 64.0]
        some = rdp(
            WithoutReplacement(10, 2, Response(0.5, 4)),
            relation=self.RELATION,
            orders=orders,
        )
        alone = rdp(Response(0.5, 4), relation=self.RELATION, orders=orders)
        assert np.all(some > 0) and np.all(some < 0.7 * alone)
        left = rdp(WithoutReplacement(10, 2, Response(0.5, 4)), orders=orders)
        assert np.all(left <= some * (1 + 1e-9)) and np.all(left > 0)

    def test_a_record_that_leaves_a_batch_is_a_sampled_shift_of_two(self):
        left = rdp(WithoutReplacement(10, 2, Gaussian(2.0)), orders=[2.0, 5.0])
        sampled = rdp(Poisson(0.2, Gaussian(1.0)), orders=[2.0, 5.0])
        np.testing.assert_allclose(left, sampled, rtol=1e-5)
        assert np.all(left >= sampled * (1 - 1e-9))

    def test_other_relations_are_the_stock_s(self):
        for relation in (NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_SPECIAL):
            for event in (Gaussian(1.7), dp_accounting.LaplaceDpEvent(0.8)):
                expected = stock_rdp(event, relation)
                got = rdp(event, relation=relation)
                np.testing.assert_allclose(got, expected, rtol=1e-12)


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

    def test_nan_targets(self):
        ours = accountant().compose(Gaussian(1.0))
        with pytest.raises(ValueError, match="target_delta must be a number"):
            ours.get_epsilon(math.nan)
        with pytest.raises(ValueError, match="target_epsilon must be a number"):
            ours.get_delta(math.nan)


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


renyi_events.register_stock_events(newer_events.MODULE)


class TestNewerEvents:
    """Events that 0.6.0 lacks, by the names that newer versions give them."""

    def test_a_delta_is_never_lost(self):
        tree = Composed([Gaussian(4.0), newer_events.EpsilonDelta(0, 1e-5)])
        ours = rdp_accountant.RdpAccountant().compose(tree)
        assert ours.get_epsilon(1e-6) == math.inf
        assert ours.get_epsilon(0.99e-5) == math.inf
        nothing_else = accountant().compose(newer_events.EpsilonDelta(0, 1e-5))
        assert nothing_else.get_epsilon(0.99e-5) == math.inf
        assert nothing_else.get_epsilon(1.000001e-5) == 0
        alone = rdp_accountant.RdpAccountant().compose(Gaussian(4.0))
        rest = (2e-5 - 1e-5) / (1 - 1e-5)
        assert ours.get_epsilon(2e-5) == pytest.approx(alone.get_epsilon(rest))
        delta = alone.get_delta(1.0)
        expected = 1e-5 + (1 - 1e-5) * delta
        assert expected <= ours.get_delta(1.0) <= expected * (1 + 1e-12)
        assert ours.extra_delta == pytest.approx(1e-5)
        np.testing.assert_allclose(ours.rdp, alone.rdp)

    def test_deltas_of_many_runs_are_one_minus_the_product(self):
        ours = accountant().compose(newer_events.EpsilonDelta(0, 1e-3), 500)
        ours.compose(SelfComposed(newer_events.EpsilonDelta(0.0, 1e-4), 10), 2)
        with mpmath.workdps(40):
            exact = 1 - (1 - mpmath.mpf(1e-3)) ** 500 * (1 - mpmath.mpf(1e-4)) ** 20
        assert exact <= ours.extra_delta <= exact * (1 + 1e-12)
        assert ours.get_delta(0) >= exact

    def test_pure_dp_is_randomized_response(self):
        expected = pure_mechanisms.pure_dp_rdp(ORDERS, 0.7)
        got = rdp(newer_events.EpsilonDelta(0.7, 0.0))
        np.testing.assert_allclose(got, expected, rtol=1e-12)

    def test_a_certain_delta_is_no_privacy(self):
        ours = accountant().compose(newer_events.EpsilonDelta(0.0, 1.0))
        assert ours.get_epsilon(1) == math.inf
        assert ours.get_delta(100) == 1
        assert np.all(ours.rdp == math.inf)

    @pytest.mark.parametrize("count", [1, 10, 100])
    def test_the_exponential_mechanism_counts_its_runs(self, count):
        ours = rdp(newer_events.Exponential(0.5), count)
        expected = count * pure_mechanisms.bounded_range_rdp(ORDERS, 0.5)
        np.testing.assert_allclose(ours, expected)

    def test_permute_and_flip_is_laplace(self):
        np.testing.assert_allclose(
            rdp(newer_events.PermuteAndFlip(0.5)),
            rdp(dp_accounting.LaplaceDpEvent(2.0)),
        )

    def test_discrete_gaussian(self):
        expected = rdp(Gaussian(2.0))
        for event in (
            newer_events.DiscreteGaussian(2.0),
            newer_events.DiscreteGaussian(2.0, 1.0, 1),
            newer_events.DiscreteGaussian(4.0, 2.0, 3),
            # An integer moves by an integer.
            newer_events.DiscreteGaussian(2.0, 1.9, 1),
        ):
            np.testing.assert_allclose(rdp(event), expected)
        conservative = rdp(newer_events.DiscreteGaussian(2.0, 1.9))
        np.testing.assert_allclose(conservative, 1.9**2 * expected)
        assert np.all(rdp(newer_events.DiscreteGaussian(2.0, 0.9, 1)) == 0)
        replaced = rdp(
            newer_events.DiscreteGaussian(2.0), relation=NeighborRel.REPLACE_ONE
        )
        np.testing.assert_allclose(replaced, 4 * expected)

    def test_the_discrete_gaussian_s_divergences_are_below(self):
        sigma, shift = 0.7, 2
        points = np.arange(-60, 61)
        p, q = (np.exp(-((points - s) ** 2) / (2 * sigma**2)) for s in (shift, 0))
        p, q = p / p.sum(), q / q.sum()
        bounds = rdp(newer_events.DiscreteGaussian(sigma, shift, 1))
        for order, bound in zip(ORDERS[1:5], bounds[1:5], strict=True):
            keep = (p > 0) & (q > 0)
            logs = order * np.log(p[keep]) + (1 - order) * np.log(q[keep])
            exact = np.logaddexp.reduce(logs) / (order - 1)
            assert exact * (1 - 1e-12) <= bound
            assert order % 1 or bound == pytest.approx(exact, rel=1e-9)

    def test_upstream_s_allocation(self):
        np.testing.assert_array_equal(
            rdp(newer_events.RandomAllocation(Gaussian(1.0), 1, 4)),
            rdp(Allocation(Gaussian(1.0), 1, 4)),
        )

    def test_zero_concentrated(self):
        got = rdp(dp_accounting.ZCDpEvent(0.3, 0.2), 2)
        np.testing.assert_allclose(got, 2 * (0.2 + 0.3 * np.array(ORDERS)))

    def test_tree_aggregation_is_one_gaussian_of_its_depth(self):
        special = NeighborRel.REPLACE_SPECIAL
        for steps, depth in ((1, 1), ([3, 2], 2), (4, 3), ([1023], 10), (1024, 11)):
            event = stock_dp_event.SingleEpochTreeAggregationDpEvent(3.0, steps)
            got = rdp(event, relation=special)
            expected = rdp(Gaussian(3.0 / depth**0.5), relation=special)
            np.testing.assert_allclose(got, expected)
        with pytest.raises(Unsupported, match="must be `REPLACE_SPECIAL`"):
            accountant().compose(event)

    def test_selection_counts_a_delta_of_every_run(self):
        inner = newer_events.EpsilonDelta(0.1, 1e-8)
        ours = accountant()
        ours.compose(stock_dp_event.RepeatAndSelectDpEvent(inner, 1000, 1))
        # E (1 − δ)^K of a geometric law.
        told = 1 - (1 - 1e-8) / 1000 / (1 - (1 - 1e-3) * (1 - 1e-8))
        assert told <= ours.extra_delta <= 1.01e-5


class TestSamples:
    """Samples of what is no Gaussian."""

    INNER = (
        dp_accounting.LaplaceDpEvent(1.0),
        dp_accounting.ZCDpEvent(0.2, 0.1),
        newer_events.DiscreteGaussian(2.0),
        newer_events.Exponential(0.5),
        newer_events.PermuteAndFlip(0.5),
        newer_events.EpsilonDelta(0.5, 1e-4),
        stock_dp_event.RepeatAndSelectDpEvent(Gaussian(5.0), 2, 1),
        Composed([Gaussian(2.0), SelfComposed(dp_accounting.LaplaceDpEvent(4.0), 3)]),
    )

    @pytest.mark.parametrize("inner", INNER, ids=lambda inner: type(inner).__name__)
    def test_they_are_amplified(self, inner):
        for sample, relation in (
            (Poisson(0.05, inner), NeighborRel.ADD_OR_REMOVE_ONE),
            (Subsample(0.05, inner), NeighborRel.REPLACE_SPECIAL),
            (WithoutReplacement(100, 5, inner), NeighborRel.REPLACE_ONE),
        ):
            whole = accountant(relation).compose(inner)
            some = accountant(relation).compose(sample)
            assert np.all(some.rdp[1:4] < 0.3 * whole.rdp[1:4])
            assert np.all(some.rdp > 0)
            assert some.extra_delta == pytest.approx(0.05 * whole.extra_delta)

    @pytest.mark.parametrize(
        "inner",
        [
            dp_accounting.NonPrivateDpEvent(),
            Gaussian(0.0),
            dp_accounting.LaplaceDpEvent(0),
            Composed([Gaussian(1.0), dp_accounting.NonPrivateDpEvent()]),
        ],
    )
    def test_what_has_no_privacy_costs_its_chance(self, inner):
        ours = accountant().compose(Poisson(0.01, inner))
        assert 0.01 <= ours.get_delta(50.0) <= 0.01 * (1 + 1e-9)
        assert ours.get_epsilon(0.0099) == math.inf
        ours = accountant().compose(Group(3, Poisson(0.01, Gaussian(0.0))), 2)
        chance = 1 - 0.99**6
        assert ours.get_delta(50.0) == pytest.approx(chance)

    def test_order_infinity(self):
        ours = accountant(orders=[2.0, math.inf])
        ours.compose(Poisson(0.1, dp_accounting.LaplaceDpEvent(1.0)))
        expected = math.log1p(0.1 * math.expm1(1.0))
        assert ours.rdp[1] == pytest.approx(expected)
        assert ours.get_epsilon(0) == pytest.approx(expected)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class _Unknown(stock_dp_event.DpEvent):
    event: stock_dp_event.DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class _NewerGaussian(Gaussian):
    clipping: str = "none"


class _NewerStock(rdp_privacy_accountant.RdpAccountant):
    """A version of the library with an event, a state and a query of its own."""

    def __init__(self, orders=None, neighboring_relation=None):
        super().__init__(orders, neighboring_relation)
        self._owed = 0.0

    def _maybe_compose(self, event, count, do_compose):
        if isinstance(event, _Unknown):
            self._owed += count * do_compose
            return super()._maybe_compose(event.event, count, do_compose)
        return super()._maybe_compose(event, count, do_compose)

    def get_epsilon(self, target_delta):
        return super().get_epsilon(target_delta) + self._owed

    def get_worst_case(self):
        return self._rdp.max()

    def compose_at_once(self, events):
        for event in events:
            self._maybe_compose(event, 1, True)

    @property
    def owed(self):
        return self._owed


def on_newer_stock(monkeypatch):
    """Returns the module as it is where the library is newer than any known."""
    monkeypatch.setattr(rdp_privacy_accountant, "RdpAccountant", _NewerStock)
    spec = importlib.util.find_spec("dp_accounting_ext.rdp_accountant")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "newer_rdp_accountant", module)
    spec.loader.exec_module(module)
    return module


class TestNewerHost:
    def test_no_state_and_no_answer_of_it_is_inherited(self, monkeypatch):
        ours = on_newer_stock(monkeypatch).RdpAccountant(ORDERS)
        assert isinstance(ours, _NewerStock)
        ours.compose(Gaussian(1.0))
        np.testing.assert_array_equal(ours.rdp, rdp(Gaussian(1.0)))
        expected = accountant().compose(Gaussian(1.0)).get_epsilon(1e-6)
        assert ours.get_epsilon(1e-6) == expected
        assert not hasattr(ours, "_owed")
        for name in ("get_worst_case", "compose_at_once", "owed"):
            with pytest.raises(AttributeError, match=f"`{name}` is not supported"):
                getattr(ours, name)

    def test_an_unknown_event_is_refused_wherever_it_stands(self, monkeypatch):
        newer = on_newer_stock(monkeypatch).RdpAccountant
        event = _Unknown(Gaussian(1.0))
        assert _NewerStock(ORDERS, NeighborRel.ADD_OR_REMOVE_ONE).supports(event)
        for tree in (
            event,
            Composed([Gaussian(1.0), SelfComposed(event, 2)]),
            Poisson(0.1, event),
            Allocation(event, 1, 4),
            Group(2, event),
            stock_dp_event.RepeatAndSelectDpEvent(event, 2, 1),
        ):
            ours = newer(ORDERS)
            assert not ours.supports(tree)
            with pytest.raises(Unsupported, match="caused by subevent _Unknown"):
                ours.compose(tree)
            assert np.all(ours.rdp == 0)

    def test_fields_that_nothing_is_known_of_are_refused(self):
        newer = _NewerGaussian(1.0, "by layer")
        for tree in (newer, Poisson(0.1, newer)):
            with pytest.raises(Unsupported, match="not accounted for: clipping"):
                accountant().compose(tree)

    def test_a_field_of_its_default_means_what_it_meant(self):
        newer = accountant().compose(_NewerGaussian(1.0))
        assert np.all(newer.rdp == accountant().compose(Gaussian(1.0)).rdp)

    def test_all_that_is_inherited_is_known(self):
        """What this version of the library has, and is refused: nothing public."""
        refused = [
            name
            for name, found in vars(rdp_accountant.RdpAccountant).items()
            if type(found).__name__ == "_Refusal"
        ]
        assert refused == []


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

    def test_asking_for_support_computes_nothing(self, monkeypatch):
        def never(*_):
            raise AssertionError

        monkeypatch.setattr(curves.Curve, "rdp", never)
        for event in (
            Group(1000, Poisson(0.1, Gaussian(1.0))),
            Allocation(Gaussian(1.0), 3, 1000),
            Poisson(0.1, dp_accounting.LaplaceDpEvent(1.0)),
        ):
            assert accountant().supports(event)


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
