"""Mechanisms of ε-bounded range: their losses lie in an interval of length ε.

If the losses lie in [t − ε, t], the largest divergence is that of two outcomes with
losses t − ε and t. Its maximum over t is, with E = e^{−ε} and E ≤ κ ≤ 1/E,

    H_κ = (1 − √(κE))² / (1 − E).

This is convex in κ, and so the profile of a pair: Q(Z > κ) = (√(E/κ) − E) / (1 − E).
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import discrete

# Tuning: with this number of cells, splitting moves ε of a composition by a relative
# 1e-7.
_CELLS = 1 << 12


def dominating_pair_of(epsilon: float, bound: Bound) -> dominating_pair.DominatingPair:
    """Returns the pair of the worst mechanism of ε-bounded range.

    Args:
        epsilon: The length ε > 0 of the interval of losses, in nats.
        bound: An upper pair has the largest profile, in cells that are split between
            their ends. A lower pair is that of one mechanism of ε-bounded range: two
            outcomes with losses ±ε/2.

    Source:
        Dong et al. 2020, https://arxiv.org/abs/1909.13830, section 3 (the profile).
    """
    if bound is Bound.LOWER:
        attained = discrete.privacy_parameters(epsilon / 2, 0.0, Bound.UPPER)
        if not attained.infinity_mass:
            return dataclasses.replace(attained, bound=bound)
        return dominating_pair.trivial_pair(bound)
    if epsilon > floats.LARGEST_LOSS:
        return dominating_pair.trivial_pair(bound)
    # Each cell is at most a hundredth of a nat wide.
    number = max(_CELLS, math.ceil(200 * epsilon))
    losses = np.linspace(-epsilon, epsilon, number + 1)
    width = 2 * epsilon / number
    cells = np.exp(-(losses[:-1] + epsilon) / 2)
    cells *= math.expm1(-width / 2) / math.expm1(-epsilon)
    # The mean ratio of a cell is the geometric mean of its ends.
    raised = cells / (1 + math.exp(width / 2))
    masses = np.append(cells - raised, 0.0)
    masses[1:] += raised
    # The relative error of exponentials of up to ε, and of a few products.
    error = 64 * floats.UNIT_ROUNDOFF * (1 + epsilon)
    return dominating_pair.DominatingPair(
        np.exp(losses), masses, 0.0, 0.0, bound, error, error
    )
