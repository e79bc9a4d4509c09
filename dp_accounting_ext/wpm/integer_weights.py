"""Integer weights between bounds whose ratio is at most e^ε, and exact draws from them.

Weights are integers that sum to W = 2^bits. They lie between bounds wl ≤ w ≤ wu that
depend on the base measure and ε alone, and wu ≤ E·wl with E a rational lower bound of
e^ε. So for any two private inputs, the weight of each output under one is at most e^ε
times its weight under the other. This does not depend on a solver or on floating point
arithmetic: the proposal of a solver is rounded, and replaced if it fails the check.
"""

import dataclasses
from fractions import Fraction
import math
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.wpm.projections import ldp_polytope

# Weights of up to 62 bits are int64. Larger ones are Python integers.
IntegerArray = npt.NDArray[Any]

FEWEST_BITS = 62
MOST_BITS = 256

# The number of bits of the least weights, for outputs that are not negligible.
_PRECISION_BITS = 24
_IRRELEVANT_SHARE = 2.0**-40
_LOW_BITS = 31
# The bits after the point of rational bounds of an exponential.
EXPONENTIAL_BITS = 256


@dataclasses.dataclass(frozen=True)
class IntegerBounds:
    """The bounds on every user's weights, computed from public quantities alone.

    Attributes:
        bits: The number of bits; weights sum to 2^bits.
        lower: (k_v,) least weights wl.
        upper: (k_v,) greatest weights wu ≤ E·wl.
        public_weights: (k_v,) weights within the bounds that do not depend on any
            input. They replace the weights of an input that fail the check.
    """

    bits: int
    lower: IntegerArray
    upper: IntegerArray
    public_weights: IntegerArray

    @property
    def total(self) -> int:
        """The sum W of the weights."""
        return 1 << self.bits


