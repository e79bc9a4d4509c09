"""Runs with correlated noise: balls-in-bins batches, and what competes with them."""

from collections.abc import Callable
import dataclasses
import math

from dp_accounting import dp_event as stock
import numpy as np
import numpy.typing as npt

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.mechanisms import matrix_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.reading import extension_events
from dp_accounting_ext.studies import comparison

BALLS_IN_BINS = "balls in bins"
CYCLIC_POISSON = "cyclic Poisson"
NO_AMPLIFICATION = "no amplification"

# Certified: a norm is a root of a sum of squares of at most 2^17 numbers.
_NORM_ERROR = 1e-10


@dataclasses.dataclass(frozen=True)
class _Columns:
    """What matters of a strategy's columns.

    Attributes:
        bands: The least p so that columns p apart have no step in common.
        norms: (n,) their norms.
    """

    bands: int
    norms: npt.NDArray[np.float64]


def compare(
    event: dp_event.MatrixAllocationEvent,
    delta: float,
    *,
    progress: comparison.Progress | None = None,
) -> list[comparison.Row]:
    """Returns ε of one strategy, by how its batches are drawn.

    Of bins in which records stay; of cyclic Poisson sampling, where records are in as
    many groups as there are bands, and each is sampled in turn, if bands are at most
    the bins; and of bins that the adversary knows.

    Args:
        event: The run, with noise.
        delta: δ.
        progress: Called with the number of schemes done, and of all, after each.

    Raises:
        TypeError, ValueError: If a field of the event is not what it must be.

    Source:
        Choquette-Choo et al. 2023, https://arxiv.org/abs/2306.08153, Theorem 4, for
        cyclic Poisson sampling.
    """
    strategy, noise, bins, epochs = extension_events.matrix_fields(event)
    columns = _columns(np.array(strategy), bins * epochs)
    known = matrix_allocation.MatrixAllocation(strategy, noise, bins, epochs)
    schemes: dict[str, Callable[[], tuple[float, float]]] = {
        BALLS_IN_BINS: lambda: _epsilon(event).get_epsilon_bounds(delta)
    }
    if columns.bands <= bins:
        schemes[CYCLIC_POISSON] = lambda: _cyclic(columns, noise, bins, delta)
    schemes[NO_AMPLIFICATION] = lambda: _known(known, delta)
    rows = []
    for scheme, bounds in schemes.items():
        rows.append(comparison.timed(scheme, bounds))
        if progress:
            progress(len(rows), len(schemes))
    return rows


def _epsilon(event: stock.DpEvent) -> pld_accountant.PLDAccountant:
    return pld_accountant.PLDAccountant().compose(event)


def _cyclic(
    columns: _Columns, noise: float, bins: int, delta: float
) -> tuple[float, float]:
    """Bounds ε of cyclic Poisson sampling.

    A record is sampled in the steps of its group, whose columns have no step in common:
    of the first group, in as many whole ones as bands fit into the steps.
    """
    rate, steps = columns.bands / bins, columns.norms.size

    def sampled(norm: float, count: int) -> pld_accountant.PLDAccountant:
        step = stock.PoissonSampledDpEvent(rate, stock.GaussianDpEvent(noise / norm))
        return _epsilon(stock.SelfComposedDpEvent(step, count))

    least = float(columns.norms[:: columns.bands][: steps // columns.bands].min())
    most = float(columns.norms.max())
    upper = sampled(most * (1 + _NORM_ERROR), math.ceil(steps / columns.bands))
    lower = sampled(least * (1 - _NORM_ERROR), steps // columns.bands)
    return lower.get_epsilon_bounds(delta)[0], upper.get_epsilon(delta)


def _known(
    run: matrix_allocation.MatrixAllocation, delta: float
) -> tuple[float, float]:
    """Bounds ε where the bin of a record is known: one Gaussian, of the worst bin."""
    low, high = (
        math.sqrt(float(run.gram(bound).diagonal().max()))
        for bound in (dominating_pair.Bound.LOWER, dominating_pair.Bound.UPPER)
    )
    events = [
        stock.GaussianDpEvent(1 / floats.lowered(low)),
        stock.GaussianDpEvent(1 / floats.raised(high)),
    ]
    lower, upper = (_epsilon(event).get_epsilon_bounds(delta) for event in events)
    return lower[0], upper[1]


def _columns(matrix: npt.NDArray[np.float64], steps: int) -> _Columns:
    if matrix.ndim == 1:
        squares = np.zeros(steps)
        squares[: matrix.size] = matrix**2
        # Column i is cut after n − i entries.
        return _Columns(matrix.size, np.sqrt(np.cumsum(squares)[::-1]))
    rows, places = np.nonzero(matrix)
    return _Columns(int((rows - places).max()) + 1, np.linalg.norm(matrix, axis=0))
