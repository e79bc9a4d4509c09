"""Rényi divergences of mechanisms: by theorems where there are any, and by their pairs.

With φ(z) = z^α − 1 − α (z − 1), which is convex and nowhere negative, the divergence of
P from Q is ln(1 + E φ(Z)) / (α − 1), and

    E φ(Z) = α (α − 1) (∫₁ κ^{α−2} H_κ(P‖Q) dκ + ∫₀¹ κ^{α−1} H_{1/κ}(Q‖P) dκ),

so that bounds on both profiles bound the divergence. The first integral is a sum of φ
over the atoms above one of the pair that bounds H(P‖Q). The second is a sum of φ over
the atoms below one of the pair that bounds H(Q‖P). All terms are positive, so that no
digits cancel.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import subsampling

Divergences = interface.Divergences
DominatingPair = dominating_pair.DominatingPair

# Tuning: the distances, beyond a pair's atoms, from which a normal tail may replace its
# sink.
_LEVELS = np.append(
    np.geomspace(1e-9, 1.0, 200), np.linspace(0.0, floats.LARGEST_EXPONENT, 701)
)
# At a high order the largest ratios determine the divergence, however rare they are.
_ACCURACY = accuracy.FOR_DIVERGENCES
# Certified (docs/rounding.md): a bound on the relative error of a mean of excesses, and
# on the error of the logarithm of a normal tail.
_ROUNDING = 1e-12


def of(mechanism: interface.Mechanism, orders: Sequence[float]) -> Divergences:
    """Returns upper bounds on the Rényi divergences of a mechanism. They are cached.

    Args:
        mechanism: Anything that has pairs.
        orders: (n,) Rényi orders α ≥ 1, inf included.
    """
    return _of(mechanism, tuple(float(order) for order in orders))


@functools.lru_cache(maxsize=64)
def _of(mechanism: interface.Mechanism, orders: tuple[float, ...]) -> Divergences:
    """Returns the mechanism's own bounds, or else those of its parts or its pairs."""
    bounds = mechanism.rdp(orders)
    if bounds is None:
        bounds = _by_parts(mechanism, orders)
    values = bounds.values
    parts = compositions.unpacked({mechanism: 1})
    if not all(isinstance(part, known_bounds.NonPrivate) for part in parts):
        # The divergences of samples of samples may underflow, but none of them is 0.
        values = np.maximum(values, floats.SMALLEST_MASS)
    values.setflags(write=False)
    return Divergences(values, bounds.failure_probability)


def _by_parts(mechanism: interface.Mechanism, orders: tuple[float, ...]) -> Divergences:
    """Returns the bounds of what is sampled or composed, or else those of the pairs."""
    sample = compositions.sampled_from(mechanism)
    if sample is not None:
        return of_sample(mechanism, *sample, orders, subsampling.poisson_rdp)
    first, *others = (
        upper(mechanism, orders)
        if parts == {mechanism: 1}
        else _of_composition(parts, orders)
        for parts in mechanism.routes(Bound.UPPER)
    )
    # Each of them is a bound.
    values, failure_probability = first
    for other in others:
        if other.failure_probability <= failure_probability:
            values = np.minimum(values, other.values)
    return Divergences(values, failure_probability)


def of_sample(
    sampled: interface.Mechanism,
    rate: float,
    inner: interface.Mechanism,
    orders: Sequence[float],
    theorem: Callable[[Sequence[float], subsampling.Curve, float], FloatArray],
) -> Divergences:
    """Returns the smaller of a theorem's bounds on a sample and those of its pairs.

    The theorem uses the Rényi divergences of the sampled mechanism, and these hold only
    with probability 1 − δ. With probability δ the mechanism may reveal everything, but
    only of the records in the batch. So a record is revealed with probability δ times
    its share of the batches.

    Args:
        sampled: The sample.
        rate: The record's share of the batches.
        inner: What runs on the sample.
        orders: (n,) orders.
        theorem: From orders, the curve of what is sampled and the rate to bounds.
    """
    values = theorem(orders, lambda asked: of(inner, asked).values, rate)
    failure_probability = of(inner, orders).failure_probability
    if failure_probability:
        rounded = rate * failure_probability * (1 + 4 * floats.UNIT_ROUNDOFF)
        return Divergences(values, min(rounded, 1.0))
    by_pairs = upper(sampled, orders)
    if by_pairs.failure_probability:
        return Divergences(values)
    return Divergences(np.minimum(values, by_pairs.values))


def _of_composition(
    counts: Mapping[interface.Mechanism, int], orders: tuple[float, ...]
) -> Divergences:
    """Returns the sum of the parts' divergences."""
    total = np.zeros(len(orders))
    failures = []
    for part, count in counts.items():
        bounds = of(part, orders)
        total += count * bounds.values
        failures.append((bounds.failure_probability, count))
    rounded = 1 + 4 * (len(counts) + 1) * floats.UNIT_ROUNDOFF
    return Divergences(total * rounded, interface.probability_of_any(failures))


