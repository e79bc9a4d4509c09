"""One private draw that stays close, in a metric of choice, to a distribution.

Names are imported at their first use: an accountant, which reads the event of a draw,
need not load the solvers.
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from dp_accounting_ext.wpm.base_measures import learn_base_measure
    from dp_accounting_ext.wpm.base_measures import minimax_base_measure
    from dp_accounting_ext.wpm.base_measures import uniform_base_measure
    from dp_accounting_ext.wpm.costs import GraphCost
    from dp_accounting_ext.wpm.costs import PointCost
    from dp_accounting_ext.wpm.costs import TransportCost
    from dp_accounting_ext.wpm.costs import counts_at
    from dp_accounting_ext.wpm.estimates import DistributionEstimate
    from dp_accounting_ext.wpm.estimates import MeanEstimate
    from dp_accounting_ext.wpm.estimates import average_of_draws
    from dp_accounting_ext.wpm.estimates import debiased_average
    from dp_accounting_ext.wpm.estimates import estimate_mean
    from dp_accounting_ext.wpm.estimates import likeliest_population
    from dp_accounting_ext.wpm.far_places import check_public_trace
    from dp_accounting_ext.wpm.mechanism import ExponentialMechanism
    from dp_accounting_ext.wpm.mechanism import KLProjectionMechanism
    from dp_accounting_ext.wpm.mechanism import WassersteinProjectionMechanism
    from dp_accounting_ext.wpm.mechanism import from_points
    from dp_accounting_ext.wpm.projections.certified_projection import project
    from dp_accounting_ext.wpm.sampling_event import PrivateSamplingEvent
    from dp_accounting_ext.wpm.sampling_mechanism import ExpectedCost
    from dp_accounting_ext.wpm.sampling_mechanism import NotForRelease
    from dp_accounting_ext.wpm.sphere import SphereMechanism
    from dp_accounting_ext.wpm.sphere import sphere_scale

__all__ = [
    "DistributionEstimate",
    "ExpectedCost",
    "ExponentialMechanism",
    "GraphCost",
    "KLProjectionMechanism",
    "MeanEstimate",
    "NotForRelease",
    "PointCost",
    "PrivateSamplingEvent",
    "SphereMechanism",
    "TransportCost",
    "WassersteinProjectionMechanism",
    "average_of_draws",
    "check_public_trace",
    "counts_at",
    "debiased_average",
    "estimate_mean",
    "from_points",
    "learn_base_measure",
    "likeliest_population",
    "minimax_base_measure",
    "project",
    "sphere_scale",
    "uniform_base_measure",
]

# The modules that define the names. Those that load the fewest libraries come first.
_HOMES = (
    "sampling_event",
    "costs",
    "far_places",
    "sampling_mechanism",
    "base_measures",
    "projections.certified_projection",
    "mechanism",
    "estimates",
    "sphere",
)


def __getattr__(name: str) -> Any:
    """Imports a public name from its module, once."""
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{home}")
        if name in vars(module):
            return globals().setdefault(name, vars(module)[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
