"""Privacy accounting that dp_accounting does not do yet, as a drop-in for it.

    step = dp_accounting.GaussianDpEvent(noise_multiplier=1.0)
    epoch = RandomAllocationEvent(step, num_selected=1, num_steps=1000)
    accountant = PLDAccountant().compose(epoch, 10)
    lower, upper = accountant.get_epsilon_bounds(1e-6)  # lower ≤ true ε ≤ upper

Beside the names here: `pld` for privacy loss distributions, `wpm` for one draw of a
private distribution, `mechanisms` for events of one's own.
"""

import importlib
from typing import Any

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

_MODULES = {"mechanisms", "pld", "wpm"}


def __getattr__(name: str) -> Any:
    """Imports a public module when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted([*__all__, *_MODULES])
