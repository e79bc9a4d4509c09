"""Kinds of events that are the tests' own, and the precision of the referee."""

import functools

import flint
import newer_events
import registered

from dp_accounting_ext.reading import event_table
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds
from dp_accounting_ext.verify import mechanisms

flint.ctx.prec = channels.BITS
event_table.register_stock_events(newer_events.MODULE)
_NEWER = "RandomAllocationDpEvent"
kinds.KINDS[f"newer_events.{_NEWER}"] = kinds.KINDS[_NEWER]


def _discrete(event, reading):
    """In a batch, the record and the others may exchange their roles."""
    channel = channels.exact(*registered.laws(event))
    is_replaced = reading.relation is mechanisms.NeighborRel.REPLACE_ONE
    turned = channels.Channel(channel.rows[::-1], channel.blur)
    return [channel, turned][: 1 + is_replaced]


kinds.KINDS["registered.DiscreteEvent"] = lambda event: mechanisms.Known(
    functools.partial(_discrete, event), is_replaced=True
)
kinds.KINDS["registered.SingleShiftEvent"] = lambda event: mechanisms.NOTHING
