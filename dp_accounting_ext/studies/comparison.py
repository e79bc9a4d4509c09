"""Random allocation beside the ways of drawing batches that it competes with."""

from collections.abc import Callable
import dataclasses
import math
import time

import numpy as np

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.studies import training_run

# Tuning: the accountant's own loss interval, in nats.
_INTERVAL = 1e-4
# Tuning: a relative width of brackets that nobody needs to be told of.
_TIGHT = 1e-3


@dataclasses.dataclass(frozen=True)
class Row:
    """One scheme's certified bounds.

    Attributes:
        scheme: What is bounded.
        epsilon_lower: Lower bound on ε, in nats; None where there is no theorem.
        epsilon_upper: Upper bound on ε, in nats; None with the lower one.
        seconds: CPU time of both.
        note: What a reader must know of a bracket that is not tight, or missing.
    """

    scheme: str
    epsilon_lower: float | None
    epsilon_upper: float | None
    seconds: float
    note: str = ""


def compare(setting: training_run.TrainingRun) -> list[Row]:
    """Returns ε for random allocation, Poisson sampling and no amplification.

    For 1 < k < t random allocation of a record has a second row: the bracket of the
    composition of k blocks, whose upper end bounds the mechanism and whose lower
    end does not.
    """
    rows = [bracket(scheme, setting) for scheme in training_run.SCHEMES]
    if setting.group_size == 1 and 1 < setting.num_selected < setting.num_steps:
        rows.insert(1, _block_reduction(setting))
    return rows


def bracket(scheme: str, setting: training_run.TrainingRun) -> Row:
    """Returns the bounds on ε of a training run.

    Args:
        scheme: A name in `training_run.SCHEMES`.
        setting: The run.

    Raises:
        ValueError: If there is no such scheme, or the group is too large.
    """

    def bounds() -> tuple[float, float]:
        accountant = training_run.accountant(scheme, setting)
        return accountant.get_epsilon_bounds(setting.delta)

    return _timed(scheme, bounds)


def _block_reduction(setting: training_run.TrainingRun) -> Row:
    allocation = allocated.RandomAllocation(
        additive_noise.Gaussian(setting.noise_multiplier),
        setting.num_selected,
        setting.num_steps,
    )

    def bounds() -> tuple[float, float]:
        blocks = privacy_bounds.PrivacyBounds(
            {allocation.blocks(): setting.num_epochs}, _INTERVAL
        )
        (lower,), (upper,) = privacy_bounds.WorstOf([blocks]).epsilon_bounds(
            np.array([setting.delta])
        )
        return float(lower), float(upper)

    return _timed("- block reduction", bounds)


def _timed(scheme: str, bounds: Callable[[], tuple[float, float]]) -> Row:
    begin = time.process_time()
    try:
        lower, upper = bounds()
    except event_reader.UnsupportedError as error:
        return Row(scheme, None, None, 0.0, f"unsupported: {error.message}")
    return Row(scheme, lower, upper, time.process_time() - begin, _note(lower, upper))


def _note(lower: float, upper: float) -> str:
    if math.isinf(upper):
        return "no finite bound"
    gap = upper - lower
    if gap > _TIGHT * upper:
        return f"bracket is {gap / upper:.1%} wide"
    return ""
