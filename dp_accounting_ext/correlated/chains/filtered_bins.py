"""Lower bounds for balls in bins, from an exponential filter of the outputs.

The strategy is a banded Toeplitz matrix. Let c_0, …, c_{p−1} be its first column over
σ. Let y_t be the sum over the k epochs of the outputs of step t, divided by √k. Under
Q, y_t is N(0, 1). A record of bin i moves it by √k c_{t−i}.

The last p − 1 bins also move the first steps of the next epoch, in k − 1 epochs. These
moves are put on p − 1 further steps, which come after the b steps of the epoch. This
only removes terms, none of them negative, from the inner products of bins. So the run
with b + p − 1 steps gives a lower bound (docs/matrix.md).

Let x be an exponential filter of y with variance one, from the last step to the first.
After each step, x is rounded to one of a few numbers. Let a be the most by which a
record moves x. The sum S of e^{a x_t − a²/2} over the b steps at which bins start, each
rounded to a multiple of a unit, is a function of the outputs. So by data processing its
laws under P and Q are a lower bound. They are computed by a recursion over (x, S), in
which nothing is approximated. For P there is one law for each position of a step among
the p steps of a record.
"""

import dataclasses
import itertools
import math

import numpy as np
from scipy import signal
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.correlated.chains import blocks_below
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import projected
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

# Tuning, all of these constants.
# The width of a cell of x, in standard deviations of the filter's innovation.
_CELL = 0.3
_PLACES = 800  # Values of S, the last of which stands for all larger ones.
# Losses are told apart if they exceed the ε that is known before by at most this share
# and these nats.
_FURTHER, _NATS = 0.6, 0.8
# The lowest x. All that is below is one cell.
_LOWEST = -2.0
# Below 0, and so many deviations above the a by which a record moves x, cells are twice
# as wide.
_HIGH = 4.0
# The highest x is as far above as this power of δ requires.
_RARER = 5 / 3
# Masses of x and S under P are dropped if they are smaller than this number times δ,
# once in so many steps. In these steps S is taken to move by no more than what likely
# states add, whose mass is more than so many times that of what is dropped.
_LEFT_OUT, _EVERY, _RARE = 1e-13, 4, 1e10

_LEAST = 1e-300  # Smaller masses under Q are dropped: `_UNDERFLOW` is more than all.
_MOST_KEPT = 256  # A limit of memory: the moves that are kept for later steps.
# A limit of time: so many products take a few seconds. If there would be more of them,
# the last entries of columns are left out.
_MOST_WORK = 8e10
# Certified: a bound on what small masses lose in the mass of a final sum.
_UNDERFLOW = 1e-290


@dataclasses.dataclass(frozen=True)
class Statistic:
    """The function S of the outputs.

    Attributes:
        states: (n,) the increasing numbers to which x is rounded.
        correlation: The filter's r, in [0, 1): x_t is r x_{t+1} + √(1 − r²) y_t.
        added: (n,) what each x_t adds to S: whole numbers, at least 0.
        places: The number m of values of S. The last one, m − 1, stands for all larger
            ones.
    """

    states: FloatArray
    correlation: float
    added: IndexArray
    places: int


