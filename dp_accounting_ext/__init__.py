"""Privacy accounting that dp_accounting does not do yet, as a drop-in for it.

    step = dp_accounting.GaussianDpEvent(noise_multiplier=1.0)
    epoch = RandomAllocationEvent(step, num_selected=1, num_steps=1000)
    accountant = PLDAccountant().compose(epoch, 10)
    lower, upper = accountant.get_epsilon_bounds(1e-6)  # lower ≤ true ε ≤ upper

The public names, with help of their own:

    PLDAccountant             certified ε and δ of any tree of events
    RdpAccountant             the same by Rényi divergences, upper bounds alone
    RandomAllocationEvent     each record in k of an epoch's t steps, drawn for it alone
    ScheduledAllocationEvent  the same, of steps that differ, or that were cut short
    PLDSubsampleEvent         anything on one Poisson sample
    PLDEvent                  a mechanism by its privacy loss distribution
    MatrixAllocationEvent     correlated noise with balls-in-bins batches
    CyclicPoissonEvent        correlated noise with Poisson samples of secret groups
    MinSepSamplingEvent       correlated noise with b-min-sep sampling
    PoissonMatrixEvent        correlated noise on Poisson samples
    SelectedStepsMatrixEvent  correlated noise with each record in k of t steps
    WindowedAllocationEvent   correlated noise with a step drawn in each of many windows
    GroupSubsampledEvent      what is promised to a group of records
    certify_by_sampling       a bracket that holds with probability 1 − α
    pld                       privacy loss distributions of events: from_event
    risk                      what an attacker can do: advantage, true positives, …
    verify                    a second opinion, in balls or by draws
    budget                    noise for a target, runs that remain, privacy filters
    dp_event                  these events, and four of a newer dp_accounting
    integrations              Opacus, jax_privacy
    wpm                       one draw of a private distribution
    mechanisms                what events of one's own are built from
    studies                   training runs: compared, calibrated, in a statement
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    # At run time these are imported at their first use. A type checker reads them here.
    from dp_accounting_ext import dp_event as dp_event
    from dp_accounting_ext import integrations as integrations
    from dp_accounting_ext import mechanisms as mechanisms
    from dp_accounting_ext import studies as studies
    from dp_accounting_ext import verify as verify
    from dp_accounting_ext import wpm as wpm
    from dp_accounting_ext.accountants import budget as budget
    from dp_accounting_ext.accountants import pld as pld
    from dp_accounting_ext.accountants import risk as risk
    from dp_accounting_ext.accountants.pld_accountant import PLDAccountant
    from dp_accounting_ext.accountants.rdp_accountant import RdpAccountant
    from dp_accounting_ext.correlated.events import CyclicPoissonEvent
    from dp_accounting_ext.correlated.events import MatrixAllocationEvent
    from dp_accounting_ext.correlated.events import MinSepSamplingEvent
    from dp_accounting_ext.correlated.events import PoissonMatrixEvent
    from dp_accounting_ext.correlated.events import SelectedStepsMatrixEvent
    from dp_accounting_ext.correlated.events import WindowedAllocationEvent
    from dp_accounting_ext.correlated.sampling import (
        sampling_certificate as sampling_certificate,
    )
    from dp_accounting_ext.correlated.sampling.sampling_certificate import (
        certify_by_sampling as certify_by_sampling,
    )
    from dp_accounting_ext.dp_event import GroupSubsampledEvent
    from dp_accounting_ext.dp_event import PLDEvent
    from dp_accounting_ext.dp_event import PLDSubsampleEvent
    from dp_accounting_ext.dp_event import RandomAllocationEvent
    from dp_accounting_ext.dp_event import ScheduledAllocationEvent

__version__ = "0.1.0"

__all__ = [
    "CyclicPoissonEvent",
    "GroupSubsampledEvent",
    "MatrixAllocationEvent",
    "MinSepSamplingEvent",
    "PLDAccountant",
    "PLDEvent",
    "PLDSubsampleEvent",
    "PoissonMatrixEvent",
    "RandomAllocationEvent",
    "RdpAccountant",
    "ScheduledAllocationEvent",
    "SelectedStepsMatrixEvent",
    "WindowedAllocationEvent",
]

# The modules behind the public names. Each is imported at its first use, so that
# `--version` waits for no library.
_MODULES = {
    "budget": "accountants.budget",
    "dp_event": "dp_event",
    "integrations": "integrations",
    "mechanisms": "mechanisms",
    "pld": "accountants.pld",
    "risk": "accountants.risk",
    "sampling_certificate": "correlated.sampling.sampling_certificate",
    "studies": "studies",
    "verify": "verify",
    "wpm": "wpm",
}
_HOMES = {
    "CyclicPoissonEvent": "correlated.events",
    "GroupSubsampledEvent": "dp_event",
    "MatrixAllocationEvent": "correlated.events",
    "MinSepSamplingEvent": "correlated.events",
    "PLDAccountant": "accountants.pld_accountant",
    "PLDEvent": "dp_event",
    "PLDSubsampleEvent": "dp_event",
    "PoissonMatrixEvent": "correlated.events",
    "RandomAllocationEvent": "dp_event",
    "RdpAccountant": "accountants.rdp_accountant",
    "ScheduledAllocationEvent": "dp_event",
    "SelectedStepsMatrixEvent": "correlated.events",
    "WindowedAllocationEvent": "correlated.events",
    "certify_by_sampling": "correlated.sampling.sampling_certificate",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted([*_HOMES, *_MODULES])
