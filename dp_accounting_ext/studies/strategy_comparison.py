"""Runs with correlated noise: balls-in-bins batches, and what competes with them."""

from collections.abc import Sequence
import functools
import math
from typing import Any

from dp_accounting import dp_event as stock
import numpy as np
import numpy.typing as npt

from dp_accounting_ext import dp_event
from dp_accounting_ext.accountants import pld_accountant
from dp_accounting_ext.reading import extension_events
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run

__all__ = [
    "BALLS_IN_BINS",
    "CYCLIC_POISSON",
    "NO_AMPLIFICATION",
    "compare",
    "event_of",
]
__dir__ = __all__.copy

BALLS_IN_BINS = "balls in bins"
CYCLIC_POISSON = "cyclic Poisson"
NO_AMPLIFICATION = "no amplification"

_BUFFERED = "blt:"
# What does not go with a strategy, and what is there where it was not given.
_NOT_WITH_STRATEGY = {"sampling": None, "group_size": 1, "batches_per_record": 1}

# Certified: norms are roots of sums of squares of at most 2^17 sums, none negative.
_NORM_ERROR = 1e-10


def event_of(
    strategy: str | Sequence[Any], run: training_run.TrainingRun
) -> dp_event.MatrixAllocationEvent:
    """Returns the run of a strategy, whose bins are the steps of an epoch.

    Args:
        strategy: Coefficients or rows, as for the event; or text: "1,0.5,0.25" for
            coefficients, "blt:0.9,0.5:0.1,0.2" for decays and scales of a BLT.
        run: The run, without what no theorem about such noise covers.

    Raises:
        ValueError: If the strategy, or a field of the run, is not what it must be.
    """
    for name, default in _NOT_WITH_STRATEGY.items():
        if getattr(run, name) != default:
            raise ValueError(
                f"{name} must be left out with a strategy. Found {getattr(run, name)}."
            )
    if not isinstance(run.epochs, int):
        raise ValueError(f"epochs must be whole with a strategy. Found {run.epochs}.")
    noise = training_run.given("noise_multiplier", run.noise_multiplier)
    of_run = noise, run.num_steps, run.epochs
    if not isinstance(strategy, str):
        return dp_event.MatrixAllocationEvent(strategy, *of_run)
    try:
        parts = [
            [float(cell) for cell in part.split(",")]
            for part in strategy.removeprefix(_BUFFERED).split(":")
        ]
    except ValueError:
        parts = []
    if len(parts) != 1 + strategy.startswith(_BUFFERED):
        raise ValueError(
            "strategy must be numbers such as 1,0.5,0.25, or blt:0.9,0.5:0.1,0.2; or, "
            f"as an option, a file of numbers. Found {strategy!r}."
        )
    if len(parts) == 1:
        return dp_event.MatrixAllocationEvent(parts[0], *of_run)
    decays, scales = parts
    return dp_event.MatrixAllocationEvent.from_buffered_toeplitz(
        decays, scales, *of_run
    )


def compare(
    event: dp_event.MatrixAllocationEvent,
    delta: float,
    progress: progress_of.Progress | None = None,
) -> comparison.Rows:
    """Returns ε of one strategy, by how its batches are drawn.

    Of bins in which records stay; of cyclic Poisson sampling, where records are in as
    many groups as there are bands, and each is sampled in turn, if bands are at most
    the bins; and of bins that the adversary knows.

    Args:
        event: The run, with noise.
        delta: δ.
        progress: Called after each row with the number of rows that are done, and of
            all.

    Raises:
        TypeError, ValueError: If a field of the event is not what it must be.

    Source:
        Choquette-Choo et al. 2023, https://arxiv.org/abs/2306.08153, Theorem 4, for
        cyclic Poisson sampling.
    """
    strategy, noise, bins, epochs = extension_events.matrix_fields(event)
    matrix = np.array(strategy)
    bands, columns, longest_bin = _norms(matrix, bins, epochs)
    # Of each the least that it is, and the most.
    schemes: dict[str, tuple[stock.DpEvent, stock.DpEvent]] = {
        BALLS_IN_BINS: (event, event)
    }
    if bands <= bins:
        schemes[CYCLIC_POISSON] = _cyclic(bands, columns, noise, bins)
    schemes[NO_AMPLIFICATION] = (
        stock.GaussianDpEvent(noise / (longest_bin * (1 - _NORM_ERROR))),
        stock.GaussianDpEvent(noise / (longest_bin * (1 + _NORM_ERROR))),
    )

    def bounds(events: tuple[stock.DpEvent, stock.DpEvent]) -> tuple[float, float]:
        lower, upper = (
            pld_accountant.PLDAccountant().compose(each).get_epsilon_bounds(delta)
            for each in events
        )
        return lower[0], upper[1]

    return comparison.Rows(
        comparison.timed(
            (name, "add or remove", 1, noise, delta), functools.partial(bounds, events)
        )
        for name, events in progress_of.counted(list(schemes.items()), progress)
    )


def _cyclic(
    bands: int, norms: npt.NDArray[np.float64], noise: float, bins: int
) -> tuple[stock.DpEvent, stock.DpEvent]:
    """Returns the least and the most that cyclic Poisson sampling is.

    A record is sampled in the steps of its group, whose columns have no step in common:
    of the first group, in as many whole ones as bands fit into the steps.
    """
    steps = norms.size

    def sampled(norm: float, count: int) -> stock.DpEvent:
        step = stock.GaussianDpEvent(noise / norm)
        sample = stock.PoissonSampledDpEvent(bands / bins, step)
        return stock.SelfComposedDpEvent(sample, count)

    least = float(norms[::bands][: steps // bands].min()) * (1 - _NORM_ERROR)
    most = float(norms.max()) * (1 + _NORM_ERROR)
    return sampled(least, steps // bands), sampled(most, math.ceil(steps / bands))


def _norms(
    matrix: npt.NDArray[np.float64], bins: int, epochs: int
) -> tuple[int, npt.NDArray[np.float64], float]:
    """Returns the bands, the columns' norms, and the largest norm of a bin's sum.

    Columns that are as many apart as there are bands have no step in common.
    """
    steps = bins * epochs
    if matrix.ndim == 1:
        column = np.zeros(steps)
        column[: matrix.size] = matrix
        # Column i is cut after n − i entries; the first bin is cut last.
        norms = np.sqrt(np.cumsum(column**2)[::-1])
        first = sum(
            np.concatenate([np.zeros(start), column[: steps - start]])
            for start in range(0, steps, bins)
        )
        return matrix.size, norms, float(np.linalg.norm(first))
    rows, places = np.nonzero(matrix)
    sums = matrix.reshape(steps, epochs, bins).sum(axis=1)
    longest = float(np.linalg.norm(sums, axis=0).max())
    return int((rows - places).max()) + 1, np.linalg.norm(matrix, axis=0), longest
