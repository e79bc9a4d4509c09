"""Lower bounds for balls in bins, from an exponential filter of the outputs.

The strategy is a banded Toeplitz matrix. Let c_0, …, c_{p−1} be its first column over
σ. Let y_t be the sum over the k epochs of the outputs of step t, divided by √k. Under
Q, y_t is N(0, 1). A record of bin i moves it by √k c_{t−i}.

The last p − 1 bins also move the first steps of the next epoch, in k − 1 epochs. These
moves are put on p − 1 further steps, which come after the b steps of the epoch. This
only removes terms, none of them negative, from the inner products of bins. So the run
with b + p − 1 steps gives a lower bound (docs/matrix.md).

Let x be an exponential filter of y with variance one, and a the most by which a record
moves it. The sum S = Σ e^{a x_t − a²/2} over the b steps at which bins start is a
function of the outputs. By data processing, its laws under P and Q are a lower bound.
They are computed by a recursion over (x, S). For P there is one law for each position
of a step among the p steps of a record. A value of x between two points of the grid is
moved to one of them at random. This is data processing, too, so it costs no error in a
lower bound.
"""

import math

import numpy as np
from scipy import signal

from dp_accounting_ext.amplification.matrix import blocks_below
from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

# Tuning: the width of a cell of x, in standard deviations of the filter's innovation.
_CELL = 0.25
# Tuning: the variance of a cell of sums is this many times that of the cells for upper
# bounds; and the least value of `gauss_markov.together` with which it is computed. With
# a factor of 1, ε is 0.1 % higher, in twice the time.
_PLACES, _LEAST_TOGETHER = 8.0, 2.5
_ROUGH = 0.5, 64.0  # Tuning: _CELL and _PLACES of a rough bound.
# Tuning: the largest number of products, which take about 15 s; and that of a rough
# bound, which take 1 s.
_MOST_WORK, _MOST_ROUGH_WORK = 2e11, 2e10
# Tuning: smaller masses of a state and a place are dropped, over the tail mass.
_LEFT_OUT = 1e-9
_EVERY = 4  # Tuning: small masses are dropped once in this many steps.
# Certified: a bound on what products of small masses lose in the mass of a final sum.
_UNDERFLOW = 1e-290


