"""The cases of Rényi divergences: ε of `RdpAccountant` at its default orders.

The upper bound is its answer, which alone is timed; the lower one is what exact
divergences at these orders would have at least. That ε of privacy losses is far below
both for single runs is lost in the conversion.
"""

from collections.abc import Callable
from collections.abc import Iterator
import functools
import multiprocessing

import dp_accounting
from dp_accounting import dp_event

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.renyi import conversion

Job = Callable[[], tuple[float, float]]

_DELTA = 1e-6
_Gaussian, _Laplace = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
_BOTH = dp_accounting.ComposedDpEvent([_Gaussian(1.0), _Laplace(1.0)])
_RARE = dp_accounting.PoissonSampledDpEvent(0.01, _Gaussian(3000.0))
_SCHEDULE = ext.ScheduledAllocationEvent(
    [_Gaussian(1.0), _Gaussian(2.0)], [50, 50], 100
)
_TWO_KINDS = ext.RandomAllocationEvent(_BOTH, 1, 100)
# Name, event, work.
_ROWS = (
    (
        "mixture of 3 shifts, σ = 1",
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0, 1, 2], [0.5, 0.3, 0.2]),
        6.0,
    ),
    ("sampled at 0.01, σ = 3000", _RARE, 6.0),
    (
        "1 of 100 Gaussian and Laplace",
        ext.RandomAllocationEvent(_BOTH, 1, 100),
        45.0,
    ),
    ("schedule of two Gaussians", _SCHEDULE, 60.0),
    ("2 of 3", ext.RandomAllocationEvent(_Gaussian(1.0), 2, 3), 50.0),
)


def rows() -> Iterator[tuple[str, Callable[[], Job], float]]:
    """Yields names, what prepares a job, and work."""
    for name, event, work in _ROWS:
        yield name, functools.partial(_prepared, event), work


def _prepared(event: dp_accounting.DpEvent) -> Job:
    # In a process of its own, as pairs and divergences that were made are kept.
    with multiprocessing.get_context("fork").Pool(1) as pool:
        least = pool.apply(_least, (event,))

    def job() -> tuple[float, float]:
        return least, ext.RdpAccountant().compose(event).get_epsilon(_DELTA)

    return job


def _least(event: dp_accounting.DpEvent) -> float:
    orders = ext.RdpAccountant().orders.tolist()
    lower, _ = pld.renyi_divergence_bounds(event, orders)
    found, _ = conversion.epsilon(orders, lower, _DELTA)
    return found
