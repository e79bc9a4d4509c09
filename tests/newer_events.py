"""Events of a newer dp_accounting; where it lacks them, with the same fields."""

import types

import attr
import dp_accounting

from dp_accounting_ext import dp_event


def _event(name, **fields):
    attributes = {
        field: attr.ib() if default is attr.NOTHING else attr.ib(default=default)
        for field, default in fields.items()
    }
    return attr.make_class(
        name, attributes, bases=(dp_accounting.DpEvent,), frozen=True, slots=True
    )


MODULE = types.SimpleNamespace(
    **{
        name: getattr(dp_event, name, None)
        or getattr(dp_accounting.dp_event, name, None)
        or _event(name, **fields)
        for name, fields in {
            "EpsilonDeltaDpEvent": {"epsilon": attr.NOTHING, "delta": attr.NOTHING},
            "ExponentialMechanismDpEvent": {"epsilon": attr.NOTHING},
            "PermuteAndFlipDpEvent": {"epsilon": attr.NOTHING},
            "DiscreteGaussianDpEvent": {
                "sigma": attr.NOTHING,
                "sensitivity": 1.0,
                "dimension": None,
            },
            "RandomAllocationDpEvent": {
                "event": attr.NOTHING,
                "num_selected": attr.NOTHING,
                "num_steps": attr.NOTHING,
            },
        }.items()
    }
)
EpsilonDelta = MODULE.EpsilonDeltaDpEvent
Exponential = MODULE.ExponentialMechanismDpEvent
PermuteAndFlip = MODULE.PermuteAndFlipDpEvent
DiscreteGaussian = MODULE.DiscreteGaussianDpEvent
RandomAllocation = MODULE.RandomAllocationDpEvent
