"""Rényi divergences of Gaussian noise on Poisson samples, for a group of records."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import shifted_noise


def group_rdp(
    orders: Sequence[float], group_size: int, sampling_probability: float, noise: float
) -> FloatArray:
    """Returns the RDP of one run, for each split of the group and each order.

    Row K₋ is for the split in which K₋ members are removed and K₊ = K − K₋ inserted. It
    is the divergence of Σ_i Binom(i | K₋, r) N(i, σ²) from Σ_j Binom(j | K₊, r) N(−j,
    σ²). The two datasets fix the split. So the rows of several runs are added, and the
    largest row is taken at the end.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        group_size: The number K of members of the group.
        sampling_probability: Inclusion probability r of each record, in [0, 1].
        noise: The noise multiplier σ.

    Returns:
        A read-only array of K + 1 rows, or of one row if all are equal.

    Guarantees:
        No entry is below the truth. The bound is tight for the mechanism: no entry is
        above the truth by more than a relative 1e-10 (1e-8 at order one). There are two
        exceptions: orders above 4096, and lattices of millions of points (σ far below
        1, with a large group or order). There the entry is the bound without
        amplification, α K²/2σ². It holds for any two mixtures whose shifts are at most
        K apart, as Ψ is jointly convex.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8.
    """
    return _group_rdp(
        tuple(float(order) for order in orders),
        int(group_size),
        float(sampling_probability),
        ratio_moments.noise_within_range(noise),
    )


@functools.lru_cache(maxsize=64)
def _group_rdp(
    orders: tuple[float, ...], group_size: int, rate: float, noise: float
) -> FloatArray:
    if rate == 0:
        rows = np.zeros((1, len(orders)))
    elif noise == 0:
        rows = np.full((1, len(orders)), np.inf)
    elif rate == 1:
        rows = ratio_moments.gaussian_rdp(group_size / noise, orders)[np.newaxis]
    else:
        rows = np.array(
            [
                _split_rdp(orders, removed, group_size - removed, rate, noise)
                for removed in range(group_size + 1)
            ]
        )
    rows.setflags(write=False)
    return rows


@dataclasses.dataclass(frozen=True)
class Split(shifted_noise.Pair):
    """P and Q if K₋ members are removed and K₊ inserted, with sampling probability r.

    With x = e^{z/σ}, p is the polynomial Σ_i Binom(i) e^{−i²/2σ²} x^i. All its zeros
    are negative. Proof: the zeros of Σ Binom(i) x^i are negative. With D = x d/dx and
    1/a above the degree, the operators 1 − aD and 1 + aD keep zeros negative by Rolle's
    theorem. So does their product 1 − a² D², and so does e^{−cD²}, which is the limit
    of (1 − c D²/n)^n.

    Attributes:
        noise: The noise multiplier σ. Shifts are numbers of members divided by σ.
    """

    noise: float

    def zero_free_width(self) -> float:
        return math.pi * self.noise

    def log_q_bent(self, heights: FloatArray) -> FloatArray:
        # At height d, each factor 1 + ρ/x of q has at least cos(d/2σ) times its size on
        # the line.
        inserted = self.q.shifts.size - 1
        bent: FloatArray = inserted * np.log(np.cos(heights / (2 * self.noise)))
        return bent


def _split_rdp(
    orders: Sequence[float], removed: int, inserted: int, rate: float, noise: float
) -> FloatArray:
    split = Split(
        _members(removed, rate, noise), _members(inserted, rate, noise), noise
    )
    return shifted_noise.rdp(orders, split)


def _members(present: int, rate: float, noise: float) -> shifted_noise.Mixture:
    """Returns the noise around the number of sampled members, in units of σ."""
    shifts = np.arange(present + 1) / noise
    return shifted_noise.Mixture(shifts, _log_binomial(present, rate))


def _log_binomial(members: int, rate: float) -> FloatArray:
    return np.array(
        [
            math.log(math.comb(members, count))
            + count * math.log(rate)
            + (members - count) * math.log1p(-rate)
            for count in range(members + 1)
        ]
    )
