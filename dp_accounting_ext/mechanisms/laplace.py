"""The Laplace mechanism: Lap(1, b) against Lap(0, b)."""

import math

import numpy as np

from dp_accounting_ext import dominating_pair
from dp_accounting_ext.mechanisms import cells

Bound = dominating_pair.Bound

_POINTS = 1 << 14
_WIDEST_CELL = 1e-2  # In nats.
_LARGEST_LOSS = 700.0
_ERROR = 64 * dominating_pair.UNIT_ROUNDOFF


def dominating_pair_of(
    noise_multiplier: float, bound: Bound
) -> dominating_pair.DominatingPair:
    """Returns the pair of the Laplace mechanism with sensitivity one.

    The loss is ±1/b with an atom at either end, in between its density falls as
    e^{−loss/2} under Q. No loss is infinite.

    Args:
        noise_multiplier: The noise's parameter b over the sensitivity, positive.
        bound: Upper splits each cell of the loss, lower groups it.

    Returns:
        A pair; one that says nothing where the largest loss is above 700 nats.

    Source:
        https://arxiv.org/abs/2106.08567, Table 1.
    """
    largest = 1 / noise_multiplier
    if largest > _LARGEST_LOSS:
        return dominating_pair.nothing_known(bound)
    number = math.ceil(max(_POINTS, 2 * largest / _WIDEST_CELL))
    losses = np.linspace(-largest, largest, number + 1)
    half = largest / number
    edges = np.exp(losses)
    masses = np.exp(-(losses[:-1] + largest) / 2) * (-math.expm1(-half) / 2)
    rounding = _ERROR * (1 + largest)
    ends = (0.5, math.exp(-largest) / 2)
    if bound is Bound.LOWER:
        ratios = np.concatenate([edges[:1], edges[:-1] * math.exp(half), edges[-1:]])
        masses = np.concatenate([ends[:1], masses, ends[1:]])
        return cells.lower_pair(ratios, masses, rounding, rounding)
    # A cell's mean is e^h times its lower end, its upper end e^{2h} times that.
    share = np.full(number, 1 / (math.exp(half) + 1))
    ratios, masses = cells.upper_atoms(edges, masses, share)
    masses[0] += ends[0]
    masses[-1] += ends[1]
    return dominating_pair.DominatingPair(
        ratios, masses, 0.0, 0.0, bound, rounding, rounding
    )
