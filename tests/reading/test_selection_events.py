"""How selections are read: fields, relations, and what runs inside them."""

import dp_accounting
from dp_accounting import dp_event as stock_events
import newer_events
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import selection_events

NeighborRel = dp_accounting.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Select = stock_events.RepeatAndSelectDpEvent


def reader(relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return event_table.reader(relation)


def test_the_exponential_mechanism_is_of_any_relation():
    event = newer_events.Exponential(0.5)
    for relation in NeighborRel:
        found = selection_events.exponential(event, reader(relation))
        assert found == selections.ExponentialMechanism(0.5)
    zero = selection_events.exponential(newer_events.Exponential(0.0), reader())
    assert zero == compositions.NO_OP


def test_selections_state_what_a_record_of_their_own_relation_changes():
    event = newer_events.PermuteAndFlip(0.5)
    for relation in NeighborRel:
        found = selection_events.permute_and_flip(event, reader(relation))
        assert found == selections.PermuteAndFlip(0.5)
    derived = reader(NeighborRel.REPLACE_ONE).under(NeighborRel.ADD_OR_REMOVE_ONE)
    for read, stated in (
        (selection_events.permute_and_flip, event),
        (selection_events.exponential, newer_events.Exponential(0.5)),
    ):
        with pytest.raises(event_reader.UnsupportedError, match="here another counts"):
            read(stated, derived)


def test_a_selection_is_known_by_its_divergences():
    found = selection_events.repeat_and_select(
        Select(Gaussian(3.0), 5.0, 1.0), reader()
    )
    assert found == selections.BestOf(mechanisms.Gaussian(3.0), 5.0, 1.0)


def test_selections_of_nothing_and_of_everything():
    nothing = Select(dp_accounting.NoOpDpEvent(), 5.0, 1.0)
    assert selection_events.repeat_and_select(nothing, reader()) == compositions.NO_OP
    revealed = Select(Gaussian(0.0), 5.0, 1.0)
    found = selection_events.repeat_and_select(revealed, reader())
    assert isinstance(found, known_bounds.NonPrivate)


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (Select(Gaussian(1.0), 0.5, 1.0), ValueError, "mean must be at least 1"),
        (Select(Gaussian(1.0), "5", 1.0), TypeError, "mean must be"),
        (Select(Gaussian(1.0), 5.0, -1.0), ValueError, "shape must be"),
        (
            Select(ext.GroupSubsampledEvent(2, Gaussian(1.0)), 5.0, 1.0),
            event_reader.UnsupportedError,
            "takes single-record events",
        ),
    ],
)
def test_what_is_refused(event, error, message):
    with pytest.raises(error, match=message):
        selection_events.repeat_and_select(event, reader())