def lower_pair(
    column: FloatArray,
    num_bins: int,
    num_epochs: int,
    *,
    tail_mass: float,
    is_rough: bool = False,
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the run, in both directions.

    Args:
        column: (p,) the first column c of the strategy over σ, p ≤ b.
        num_bins: The number b of bins.
        num_epochs: The number k of epochs.
        tail_mass: The probability that may be left out.
        is_rough: Whether an ε that is a few percent lower suffices, in a tenth of the
            time.

    Returns:
        The pair, or None if it would take too long.

    Guarantees:
        H(P‖Q) and H(Q‖P) of the pair are at most those of the run, at every κ ≥ 0.

    Source:
        docs/matrix.md: smaller inner products of bins have smaller divergences. Data
        processing, for the function S of the outputs.
    """
    length = num_bins + column.size - 1
    epochs = np.full((length, 1), float(num_epochs))
    epochs[num_bins:] -= 1
    shifts = floats.lowered(1.0) * np.sqrt(epochs) * column
    scale, correlation = _filter(shifts[0], num_bins)
    each = gauss_markov.tail_of_step(tail_mass, length)
    cell, part = _ROUGH if is_rough else (_CELL, _PLACES)
    whole = chain_fits.Fit(scale**2, 1.0, correlation, num_bins)
    together = gauss_markov.together(whole)
    chain = markov_sums.Chain(
        states=gauss_markov.states(scale, correlation, each, cell=cell),
        correlation=correlation,
        scale=scale,
        factors=np.ones(1),
        probabilities=np.ones(1),
        lost_factor=0.0,
        places=gauss_markov.sum_places(
            num_bins,
            scale**2,
            each,
            together=part * max(together, _LEAST_TOGETHER),
        ),
        length=length,
        smallest_mass=max(_LEFT_OUT * tail_mass, markov_sums.SMALLEST_MASS),
    )
    products = chain.states.size**2 * chain.places.size * (column.size + 3)
    if 2.0 * products * length > (_MOST_ROUGH_WORK if is_rough else _MOST_WORK):
        return None
    p_masses, q_masses, error = laws(chain, shifts)
    ratios = p_masses / q_masses
    order = np.argsort(ratios, kind="stable")
    order = order[ratios[order] > 0]
    return blocks_below.pair_below(
        ratios[order], q_masses[order], 4 * error + 16 * floats.UNIT_ROUNDOFF
    )


def laws(
    chain: markov_sums.Chain, shifts: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Returns the masses of S at the places of a grid, under P and under Q.

    Args:
        chain: The chain x, and the grids of x and of S. Its length is b + p − 1, and
            all of its factors are one.
        shifts: (b + p − 1, p) how far y_t moves if t is the j-th step of a record.

    Returns:
        (l,) lower bounds on P's masses; (l,) upper bounds on Q's masses; and a bound on
        the relative error of any of them.

    Guarantees:
        If P's masses are lowered by their error, and Q's are raised by it, then
        Σ (P − κ Q)₊ is at most the profile of the run, at every κ ≥ 0.
    """
    steps, width = shifts.shape
    states, places = chain.states.size, chain.places.size
    additions = [
        markov_sums.Addition.of(chain, slice(state, state + 1))
        for state in range(states)
    ]
    innovation = math.sqrt((1 - chain.correlation) * (1 + chain.correlation))
    means = chain.correlation * chain.states
    # Row 0 is Q's law, rounded up. The others are rounded down: row 1 is Q's law, which
    # is also P's before the record's first step. Rows 2 to p + 1 are P's at each of the
    # record's p steps, and row p + 2 is P's after them.
    law = np.zeros((width + 3, states, places))
    for row, raised in ((0, True), (1, False)):
        law[row, :, 0] = markov_sums.hats(
            chain.states, np.zeros(1), 1.0, raised=raised
        )[0]
    above = markov_sums.hats(chain.states, means, innovation, raised=True).T
    kept: dict[float, FloatArray] = {}

    def moved(shift: float) -> FloatArray:
        if shift not in kept:
            mean = means + innovation * shift
            found = markov_sums.hats(chain.states, mean, innovation, raised=False)
            kept[shift] = np.ascontiguousarray(found.T)
        return kept[shift]

    used, now = slice(0, 1), np.zeros_like(law)
    for step in range(steps):
        now[1:, :, : used.start] = now[1:, :, used.stop :] = 0.0
        np.matmul(above, law[0], out=now[0])
        now[1, :, used] = moved(0.0) @ law[1, :, used]
        now[2 + width, :, used] = moved(0.0) @ (
            law[2 + width, :, used] + law[2, :, used]
        )
        for position in range(width):
            # Steps are in reverse order, so the last step of a record comes first.
            entering = position == width - 1
            if entering and step > steps - width:
                now[2 + position] = 0.0
                continue
            before = law[1] if entering else law[3 + position]
            shift = float(shifts[steps - 1 - step, position])
            now[2 + position, :, used] = moved(shift) @ before[:, used]
        law, now = now, law
        if step < width - 1:
            # No bin starts here, so a term of this step would only add noise to S.
            continue
        flat = law.transpose(1, 2, 0)
        for state, addition in enumerate(additions):
            law[:, state] = (addition.matrix @ flat[state]).T
        if step < width + _EVERY or step % _EVERY == 0:
            # Until this is repeated, masses that leave these places are dropped.
            below = law[1:]
            below[below < chain.smallest_mass] = 0.0
            occupied = np.flatnonzero(below.any(axis=(0, 1)))
            used = slice(int(occupied[0]), int(occupied[-1]) + 1)
    totals = law.sum(axis=1)
    most = max(addition.most_terms for addition in additions)
    each = (2 * states + most + 32) * floats.UNIT_ROUNDOFF
    each += 2 * markov_sums.QUADRATURE_ERROR
    bins = steps - width + 1
    p_masses = (totals[2] + totals[2 + width]) / bins
    return p_masses, totals[0] + _UNDERFLOW, floats.raised(steps * each)


def _filter(column: FloatArray, num_bins: int) -> tuple[float, float]:
    """Returns a and r of the best filter.

    Its correlation is r, and a is the most by which a record moves x. With this filter,
    a record moves the mean of S by the largest number of standard deviations.
    """
    best, most = (0.0, 0.0), 0.0
    apart = np.arange(1, num_bins)
    for correlation in chain_fits.CORRELATIONS.tolist():
        # A record moves x_t by √(1 − r²) Σ_{j ≥ t} r^{j − t} c_j.
        within = signal.lfilter([1.0], [1.0, -correlation], column[::-1])[::-1]
        within *= math.sqrt((1 - correlation) * (1 + correlation))
        scale = float(within[0])
        means = np.append(within, scale * correlation**apart)
        moved = float(np.expm1(scale * means).sum())
        spread = 2 * float(np.expm1(scale**2 * correlation**apart).sum())
        found = moved / math.sqrt(math.expm1(scale**2) + spread)
        if found > most:
            best, most = (scale, correlation), found
    return best
