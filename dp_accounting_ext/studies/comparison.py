"""Random allocation beside the ways of drawing batches that it competes with."""

from collections.abc import Callable
import dataclasses
import math
import time

from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.studies import training_run

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

    Of several steps as of one the bracket is that of the mechanism.
    """
    return [bracket(scheme, setting) for scheme in training_run.SCHEMES]


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
