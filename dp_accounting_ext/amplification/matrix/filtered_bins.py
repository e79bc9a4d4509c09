"""Bins of correlated noise from below: what an exponential filter of the noise shows.

For a banded Toeplitz strategy with column c, y_t = Σ_j y_{t + jb} / √k over the epochs
is N(0, 1) under Q, and bin i moves it by √k c_{t−i}. What a bin does after the last
step of an epoch, in the next one, happens there in k − 1 epochs: it is put on steps of
its own, which leaves out products of no negative numbers.

Whoever sees only S = Σ e^{a x_t − a²/2} over the b steps at which bins start, with x an
exponential filter of y, sees less. The law of S is a recursion over (x, S), and P's is
one for each position within the band. States are split between the points of a grid at
random, which is seen less still: no error, from below.
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

_CELL = 0.25  # Tuning: of states, over the innovation's standard deviation.
# Tuning: cells of sums, from above, are those of sums that vary so many times as much,
# at least of sums that vary so much. With 1 ε is 0.1 % higher, in twice as long.
_PLACES, _LEAST_TOGETHER = 8.0, 2.5
_ROUGH = 0.5, 64.0  # Of both, where they are wide.
_MOST_WORK, _MOST_ROUGH_WORK = 2e11, 2e10  # Tuning: products: about 15 s, and 1 s.
_LEFT_OUT = 1e-9  # Of the tail: P's masses of a state and a place that are dropped.
_EVERY = 4  # Tuning: steps from one time that small masses are left out to the next.
# Certified: what products of small masses may lose, once for each final sum.
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
        column: (p,) first column of the strategy over σ, p ≤ num_bins.
        num_bins: b.
        num_epochs: k.
        tail_mass: Probability that may be left out.
        is_rough: Whether cells are wide: ε is a few percent lower, in a tenth of the
            time.

    Returns:
        The pair, or None where it would take too long.

    Guarantees:
        A larger Gram matrix has a larger ratio in the convex order (docs/matrix.md),
        and whoever sees only a function of the output sees no larger one.
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
    """Returns masses of the places of S.

    Args:
        chain: x and S, with its factors all one. Its length is b + p − 1.
        shifts: (b + p − 1, p) by which y_t moves if t is the j-th step of the record's.

    Returns:
        (l,) P's masses, from below; (l,) Q's, from above; and a bound on the relative
        error of any of them.

    Guarantees:
        For every κ, Σ (P − κ Q)₊ is at most the profile of the run, once masses are
        moved by their error.
    """
    steps, width = shifts.shape
    states, places = chain.states.size, chain.places.size
    additions = [
        markov_sums.Addition.of(chain, slice(state, state + 1))
        for state in range(states)
    ]
    innovation = math.sqrt((1 - chain.correlation) * (1 + chain.correlation))
    means = chain.correlation * chain.states
    # Laws: Q's from above, Q's from below, who is yet to move y, p who do, and who did.
    # From below hardly anything is left out at either end.
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
            # Steps go down: the last of a record's is met first.
            entering = position == width - 1
            if entering and step > steps - width:
                now[2 + position] = 0.0
                continue
            before = law[1] if entering else law[3 + position]
            shift = float(shifts[steps - 1 - step, position])
            now[2 + position, :, used] = moved(shift) @ before[:, used]
        law, now = now, law
        if step < width - 1:
            # No bin starts here: it would add noise to the sum, and nothing else.
            continue
        flat = law.transpose(1, 2, 0)
        for state, addition in enumerate(additions):
            law[:, state] = (addition.matrix @ flat[state]).T
        if step < width + _EVERY or step % _EVERY == 0:
            # Until the next time, what gets out of these places is left out.
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
    """Returns a and r: of all filters, what moves S most over its standard deviation.

    a is how far a record moves x where it moves it most.
    """
    best, most = (0.0, 0.0), 0.0
    apart = np.arange(1, num_bins)
    for correlation in chain_fits.CORRELATIONS.tolist():
        # Σ_{j ≥ t} r^{j − t} c_j: what x_t is moved by.
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
