"""Random allocation beside the ways of drawing batches that it competes with."""

from collections.abc import Callable
import dataclasses
import math
import time

from dp_accounting_ext.studies import training_run

Progress = Callable[[int, int], None]

# Tuning: a relative width of brackets that nobody needs to be told of.
_TIGHT = 1e-3
_ADD_OR_REMOVE = training_run.NeighborRel.ADD_OR_REMOVE_ONE


@dataclasses.dataclass(frozen=True)
class Row:
    """One scheme's certified bounds.

    Attributes:
        scheme: What is bounded.
        epsilon_lower: Lower bound on ε, in nats.
        epsilon_upper: Upper bound on ε, in nats.
        seconds: CPU time of both.
        note: What a reader must know of a bracket that is not tight.
    """

    scheme: str
    epsilon_lower: float
    epsilon_upper: float
    seconds: float
    note: str = ""


def compare(
    setting: training_run.TrainingRun, *, progress: Progress | None = None
) -> list[Row]:
    """Returns ε for random allocation, Poisson sampling and no amplification.

    Of several steps as of one the bracket is that of the mechanism.

    Args:
        setting: The run; its own way of drawing batches is not looked at.
        progress: Called with the number of schemes done, and of all, after each.
    """
    rows = []
    for scheme in training_run.SCHEMES:
        rows.append(bracket(scheme, setting))
        if progress:
            progress(len(rows), len(training_run.SCHEMES))
    return rows


def bracket(
    scheme: str,
    setting: training_run.TrainingRun,
    *,
    neighboring_relation: training_run.NeighborRel = _ADD_OR_REMOVE,
) -> Row:
    """Returns the bounds on ε of a training run.

    Args:
        scheme: A name in `training_run.SCHEMES`.
        setting: The run.
        neighboring_relation: Which datasets are adjacent.

    Raises:
        ValueError: If there is no such scheme, the group is too large, or noise or δ
            is not given.
    """
    delta = training_run.given("delta", setting.delta)

    def bounds() -> tuple[float, float]:
        accountant = training_run.accountant(
            scheme, setting, neighboring_relation=neighboring_relation
        )
        return accountant.get_epsilon_bounds(delta)

    return timed(scheme, bounds, training_run.construction(scheme, setting))


def timed(
    scheme: str, bounds: Callable[[], tuple[float, float]], construction: str = ""
) -> Row:
    """Returns a row of what the function returns, and the CPU time that it took."""
    begin = time.process_time()
    lower, upper = bounds()
    seconds = time.process_time() - begin
    notes = [note for note in (construction, _note(lower, upper)) if note]
    return Row(scheme, lower, upper, seconds, ": ".join(notes))


def _note(lower: float, upper: float) -> str:
    if math.isinf(upper):
        return "no finite bound"
    gap = upper - lower
    if gap > _TIGHT * upper:
        return f"bracket is {gap / upper:.1%} wide"
    return ""
