"""CPU time of a job, over that of a fixed NumPy workload timed beside it.

A goal in these yardsticks holds on a fast machine as on a slow or a busy one. Goals
are about 1.6 times what was measured when they were written, 2 times where a job is
run once: three times slower misses them.
"""

from collections.abc import Callable
import dataclasses
import time
from typing import Any

import numpy as np

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface

Job = Callable[[], Any]

ROUNDS = 7
ROUND_SECONDS = 1.5  # A job is not run again once it has spent so many.
FEW_SECONDS, REPEATS = 2e-3, 5  # So short a job is run so often at a time.


@dataclasses.dataclass(frozen=True)
class Timing:
    """The least of several runs.

    Attributes:
        seconds: CPU seconds of the job.
        yardsticks: The same, over the least CPU seconds of the yardstick.
        result: What the job returned at last.
    """

    seconds: float
    yardsticks: float
    result: Any


def yardstick() -> float:
    """Returns the CPU seconds of some transforms and exponentials, about 5 ms."""
    values = np.linspace(-1.0, 1.0, 1 << 16)

    def work() -> None:
        for _ in range(4):
            spectrum = np.fft.rfft(np.exp(values))
            np.fft.irfft(spectrum * spectrum)

    return seconds(work)


def seconds(job: Job) -> float:
    return clocked(job)[0]


def clocked(job: Job) -> tuple[float, Any]:
    """Returns the CPU seconds of a job, and what it returned."""
    begin = time.process_time()
    result = job()
    return time.process_time() - begin, result


def least(job: Job, rounds: int = ROUNDS) -> Timing:
    """Returns the least time of a job, and of the yardstick, in turn.

    Args:
        job: What is timed; it begins with `forget`, if it is to know nothing.
        rounds: Runs, at most; fewer once they have taken `ROUND_SECONDS`.
    """
    times: list[float] = []
    units = [yardstick()]
    while len(times) < rounds and sum(times) < ROUND_SECONDS:
        spent, result = clocked(job)
        if spent < FEW_SECONDS:
            # What the yardstick drove from the processor's memory is there again.
            spent = min(seconds(job) for _ in range(REPEATS))
        times.append(spent)
        units.append(yardstick())
    return Timing(min(times), min(times) / min(units), result)


def missed(name: str, measured: float, goal: float, unit: str) -> list[str]:
    """Returns the line of a goal that is missed, if it is; NaN misses it."""
    if measured <= goal:
        return []
    return [f"{name}: {measured:.3g} {unit}, goal {goal:g}"]


def forget() -> None:
    """Clears what is kept of earlier questions."""
    interface._PAIRS.clear()
    composed_loss._MEMORY.clear()
    groups._split.cache_clear()
