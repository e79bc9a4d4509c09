"""Upper bounds for k-out-of-t random allocation, and for groups, by a theorem.

Let X_i be the likelihood ratio of step i. That of k out of t steps, 1 < k < t, is
Z = e_k(X_1, …, X_t) / C(t, k), where e_k is the k-th elementary symmetric polynomial.
For any λ in (0, 1) and q_i = λ X_i / (1 − λ + λ X_i),

    Z = ∏ (1 − λ + λ X_i) · π(k) / Binom(k; t, λ),

where π(k) is the probability that exactly k of independent events with probabilities
q_i happen. It is at most e^{−V} I₀(V), where V = Σ q_i (1 − q_i). So the joint law of
L = Σ ln(1 − λ + λ X_i) and V, in cells, gives an upper bound. For groups see
`group_counts`.

The theorem holds for any steps. What it loses, about 5 / (24 k) nats, is much where
losses are small. There Z is bounded by blocks if the steps are alike; and otherwise by
the k-th power of the mean of all X_i, the ratio of one out of t steps.
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

# Certified: a relative gap that is far above all rounding errors of ratios.
_GAP = 1e-6

# Tuning: the number of nodes of each bound, between which atoms are split.
_NODES = 2048


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
    logs: FloatArray = np.where(variance < CONCAVE_FROM, np.log(line), values)
    return logs


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
    bounds = np.append(losses, max(below, _LEAST_LOSS))
    low = float(bounds.min())
    step = max(float(bounds.max()) - low, 1e-9) / _NODES
    places, shares = tilted_sums.shares((losses - low) / step, step)
    node_masses = sums.gather_quickly(places.ravel(), (shares * masses).ravel())
    total = float(masses.sum())
    conservation.check_total(
        "masses of cells",
        float(node_masses.sum()),
        total,
        total * places.size * floats.UNIT_ROUNDOFF,
    )
    if below > -math.inf:
        node_masses[math.ceil((bounds[-1] - low) / step)] += 1.0
    (nodes,) = np.nonzero(node_masses)
    ratios = np.exp(low + step * nodes)
    return Hinges(
        ratios,
        node_masses[nodes] / ratios,
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
    kinds: Sequence[step_laws.Kind],
    num_selected: int,
    upper_bounds: Sequence[DominatingPair],
    *,
    mean: DominatingPair | None = None,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair that dominates k-out-of-t allocation when a record is removed.

    Its profile is the largest convex function below several bounds: those that are
    known, those of the theorem for a few λ, and that of a mean.

    Args:
        kinds: The t steps, by upper pairs.
        num_selected: Number of steps with the record, 1 < k < t.
        upper_bounds: Upper bounds of the allocation, when a record is removed; at least
            one.
        mean: An upper pair of one out of t of the steps, when a record is removed.
        tail_mass: Probability of the rarest losses that are not counted as infinite.

    Guarantees:
        H(P‖Q) of the result is at least that of the allocation, at every κ ≥ 0. The
        pair is valid in this direction only.

    Source:
        docs/mathematics.md, "k out of t: the theorem" and "Steps that differ".
    """
    steps = step_laws.Steps.of(kinds, num_selected)
    bounds = [Hinges.of(pair) for pair in upper_bounds]
    if steps.is_informative(1e-6):
        infinity_mass = _infinity_mass(kinds, num_selected)
        for exponent in step_laws.exponents_up_to(tail_mass):
            bound = _bound(steps, exponent, infinity_mass)
            if bound is not None:
                bounds.append(bound)
    if mean is not None:
        bound = _by_mean(mean, num_selected, profile_pairs.least(bounds))
        if bound is not None:
            bounds.append(bound)
    return profile_pairs.least(bounds)


