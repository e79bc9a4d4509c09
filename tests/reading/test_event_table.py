"""One reader for all events, of the table or of others; groups that tell a split."""

import asked
import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import newer_events
import nights
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.reading import batch_events
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
REPLACE = NeighborRel.REPLACE_ONE
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class StaircaseEvent(dp_accounting.DpEvent):
    """A third party's event: an (ε, 0)-private mechanism."""

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class TwiceEvent(dp_accounting.DpEvent):
    """A third party's event with another inside, run twice on one sample."""

    event: dp_accounting.DpEvent


class TestRegister:
    def test_inner_events_are_read_by_the_reader(self, own_table):
        ext.PLDAccountant.register(
            TwiceEvent,
            lambda event, reader: compositions.compose(
                {reader.mechanism(event.event): 2}
            ),
        )
        twice = accountant_of(TwiceEvent(Gaussian(2.0))).get_epsilon(1e-6)
        assert twice == accountant_of(Gaussian(2.0), 2).get_epsilon(1e-6)
        unsupported = TwiceEvent(stock_events.UnsupportedDpEvent())
        assert not ext.PLDAccountant().supports(unsupported)

    def test_a_crossing_far_below_any_delta_is_not_hidden(self, own_table):
        """All of δ below 1e-12 were moved together, whatever they were."""

        class Wrong(mechanisms.OnePairMechanism):
            def pair(self, bound, accuracy):
                gain = 1e-30 if bound is Bound.UPPER else 1e-28
                masses = np.array([1 - gain / 1e10, gain / 1e10])
                ratios = np.array([1.0, 1e10])
                return dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, bound)

        ext.PLDAccountant.register(StaircaseEvent, lambda event, reader: Wrong())
        with pytest.raises(ArithmeticError, match="is above the upper one"):
            accountant_of(StaircaseEvent(1.0)).get_delta_bounds(3.0)


def test_every_stock_event_has_a_builder_or_is_refused():
    """A stock event that is new is refused, and never read as something else."""
    reader = event_table.reader(NeighborRel.ADD_OR_REMOVE_ONE)
    composed = Composed, SelfComposed
    kinds = [
        kind
        for kind in vars(stock_events).values()
        if isinstance(kind, type)
        and issubclass(kind, stock_events.DpEvent)
        and kind not in (stock_events.DpEvent, *composed)
    ]
    unread = {kind.__name__ for kind in kinds if kind not in reader.rows}
    for kind in kinds:
        if kind.__name__ in unread:
            event = kind(*[None] * len(attr.fields(kind)))
            assert not ext.PLDAccountant().supports(event)
    assert {"GaussianDpEvent", "LaplaceDpEvent", "NoOpDpEvent"}.isdisjoint(unread)
    assert "UnsupportedDpEvent" in unread


def test_ten_thousand_composes_one_at_a_time():
    accountant = ext.PLDAccountant()
    for _ in range(10_000):
        accountant.compose(Poisson(0.001, Gaussian(1.0)))
    expected = accountant_of(Poisson(0.001, Gaussian(1.0)), 10_000)
    assert accountant.get_epsilon(1e-6) == expected.get_epsilon(1e-6)


def test_so_many_runs_and_no_more():
    laplace, gaussian = additive_noise.laplace(1.0), additive_noise.Gaussian(1.0)
    assert event_reader.check_counts({laplace: 10**9, gaussian: 2**53}) == 1
    with pytest.raises(ValueError, match=r"^count must be at most 1000000000 .*Found"):
        event_reader.check_counts({laplace: 10**9 + 1})
    with pytest.raises(ValueError, match=r"^count must be at most 2\^53"):
        event_reader.check_counts({gaussian: 2**53 + 1})


def test_so_many_mechanisms_and_no_more():
    parts = [additive_noise.laplace(1.0 + i) for i in range(2000)]
    noise = [additive_noise.Gaussian(1.0 + i) for i in range(10)]
    assert event_reader.check_counts(dict.fromkeys([*parts, *noise], 1)) == 2000
    assert event_reader.check_counts({parts[0]: 2}, parts, 2000) == 2000
    with pytest.raises(ValueError, match=r"^event must add up to at most 2000 .* 2001"):
        event_reader.check_counts({parts[0]: 1}, (), 2000)


def test_what_states_its_own_privacy_states_it_of_its_own_relation(own_table):
    event_table.register_stock_events(newer_events.MODULE)
    stated = newer_events.EpsilonDelta(1.0, 1e-6)
    assert accountant_of(stated, 1, REPLACE).get_epsilon(2e-6) <= 1.0 + 1e-9
    accountant = ext.PLDAccountant(REPLACE)
    for event in (
        Poisson(0.5, stated),
        ext.RandomAllocationEvent(Composed([Gaussian(1.0), stated]), 1, 5),
    ):
        assert not accountant.supports(event)
        with pytest.raises(
            privacy_accountant.UnsupportedEventError, match="here another counts"
        ):
            accountant.compose(event)
        assert ext.PLDAccountant().supports(event)


