"""Readings of events that are the tests' own, and the precision of the referee."""

import flint
import newer_events
import registered

from dp_accounting_ext.reading import event_table
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import readers
from dp_accounting_ext.verify import readings

flint.ctx.prec = channels.BITS
event_table.register_stock_events(newer_events.MODULE)
_NEWER = "RandomAllocationDpEvent"
readers.READERS[f"newer_events.{_NEWER}"] = readers.READERS[_NEWER]
readers.READERS["registered.DiscreteEvent"] = lambda event, referee: [
    channels.exact(*registered.laws(event))
]
readings.REVERSIBLE.add("registered.DiscreteEvent")
readers.READERS["registered.SingleShiftEvent"] = lambda event, referee: [channels.NO_OP]
