"""One event of each type that an accountant reads: what the shared laws are asked of.

A type that is registered and has no event here fails `laws/test_one_of_each.py`. An
event stands with its truth: the function that returns δ at ε of one run, the larger of
both directions, from its definition; or where that is tested: rows of golden/ that
name its type, or a file or folder of tests.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from dp_accounting.pld import privacy_loss_distribution
import mpmath
import newer_events
import oracles
import registered

import dp_accounting_ext as ext
from dp_accounting_ext import risk
from dp_accounting_ext import wpm
from dp_accounting_ext.reading import event_table

event_table.register_stock_events(newer_events.MODULE)
ADD, REPLACE, SPECIAL = privacy_accountant.NeighboringRelation
NOISE, STRATEGY = stock.GaussianDpEvent(1.0), (1.0, 0.5)
GOLDEN = "golden/golden.json"


class Known(NamedTuple):
    """An event, its truth or what tests it, and the relation that it is read under."""

    event: Any
    truth: Callable[[float], Any] | str = GOLDEN
    relation: privacy_accountant.NeighboringRelation = ADD


def laplace(epsilon):
    return max(-mpmath.expm1((mpmath.mpf(epsilon) - 1) / 2), mpmath.mpf(0))


def sampled(epsilon):
    shifts = ((0.0, 0.5), (1.0, 0.5)), ((0.0, 1.0),)
    return max(oracles.shift_mixture_deltas(*shifts, epsilon).values())


def responses(epsilon):
    """Of four buckets: the true one has 5/8, each other one 1/8."""
    return max(mpmath.mpf(5) / 8 - mpmath.exp(epsilon) / 8, mpmath.mpf(0))


DISTRIBUTION = privacy_loss_distribution.from_laplace_mechanism(1.0)
KNOWN = [
    Known(stock.NoOpDpEvent(), lambda epsilon: 0),
    Known(stock.NonPrivateDpEvent(), lambda epsilon: 1),
    Known(NOISE, lambda epsilon: oracles.gaussian_delta(1.0, epsilon)),
    Known(stock.LaplaceDpEvent(1.0), laplace),
    Known(stock.DiscreteLaplaceDpEvent(0.5, 2)),
    Known(stock.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]), sampled),
    Known(stock.RandomizedResponseDpEvent(0.5, 4), responses, REPLACE),
    Known(stock.PoissonSampledDpEvent(0.5, NOISE), sampled),
    Known(ext.PLDSubsampleEvent(0.5, NOISE), sampled),
    Known(stock.SampledWithoutReplacementDpEvent(4, 2, NOISE)),
    Known(stock.SampledWithReplacementDpEvent(4, 2, NOISE)),
    Known(
        stock.TruncatedSubsampledGaussianDpEvent(9, 0.1, 2, 1.0),
        "mechanisms/test_truncated.py",
    ),
    Known(ext.RandomAllocationEvent(NOISE, 1, 3)),
    Known(ext.ScheduledAllocationEvent([NOISE], [1], 3)),
    Known(ext.GroupSubsampledEvent(2, NOISE)),
    Known(ext.PLDEvent(DISTRIBUTION), "reading/test_stock_pld.py"),
    Known(wpm.PrivateSamplingEvent(1.0, 1.0), "wpm/test_sampling_event.py", REPLACE),
    Known(stock.ZCDpEvent(1.0)),
    Known(
        stock.RepeatAndSelectDpEvent(NOISE, 2.0, 1.0), "mechanisms/test_selections.py"
    ),
    Known(
        stock.SingleEpochTreeAggregationDpEvent(1.0, 4),
        lambda epsilon: oracles.gaussian_delta(3**0.5, epsilon),
        SPECIAL,
    ),
    Known(newer_events.EpsilonDelta(1.0, 1e-6)),
    Known(newer_events.Exponential(1.0), "reading/test_event_table.py"),
    Known(newer_events.PermuteAndFlip(1.0)),
    Known(newer_events.DiscreteGaussian(2.0, 1.0, 1)),
    Known(newer_events.RandomAllocation(NOISE, 1, 3), "laws/test_trees.py"),
    Known(risk.ParametersEvent(1.0, 1e-6), "accountants/test_risk.py"),
    Known(
        risk.GaussianParameterEvent(1.0),
        lambda epsilon: oracles.gaussian_delta(1.0, epsilon),
    ),
    Known(risk.ConcentratedParameterEvent(1.0), "accountants/test_risk.py"),
    Known(ext.MatrixAllocationEvent((1.0,), 1.0, 2, 1), "correlated"),
    Known(ext.CyclicPoissonEvent(STRATEGY, 1.0, 0.5, 2, 4), "correlated"),
    Known(ext.MinSepSamplingEvent((1.0,), 30.0, 0.5, 1, 1), "correlated"),
    Known(ext.PoissonMatrixEvent(STRATEGY, 1.0, 0.5, 4), "correlated"),
    Known(ext.SelectedStepsMatrixEvent(STRATEGY, 1.0, 1, 3, 2), "correlated"),
    Known(ext.WindowedAllocationEvent((1.0,), 1.0, 2, 1, 2, 0.5), "correlated"),
    Known(registered.DiscreteEvent((1, 2, 5), (3, 4, 1))),
    Known(registered.SingleShiftEvent(), lambda epsilon: 0),
]