def make_bounds(polytope: ldp_polytope.LdpPolytope, epsilon: float) -> IntegerBounds:
    """Returns integer bounds that replace the bounds αm and βm of a polytope.

    Raises:
        ValueError: If ε needs weights of more than `MOST_BITS` bits, or leaves no room
            between the bounds.

    Guarantees:
        Any weights within the bounds are at most e^ε times any others, in exact
        arithmetic: upper ≤ E·lower, and E ≤ e^ε.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition 3.2.
    """
    bits = _bits_needed(polytope, epsilon)
    total = 1 << bits
    # E as a quotient: the greatest weight is the least one times `up`, over `down`.
    up, down = exponential_bounds(Fraction(epsilon))[0].as_integer_ratio()
    least = np.maximum(_scaled(polytope.lower, bits), 1) * (polytope.upper > 0)
    # Products have more bits than an int64: they are Python integers, each mass once.
    masses, owners, counts = np.unique(least, return_inverse=True, return_counts=True)
    lower, counts = masses.astype(object), counts.astype(object)
    has_mass = lower > 0
    if lower @ counts > total:
        lower = np.maximum(lower * total // (lower @ counts), 1) * has_mass
    # Least weights are raised until the greatest ones can reach the total.
    while (
        reached := (lower * up // down) @ counts
    ) < total and lower @ counts <= total:
        lower = lower + (1 + lower * (total - reached) // reached) * has_mass
    upper = np.minimum(lower * up // down, total)
    if not lower @ counts <= total <= upper @ counts:
        raise ValueError(
            "epsilon must leave room between the least and the greatest weights of "
            f"{owners.size} outputs. Found {epsilon}."
        )
    # Public weights are at the same share of the way between their bounds.
    rest, room = int(total - lower @ counts), int((upper - lower) @ counts)
    share = Fraction(rest, max(room, 1))
    public = lower + (upper - lower) * share.numerator // share.denominator
    kind = np.int64 if bits <= FEWEST_BITS else object
    of_outputs = [weights.astype(kind)[owners] for weights in (lower, upper, public)]
    bounds = IntegerBounds(bits, *of_outputs)
    _repair(bounds.public_weights[np.newaxis], bounds)
    for weights in of_outputs:
        weights.flags.writeable = False
    return bounds


def exponential_bounds(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Returns rational bounds of e^x for x > 0, multiples of 2^−256 near each other.

    Guarantees:
        The lower one is a partial sum of the series, every term rounded down. The
        upper one has its terms rounded up and stops where each further term is less
        than half of the last, so that they add up to less than the last.
    """
    up, down = exponent.as_integer_ratio()
    low = high = low_sum = high_sum = 1 << EXPONENTIAL_BITS
    count = 0
    while low or high > 1 or count < 2 * exponent:
        count += 1
        low = low * up // (down * count)
        high = -(-high * up // (down * count))
        low_sum += low
        high_sum += high
    unit = 1 << EXPONENTIAL_BITS
    return Fraction(low_sum, unit), Fraction(high_sum + high, unit)


def round_to_weights(proposed: FloatArray, bounds: IntegerBounds) -> IntegerArray:
    """Returns (n, k_v) weights, from the distributions that a solver proposed.

    These may be any numbers. If the solver succeeded, each row is about a member of the
    polytope.

    Guarantees:
        Every row passes `are_valid`. A row that otherwise would not is replaced by
        `bounds.public_weights`. A row depends on the same row of `proposed` alone.
    """
    finite = np.asarray((np.isfinite(proposed) & (proposed >= 0)).all(axis=1))
    sums = proposed.sum(axis=1, where=finite[:, np.newaxis])
    sound = (sums > 0.5) & (sums < 2.0)
    shares = np.where(sound[:, np.newaxis], proposed, 0.0)
    shares /= np.where(sound, sums, 1.0)[:, np.newaxis]
    rounded = np.clip(_scaled(shares, bounds.bits), bounds.lower, bounds.upper)
    weights = np.where(sound[:, np.newaxis], rounded, bounds.public_weights)
    _repair(weights, bounds)
    valid = are_valid(weights, bounds)
    return np.asarray(np.where(valid[:, np.newaxis], weights, bounds.public_weights))


def are_valid(weights: IntegerArray, bounds: IntegerBounds) -> BoolArray:
    """Returns which rows are within the bounds and sum to W, computed in integers."""
    inside = (weights >= bounds.lower) & (weights <= bounds.upper)
    sums = exact_sums(weights)
    return np.asarray(inside.all(axis=1).astype(bool) & (sums == bounds.total))


def exact_sums(weights: IntegerArray) -> IntegerArray:
    """Returns sums of rows as Python integers, as 64 bits may overflow."""
    high = (weights >> _LOW_BITS).sum(axis=1).astype(object)
    low = (weights & ((1 << _LOW_BITS) - 1)).sum(axis=1).astype(object)
    return np.asarray((high << _LOW_BITS) + low)


def _bits_needed(polytope: ldp_polytope.LdpPolytope, epsilon: float) -> int:
    relevant = polytope.upper >= _IRRELEVANT_SHARE
    smallest = float(polytope.lower[relevant].min())
    # Computed from ε itself if the bound underflows.
    needed = -math.log2(smallest) if smallest > 0 else epsilon / math.log(2) + 40
    bits = max(FEWEST_BITS, _PRECISION_BITS + math.ceil(needed))
    if bits > MOST_BITS:
        raise ValueError(
            f"epsilon must be small enough for weights of {MOST_BITS} bits. "
            f"Found {epsilon}, which needs {bits}."
        )
    return bits


def _scaled(shares: FloatArray, bits: int) -> IntegerArray:
    """Returns shares times 2^bits, rounded down. The product is exact."""
    scaled = np.ldexp(shares, bits)
    if bits <= FEWEST_BITS:
        return scaled.astype(np.int64)
    return np.asarray(np.frompyfunc(int, 1, 1)(scaled))


def _repair(weights: IntegerArray, bounds: IntegerBounds) -> None:
    """Changes weights in place, within their bounds, so that rows sum to W."""
    for _ in range(weights.shape[1]):
        missing = bounds.total - exact_sums(weights)
        rows = np.flatnonzero(missing != 0)
        if not rows.size:
            return
        short = missing[rows]
        room = np.where(
            (short > 0)[:, np.newaxis],
            bounds.upper - weights[rows],
            weights[rows] - bounds.lower,
        )
        places = room.argmax(axis=1)
        widest = room[np.arange(rows.size), places].astype(object)
        moved = np.minimum(np.abs(short), widest) * np.where(short > 0, 1, -1)
        weights[rows, places] += moved.astype(weights.dtype)


def draw(
    weights: IntegerArray, bits: int, rng: np.random.Generator | None = None
) -> IntArray:
    """Returns one index for every row of (n, k_v) weights that sum to 2^bits.

    A seeded generator is for tests and simulations, as its draws can be predicted. By
    default the draws use random bits of the operating system.

    Guarantees:
        Without `rng` the probabilities are exactly the weights over 2^bits, if the
        operating system's bits are uniform.
    """
    sums = np.cumsum(weights, axis=1)
    places = [np.searchsorted(row, uniform(bits, rng), side="right") for row in sums]
    return np.array(places, dtype=np.int64)


def uniform(bits: int, rng: np.random.Generator | None) -> int:
    """Returns an integer below 2^bits."""
    if rng is None:
        return secrets.randbits(bits)
    octets = (bits + 7) // 8
    return int.from_bytes(rng.bytes(octets), "little") >> (8 * octets - bits)
