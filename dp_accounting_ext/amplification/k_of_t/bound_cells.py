"""Upper bounds in cells of two sums over the steps, and the least of several profiles.

One sum is the logarithm of a ratio, but for the chance of a number: that k of
independent events happen. It is at most e^{−V} I₀(V), V the sum of their variances,
which is the other sum.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.amplification.k_of_t import joint_allocation
from dp_accounting_ext.amplification.k_of_t import plane
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import profile_pairs

Bound = dominating_pair.Bound
DominatingPair = dominating_pair.DominatingPair
FloatArray = npt.NDArray[np.float64]

# Certified: e^V / I₀(V) is concave from here on, and increases by less than this.
CONCAVE_FROM = 0.8
STEEPEST = 1.2001
_BESSEL_ERROR = 64.0  # Of a logarithm of e^{−V} I₀(V), in units of rounding.
_NODE_ERROR = 1e-12  # Of a loss up to 700 nats, and of its place among the nodes.
# Certified: more than any probability, and a great many of it fit a float.
MOST_MASS = 1e290

# Tuning.
_MOST_NODES = 24_000
_NODES = 3072  # In the narrowest window.


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


@dataclasses.dataclass(frozen=True)
class Cells:
    """A bound in cells: masses under P, and the logarithm of the ratio of each.

    Valid for ln κ from `valid_from` on, whatever lies below.
    """

    losses: FloatArray
    masses: FloatArray
    sink: float
    mass_error: float
    ratio_error: float
    valid_from: float

    def with_more(self, lost: float, mass_error: float, ratio_error: float) -> "Cells":
        """Returns the cells with more mass in the sink, and more errors."""
        return dataclasses.replace(
            self,
            sink=floats.raised(self.sink + lost),
            mass_error=self.mass_error + mass_error,
            ratio_error=self.ratio_error + ratio_error,
            valid_from=self.valid_from + 2 * ratio_error,
        )

    def about(self, loss: float) -> float:
        """Returns about what the bound is at ln κ, which certifies nothing."""
        if loss < self.valid_from:
            return 1.0
        above = self.losses > loss
        shares = -np.expm1(loss - self.losses[above])
        return self.sink + float((self.masses[above] * shares).sum())


def by_counts(
    window: joint_allocation.Window,
    log_chance: float,
    *,
    log_mass: float,
    is_of_p: bool,
    added: float = 0.0,
) -> Cells | None:
    """Returns the bound e^L e^{−V} I₀(V) / chance of a ratio, or nothing.

    Args:
        window: The joint law of L and V.
        log_chance: The logarithm of the chance.
        log_mass: That of what may go to the sink beside, of outputs with a small V.
        is_of_p: Whether the window's law is P's; else it is Q's, times e^L.
        added: What V has besides.
    """
    log_chances = log_reciprocal(window.columns + added) + log_chance
    if not is_of_p and log_chances.min() < -floats.LARGEST_EXPONENT:
        return None
    log_weights = np.zeros_like(log_chances) if is_of_p else -log_chances
    log_largest = float(log_weights[0])
    lost, valid_from = window.mass_above(), -math.inf
    if window.is_tilted:
        # Of what is below the window nothing is known, but that V is hardly small.
        log_mass -= log_largest
        lost += math.exp(log_mass)
        floor = np.array([window.floor(log_mass) + added])
        least_chance = float(log_reciprocal(floor)[0]) + log_chance
        valid_from = float(window.rows[0]) - least_chance
    largest = float(np.abs(window.rows[[0, -1]]).max()) + abs(log_chance) + 16
    error = (_BESSEL_ERROR + 8 * largest) * floats.UNIT_ROUNDOFF
    with np.errstate(over="ignore"):
        masses = window.masses * np.exp(log_weights)
    return Cells(
        losses=(window.rows[:, np.newaxis] - log_chances).ravel(),
        masses=np.minimum(masses, MOST_MASS).ravel(),
        sink=floats.raised(lost * floats.exponential(log_largest)),
        mass_error=window.mass_error + error,
        ratio_error=error,
        valid_from=valid_from + 2 * error,
    )


def least(
    known: Sequence[DominatingPair], cells: Sequence[Cells] = ()
) -> DominatingPair:
    """Returns the pair of the least profile of upper pairs, and of cells.

    Of H(P‖Q): a bound where records are removed, and for duals where they are added.
    """
    # Where every finite ratio left the floats, a pair tells no more than its sink.
    finite = [pair for pair in known if pair.ratios.size]
    if not cells and (len(known) == 1 or not finite):
        return min(known, key=lambda pair: pair.infinity_mass)
    nodes = _nodes(finite, cells)
    places = np.exp(nodes)
    values = np.ones(nodes.size)
    for pair in known:
        np.minimum(values, profile_pairs.values(pair, places), out=values)
    for each in cells:
        np.minimum(values, _profile(each, nodes), out=values)
    if not (values < 1).any():
        return known[0]
    # What is less than a float is not zero.
    return profile_pairs.pair_above(places, np.maximum(values, profile_pairs.SMALLEST))


def _nodes(known: Sequence[DominatingPair], cells: Sequence[Cells]) -> FloatArray:
    """Returns (n,) evenly spaced losses at which profiles are compared."""
    low = min([-1.0, *(float(np.log(pair.ratios[0])) for pair in known)])
    highs = [float(np.log(pair.ratios[-1])) for pair in known]
    high = max([0.0, *highs, *(float(each.losses.max()) for each in cells)])
    high, low = (
        min(high, floats.LARGEST_LOSS),
        max(low, -floats.LARGEST_LOSS),
    )
    widths = [float(np.ptp(each.losses)) for each in cells]
    step = min(widths, default=0.0) / _NODES
    step = max(step, (high - low) / _MOST_NODES)
    first, last = math.floor(low / step), math.ceil(high / step)
    nodes: FloatArray = step * np.arange(first, last + 1, dtype=np.float64)
    return nodes


def _profile(cells: Cells, nodes: FloatArray) -> FloatArray:
    """Returns a cells' profile at (n,) nodes, one where it is not known."""
    step = float(nodes[1] - nodes[0])
    positions = (cells.losses - nodes[0]) / step
    beyond = positions > nodes.size - 1
    sink = cells.sink + float(cells.masses[beyond].sum())
    kept = ~beyond & (positions > -1)
    places, shares = plane.shares(positions[kept], step)
    masses = sums.gather_quickly(
        places.ravel() + 1, (shares * cells.masses[kept]).ravel(), nodes.size + 2
    )[1 : nodes.size + 1]
    mass_error = cells.mass_error + places.size * floats.UNIT_ROUNDOFF
    ratios = np.exp(nodes)
    shift, factor = dominating_pair.allowance(
        Bound.UPPER, nodes.size, mass_error, cells.ratio_error + _NODE_ERROR
    )
    values = profile_pairs.values_at(ratios, ratios, masses / ratios, sink)
    above = np.cumsum(masses[::-1])[::-1]
    # Moving all ratios up by the error adds less than the error times the mass above.
    values = factor * (values - shift * above)
    values[nodes < cells.valid_from] = 1.0
    return np.minimum(values, 1.0)