def both_ways(
    mechanism: interface.Mechanism, orders: Sequence[float]
) -> tuple[FloatArray, FloatArray, float]:
    """Returns bounds on the divergences of P‖Q and Q‖P, and the failure probability.

    Args:
        mechanism: Anything that has pairs.
        orders: (n,) Rényi orders α ≥ 1.
    """
    larger, failure_probability = of(mechanism, orders)
    if failure_probability:
        return larger, larger, failure_probability
    both_directions = divergences(mechanism, _above_one(orders), Bound.UPPER)
    removed, added = (np.minimum(larger, rdp) for rdp in both_directions)
    return removed, added, 0.0


def _above_one(orders: Sequence[float]) -> list[float]:
    """Returns orders above 1 whose divergences are no smaller."""
    return [max(float(order), ratio_moments.LOWEST_ORDER) for order in orders]


def divergences(
    mechanism: interface.Mechanism, orders: Sequence[float], bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns bounds on the Rényi divergences of a mechanism's pairs, both ways.

    Args:
        mechanism: Any mechanism. The divergences of a composition's parts are added.
        orders: (n,) orders α > 1, inf included.
        bound: The side.

    Returns:
        (n,) divergences of P from Q, and (n,) of Q from P, in nats. Upper bounds are
        infinite if no bound on the far tail of the losses is known.

    Source:
        https://arxiv.org/abs/2602.17284, section 3 (from a loss to Rényi divergences).
    """
    parts = compositions.flatten({mechanism: 1}, bound)
    remove, add = np.zeros(len(orders)), np.zeros(len(orders))
    for part, count in parts.items():
        values = _of_part(part, orders, bound)
        remove, add = remove + count * values[0], add + count * values[1]
    sign = 1 if bound is Bound.UPPER else -1
    rounded = 1 + sign * 4 * (len(parts) + 1) * floats.UNIT_ROUNDOFF
    return remove * rounded, add * rounded


def _of_part(
    part: interface.Mechanism, orders: Sequence[float], bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns both directions' divergences of one run of a mechanism without parts."""
    if part.is_known_by_divergences:
        bounds = part.rdp(orders) if bound is Bound.UPPER else None
        values = np.zeros(len(orders)) if bounds is None else bounds.values
        if bounds is not None and bounds.failure_probability:
            values = np.full(len(orders), math.inf)
        return values, values
    pairs = interface.pairs_of(part, bound, _ACCURACY)
    remove = _of_pairs(pairs, part, orders, Direction.REMOVE)
    if part.claims().is_symmetric and pairs.is_one:
        return remove, remove
    return remove, _of_pairs(pairs.swapped(), part, orders, Direction.ADD)


def upper(mechanism: interface.Mechanism, orders: Sequence[float]) -> Divergences:
    """Returns upper bounds at orders α ≥ 1 from the pairs of a mechanism.

    If one pair serves both directions and no bound on the far tail is known, the
    mechanism is a function of an outcome that has the pair's laws. Then the sinks,
    which reveal everything, are one event under both laws: the failure.
    """
    above_one = _above_one(orders)
    pairs = interface.pairs_of(mechanism, Bound.UPPER, _ACCURACY)
    is_bounded = max(mechanism.claims().tail) < math.inf
    directed = [pairs.remove, dominating_pair.dual(pairs.add)]
    sinks = [mass for p in directed for mass in (p.infinity_mass, p.zero_mass)]
    if is_bounded or not any(sinks) or not pairs.is_one:
        return Divergences(np.maximum(*_of_part(mechanism, above_one, Bound.UPPER)))
    failure = max(sinks)
    failure *= 1 + max(p.mass_error for p in directed) + 4 * floats.UNIT_ROUNDOFF
    if failure >= 1:
        return Divergences(np.zeros(len(above_one)), 1.0)
    values = np.maximum(*(_without_sinks(pair, above_one) for pair in directed))
    return Divergences(values, failure)


def _without_sinks(pair: DominatingPair, orders: Sequence[float]) -> FloatArray:
    """Returns the divergences of P from Q, both restricted to finite losses."""
    p_mass, q_mass = float(pair.p_masses.sum()), float(pair.masses.sum())
    losses = np.log(pair.ratios) + math.log(q_mass / p_mass)
    values = ratio_moments.of_outcomes(orders, pair.masses / q_mass, losses)
    error = pair.mass_error + (losses.size + 16) * floats.UNIT_ROUNDOFF
    slack = 2 * error / (1 - 1 / np.array(orders)) + pair.ratio_error
    slack += 16 * (1 + float(np.abs(losses).max())) * floats.UNIT_ROUNDOFF
    return values + 2 * slack


def _of_pairs(
    pairs: dominating_pair.DirectedPairs,
    part: interface.Mechanism,
    orders: Sequence[float],
    direction: Direction,
) -> FloatArray:
    """Returns the (n,) divergences of P from Q, which is one direction of a mechanism.

    Args:
        pairs: The pairs of the mechanism, swapped for the direction ADD.
        part: The mechanism.
        orders: (n,) orders.
        direction: The direction of the mechanism that P and Q stand for.
    """
    is_upper = pairs.remove.bound is Bound.UPPER
    alpha = np.array(orders, dtype=np.float64)
    finite = alpha[np.isfinite(alpha)]
    gains, sink, highest = _side(pairs.remove, 1.0)
    costs, other_sink, _ = _side(pairs.add, -1.0)
    terms = [
        np.array(ratio_moments.log_mean_excesses(finite.tolist(), *law))
        for law in (gains, costs)
    ]
    if other_sink:
        # φ(0) = α − 1.
        terms.append(np.full(finite.size, math.log(other_sink)))
    if sink and is_upper:
        terms.append(_log_sink_excess(finite, sink, highest, part, direction))
    totals = np.logaddexp.reduce(terms)
    moments = np.logaddexp(0.0, totals + np.log(finite - 1))
    bounds = np.full(alpha.size, math.inf if sink else max(highest, 0.0))
    bounds[np.isfinite(alpha)] = moments / (finite - 1)
    if not is_upper:
        return bounds * (1 - _ROUNDING)
    if totals.max(initial=-math.inf) > -math.inf:
        bounds = np.maximum(bounds, floats.SMALLEST_MASS)
    claims = part.claims()
    bounds = np.minimum(bounds * (1 + _ROUNDING), claims.largest_loss)
    if math.isfinite(claims.gaussian_precision):
        slope = claims.gaussian_precision / 2 * (1 + _ROUNDING)
        bounds = np.minimum(bounds, alpha * slope)
    return bounds


def _side(
    pair: DominatingPair, sign: float
) -> tuple[tuple[FloatArray, FloatArray], float, float]:
    """Returns the atoms on one side of Z = 1 of a pair that bounds the profile there.

    Args:
        pair: The pair that bounds H(P‖Q), or H(Q‖P).
        sign: 1 for the ratios above one of the first, and −1 for the ratios below one
            of the second.

    Returns:
        The logarithms of the atoms' masses under Q, and their losses; the mass of the
        sink on this side; and the largest loss of all.
    """
    shift, factor = dominating_pair.allowance(
        pair.bound, pair.ratios.size, pair.mass_error, pair.ratio_error
    )
    # Losses move away from zero (upper), or towards it (lower), by their error.
    losses = np.log(pair.ratios) - sign * shift
    is_on_side = (sign * losses > 0) & (pair.masses > 0)
    log_masses = np.log(pair.masses[is_on_side]) + math.log(max(factor, 1e-300))
    sink = pair.infinity_mass if sign > 0 else pair.zero_mass
    return (log_masses, losses[is_on_side]), factor * sink, float(losses.max())


def _log_sink_excess(
    orders: FloatArray,
    sink: float,
    highest: float,
    part: interface.Mechanism,
    direction: Direction,
) -> FloatArray:
    """Returns logarithms of upper bounds on the sink's share of E φ(Z) / (α − 1).

    Let κ* be a level above all ratios. Up to κ* the profile of the sink is its mass.
    Beyond κ* it is bounded by what is known of the loss L: it is zero if no loss is
    larger than ln κ*, and if a normal variable bounds the loss its share is at most
    E[e^{(α − 1) L}; L > ln κ*].

    Args:
        orders: (n,) finite orders.
        sink: The mass of the sink.
        highest: The largest loss of the pair's atoms.
        part: The mechanism.
        direction: The direction of the mechanism that P and Q stand for.
    """
    slopes = (orders - 1)[:, np.newaxis]
    log_sink = math.log(sink) - np.log1p(-1 / orders)
    capped = log_sink + slopes[:, 0] * part.claims().largest_loss
    mean, deviation = part.claims().loss_tail(direction)
    if not math.isfinite(deviation) or deviation == 0:
        return capped
    log_levels = highest + _LEVELS
    log_moments = slopes * mean + (slopes * deviation) ** 2 / 2
    log_shares = special.log_ndtr((mean - log_levels) / deviation + slopes * deviation)
    rounding = _ROUNDING * (1 + log_moments - log_shares)
    tails = log_moments + log_shares + rounding - np.log(slopes)
    totals = np.logaddexp(log_sink[:, np.newaxis] + slopes * log_levels, tails)
    smallest: FloatArray = np.minimum(capped, totals.min(axis=1))
    return smallest
