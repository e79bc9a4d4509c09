"""Upper bounds for k-out-of-t random allocation, and for groups, by a theorem.

Let X_i be the likelihood ratio of step i. That of k out of t steps, 1 < k < t, is
Z = e_k(X_1, …, X_t) / C(t, k), where e_k is the k-th elementary symmetric polynomial.
For any λ in (0, 1) and q_i = λ X_i / (1 − λ + λ X_i),

    Z = ∏ (1 − λ + λ X_i) · π(k) / Binom(k; t, λ),

where π(k) is the probability that exactly k of independent events with probabilities
q_i happen. It is at most e^{−V} I₀(V), where V = Σ q_i (1 − q_i). So the joint law of
L = Σ ln(1 − λ + λ X_i) and V, in cells, gives an upper bound. For groups see
`group_counts`.
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import special

from dp_accounting_ext.amplification import plane_sums
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.pairs import profile_pairs

DominatingPair = dominating_pair.DominatingPair
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

# Tuning, all of these constants: the number of nodes of each bound; ratios are left out
# whose probability is below e^−14 of δ; and the values of −ln δ at which upper bounds
# are tight, for a δ of one run from 1 to 1e-12. A negative value stands for losses
# below the mean that are as rare as those above the mean for the positive value. They
# matter in a composition: for 10 runs of 5 of 391 steps, σ = 0.55 and δ = 1e-5, ε is
# 21.93 without them and 21.86 with them.
_NODES, _RARE = 2048, 14.0
_EXPONENTS = (-3.0, -0.5, 0.0, 0.5, 1.5, 3.0, 5.5, 9.0, 14.0, 19.0, 27.0)


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
    whole = float(masses.sum())
    conservation.check_total(
        "masses of cells",
        float(found.sum()),
        whole,
        whole * places.size * floats.UNIT_ROUNDOFF,
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
    window: plane_sums.Window,
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
    return hinges_of(
        np.subtract.outer(window.rows, logs).ravel(),
        masses.ravel(),
        below=below,
        infinity_mass=lost
        + window.mass_above() * floats.exponential(float(log_weights[0])),
        mass_error=mass_error + window.mass_error + error,
        ratio_error=ratio_error + error,
    )


def upper_pair(
    pair: DominatingPair,
    num_selected: int,
    num_steps: int,
    known: Sequence[DominatingPair],
    *,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair that dominates k-out-of-t allocation when a record is removed.

    Its profile is the largest convex function below several bounds: those that are
    known, and those of the theorem for a few λ.

    Args:
        pair: An upper bound of one step, n atoms.
        num_selected: Number of steps with the record, 1 < k < t.
        num_steps: Number of steps, t.
        known: Upper bounds of the allocation, when a record is removed; at least one.
        tail_mass: Probability of the rarest losses that are not counted as infinite.

    Guarantees:
        H(P‖Q) of the result is at least that of the allocation, at every κ ≥ 0. The
        pair is valid in this direction only.

    Source:
        docs/mathematics.md, "k out of t: the theorem".
    """
    steps = step_laws.Steps.of(pair, num_selected, num_steps)
    found = [Hinges.of(each) for each in known]
    if not steps.is_informative(1e-6):
        return profile_pairs.least(found)
    for exponent in step_laws.exponents_up_to(_EXPONENTS, tail_mass):
        bound = _bound(pair, steps, exponent)
        if bound is not None:
            found.append(bound)
    return profile_pairs.least(found)


def _bound(
    pair: DominatingPair, steps: step_laws.Steps, exponent: float
) -> Hinges | None:
    """Returns the theorem's bound for one λ, if a lattice holds it.

    Args:
        pair: One step.
        steps: Its ratios.
        exponent: −ln δ where the bound is to be tight. A negative value −x stands for
            losses below the mean that are as rare as those above it are for x.
    """
    tilt = math.copysign(steps.tilt(abs(exponent)), exponent)
    rate = steps.rate(tilt)
    # For losses below the mean only λ is chosen differently. The window is that of the
    # whole law.
    exponent, tilt = max(exponent, 0.0), max(tilt, 0.0)
    steps, lost = steps.without_largest(math.exp(-exponent - _RARE))
    few, total = steps.few, steps.num_steps
    terms = step_laws.scores(steps.ratios, rate)
    grid = plane_sums.Grid.of(step_laws.scores(few.ratios, rate)[::2], few.laws, tilt)
    window = plane_sums.Window.of(grid, terms[::2], steps.laws)
    if window is None:
        return None
    log_binomial, error = step_laws.log_binomial(steps.num_selected, total, rate)
    # The error of L also comes from rounding the scores and their places.
    largest = float(np.abs(terms.losses).max())
    error += total * step_laws.error_of_score(largest)
    # The relative error of a mass of a step, under P or Q.
    error_of_mass = pair.mass_error + pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    return by_counts(
        window,
        log_binomial,
        is_of_p=True,
        lost=lost + sums.probability_of_any([(pair.infinity_mass, steps.num_selected)]),
        mass_error=total * error_of_mass,
        ratio_error=error + (total + 1) * pair.ratio_error,
    )
