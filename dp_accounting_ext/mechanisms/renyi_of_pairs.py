"""Rényi divergences of anything that has a pair: certified, from both sides.

With φ(z) = z^α − 1 − α (z − 1), which is convex and nowhere negative, the divergence of
P from Q is ln(1 + E φ(Z)) / (α − 1), and

    E φ(Z) = α (α − 1) (∫₁ κ^{α−2} H_κ(P‖Q) dκ + ∫₀¹ κ^{α−1} H_{1/κ}(Q‖P) dκ),

so that bounds on both profiles bound the divergence. The first integral is a sum of φ
over the atoms above one of the pair that bounds H(P‖Q). The second is a sum of φ over
the atoms below one of the pair that bounds H(Q‖P). All terms are positive, so that no
digits cancel.
"""

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
from dp_accounting_ext.renyi import ratio_moments

DirectedPairs = dominating_pair.DirectedPairs

# Tuning: the distances, beyond a pair's atoms, from which a normal tail may replace its
# sink.
_LEVELS = np.append(
    np.geomspace(1e-9, 1.0, 200), np.linspace(0.0, floats.LARGEST_EXPONENT, 701)
)
# Tuning: at a high order the largest ratios determine the divergence, however rare they
# are. With even smaller tails, each direction would need a pair of its own.
_ACCURACY = accuracy.FOR_DIVERGENCES
# Tuning: if a side has more atoms than the first number, they are split between nodes.
# Adjacent nodes are one cell apart in nats, or relatively for losses below one nat.
_MANY_ATOMS, _CELL = 1024, 2.0**-8
# Logarithms of masses, which may be as small as −700, are raised by this number while
# masses are split, so that no share underflows.
_LIFTED = 300.0
# Certified (docs/rounding.md): a bound on the relative error of a mean of excesses, and
# on the error of the logarithm of a normal tail.
_ROUNDING = 1e-12


