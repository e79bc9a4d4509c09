"""Upper bounds in cells of two sums over the steps.

One sum is the logarithm of a ratio, but for the chance of a number: that k of
independent events happen. It is at most e^{−V} I₀(V), V the sum of their variances,
which is the other sum.
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
from dp_accounting_ext.pairs import hinges

Hinges = hinges.Hinges

# Certified: e^V / I₀(V) is concave from here on, and increases by less than this.
CONCAVE_FROM = 0.8
STEEPEST = 1.2001
_BESSEL_ERROR = 64.0  # Of a logarithm of e^{−V} I₀(V), in units of rounding.
_NODE_ERROR = 1e-12  # Of a loss up to 700 nats, and of its place among the nodes.
# Certified: smaller losses are raised to it, and no mass need be more than its inverse,
# which is far more than a probability; their quotients fit a float.
_LEAST_LOSS = -300.0

_NODES = 2048  # Tuning: of each bound.


def log_reciprocal(variance: FloatArray) -> FloatArray:
    """Returns the logarithm of a concave function that is at most e^V / I₀(V).

    It is that function from `CONCAVE_FROM` on, and a line before.

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
    """Returns the bound on H(P‖Q), where a record is removed, of cells.

    At and above the ratio of `below` the cells are a bound on their own. Under it the
    profile is below its chord, from one at κ = 0, and so below what the cells and all
    of P's mass at that ratio have.

    Args:
        losses: (n,) logarithms of the cells' ratios.
        masses: (n,) their masses under P.
        below: No ratio has a larger logarithm of what is in none of the cells, nor in
            the sink; −inf if that is nothing.
        infinity_mass: P's mass of what may be anything.
        mass_error: Bound on the relative error of a mass,
        ratio_error: and of a ratio.
    """
    losses = np.maximum(losses, _LEAST_LOSS)
    beyond = losses > floats.LARGEST_LOSS
    if below > floats.LARGEST_LOSS or beyond.all():
        return hinges.TRIVIAL
    infinity_mass += float(masses[beyond].sum())
    losses, masses = losses[~beyond], masses[~beyond]
    masses = np.minimum(masses, math.exp(-_LEAST_LOSS))
    known = np.append(losses, max(below, _LEAST_LOSS))
    low = float(known.min())
    step = max(float(known.max()) - low, 1e-9) / _NODES
    places, shares = tilted_sums.shares((losses - low) / step, step)
    found = sums.gather_quickly(places.ravel(), (shares * masses).ravel())
    total = float(masses.sum())
    conservation.check_total(
        "masses of cells",
        float(found.sum()),
        total,
        total * places.size * floats.UNIT_ROUNDOFF,
    )
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


def by_counts(
    window: joint_allocation.Window,
    log_chance: float,
    *,
    is_of_p: bool,
    added: float = 0.0,
    lost: float,
    mass_error: float,
    ratio_error: float,
) -> Hinges | None:
    """Returns the bound e^L e^{−V} I₀(V) / chance of a ratio, or nothing.

    Args:
        window: The joint law of L and V.
        log_chance: The logarithm of the chance.
        is_of_p: Whether the window's law is P's; else it is Q's, times e^L.
        added: What V has besides.
        lost: P's mass of outputs that are none of the window's.
        mass_error: What masses err by besides,
        ratio_error: and L.
    """
    log_chances = log_reciprocal(window.columns + added) + log_chance
    if not is_of_p and log_chances.min() < -floats.LARGEST_EXPONENT:
        return None
    log_weights = np.zeros_like(log_chances) if is_of_p else -log_chances
    largest = float(np.abs(window.rows[[0, -1]]).max()) + abs(log_chance) + 16
    error = (_BESSEL_ERROR + 8 * largest) * floats.UNIT_ROUNDOFF
    below = -math.inf
    if window.is_tilted:
        # Of what is below the window nothing is known, not even that V is not zero.
        below = float(window.rows[0] - log_chances[0]) + 2 * error
    with np.errstate(over="ignore"):
        masses = window.masses * np.exp(log_weights)
    return hinges_of(
        (window.rows[:, np.newaxis] - log_chances).ravel(),
        masses.ravel(),
        below=below,
        infinity_mass=lost
        + window.mass_above() * floats.exponential(float(log_weights[0])),
        mass_error=mass_error + window.mass_error + error,
        ratio_error=ratio_error + error,
    )
