"""Batches drawn with replacement, in which one group takes the place of another.

Both datasets have one size, and i draws of a batch hit the group with probability w_i.
Let r = 1 − w₀, μ₀ the law of the outputs if no draw hits the group, μ₁ the law if some
do, and μ₁' the same for the group that took its place. The outputs of the two datasets
are (1 − r) μ₀ + r μ₁ and (1 − r) μ₀ + r μ₁'. For κ' ≥ 1, κ = 1 + r (κ' − 1) and
β = κ/κ', their divergence at κ is

    r H_κ'(μ₁ ‖ (1 − β) μ₀ + β μ₁') ≤ r (1 − β) H_κ'(μ₁‖μ₀) + r β H_κ'(μ₁‖μ₁').

The batches of μ₁ and μ₁' are coupled, place by place, so that they are at distance i.
The last divergence is then at most that of a mechanism that also releases i. It is also
at most H_sκ'(μ₁‖μ₀), where s = w₁/r is the share of a single hit: only this case of μ₁'
is kept. Let the hits of μ₁ fill places in an order in which that single one comes
first. Then i hits are at distance i from it, as they are from a batch without any.
"""

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import hinges
from dp_accounting_ext.pairs import profile_pairs

DominatingPair = dominating_pair.DominatingPair

# Tuning: the number of losses at which the bound is computed. They form a geometric
# series. With twice as many, ε of 5000 runs moves by a relative 1e-5.
_NODES = 1 << 15
# Tuning: the first of these losses, over the loss of a sampled record; and its least
# value.
_SMALL_PART, _LEAST_LOSS = 1e-5, 1e-11


def dominating_pair_of(
    apart: DominatingPair,
    with_number: DominatingPair,
    star: DominatingPair,
    rate: float,
    single: float,
) -> DominatingPair:
    """Returns an upper pair of two datasets, with one profile in both directions.

    Args:
        apart: An upper pair of (μ₁, μ₀), and of i draws that are replaced against none.
        with_number: An upper pair of (μ₁, μ₁') if the number of hits is also released.
        star: Another upper pair of the two datasets, of either direction.
        rate: r, in (0, 1], rounded up.
        single: s, in [0, 1], rounded down.

    Returns:
        The pair of the smallest bound at every κ.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem L.5 (whose pair is `star`);
        https://arxiv.org/abs/1807.01647, Theorem 2 (advanced joint convexity).
    """
    top = float(np.log(max(star.ratios[-1], apart.ratios[-1], with_number.ratios[-1])))
    least = max(_SMALL_PART * float(np.log1p(rate)), _LEAST_LOSS)
    losses = np.geomspace(least, min(max(top, 2 * least), floats.LARGEST_LOSS), _NODES)
    kappas = np.unique(np.exp(np.append(0.0, losses)))
    inner = 1 + (kappas - 1) / rate
    # The share is of the larger divergence, so it may be rounded up.
    share = np.minimum(kappas / inner * (1 + 8 * floats.UNIT_ROUNDOFF), 1.0)
    near, far = _values(apart, inner), _values(with_number, inner)
    kept = np.flatnonzero(single * inner >= 1)
    far[kept] = np.minimum(far[kept], _values(apart, single * inner[kept]))
    mixed = near + share * np.maximum(far - near, 0.0)
    bounds = np.minimum(rate * mixed, _values(star, kappas))
    rounding = 1 + 64 * floats.UNIT_ROUNDOFF
    return profile_pairs.symmetric(kappas, np.minimum(bounds * rounding, 1.0))


def _values(pair: DominatingPair, kappas: FloatArray) -> FloatArray:
    """Returns (n,) upper bounds on H_κ(P‖Q) of a pair at κ ≥ 1, decreasing."""
    bounds = hinges.Hinges.of(pair).values(kappas)
    least: FloatArray = np.minimum.accumulate(bounds)
    return least
