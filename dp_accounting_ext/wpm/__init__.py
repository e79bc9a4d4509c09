"""One private draw that stays close, in a metric of choice, to a distribution."""

from dp_accounting_ext.wpm.baselines import ExponentialMechanism
from dp_accounting_ext.wpm.baselines import KLProjectionMechanism
from dp_accounting_ext.wpm.cost import cost_matrix
from dp_accounting_ext.wpm.dp_event import PrivateSamplingEvent
from dp_accounting_ext.wpm.learned_measure import learn_base_measure
from dp_accounting_ext.wpm.mechanism import WassersteinProjectionMechanism
from dp_accounting_ext.wpm.minimax_measure import minimax_base_measure
from dp_accounting_ext.wpm.projection import project
from dp_accounting_ext.wpm.sphere import sphere_scale
from dp_accounting_ext.wpm.uniform_measure import uniform_base_measure

__all__ = [
    "ExponentialMechanism",
    "KLProjectionMechanism",
    "PrivateSamplingEvent",
    "WassersteinProjectionMechanism",
    "cost_matrix",
    "learn_base_measure",
    "minimax_base_measure",
    "project",
    "sphere_scale",
    "uniform_base_measure",
]
