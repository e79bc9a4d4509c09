"""Privacy accounting that dp_accounting does not do yet, as a drop-in for it."""

from dp_accounting_ext.dp_event import GroupSubsampledEvent
from dp_accounting_ext.dp_event import PLDSubsampleEvent
from dp_accounting_ext.dp_event import RandomAllocationEvent
from dp_accounting_ext.dp_event import ScheduledAllocationEvent
from dp_accounting_ext.pld_accountant import PLDAccountant
from dp_accounting_ext.rdp_accountant import RdpAccountant

__all__ = [
    "GroupSubsampledEvent",
    "PLDAccountant",
    "PLDSubsampleEvent",
    "RandomAllocationEvent",
    "RdpAccountant",
    "ScheduledAllocationEvent",
]
