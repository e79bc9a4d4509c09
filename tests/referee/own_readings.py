"""Kinds of events that are the tests' own, and the precision of the referee."""

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
kinds.KINDS["registered.DiscreteEvent"] = lambda event: mechanisms.Known(
    lambda reading: [channels.exact(*registered.laws(event))], is_reversible=True
)
kinds.KINDS["registered.SingleShiftEvent"] = lambda event: mechanisms.NOTHING
