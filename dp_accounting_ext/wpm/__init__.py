"""One private draw that stays close, in a metric of choice, to a distribution.

The names are imported when they are first asked for: an accountant, which knows the
event of a draw, need not load the solvers.
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from dp_accounting_ext.wpm.base_measures import learn_base_measure
    from dp_accounting_ext.wpm.base_measures import minimax_base_measure
    from dp_accounting_ext.wpm.base_measures import sphere_scale
    from dp_accounting_ext.wpm.base_measures import uniform_base_measure
    from dp_accounting_ext.wpm.baselines import ExponentialMechanism
    from dp_accounting_ext.wpm.baselines import KLProjectionMechanism
    from dp_accounting_ext.wpm.costs import GraphCost
    from dp_accounting_ext.wpm.costs import LineCost
    from dp_accounting_ext.wpm.costs import PointCost
    from dp_accounting_ext.wpm.costs import TransportCost
    from dp_accounting_ext.wpm.costs import cost_matrix
    from dp_accounting_ext.wpm.costs import counts_at
    from dp_accounting_ext.wpm.dp_event import PrivateSamplingEvent
    from dp_accounting_ext.wpm.mechanism import WassersteinProjectionMechanism
    from dp_accounting_ext.wpm.mechanism import from_points
    from dp_accounting_ext.wpm.projections.certified_projection import project
    from dp_accounting_ext.wpm.sampling_mechanism import ExpectedCost
    from dp_accounting_ext.wpm.sampling_mechanism import NotForRelease

__all__ = [
    "ExpectedCost",
    "ExponentialMechanism",
    "GraphCost",
    "KLProjectionMechanism",
    "LineCost",
    "NotForRelease",
    "PointCost",
    "PrivateSamplingEvent",
    "TransportCost",
    "WassersteinProjectionMechanism",
    "cost_matrix",
    "counts_at",
    "from_points",
    "learn_base_measure",
    "minimax_base_measure",
    "project",
    "sphere_scale",
    "uniform_base_measure",
]

_HOMES = {
    "counts_at": "costs",
    "from_points": "mechanism",
    "PointCost": "costs",
    "LineCost": "costs",
    "GraphCost": "costs",
    "TransportCost": "costs",
    "ExpectedCost": "sampling_mechanism",
    "NotForRelease": "sampling_mechanism",
    "ExponentialMechanism": "baselines",
    "KLProjectionMechanism": "baselines",
    "PrivateSamplingEvent": "dp_event",
    "WassersteinProjectionMechanism": "mechanism",
    "cost_matrix": "costs",
    "learn_base_measure": "base_measures",
    "minimax_base_measure": "base_measures",
    "project": "projections.certified_projection",
    "sphere_scale": "base_measures",
    "uniform_base_measure": "base_measures",
}


def __getattr__(name: str) -> Any:
    """Imports a public name from its module, once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
