"""Bins of correlated noise from below: what an exponential filter of the noise tells.

For a banded Toeplitz strategy with column c, y_t = Σ_j y_{t + jb} / √k over the epochs
is N(0, 1) under Q, and bin i moves it by √k c_{t−i}. What a bin does after the last
step of an epoch, in the next one, happens there in k − 1 epochs: it is put on steps of
its own, which leaves out products of no negative numbers.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.amplification.matrix import filter_statistic
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Tuning.
_CORRELATIONS = np.linspace(0.1, 0.97, 88)
_SMALLEST_POWER = 1e-250  # Of r: what is divided by it stays finite.
_CELL = 0.3  # Of states, over the innovation's standard deviation.
_COARSER = 0.75  # The variance of a cell of sums, over that of an upper bound's.
_MOST_WORK = 2e11  # Products: about 15 s.


def lower_pair(
    column: FloatArray, num_bins: int, num_epochs: int, *, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the run, in both directions.

    Args:
        column: (p,) first column of the strategy over σ, p ≤ num_bins.
        num_bins: b.
        num_epochs: k.
        tail_mass: Probability that may be left out.

    Returns:
        The pair, or None where it would take too long.

    Guarantees:
        A larger Gram matrix has a larger ratio in the convex order (docs/matrix.md),
        and whoever sees only a function of the output sees no larger one.
    """
    statistic = _statistic(column, num_bins, num_epochs, tail_mass)
    states, places = statistic.chain.states.size, statistic.chain.places.size
    steps, width = statistic.shifts.shape
    if 2.0 * states**2 * places * (width + 3) * steps > _MOST_WORK:
        return None
    p_masses, q_masses, error = filter_statistic.laws(statistic)
    ratios = p_masses / q_masses
    order = np.argsort(ratios, kind="stable")
    order = order[ratios[order] > 0]
    return gauss_markov.pair_below(
        ratios[order], q_masses[order], 4 * error + 16 * floats.UNIT_ROUNDOFF
    )


def _statistic(
    column: FloatArray, num_bins: int, num_epochs: int, tail_mass: float
) -> filter_statistic.Filter:
    width = column.size
    length = num_bins + width - 1
    epochs = np.full((length, 1), float(num_epochs))
    epochs[num_bins:] -= 1
    shifts = floats.lowered(1.0) * np.sqrt(epochs) * column
    scale, correlation = _filter(shifts[0], num_bins)
    reach = -float(special.ndtri(max(tail_mass / length / 8, 1e-280)))
    cell = _CELL * math.sqrt((1 - correlation) * (1 + correlation))
    count = math.ceil((scale + 2 * reach) / cell) + 1
    chain = markov_sums.Chain(
        states=np.linspace(-reach, scale + reach, count),
        correlation=correlation,
        scale=scale,
        factors=np.ones(1),
        chances=np.ones(1),
        lost_factor=0.0,
        places=gauss_markov.sum_places(
            num_bins, scale**2, scale**2 / 2 + scale * reach, _COARSER
        ),
        length=length,
    )
    return filter_statistic.Filter(chain, shifts)


def _filter(column: FloatArray, num_bins: int) -> tuple[float, float]:
    """Returns a and r: of all filters, what moves S most over its standard deviation.

    a is how far a record moves x where it moves it most.
    """
    best, most = (0.0, 0.0), 0.0
    apart = np.arange(1, num_bins)
    for value in _CORRELATIONS:
        correlation = float(value)
        powers = correlation ** np.arange(column.size)
        if powers[-1] < _SMALLEST_POWER:
            continue
        # Σ_{j ≥ t} r^{j − t} c_j: what x_t is moved by.
        within = np.cumsum((powers * column)[::-1])[::-1] / powers
        within *= math.sqrt((1 - correlation) * (1 + correlation))
        scale = float(within[0])
        means = np.append(within, scale * correlation**apart)
        moved = float(np.expm1(scale * means).sum())
        spread = 2 * float(np.expm1(scale**2 * correlation**apart).sum())
        found = moved / math.sqrt(math.expm1(scale**2) + spread)
        if found > most:
            best, most = (scale, correlation), found
    return best
