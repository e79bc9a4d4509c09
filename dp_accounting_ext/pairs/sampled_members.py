"""The number of members of a group that are in a batch, as a law of shifts."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import math

import numpy as np
from scipy import stats

from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import shifts

Shifts = shifts.Shifts


def unsampled(members: int) -> Shifts:
    """Returns the law of the number of members if all records take part."""
    return ((float(members), 1.0),)


def poisson(members: int, rate: float) -> Shifts:
    """Returns the law of the number of members in a Poisson sample.

    Args:
        members: The size K ≥ 0 of the group.
        rate: The inclusion probability of each record, in [0, 1].

    Raises:
        ValueError: If too many numbers of members are likely.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8 (binomial weights).
    """
    if rate in (0.0, 1.0):
        return unsampled(round(members * rate))
    if members == 1:
        return ((0.0, 1 - rate), (1.0, rate))
    return _binomial(members, rate, rate / (1 - rate))


def without_replacement(members: int, dataset_size: int, sample_size: int) -> Shifts:
    """Returns the law of the number of members in a batch of fixed size.

    Args:
        members: The size K ≤ N of the group.
        dataset_size: The number N of records, the group included.
        sample_size: The size q ≤ N of the batch.

    Raises:
        ValueError: If too many numbers of members are likely.

    Source:
        https://arxiv.org/abs/2403.04867, Appendix M (hypergeometric weights).
    """
    fewest = max(0, members + sample_size - dataset_size)
    largest = min(members, sample_size)
    others = dataset_size - members - sample_size
    if largest == fewest + 1:
        return _two(
            fewest,
            (fewest + 1) * (others + fewest + 1),
            (members - fewest) * (sample_size - fewest),
        )
    mode = (members + 1) * (sample_size + 1) // (dataset_size + 2)
    return _around(
        lambda i: (members - i) * (sample_size - i) / ((i + 1) * (others + i + 1)),
        fewest,
        largest,
        mode,
    )


def with_replacement(members: int, dataset_size: int, sample_size: int) -> Shifts:
    """Returns the law of the number of draws that hit the group.

    Args:
        members: The size K ≤ N of the group.
        dataset_size: The number N of records, the group included.
        sample_size: The number q of draws.

    Raises:
        ValueError: If too many numbers of draws are likely.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem L.5 (binomial weights).
    """
    if members in (0, dataset_size):
        return unsampled(sample_size if members else 0)
    if sample_size == 1:
        return _two(0, dataset_size - members, members)
    rate = members / dataset_size
    return _binomial(sample_size, rate, members / (dataset_size - members))


def capped(members: Shifts, most: int) -> Shifts:
    """Returns the law of the number of members if at most `most` of them are kept.

    Args:
        members: The law of the number of members that are drawn.
        most: The largest number of members in a batch, at least 0.
    """
    fewer = tuple((number, weight) for number, weight in members if number < most)
    rest = math.fsum(weight for number, weight in members if number >= most)
    if len(fewer) == len(members):
        return members
    if len(members) < 3 or len(fewer) != 1:
        return (*fewer, (float(most), rest))
    # Laws of two weights are assumed to be more exact than this: split the last one.
    return (*fewer, (float(most), rest / 2), (float(most), rest / 2))


def total(laws: Sequence[Shifts]) -> Shifts:
    """Returns the law of a sum of independent numbers, as of members in each stratum.

    Args:
        laws: At least one law. Their sum must take at least three values.
    """
    law_of_sum = {0.0: 1.0}
    for law in laws:
        sums: dict[float, float] = {}
        for (one, mass), (other, weight) in itertools.product(law_of_sum.items(), law):
            sums[one + other] = sums.get(one + other, 0.0) + mass * weight
        law_of_sum = sums
    return tuple(sorted(law_of_sum.items()))


def _two(number: int, weight: int, next_weight: int) -> Shifts:
    """Returns two numbers with weights in proportion to integers, each rounded once."""
    total = weight + next_weight
    return (
        (float(number), weight / total),
        (float(number + 1), next_weight / total),
    )


def binomial_tails(trials: int, rate: float, number: int) -> tuple[float, float]:
    """Returns Pr[X ≤ number] and Pr[X > number] for a binomial variable X.

    Guarantees:
        The relative error is at most 4e-10 where a probability is above 1e-290. SciPy's
        own tails err by up to 1e-7 where 1e8 trials or more have a small rate, and may
        be 0 where the truth is 1e-260; its masses do not, and are added here. Beyond
        eight deviations and 60 more, a tail has less than 1e-15 of its mass, by
        Bernstein's inequality at the mean, and by log-concavity further out.
    """
    mean = trials * rate
    reach = math.ceil(8 * math.sqrt(mean * (1 - rate))) + 60
    low, high = math.floor(mean) - reach, math.ceil(mean) + reach

    def mass(first: int, last: int) -> float:
        numbers = np.arange(max(first, 0), min(last, trials) + 1)
        return float(stats.binom.pmf(numbers, trials, rate).sum())

    above = number + 1
    return (
        mass(min(number - reach, low), min(number, high)),
        mass(max(above, low), max(above + reach, high)),
    )


def _binomial(number: int, rate: float, odds: float) -> Shifts:
    mode = min(math.floor((number + 1) * rate), number)
    return _around(lambda i: (number - i) / (i + 1) * odds, 0, number, mode)


def _around(
    growth: Callable[[int], float], fewest: int, largest: int, mode: int
) -> Shifts:
    """Returns weights with given quotients w(i + 1) / w(i), which sum to one.

    They are computed from the mode outwards, so that few rounding errors add up.
    Weights that underflow are left out.
    """
    mode = min(max(mode, fewest), largest)
    above = _logs(growth(i) for i in range(mode, largest))
    below = _logs(1 / growth(i - 1) for i in range(mode, fewest, -1))
    logs = [*reversed(below), 0.0, *above]
    weights = [math.exp(log) for log in logs]
    total = math.fsum(weights)
    first = mode - len(below)
    return tuple((float(first + i), w / total) for i, w in enumerate(weights))


def _logs(quotients: Iterable[float]) -> list[float]:
    """Returns the logarithms of running products, until these underflow."""
    logs: list[float] = []
    # Kahan's summation: the rounding error of each sum is taken off the next term.
    total = rounding = 0.0
    for quotient in quotients:
        term = math.log(quotient) - rounding
        next_total = total + term
        rounding = (next_total - total) - term
        total = next_total
        if total < -floats.LARGEST_EXPONENT:
            break
        logs.append(total)
        if len(logs) > shifts.MOST_SHIFTS:
            raise ValueError(
                "More than "
                f"{shifts.MOST_SHIFTS} numbers of members in a batch are likely, "
                "which is not supported; use a smaller group or batch."
            )
    return logs
