"""δ as a function of ε, certified on both sides, for the ways of drawing batches."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
import time

import numpy as np

from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

Progress = Callable[[int, int], None]

# Tuning: where curves begin and end. Each point on them is certified, whatever it is.
_END_OVER_FIRST = 100.0
_SMALLEST_END = 1e-3  # Of profiles that are all below the smallest δ.
_MOST_POINTS = 10_000


@dataclasses.dataclass(frozen=True)
class Profile:
    """One scheme's privacy profile.

    Attributes:
        scheme: How batches are drawn.
        group_size: Number of records that are protected together.
        epsilons: (n,) ε, increasing, in nats.
        delta_lower: (n,) lower bounds on δ, which do not increase.
        delta_upper: (n,) upper bounds on δ, which do not increase. Only the last may
            be below the δ of the setting.
        seconds: CPU time of all.
        note: How the upper bounds are made, if they need not be tight.
    """

    scheme: str
    group_size: int
    epsilons: tuple[float, ...]
    delta_lower: tuple[float, ...]
    delta_upper: tuple[float, ...]
    seconds: float
    note: str = ""


def profiles(
    setting: training_run.TrainingRun,
    *,
    group_sizes: Sequence[int] = (1,),
    epsilons: Sequence[float] | None = None,
    num_points: int = 21,
    progress: Progress | None = None,
) -> list[Profile]:
    """Returns the profile of each scheme, for a group of each size.

    Args:
        setting: The run. Its δ is the smallest one of interest: a profile ends where
            its upper bound is below that.
        group_sizes: How many records are protected together, in place of the
            setting's number.
        epsilons: ε, in nats. If none are given, each profile has a grid of its own,
            up to where it ends.
        num_points: Points of such a grid, at least 3.
        progress: Called with the number of points done, and of all, after each.

    Raises:
        TypeError, ValueError: If an argument is not what its name says, or a group is
            too large.
    """
    runs = [
        (scheme, dataclasses.replace(setting, group_size=size))
        for size in dict.fromkeys(group_sizes)
        for scheme in training_run.SCHEMES
    ]
    if epsilons is not None:
        grids = [_checked(epsilons)] * len(runs)
    else:
        grids = _grids([_end(scheme, run) for scheme, run in runs], num_points)
    found = []
    total = sum(map(len, grids))
    for number, ((scheme, run), grid) in enumerate(zip(runs, grids, strict=True)):
        before = sum(map(len, grids[:number]))
        found.append(_profile(scheme, run, _told(grid, before, total, progress)))
    return found


def _told(
    grid: Sequence[float], before: int, total: int, progress: Progress | None
) -> Iterator[float]:
    """Yields the points, and tells when each is done."""
    for done, epsilon in enumerate(grid, before + 1):
        yield epsilon
        if progress:
            progress(done, total)


def _checked(epsilons: Sequence[float]) -> list[float]:
    """Returns the numbers, increasing."""
    found = sorted({fields.real_number("epsilons", each) for each in epsilons})
    if not found or not 0 <= found[0] <= found[-1] < math.inf:
        raise ValueError(
            f"epsilons must be finite and not negative. Found {list(epsilons)}."
        )
    return found


def _end(scheme: str, setting: training_run.TrainingRun) -> float:
    """Returns ε at the smallest δ; 0 where there is no finite one."""
    delta = training_run.given("delta", setting.delta)
    epsilon = training_run.accountant(scheme, setting).get_epsilon(delta)
    return epsilon if math.isfinite(epsilon) else 0.0


def _grids(ends: Sequence[float], num_points: int) -> list[list[float]]:
    """Returns grids from one small ε, half of them evenly spaced, half of logarithms.

    They are smooth curves on a logarithmic axis: where they are flat, and where
    they fall.
    """
    num_points = fields.positive_integer("num_points", num_points)
    if not 3 <= num_points <= _MOST_POINTS:
        raise ValueError(
            f"num_points must be at least 3 and at most {_MOST_POINTS}. "
            f"Found {num_points}."
        )
    found = [end for end in ends if end > 0] or [_SMALLEST_END]
    ends = [end or found[0] for end in ends]
    first = min(found) / _END_OVER_FIRST
    half = (num_points + 1) // 2
    return [
        sorted(
            {
                *np.geomspace(first, end, half).tolist(),
                *np.linspace(first, end, num_points - half + 2)[1:-1].tolist(),
            }
        )
        for end in ends
    ]


def _profile(
    scheme: str, setting: training_run.TrainingRun, epsilons: Iterable[float]
) -> Profile:
    begin = time.process_time()
    smallest = training_run.given("delta", setting.delta)
    accountant = training_run.accountant(scheme, setting)
    asked, lower, upper = [], [], []
    for epsilon in epsilons:
        low, high = accountant.get_delta_bounds(epsilon)
        asked.append(epsilon)
        lower.append(low)
        upper.append(high)
        if high < smallest:
            break
    # δ never increases: what bounds it at one ε bounds it at the others.
    return Profile(
        scheme,
        setting.group_size,
        tuple(asked),
        tuple(np.maximum.accumulate(lower[::-1])[::-1].tolist()),
        tuple(np.minimum.accumulate(upper).tolist()),
        time.process_time() - begin,
        training_run.construction(scheme, setting),
    )
