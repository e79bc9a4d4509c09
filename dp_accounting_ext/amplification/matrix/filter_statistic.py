"""A statistic of noise that moves along a filter: its law with and without a record.

Under Q the y_t are independent N(0, 1). A record is in one of b bins, and moves p
neighbouring y_t. Whoever sees only S = Σ e^{a x_t − a²/2} over the b steps at which
bins start, with x an exponential filter of y, sees less. The law of S is a recursion
over (x, S), and P's is one for each position within the p steps. States are split
between the points of a grid at random, which is seen less still: no error, from below.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Certified: what products of small masses may lose, once for each final sum.
_UNDERFLOW = 1e-290


@dataclasses.dataclass(frozen=True)
class Filter:
    """A statistic, and the grids of its states.

    Attributes:
        chain: x and S, with its factors all one. Its length is b + p − 1.
        shifts: (b + p − 1, p) by which y_t moves if t is the j-th step of the record's.
    """

    chain: markov_sums.Chain
    shifts: FloatArray


def laws(statistic: Filter) -> tuple[FloatArray, FloatArray, float]:
    """Returns masses of the places of S.

    Returns:
        (l,) P's masses, from below; (l,) Q's, from above; and a bound on the relative
        error of any of them.

    Guarantees:
        For every κ, Σ (P − κ Q)₊ is at most the profile of the run, once masses are
        moved by their error.
    """
    chain, shifts = statistic.chain, statistic.shifts
    steps, width = shifts.shape
    states, places = chain.states.size, chain.places.size
    adders = markov_sums.adders(chain)
    innovation = math.sqrt((1 - chain.correlation) * (1 + chain.correlation))
    means = chain.correlation * chain.states
    # Columns: Q's law from above, Q's law from below, who is yet to move y, p who do,
    # and who did.
    law = np.zeros((states, width + 3, places))
    for column, raised in ((0, True), (1, False)):
        law[:, column, 0] = markov_sums.hats(
            chain.states, np.zeros(1), 1.0, raised=raised
        )[0]
    above = markov_sums.hats(chain.states, means, innovation, raised=True).T
    moves: dict[float, FloatArray] = {}

    def moved(shift: float) -> FloatArray:
        if shift not in moves:
            mean = means + innovation * shift
            found = markov_sums.hats(chain.states, mean, innovation, raised=False)
            moves[shift] = np.ascontiguousarray(found.T)
        return moves[shift]

    for step in range(steps):
        now = np.empty_like(law)
        now[:, 0] = above @ law[:, 0]
        now[:, 1] = moved(0.0) @ law[:, 1]
        now[:, 2 + width] = moved(0.0) @ (law[:, 2 + width] + law[:, 2])
        for position in range(width):
            # Steps go down: the last of a record's is met first.
            entering = position == width - 1
            before = law[:, 1] if entering else law[:, 3 + position]
            if entering and step > steps - width:
                now[:, 2 + position] = 0.0
                continue
            shift = float(shifts[steps - 1 - step, position])
            now[:, 2 + position] = moved(shift) @ before
        if step < width - 1:
            # No bin starts here: it would add noise to the sum, and nothing else.
            law = now
            continue
        for state, adder in enumerate(adders):
            law[state] = (adder @ now[state].T).T
    totals = law.sum(axis=0)
    most = max(int(np.diff(adder.indptr).max()) for adder in adders)
    each = (2 * states + most + 32) * floats.UNIT_ROUNDOFF
    each += 2 * markov_sums.QUADRATURE_ERROR
    bins = steps - width + 1
    p_masses = (totals[2] + totals[2 + width]) / bins
    return p_masses, totals[0] + _UNDERFLOW, floats.raised(steps * each)
