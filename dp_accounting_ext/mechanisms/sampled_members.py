"""How many members of a group are in a batch: the shifts that a mechanism sees."""

import itertools
import math

Shifts = tuple[tuple[float, float], ...]

_SMALLEST_WEIGHT = 1e-300


def unsampled(members: int) -> Shifts:
    """Returns the one number there is when all records take part."""
    return ((float(members), 1.0),)


def poisson(members: int, rate: float) -> Shifts:
    """Returns the law of the number of members in a Poisson sample.

    Args:
        members: Size of the group, K ≥ 0.
        rate: Inclusion probability of each record, in [0, 1].

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8 (binomial weights).
    """
    if rate in (0.0, 1.0):
        return unsampled(round(members * rate))
    odds = math.log(rate) - math.log1p(-rate)
    growths = [math.log((members - i) / (i + 1)) + odds for i in range(members)]
    return _shifts(growths)


def without_replacement(members: int, dataset_size: int, sample_size: int) -> Shifts:
    """Returns the law of the number of members in a batch of fixed size.

    Args:
        members: Size of the group, K ≤ N.
        dataset_size: Number of records, the group among them, N.
        sample_size: Size of the batch, q ≤ N.

    Source:
        https://arxiv.org/abs/2403.04867, Appendix M (hypergeometric weights).
    """
    least = max(0, members + sample_size - dataset_size)
    most = min(members, sample_size)
    others = dataset_size - members - sample_size
    growths = [
        math.log((members - i) * (sample_size - i) / ((i + 1) * (others + i + 1)))
        for i in range(least, most)
    ]
    return _shifts(growths, least)


def with_replacement(members: int, dataset_size: int, sample_size: int) -> Shifts:
    """Returns the law of the number of draws that hit the group.

    Args:
        members: Size of the group, K ≤ N.
        dataset_size: Number of records, the group among them, N.
        sample_size: Number of draws, q.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem L.5 (binomial weights).
    """
    return poisson(sample_size, members / dataset_size)


def _shifts(growths: list[float], least: int = 0) -> Shifts:
    """Returns weights from the logarithms of their quotients; they sum to one.

    Those that no float holds are left out.
    """
    logs = [0.0, *itertools.accumulate(growths)]
    largest = max(logs)
    weights = [math.exp(log - largest) for log in logs]
    total = math.fsum(weights)
    return tuple(
        (float(least + i), weight / total)
        for i, weight in enumerate(weights)
        if weight > _SMALLEST_WEIGHT * total
    )
