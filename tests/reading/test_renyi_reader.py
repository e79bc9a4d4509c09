"""How events become curves, and what is refused before anything is computed."""

import attr
import dp_accounting
from dp_accounting import dp_event
import pytest

from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.reading import renyi_reader
from dp_accounting_ext.renyi import curves

NeighborRel = dp_accounting.NeighboringRelation


@attr.s(frozen=True, slots=True, auto_attribs=True)
class NewerEvent(dp_event.DpEvent):
    """An event with a field that nobody heard of."""

    scale: float
    surprise: float = 0.0


def reader_of(row, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return renyi_reader.Reader(relation, {NewerEvent: row})


def test_a_field_that_is_not_read_is_refused():
    def build(event, reader):
        return curves.gaussian(event.scale)

    row = event_reader.Row(frozenset({"scale"}), None, build)
    with pytest.raises(event_reader.UnsupportedError, match="surprise"):
        reader_of(row).curve(NewerEvent(1.0, 2.0))
    # Of its default it means what it meant.
    assert reader_of(row).curve(NewerEvent(1.0)) == curves.gaussian(1.0)


def test_unknown_events_and_relations_are_refused_by_name():
    reader = event_table.curve_reader(NeighborRel.REPLACE_SPECIAL)
    with pytest.raises(event_reader.UnsupportedError, match="No Rényi curve is known"):
        reader.curve(NewerEvent(1.0))
    with pytest.raises(event_reader.UnsupportedError, match="REPLACE_ONE"):
        reader.require(NewerEvent(1.0), NeighborRel.REPLACE_ONE)
    reader.require(NewerEvent(1.0), NeighborRel.REPLACE_SPECIAL)