def _infinity_mass(kinds: Sequence[step_laws.Kind], num_selected: int) -> float:
    """Returns a bound on P's mass of outputs of which a step has an infinite ratio."""
    if len(kinds) == 1:
        return sums.probability_of_any([(kinds[0].pair.infinity_mass, num_selected)])
    # Which steps the record is in is not independent, so probabilities are added.
    total = sum(kind.count for kind in kinds)
    infinite = sum(kind.count * kind.pair.infinity_mass for kind in kinds)
    return floats.raised(num_selected / total * infinite)


def _bound(
    steps: step_laws.Steps, exponent: float, infinity_mass: float
) -> Hinges | None:
    """Returns the theorem's bound for one λ, if a lattice holds it.

    Steps that are alike are computed under P, which is more accurate, and others under
    the product of the mixed laws.

    Args:
        steps: The steps.
        exponent: −ln δ where the bound is to be tight.
        infinity_mass: P's mass of infinite ratios.
    """
    tilt = steps.tilt(exponent)
    rate = steps.rate(tilt)
    steps, lost = steps.without_largest(math.exp(-exponent - step_laws.RARE))
    few, total, drawn = steps.few, steps.num_steps, [steps.num_selected]
    terms, few_terms = (step_laws.scores(s.ratios, rate) for s in (steps, few))
    is_of_p = len(steps.absent) == 1
    if is_of_p:
        laws, few_laws = steps.with_record(drawn), few.with_record(drawn)
    elif terms.losses[-1] > floats.LARGEST_LOSS:
        return None
    else:
        laws, few_laws = steps.mixed(terms.losses), few.mixed(few_terms.losses)
    grid = plane_sums.Grid.of(few_terms[::2], few_laws, tilt)
    window = plane_sums.Window.of(grid, terms[::2], laws)
    if window is None:
        return None
    log_binomial, error = step_laws.log_binomial(steps.num_selected, total, rate)
    # The error of L also comes from rounding the scores and their places.
    error_of_score = step_laws.error_of_score(float(np.abs(terms.losses).max()))
    error += total * error_of_score
    # The relative error of a mass of a step, under P or Q, or times e^L.
    error_of_mass = steps.mass_error + (0.0 if is_of_p else error_of_score)
    return by_counts(
        window,
        log_binomial,
        is_of_p=is_of_p,
        lost=lost + infinity_mass,
        mass_error=total * error_of_mass,
        ratio_error=error + (total + 1) * steps.ratio_error,
    )


def _by_mean(
    mean: DominatingPair, num_selected: int, upper_bound: DominatingPair
) -> Hinges | None:
    """Returns the bound by Z ≤ Y^k, where Y is the mean of all ratios.

    Up to a number R, (y^k − κ)₊ is at most a convex function of y whose slope is at
    most k R^{k−1}, so that an upper pair of Y bounds its expectation. Beyond R, P's
    mass is bounded by Q's, which is at most E (Y − r)₊ / (R − r) for any r < R.

    Args:
        mean: An upper pair, of which Y is the ratio.
        num_selected: k.
        upper_bound: An upper pair of Z.
    """
    largest = float(mean.ratios[-1])
    if num_selected * math.log(max(largest, 1.0)) > floats.LARGEST_LOSS / 2:
        return None
    below = mean.ratios[mean.ratios < largest * (1 - _GAP)]
    beyond = Hinges.of(mean).values(below) / (largest * (1 - _GAP / 2) - below)
    of_q = float(beyond.min(initial=1.0))
    kappas = np.append(1.0, upper_bound.ratios[upper_bound.ratios > 1])
    of_p = float((Hinges.of(upper_bound).values(kappas) + kappas * of_q).min())
    steepest = num_selected * largest ** (num_selected - 1)
    rounding = 4 * num_selected * floats.UNIT_ROUNDOFF
    return Hinges(
        np.maximum(mean.ratios, math.exp(_LEAST_LOSS / num_selected)) ** num_selected,
        mean.masses,
        infinity_mass=(of_p + steepest * mean.infinity_mass) * (1 + _GAP),
        mass_error=mean.mass_error,
        ratio_error=num_selected * mean.ratio_error + rounding,
    )