def lower_pair(
    shifts: FloatArray,
    *,
    delta: float,
    epsilon: float,
    copies: int = 1,
    wider: float = 1.0,
) -> dominating_pair.DominatingPair | None:
    """Returns a pair that is dominated by the run, in both directions.

    Args:
        shifts: (b + p − 1, p) how far y_t moves if t is the j-th step of a record,
            rounded down, for b bins and p ≤ b.
        delta: About the δ that is to be asked for.
        epsilon: A lower bound on ε at this δ.
        copies: The number of independent runs whose mean ratio δ and ε are of.
        wider: The factor by which cells of x are wider than usual.

    Returns:
        The pair, or None if it would take too long.

    Guarantees:
        H(P‖Q) and H(Q‖P) are at most those of the run, at every κ ≥ 0.

    Source:
        docs/matrix.md: smaller inner products of bins have smaller divergences. Data
        processing, for the function S of the outputs.
    """
    bins = len(shifts) - shifts.shape[1] + 1
    scale, correlation = _filter(shifts[shifts.shape[1] - 1 : bins].mean(axis=0), bins)
    cell = wider * _CELL * math.sqrt((1 - correlation) * (1 + correlation))
    high = scale - float(special.ndtri(max(delta**_RARER, floats.TINY)))
    middle = min(scale + _HIGH, high)
    states = np.concatenate(
        [
            -np.arange(2 * cell, -_LOWEST, 2 * cell)[::-1],
            np.arange(0.0, middle, cell),
            np.arange(middle, high + cell, 2 * cell),
        ]
    )
    most_bands = int(_MOST_WORK / (2.0 * states.size**2 * bins * _PLACES)) - 2
    if most_bands < 1:
        return None
    bands = min(most_bands, shifts.shape[1])
    shifts = shifts[: bins + bands - 1, :bands]
    ratios = np.exp(scale * states - scale**2 / 2)
    # Larger losses are not told apart.
    largest = epsilon + min(_FURTHER * epsilon, _NATS) + math.log(copies)
    unit = math.exp(min(largest, floats.LARGEST_EXPONENT)) * bins / _PLACES
    added = np.rint(np.minimum(ratios / unit, float(_PLACES)))
    statistic = Statistic(states, correlation, added.astype(np.intp), _PLACES)
    p_masses, q_masses, error = laws(statistic, shifts, least=_LEFT_OUT * delta)
    ratios = p_masses / q_masses
    order = np.argsort(ratios, kind="stable")
    order = order[ratios[order] > 0]
    if not order.size:
        return None
    return blocks_below.pair_below(
        ratios[order], q_masses[order], 4 * error + 16 * floats.UNIT_ROUNDOFF
    )


def laws(
    statistic: Statistic, shifts: FloatArray, *, least: float
) -> tuple[FloatArray, FloatArray, float]:
    """Returns the masses of all values of S, under P and under Q.

    Args:
        statistic: The function S.
        shifts: (b + p − 1, p) how far y_t moves if t is the j-th step of a record.
        least: Smaller masses of x and S under P may be dropped.

    Returns:
        (m,) lower bounds on P's masses; (m,) upper bounds on Q's masses; and a bound on
        the relative error of any of them.

    Guarantees:
        If P's masses are lowered by their error, and Q's are raised by it, then
        Σ (P − κ Q)₊ is at most the profile of the run, at every κ ≥ 0.
    """
    steps, width = shifts.shape
    states, places = statistic.states.size, statistic.places
    means = statistic.correlation * statistic.states
    innovation = math.sqrt((1 - statistic.correlation) * (1 + statistic.correlation))
    (first,), error = _masses(statistic, np.zeros(1), 1.0)
    # Row 0 is Q's law, which is also P's before the record's first step. Rows 1 to p
    # are P's at each of the record's p steps, and row p + 1 is P's after them.
    law = np.zeros((width + 2, states, places))
    law[0, :, 0] = first
    matrices: dict[float, FloatArray] = {}
    mass_error = error

    def moved(shift: float) -> FloatArray:
        nonlocal mass_error
        if len(matrices) > _MOST_KEPT:
            matrices.clear()
        if shift not in matrices:
            masses, off = _masses(statistic, means + innovation * shift, innovation)
            matrices[shift] = np.ascontiguousarray(masses.T)
            mass_error = max(mass_error, off)
        return matrices[shift]

    # P's laws have masses at these places only. What leaves them is dropped.
    used, next_law = slice(0, 1), np.zeros_like(law)
    alike = _alike(statistic.added)
    for step in range(steps):
        np.matmul(moved(0.0), law[0], out=next_law[0])
        finished = law[width + 1, :, used] + law[1, :, used]
        next_law[width + 1, :, used] = moved(0.0) @ finished
        for position in range(width):
            # Steps are in reverse order, so the last step of a record comes first.
            entering = position == width - 1
            if entering and step > steps - width:
                next_law[1 + position] = 0.0
                continue
            previous = law[0] if entering else law[2 + position]
            shift = float(shifts[steps - 1 - step, position])
            next_law[1 + position, :, used] = moved(shift) @ previous[:, used]
        if step < width - 1:
            # No bin starts here, so a term of this step would only add noise to S.
            law, next_law = next_law, law
            continue
        if step == width - 1:
            used = slice(0, places)
        _add(next_law[:1], alike, law[:1])
        is_whole = used.stop == places
        _add(next_law[1:, :, used], alike, law[1:, :, used], is_whole=is_whole)
        if step < width + _EVERY or step % _EVERY == 0:
            used = _drop_small(law, used, statistic, least)
    law[1:, :, : used.start] = law[1:, :, used.stop :] = 0.0
    totals = law.sum(axis=1)
    # A mass is a sum of masses of all states; one place takes all that are beyond it.
    step_error = mass_error + (2 * states + places + 32) * floats.UNIT_ROUNDOFF
    bins = steps - width + 1
    p_masses = (totals[1] + totals[width + 1]) / bins
    return p_masses, totals[0] + _UNDERFLOW, floats.raised(steps * step_error)


