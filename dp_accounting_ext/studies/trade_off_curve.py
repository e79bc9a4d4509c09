"""Trade-off curves, certified on both sides, for the ways of drawing batches."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import time

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.studies import drawing
from dp_accounting_ext.studies import profile_picture
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

Progress = Callable[[int, int], None]

_MOST_POINTS = 10_000
_GUESSING = drawing.Look(drawing.Colour.GREY, drawing.Dashes.SPARSE)


@dataclasses.dataclass(frozen=True)
class TradeOff:
    """What membership tests find of one scheme, in the worse direction.

    Attributes:
        scheme: How batches are drawn.
        group_size: Number of records that are protected together.
        false_positive_rates: (n,) α, increasing.
        lower: (n,) lower bounds on the largest true positive rates.
        upper: (n,) upper bounds on them.
        seconds: CPU time of all.
        note: How the upper bounds are made, if they need not be tight.
    """

    scheme: str
    group_size: int
    false_positive_rates: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    seconds: float
    note: str = ""


def trade_offs(
    setting: training_run.TrainingRun,
    *,
    group_sizes: Sequence[int] = (1,),
    least_rate: float = 1e-6,
    num_points: int = 61,
    progress: Progress | None = None,
) -> list[TradeOff]:
    """Returns the trade-off curve of each scheme, for a group of each size.

    The best test for whether the record was there, and the best one for whether it was
    not, have curves of their own: at each rate the larger is bounded.

    Args:
        setting: The run; its δ is not used.
        group_sizes: How many records are protected together, in place of the
            setting's number.
        least_rate: The least false positive rate, in [1e-200, 1).
        num_points: Rates of a curve, evenly spaced logarithms, at least 2.
        progress: Called with the number of curves done, and of all, after each.

    Raises:
        TypeError, ValueError: If an argument is not what its name says, or a group is
            too large.
    """
    least = fields.real_number("least_rate", least_rate)
    if not 1e-200 <= least < 1:
        raise ValueError(f"least_rate must be in [1e-200, 1). Found {least_rate}.")
    number = fields.positive_integer("num_points", num_points)
    if not 2 <= number <= _MOST_POINTS:
        raise ValueError(
            f"num_points must be at least 2 and at most {_MOST_POINTS}. "
            f"Found {num_points}."
        )
    rates = np.geomspace(least, 1.0, number)
    rates[-1] = 1.0
    runs = [
        (scheme, dataclasses.replace(setting, group_size=size))
        for size in dict.fromkeys(group_sizes)
        for scheme in training_run.SCHEMES
    ]
    found = []
    for scheme, run in runs:
        found.append(_trade_off(scheme, run, rates))
        if progress:
            progress(len(found), len(runs))
    return found


def _trade_off(
    scheme: str, setting: training_run.TrainingRun, rates: npt.NDArray[np.float64]
) -> TradeOff:
    begin = time.process_time()
    accountant = training_run.accountant(scheme, setting)
    lower, upper = map(np.asarray, accountant.get_true_positive_rate_bounds(rates))
    # What a test finds at one rate, it finds at a larger one.
    return TradeOff(
        scheme,
        setting.group_size,
        tuple(rates.tolist()),
        tuple(np.maximum.accumulate(lower).tolist()),
        tuple(np.minimum.accumulate(upper[::-1])[::-1].tolist()),
        time.process_time() - begin,
        training_run.construction(scheme, setting),
    )


def picture(found: Sequence[TradeOff], *, title: str) -> drawing.Picture:
    """Returns the curves as papers on membership inference draw them.

    Both axes are logarithmic, and all that is above the line of guessing is found.

    Args:
        found: The curves.
        title: One line.
    """
    curves: list[drawing.Curve] = []
    rates: tuple[float, ...] = ()
    for each, look in zip(found, profile_picture.looks(found), strict=True):
        rates = each.false_positive_rates
        label = profile_picture.label(each)
        curves.append(drawing.Curve(label, rates, each.upper, each.lower, look))
    curves.append(drawing.Curve("guessing", rates, rates, look=_GUESSING))
    panel = drawing.Panel(
        "", "false positive rate", "true positive rate", curves, True, True, (None, 1.0)
    )
    return drawing.Picture(title, [panel], profile_picture.note(found))
