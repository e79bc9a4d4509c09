"""Upper bounds from the joint law, in cells, of two sums over the steps.

The likelihood ratio is e^L times the probability that exactly k of some independent
events happen, over a constant. The first sum is L. The probability is at most
e^{−V} I₀(V), where V, the second sum, is the sum of the variances of the events.
"""

import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.pairs import profile_pairs

Hinges = profile_pairs.Hinges

# Certified: e^V / I₀(V) is concave from here on, and increases by less than this.
CONCAVE_FROM = 0.8
STEEPEST = 1.2001
# Certified: the error of the logarithm of e^{−V} I₀(V), in units of rounding.
_BESSEL_ERROR = 64.0
# Certified: the error of a loss of up to 700 nats and of its position among the nodes.
_NODE_ERROR = 1e-12
# Certified: smaller losses are raised to this one, in nats, so that quotients of masses
# and ratios fit a float. For the same reason masses above e^300 are lowered to e^300,
# which is still far above any probability.
_LEAST_LOSS = -300.0
_MOST_MASS = math.exp(-_LEAST_LOSS)

# Tuning: the number of losses in a coarse row.
_LOSSES_OF_ROW = 4
_NODES = 2048  # Tuning: the number of nodes of each bound.


def log_reciprocal(variance: FloatArray) -> FloatArray:
    """Returns the logarithm of a concave function that is at most e^V / I₀(V).

    From `CONCAVE_FROM` on it is e^V / I₀(V) itself, and below it is a line.

    Args:
        variance: (n,) values of V ≥ 0.
    """
    inside = np.maximum(variance, CONCAVE_FROM)
    values = -np.log(special.i0e(inside))
    start = 1 / float(special.i0e(CONCAVE_FROM))
    line = start - STEEPEST * (CONCAVE_FROM - np.minimum(variance, CONCAVE_FROM))
    found: FloatArray = np.where(variance < CONCAVE_FROM, np.log(line), values)
    return found


def hinges_of(
    losses: FloatArray,
    masses: FloatArray,
    *,
    below: float,
    infinity_mass: float,
    mass_error: float,
    ratio_error: float,
) -> Hinges:
    """Returns a bound on H(P‖Q) from cells, if a record is removed.

    For κ at and above the ratio e^`below` the cells alone are a bound. For smaller κ,
    the profile, which is convex and 1 at κ = 0, is below its chord. So it is below the
    bound of the cells together with a mass of one under P at that ratio.

    Args:
        losses: (n,) logarithms of the cells' ratios.
        masses: (n,) masses of the cells under P.
        below: The largest logarithm of a ratio of outputs that are neither in a cell
            nor in the sink; −inf if there are none.
        infinity_mass: P's mass of outputs whose ratio is unknown.
        mass_error: Bound on the relative error of a mass.
        ratio_error: Bound on the relative error of a ratio.
    """
    losses = np.maximum(losses, _LEAST_LOSS)
    beyond = losses > floats.LARGEST_LOSS
    if below > floats.LARGEST_LOSS or beyond.all():
        return profile_pairs.TRIVIAL
    infinity_mass += float(masses[beyond].sum())
    losses, masses = losses[~beyond], masses[~beyond]
    masses = np.minimum(masses, _MOST_MASS)
    known = np.append(losses, max(below, _LEAST_LOSS))
    low = float(known.min())
    step = max(float(known.max()) - low, 1e-9) / _NODES
    places, shares = tilted_sums.shares((losses - low) / step, step)
    found = sums.gather_quickly(places.ravel(), (shares * masses).ravel())
    _check_kept("masses of cells", found, masses, places.size)
    if below > -math.inf:
        found[math.ceil((known[-1] - low) / step)] += 1.0
    (kept,) = np.nonzero(found)
    ratios = np.exp(low + step * kept)
    return Hinges(
        ratios,
        found[kept] / ratios,
        infinity_mass=floats.raised(infinity_mass),
        mass_error=mass_error + places.size * floats.UNIT_ROUNDOFF,
        ratio_error=ratio_error + _NODE_ERROR,
    )


def _check_kept(
    name: str, found: FloatArray, masses: FloatArray, additions: int
) -> None:
    """Checks that splits kept the whole of some masses, but for rounding."""
    whole = float(masses.sum())
    error = whole * additions * floats.UNIT_ROUNDOFF
    conservation.check_total(name, float(found.sum()), whole, error)


def by_counts(
    window: joint_allocation.Window,
    log_probability: float,
    *,
    is_of_p: bool,
    added: float = 0.0,
    lost: float,
    mass_error: float,
    ratio_error: float,
) -> Hinges | None:
    """Returns the bound by the ratio e^L e^{−V} I₀(V) / c, or None if it overflows.

    Args:
        window: The joint law of L and V.
        log_probability: ln c, the logarithm of the probability of the number k.
        is_of_p: Whether the window's law is that of P. Otherwise it is that of Q, times
            e^L.
        added: A constant that is added to V.
        lost: P's mass of outputs outside the window.
        mass_error: A further relative error of masses.
        ratio_error: A further absolute error of L.
    """
    logs = log_reciprocal(window.columns + added) + log_probability
    if not is_of_p and logs.min() < -floats.LARGEST_EXPONENT:
        return None
    log_weights = np.zeros_like(logs) if is_of_p else -logs
    largest = float(np.abs(window.rows[[0, -1]]).max()) + abs(log_probability) + 16
    error = (_BESSEL_ERROR + 8 * largest) * floats.UNIT_ROUNDOFF
    below = -math.inf
    if window.is_tilted:
        # Below the window, V may have any value, even zero.
        below = float(window.rows[0] - logs[0]) + 2 * error
    with np.errstate(over="ignore"):
        masses = window.masses * np.exp(log_weights)
    losses, masses = _in_line(window, -logs, masses)
    return hinges_of(
        losses,
        masses,
        below=below,
        infinity_mass=lost
        + window.mass_above() * floats.exponential(float(log_weights[0])),
        mass_error=mass_error
        + window.mass_error
        + error
        + (2 * logs.size + tilted_sums.SHARE_ERROR) * floats.UNIT_ROUNDOFF,
        ratio_error=ratio_error + error,
    )


def _in_line(
    window: joint_allocation.Window, added: FloatArray, masses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (l,) losses and their masses, from those of (m, n) cells.

    The new losses are equally spaced, and a coarse row is a whole number of spaces. So
    all cells of a column are split between losses in the same way. If there would be
    more losses than cells, the cells are returned as they are. This happens if rows are
    much closer to each other than columns.

    Args:
        window: The joint law of L and V.
        added: (n,) the difference of a cell's loss and L, for each column.
        masses: (m, n) masses of the cells.
    """
    step = window.row_step / _LOSSES_OF_ROW
    masses = np.minimum(masses.T, _MOST_MASS)
    size = _LOSSES_OF_ROW * (window.rows.size - 1) + 1
    if (added.max() - added.min()) / step + size > masses.size:
        return np.add.outer(added, window.rows).ravel(), masses.ravel()
    places, shares = tilted_sums.shares(added / step, step)
    low = int(places.min())
    found = np.zeros(size + int(places.max()) - low)
    for column, firsts, parts in zip(masses, places.T - low, shares.T, strict=True):
        for first, share in zip(firsts.tolist(), parts.tolist(), strict=True):
            found[first : first + size : _LOSSES_OF_ROW] += share * column
    _check_kept("masses of rows", found, masses, masses.size)
    return window.rows[0] + step * (low + np.arange(found.size)), found
