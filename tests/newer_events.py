"""Events of a newer dp_accounting; where it lacks them, with the same fields."""

import types

import attr
import dp_accounting

from dp_accounting_ext import dp_event

EpsilonDelta = dp_event.EpsilonDeltaDpEvent
Exponential = dp_event.ExponentialMechanismDpEvent
PermuteAndFlip = dp_event.PermuteAndFlipDpEvent
DiscreteGaussian = dp_event.DiscreteGaussianDpEvent
RandomAllocation = getattr(
    dp_accounting.dp_event,
    "RandomAllocationDpEvent",
    attr.make_class(
        "RandomAllocationDpEvent",
        ["event", "num_selected", "num_steps"],
        bases=(dp_accounting.DpEvent,),
        frozen=True,
        slots=True,
    ),
)
MODULE = types.SimpleNamespace(
    **{
        kind.__name__: kind
        for kind in (
            EpsilonDelta,
            Exponential,
            PermuteAndFlip,
            DiscreteGaussian,
            RandomAllocation,
        )
    }
)