def _drop_small(
    law: FloatArray, used: slice, statistic: Statistic, least: float
) -> slice:
    """Drops small masses, and returns the places that P's laws use from now on.

    Args:
        law: (p + 2, n, m) Q's law, and P's laws, which are changed.
        used: The places that P's laws have used so far.
        statistic: The function S.
        least: Smaller masses under P are dropped.
    """
    law[0][law[0] < _LEAST] = 0.0
    of_p = law[1:, :, used]
    of_p[of_p < least] = 0.0
    occupied = np.flatnonzero(of_p.any(axis=(0, 1)))
    if not occupied.size:
        return used
    # S moves by no more than what likely states add, until masses are dropped again.
    likely = (of_p.sum(axis=2) > _RARE * least).any(axis=0)
    further = _EVERY * int(statistic.added[likely].max(initial=0))
    first, last = used.start + int(occupied[0]), used.start + int(occupied[-1])
    reached = slice(first, min(last + 1 + further, statistic.places))
    law[1:, :, used.stop : reached.stop] = 0.0
    return reached


def _alike(added: IndexArray) -> list[tuple[slice, int]]:
    """Returns neighboring states that add the same number of places, and the number."""
    starts = np.flatnonzero(np.diff(added, prepend=-1)).tolist()
    return [
        (slice(start, end), int(added[start]))
        for start, end in itertools.pairwise([*starts, added.size])
    ]


def _add(
    masses: FloatArray,
    alike: list[tuple[slice, int]],
    out: FloatArray,
    *,
    is_whole: bool = True,
) -> None:
    """Moves masses of S up by what each state adds.

    Args:
        masses: (k, n, m) masses, by the state and by S.
        alike: States that move by the same number of places, and this number.
        out: (k, n, m) The array that the moved masses are written to.
        is_whole: Whether the last place takes all larger sums. Otherwise their masses
            are dropped.
    """
    places = masses.shape[-1]
    for states, added in alike:
        cells = min(added, places)
        out[:, states, :cells] = 0.0
        out[:, states, cells:] = masses[:, states, : places - cells]
        if is_whole and cells:
            out[:, states, -1] += masses[:, states, places - cells :].sum(axis=-1)


def _masses(
    statistic: Statistic, means: FloatArray, spread: float
) -> tuple[FloatArray, float]:
    """Returns (k, n) masses of N(mean, spread²) that are rounded to each state.

    Also returned is a bound on their relative error.
    """
    states = statistic.states
    middles = (states[1:] + states[:-1]) / 2 / spread
    ends = np.concatenate([[-math.inf], middles, [math.inf]])
    masses, error = projected.normal_masses(ends, means / spread)
    # A place is the difference of an end and a mean, which are each rounded. Up to 37
    # deviations away, a cell of width w has at least min(w, 1 / 37) / 4 of the density
    # at its nearer end, and less than that at the other one.
    width = min(float(np.diff(middles).min(initial=1.0)), 1.0)
    sizes = float(np.abs(middles).max()) + float(np.abs(means).max()) / spread
    error += 16 * sizes * (1 / width + 37) * floats.UNIT_ROUNDOFF
    return masses, error


def _filter(column: FloatArray, num_bins: int) -> tuple[float, float]:
    """Returns a and r of the best filter.

    Its correlation is r, and a is the most by which a record moves x. With this filter,
    a record moves the mean of S by the largest number of standard deviations.
    """
    best, largest = (0.0, 0.0), 0.0
    apart = np.arange(1, num_bins)
    for correlation in chain_fits.CORRELATIONS.tolist():
        # A record moves x_t by √(1 − r²) Σ_{j ≥ t} r^{j − t} c_j.
        within = signal.lfilter([1.0], [1.0, -correlation], column[::-1])[::-1]
        within *= math.sqrt((1 - correlation) * (1 + correlation))
        scale = float(within[0])
        means = np.append(within, scale * correlation**apart)
        moved = float(np.expm1(scale * means).sum())
        spread = 2 * float(np.expm1(scale**2 * correlation**apart).sum())
        deviations = moved / math.sqrt(math.expm1(scale**2) + spread)
        if deviations > largest:
            best, largest = (scale, correlation), deviations
    return best