def divergences(
    mechanism: interface.Mechanism, orders: Sequence[float], bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns bounds on a mechanism's Rényi divergences, in both directions.

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
    each = [
        _of_parts(parts, orders, bound)
        for parts in compositions.routes({mechanism: 1}, bound)
    ]
    best = np.minimum if bound is Bound.UPPER else np.maximum
    remove, add = (functools.reduce(best, way) for way in zip(*each, strict=True))
    return remove, add


def _of_parts(
    parts: Mapping[interface.Mechanism, int], orders: Sequence[float], bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns both directions' divergences of a composition."""
    remove, add = np.zeros(len(orders)), np.zeros(len(orders))
    for part, count in parts.items():
        both = _of_part(part, orders, bound)
        remove, add = remove + count * both[0], add + count * both[1]
    sign = 1 if bound is Bound.UPPER else -1
    rounded = 1 + sign * 4 * (len(parts) + 1) * floats.UNIT_ROUNDOFF
    return remove * rounded, add * rounded


def upper(
    mechanism: interface.Mechanism, orders: Sequence[float]
) -> interface.Divergences:
    """Returns upper bounds at orders α ≥ 1 from the pairs of a mechanism.

    If one pair serves both directions and no bound on the far tail is known, the
    mechanism is a function of an outcome that has the pair's laws. Then the sinks,
    which reveal everything, are one event under both laws: the failure.
    """
    above = [max(float(order), ratio_moments.LOWEST_ORDER) for order in orders]
    pairs = interface.pairs_of(mechanism, Bound.UPPER, _ACCURACY)
    is_bounded = max(mechanism.claims().tail) < math.inf
    each = [pairs.remove, dominating_pair.dual(pairs.add)]
    sinks = [mass for p in each for mass in (p.infinity_mass, p.zero_mass)]
    if is_bounded or not any(sinks) or not pairs.is_one:
        found = np.maximum(*_of_part(mechanism, above, Bound.UPPER))
        return interface.Divergences(found)
    failure = max(sinks)
    failure *= 1 + max(p.mass_error for p in each) + 4 * floats.UNIT_ROUNDOFF
    if failure >= 1:
        return interface.Divergences(np.zeros(len(above)), 1.0)
    found = np.maximum(*(_without_sinks(pair, above) for pair in each))
    return interface.Divergences(found, failure)


def _without_sinks(
    pair: dominating_pair.DominatingPair, orders: Sequence[float]
) -> FloatArray:
    """Returns the divergences of P from Q, both restricted to finite losses."""
    with np.errstate(divide="ignore"):
        log_masses, losses = np.log(pair.p_masses), np.log(pair.ratios)
    highest, largest = float(losses.max()), float(np.abs(losses).max())
    finite = np.array([order for order in orders if math.isfinite(order)])
    moments = np.array(
        [ratio_moments.log_sum(log_masses + (order - 1) * losses) for order in finite]
    )
    moments -= finite * math.log(float(pair.p_masses.sum()))
    error = pair.mass_error + (losses.size + 16) * floats.UNIT_ROUNDOFF
    slack = 2 * error * finite / (finite - 1)
    slack += pair.ratio_error + 16 * (1 + largest) * floats.UNIT_ROUNDOFF
    found = np.full(
        len(orders), max(highest, 0.0) + pair.ratio_error + 16 * floats.UNIT_ROUNDOFF
    )
    rest = moments / (finite - 1) + math.log(float(pair.masses.sum()))
    found[np.isfinite(orders)] = np.maximum(rest, 0.0) + 2 * slack
    return found


def _of_part(
    part: interface.Mechanism, orders: Sequence[float], bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns both directions' divergences of one run of a mechanism without parts."""
    if part.is_known_by_divergences:
        known = part.rdp(orders) if bound is Bound.UPPER else None
        values = np.zeros(len(orders)) if known is None else known.values
        if known is not None and known.failure_probability:
            values = np.full(len(orders), math.inf)
        return values, values
    pairs = interface.pairs_of(part, bound, _ACCURACY)
    remove = _of_pairs(pairs, part, orders, Direction.REMOVE, bound)
    if part.claims().is_symmetric and pairs.is_one:
        return remove, remove
    return remove, _of_pairs(pairs.swapped(), part, orders, Direction.ADD, bound)


def _of_pairs(
    pairs: DirectedPairs,
    part: interface.Mechanism,
    orders: Sequence[float],
    direction: Direction,
    bound: Bound,
) -> FloatArray:
    """Returns the (n,) divergences of P from Q, which is one direction of a mechanism.

    Args:
        pairs: The pairs of the mechanism, swapped for the direction ADD.
        part: The mechanism.
        orders: (n,) orders.
        direction: The direction of the mechanism that P and Q stand for.
        bound: The side of the bound.
    """
    above, below = (
        _Side(pairs.remove, Direction.REMOVE),
        _Side(pairs.add, Direction.ADD),
    )
    largest = part.claims().largest_loss if bound is Bound.UPPER else math.inf
    tail = part.loss_tail(direction)
    found = np.empty(len(orders))
    for place, order in enumerate(orders):
        if math.isinf(order):
            found[place] = above.furthest
            continue
        terms = [above.log_mean_excess(order), below.log_mean_excess(order)]
        if above.infinity_mass and bound is Bound.UPPER:
            terms.append(above.log_sink_excess(order, largest, tail))
        if math.inf in terms:
            found[place] = math.inf
            continue
        total = ratio_moments.log_sum(np.array(terms))
        moment = ratio_moments.log_moment_from_excess(total, order)
        found[place] = moment / (order - 1)
        if bound is Bound.UPPER and total > -math.inf:
            found[place] = max(found[place], floats.SMALLEST_MASS)
    if bound is Bound.LOWER:
        lowered: FloatArray = found * (1 - _ROUNDING)
        return lowered
    precision = part.claims().gaussian_precision
    found = np.minimum(found * (1 + _ROUNDING), largest)
    if math.isfinite(precision):
        finite = np.array([float(order) for order in orders])
        found = np.minimum(found, finite * (precision / 2 * (1 + _ROUNDING)))
    return found


class _Side:
    """The atoms of one pair on one side of Z = 1.

    Args:
        pair: The pair that bounds H(P‖Q) (REMOVE), or H(Q‖P) (ADD).
        direction: The direction. Ratios above one are read for REMOVE, and ratios below
            one for ADD.
    """

    def __init__(self, pair: dominating_pair.DominatingPair, direction: Direction):
        shift, factor = dominating_pair.allowance(
            pair.bound, pair.ratios.size, pair.mass_error, pair.ratio_error
        )
        sign = 1.0 if direction is Direction.REMOVE else -1.0
        # Losses move away from zero (upper), or towards it (lower), by their error.
        losses = np.log(pair.ratios) - sign * shift
        kept = (sign * losses > 0) & (pair.masses > 0)
        with np.errstate(divide="ignore"):
            log_masses = np.log(pair.masses[kept]) + math.log(max(factor, 1e-300))
        law = log_masses, losses[kept]
        if pair.bound is Bound.UPPER and law[1].size > _MANY_ATOMS:
            law = _thinned(*law)
        self._excess = ratio_moments.MeanExcess(*law)
        self._is_below = direction is Direction.ADD
        self.infinity_mass = factor * (
            pair.zero_mass if self._is_below else pair.infinity_mass
        )
        self._highest = float(losses.max())

    @property
    def furthest(self) -> float:
        """The largest loss, infinite where a sink has mass."""
        return math.inf if self.infinity_mass else max(self._highest, 0.0)

    def log_mean_excess(self, order: float) -> float:
        """Returns log of the atoms' share of E φ(Z) / (α − 1)."""
        total = self._excess.log(order)
        if self._is_below and self.infinity_mass:
            # φ(0) = α − 1.
            total = float(np.logaddexp(total, math.log(self.infinity_mass)))
        return total

    def log_sink_excess(
        self, order: float, largest: float, tail: tuple[float, float]
    ) -> float:
        """Returns log of an upper bound on the sink's share of E φ(Z) / (α − 1).

        Let κ* be a level above all ratios. Up to κ* the profile of the sink is its
        mass. Beyond κ* it is bounded by what is known of the loss L: it is zero if no
        loss is larger than ln κ*, and if a normal variable bounds the loss its share is
        at most E[e^{(α − 1) L}; L > ln κ*].

        Args:
            order: The order α.
            largest: An upper bound on all losses, or inf.
            tail: The mean and standard deviation of the normal variable, or inf.
        """
        log_sink = math.log(self.infinity_mass) + math.log(order / (order - 1))
        slope, (mean, deviation) = order - 1, tail
        capped = log_sink + slope * largest
        if not math.isfinite(deviation) or deviation == 0:
            return capped
        levels = self._highest + _LEVELS
        reach = (mean - levels) / deviation + slope * deviation
        whole = slope * mean + (slope * deviation) ** 2 / 2
        beyond = special.log_ndtr(reach)
        rounding = _ROUNDING * (1 + whole - beyond)
        tails = whole + beyond + rounding - math.log(slope)
        both = np.logaddexp(log_sink + slope * levels, tails)
        return min(capped, float(both.min()))


def _thinned(
    log_masses: FloatArray, losses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns fewer atoms, for which the mean of no convex function is smaller.

    An atom between two nodes is split between them, so that its mass and its mean are
    kept.

    Args:
        log_masses: (n,) logarithms of masses under Q.
        losses: (n,) finite log Z, increasing, all positive or all negative.
    """
    sizes = np.abs(losses)
    cells = np.floor(np.where(sizes < 1, np.log(sizes), sizes - 1) / _CELL)
    (starts,) = np.nonzero(np.diff(cells, prepend=np.nan))
    # Each atom lies at the first of its two nodes or between them. The last atom is a
    # node.
    nodes = np.append(losses[starts], losses[-1])
    counts = np.diff(starts, append=losses.size)
    low, high = np.repeat(nodes[:-1], counts), np.repeat(nodes[1:], counts)
    span = np.maximum(np.expm1(high - low), floats.TINY)
    # Raised, so that shares do not underflow.
    masses = np.exp(log_masses + _LIFTED)
    above = masses * (np.expm1(losses - low) / span)
    below = masses * np.where(
        high > low, np.exp(losses - low) * np.expm1(high - losses) / span, 1.0
    )
    found = np.append(np.add.reduceat(below, starts), 0.0)
    found[1:] += np.add.reduceat(above, starts)
    there = found > 0
    return np.log(found[there]) - _LIFTED, nodes[there]
