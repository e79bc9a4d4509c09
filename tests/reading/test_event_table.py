"""Every event of the table: special values, what is refused, and events of others."""

import asked
import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
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
    def test_events_of_ones_own(self, own_table):
        assert not ext.PLDAccountant().supports(StaircaseEvent(1.0))
        ext.PLDAccountant.register(
            StaircaseEvent,
            lambda event, reader: discrete_outputs.PrivacyParameters(event.epsilon),
        )
        accountant = accountant_of(StaircaseEvent(0.5), 20)
        assert accountant.get_epsilon(1e-6) < 10.0
        assert accountant.get_epsilon(0.0) == pytest.approx(10.0)

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

    @pytest.mark.parametrize(
        ("event_type", "construction", "message"),
        [
            (int, lambda e, r: None, "event_type must be a subclass of DpEvent"),
            (Gaussian(1.0), lambda e, r: None, "event_type"),
            (StaircaseEvent, 5, "construction must be callable. Found 5"),
        ],
    )
    def test_bad_registrations(self, own_table, event_type, construction, message):
        with pytest.raises(TypeError, match=message):
            ext.PLDAccountant.register(event_type, construction)

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