def test_what_is_merged_lies_on_either_side():
    rates = (0.1, 0.3, 0.7)
    event = Gaussian(1.3)
    for rate in rates:
        event = Poisson(rate, Composed([event]))
    more, less = batch_events.merged(event)
    with mpmath.workdps(40):
        exact = mpmath.fprod(map(mpmath.mpf, rates))
        assert less.sampling_probability < exact < more.sampling_probability
    noises = Composed([Gaussian(0.3), SelfComposed(Gaussian(1.1), 7)])
    more, less = batch_events.merged(Poisson(0.5, noises))
    with mpmath.workdps(40):
        square = mpmath.mpf(0.3) ** -2 + 7 * mpmath.mpf(1.1) ** -2
        assert more.event.noise_multiplier < 1 / mpmath.sqrt(square)
        assert less.event.noise_multiplier > 1 / mpmath.sqrt(square)


@pytest.mark.parametrize(
    "event",
    [
        Poisson(0.1, Gaussian(1.0)),
        Poisson(0.1, Composed([Gaussian(1.0), Laplace(1.0)])),
        Poisson(0.1, Composed([])),
        Poisson(0.1, Poisson(0.0, Gaussian(1.0))),
        Poisson(0.1, SelfComposed(Poisson(0.2, Gaussian(1.0)), 2)),
    ],
)
def test_what_is_one_or_none_is_not_merged(event):
    assert batch_events.merged(event) is None


@pytest.mark.nightly
def test_many_draws_of_one_record_are_told():
    """Their moments alone made ε 7009: E Z² is above e^2000."""
    event = dp_accounting.SampledWithReplacementDpEvent(60_000, 64, Gaussian(2.0))
    renyi = ext.RdpAccountant(neighboring_relation=NeighborRel.REPLACE_ONE)
    exact = ext.PLDAccountant(NeighborRel.REPLACE_ONE).compose(event, 5000)
    found = renyi.compose(event, 5000).get_epsilon(1e-5)
    assert exact.get_epsilon_bounds(1e-5)[0] <= found <= 3.3


REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
Group = ext.GroupSubsampledEvent
SAMPLED = dp_accounting.PoissonSampledDpEvent(0.2, Gaussian(1.5))


def composed(*events, count=1):
    accountant = ext.PLDAccountant()
    for event in events:
        accountant.compose(event, count)
    return accountant


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("split", [(3, 0), (2, 1), (4, 1), (2, 2)])
def test_a_told_split_against_many_digits(split, direction):
    """Those who leave move the sum up, and those who join down."""
    accountant = composed(Group(sum(split), SAMPLED, num_removed=split[0]))
    with mpmath.workdps(60):
        p, q = (
            [(n / noise, oracles.binomial(size, n, 0.2)) for n in range(size + 1)]
            for size, noise in zip(
                split, (mpmath.mpf(1.5), -mpmath.mpf(1.5)), strict=True
            )
        )
    for epsilon in (-0.5, 0.0, 0.7, 2.0):
        truth = oracles.shift_mixture_deltas(p, q, epsilon)[direction]
        lower, upper = accountant.get_delta_bounds(epsilon, direction=direction)
        assert lower <= truth <= upper


@pytest.mark.parametrize(
    "event",
    [
        SAMPLED,
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0)),
        *nights.at_night(ext.RandomAllocationEvent(Gaussian(1.0), 1, 5)),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize(
    "accountant", [ext.PLDAccountant, lambda: ext.RdpAccountant([2.0, 4.0, 9.0, 30.0])]
)
def test_the_largest_told_split_is_the_bound_of_all(event, accountant):
    def epsilon(removed):
        return accountant().compose(Group(3, event, removed), 4).get_epsilon(1e-5)

    told = [epsilon(removed) for removed in range(4)]
    assert told == told[::-1]
    assert max(told) == pytest.approx(epsilon(None), rel=2e-3)


def test_all_events_are_of_the_told_split():
    """Those of single records, whenever they are composed, and in what is nested."""
    group = Group(3, SAMPLED, num_removed=2)
    truth = composed(group, Group(3, Gaussian(9.0), 2)).get_epsilon(1e-5)
    assert composed(Gaussian(9.0), group).get_epsilon(1e-5) == truth
    assert composed(group, Gaussian(9.0)).get_epsilon(1e-5) == truth
    assert composed(Group(1, Gaussian(9.0), 0), group).get_epsilon(1e-5) == truth


@pytest.mark.parametrize(
    "other",
    [Group(3, SAMPLED), Group(3, SAMPLED, 3), Group(2, SAMPLED), Group(5, SAMPLED, 2)],
)
def test_groups_that_tell_different_splits_are_refused(other):
    accountant = composed(Group(3, SAMPLED, num_removed=2))
    before = accountant.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="num_removed and group_size must be the same"):
        accountant.compose(other)
    assert accountant.get_epsilon(1e-5) == before
    with pytest.raises(ValueError, match="num_removed and group_size must be the same"):
        composed(dp_accounting.ComposedDpEvent([other, Group(3, SAMPLED, 1)]))
