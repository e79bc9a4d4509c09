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
from dp_accounting_ext.wpm.exact_draw import rational_exponential
from dp_accounting_ext.wpm.projections import ldp_polytope

# Weights of up to 62 bits are int64. Larger ones are Python integers.
IntegerArray = npt.NDArray[Any]

FEWEST_BITS = 62
MOST_BITS = 256

# The number of bits of the least weights, for outputs that are not negligible.
_PRECISION_BITS = 24
_IRRELEVANT_SHARE = 2.0**-40
_LOW_BITS = 31


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
    """Returns integer bounds that replace the bounds of a polytope.

    Args:
        polytope: Bounds αm and βm as floating point numbers.
        epsilon: The privacy parameter ε.

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
    ratio, _ = rational_exponential.bounds(Fraction(epsilon))
    shares = polytope.lower.tolist()
    scaled = {share: max(1, int(math.ldexp(share, bits))) for share in set(shares)}
    allowed = (polytope.upper > 0).tolist()
    lower = [
        scaled[share] if most else 0
        for share, most in zip(shares, allowed, strict=True)
    ]
    lower = _raise(_reduce(lower, total), ratio, total)
    upper = [min(weight, total) for weight in _products(lower, ratio)]
    if not sum(lower) <= total <= sum(upper):
        raise ValueError(
            "epsilon must leave room between the least and the greatest weights of "
            f"{len(lower)} outputs. Found {epsilon}."
        )
    public = _fill(lower, upper, total)
    return IntegerBounds(
        bits, *(_as_array(weights, bits) for weights in (lower, upper, public))
    )


def round_to_weights(proposed: FloatArray, bounds: IntegerBounds) -> IntegerArray:
    """Returns each user's weights, from the distributions that a solver proposed.

    Args:
        proposed: (n, k_v) arbitrary numbers. If the solver succeeded, each row is about
            a member of the polytope.
        bounds: The bounds that the weights must satisfy.

    Returns:
        (n, k_v) integers.

    Guarantees:
        Every row passes `are_valid`. A row that otherwise would not is replaced by
        `bounds.public_weights`. A row depends on the same row of `proposed` alone.
    """
    finite = np.asarray((np.isfinite(proposed) & (proposed >= 0)).all(axis=1))
    sums = proposed.sum(axis=1, where=finite[:, np.newaxis])
    sound = (sums > 0.5) & (sums < 2.0)
    shares = np.where(sound[:, np.newaxis], proposed, 0.0)
    shares /= np.where(sound, sums, 1.0)[:, np.newaxis]
    rounded = np.clip(_scale(shares, bounds.bits), bounds.lower, bounds.upper)
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
    least = float(polytope.lower[relevant].min())
    # Computed from ε itself if the bound underflows.
    needed = -math.log2(least) if least > 0 else epsilon / math.log(2) + 40
    bits = max(FEWEST_BITS, _PRECISION_BITS + math.ceil(needed))
    if bits > MOST_BITS:
        raise ValueError(
            f"epsilon must be small enough for weights of {MOST_BITS} bits. "
            f"Found {epsilon}, which needs {bits}."
        )
    return bits


def _products(weights: list[int], ratio: Fraction) -> list[int]:
    """Returns weights times a ratio, rounded down. Equal weights are computed once."""
    up, down = ratio.numerator, ratio.denominator
    found = {weight: weight * up // down for weight in set(weights)}
    return [found[weight] for weight in weights]


def _reduce(lower: list[int], total: int) -> list[int]:
    """Returns least weights, reduced so that their sum is at most the total."""
    excess = sum(lower) - total
    if excess <= 0:
        return lower
    share = Fraction(total, sum(lower))
    reduced = _products(lower, share)
    return [
        max(1, less) if weight else 0
        for weight, less in zip(lower, reduced, strict=True)
    ]


def _raise(lower: list[int], ratio: Fraction, total: int) -> list[int]:
    """Returns least weights, raised so that the greatest ones can reach the total."""
    reached = sum(_products(lower, ratio))
    while reached < total and sum(lower) <= total:
        added = _products(lower, Fraction(total - reached, reached))
        lower = [
            weight + 1 + more if weight else 0
            for weight, more in zip(lower, added, strict=True)
        ]
        reached = sum(_products(lower, ratio))
    return lower


def _fill(lower: list[int], upper: list[int], total: int) -> list[int]:
    """Returns weights of sum W, at the same share of the way between their bounds."""
    room = sum(upper) - sum(lower)
    left = total - sum(lower)
    share = Fraction(left, max(room, 1))
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    shares = _products(widths, share)
    weights = [low + part for low, part in zip(lower, shares, strict=True)]
    missing = total - sum(weights)
    for place, high in enumerate(upper):
        if not missing:
            break
        more = min(missing, high - weights[place])
        weights[place] += more
        missing -= more
    return weights


def _as_array(weights: list[int], bits: int) -> IntegerArray:
    found = np.array(weights, dtype=np.int64 if bits <= FEWEST_BITS else object)
    found.flags.writeable = False
    return found


def _scale(shares: FloatArray, bits: int) -> IntegerArray:
    """Returns shares times 2^bits, rounded to integers. The product is exact."""
    if bits <= FEWEST_BITS:
        return np.rint(np.ldexp(shares, bits)).astype(np.int64)
    scale = np.frompyfunc(lambda share: int(math.ldexp(share, bits)), 1, 1)
    return np.asarray(scale(shares))


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
    """Returns one index for every row, with probability weight / 2^bits.

    Args:
        weights: (n, k_v) integers, rows summing to 2^bits.
        bits: The binary logarithm of that sum.
        rng: A seeded generator for tests and simulations, whose draws can be predicted.
            By default the draws use random bits of the operating system.

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
