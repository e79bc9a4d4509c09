"""An upper bound for k-out-of-t random allocation by a theorem, for 1 < k < t.

Let X_i be the likelihood ratio of step i. That of the mechanism is
Z = e_k(X_1, …, X_t) / C(t, k), where e_k is the k-th elementary symmetric polynomial.
For any λ in (0, 1) and q_i = λ X_i / (1 − λ + λ X_i),

    Z = ∏ (1 − λ + λ X_i) · π(k) / Binom(k; t, λ),

where π(k) is the probability that exactly k of independent events with probabilities
q_i happen. It is at most e^{−V} I₀(V), where V = Σ q_i (1 − q_i). So the joint law of
L = Σ ln(1 − λ + λ X_i) and V gives an upper bound.
"""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.amplification.k_of_t import bound_cells
from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import step_laws
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import profile_pairs

DominatingPair = dominating_pair.DominatingPair
Hinges = profile_pairs.Hinges

# Tuning, all of these constants.
# The values of −ln δ at which upper bounds are tight, for a δ of one run from 1 to
# 1e-12. A negative value stands for losses below the mean that are as rare as those
# above the mean for the positive value. They matter in a composition: for 10 runs of 5
# of 391 steps, σ = 0.55 and δ = 1e-5, ε is 21.93 without them and 21.86 with them.
_EXPONENTS = (-3.0, -0.5, 0.0, 0.5, 1.5, 3.0, 5.5, 9.0, 14.0, 19.0, 27.0)
_MOST_STEPS = 10**7  # With more steps, rounding to the lattice makes bounds useless.
_WIDTH = 0.1  # The width of a column, times the root of t.
_RARE = 14.0  # Ratios are left out whose probability is below e^−14 of δ.


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
    if num_steps > _MOST_STEPS or not step_laws.is_informative(steps, 1e-6):
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
    tilt = math.copysign(steps.sketch.tilt(abs(exponent)), exponent)
    rate = steps.sketch.rate(tilt)
    # For losses below the mean only λ is chosen differently. The window is that of the
    # whole law.
    exponent, tilt = max(exponent, 0.0), max(tilt, 0.0)
    steps, lost = steps.without_largest(math.exp(-exponent - _RARE))
    grid = joint_allocation.Grid.of(
        step_laws.scores(steps.sketch.ratios, rate),
        steps.sketch.laws,
        tilt,
    ).with_fewer_columns(_WIDTH / math.sqrt(steps.num_steps))
    scores, total = step_laws.scores(steps.ratios, rate), steps.num_steps
    if not grid.holds(scores, total):
        return None
    factors = [grid.factor(scores, masses, count) for masses, count in steps.laws]
    log_binomial, error = step_laws.log_binomial(steps.num_selected, total, rate)
    # The error of L also comes from rounding the scores and their places.
    largest = float(np.abs(scores[0]).max())
    error += total * step_laws.error_of_score(largest)
    # The relative error of a mass of a step, under P or Q.
    error_of_mass = pair.mass_error + pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    return bound_cells.by_counts(
        joint_allocation.Window(grid, factors, total),
        log_binomial,
        is_of_p=True,
        lost=lost + sums.probability_of_any([(pair.infinity_mass, steps.num_selected)]),
        mass_error=total * error_of_mass,
        ratio_error=error + (total + 1) * pair.ratio_error,
    )
