"""The guarantee, in integers: weights between bounds of ratio e^ε at most, and draws.

Weights are integers that sum to W = 2^bits. They lie between bounds wl ≤ w ≤ wu that
depend on the base measure and ε alone, and wu ≤ E·wl with E a rational lower bound of
e^ε. So whatever the private inputs, each output's weight under one is at most e^ε
times that under another. No solver, and no floating point number, has a part in this:
what a solver proposes is rounded, and what fails the check is replaced.
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

# int64 up to 62 bits, Python's integers above.
IntegerArray = npt.NDArray[Any]

FEWEST_BITS = 62
MOST_BITS = 256

# Bits of a least weight, for outputs whose share matters at all.
_PRECISION_BITS = 24
_IRRELEVANT_SHARE = 2.0**-40
_LOW_BITS = 31


@dataclasses.dataclass(frozen=True)
class IntegerBounds:
    """What every user's weights must satisfy, from public quantities alone.

    Attributes:
        bits: Weights sum to 2^bits.
        lower: (k_v,) least weights wl.
        upper: (k_v,) greatest weights wu ≤ E·wl.
        public_weights: (k_v,) weights within the bounds that no input has a part in,
            for an input whose own fail.
    """

    bits: int
    lower: IntegerArray
    upper: IntegerArray
    public_weights: IntegerArray

    @property
    def total(self) -> int:
        """What weights sum to, W."""
        return 1 << self.bits


def make_bounds(polytope: ldp_polytope.LdpPolytope, epsilon: float) -> IntegerBounds:
    """Returns integer bounds in the place of a polytope's.

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
    """Returns each user's weights, from what a solver proposed.

    Args:
        proposed: (n, k_v) anything; members of the polytope if the solver did well.
        bounds: What the weights must satisfy.

    Returns:
        (n, k_v) integers.

    Guarantees:
        Every row passes `are_valid`; one that could not be made to is
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
    """Returns, computed in integers, whose weights are within bounds and sum to W."""
    inside = (weights >= bounds.lower) & (weights <= bounds.upper)
    sums = exact_sums(weights)
    return np.asarray(inside.all(axis=1).astype(bool) & (sums == bounds.total))


def exact_sums(weights: IntegerArray) -> IntegerArray:
    """Returns sums of rows as Python integers: 64 bits would overflow unseen."""
    high = (weights >> _LOW_BITS).sum(axis=1).astype(object)
    low = (weights & ((1 << _LOW_BITS) - 1)).sum(axis=1).astype(object)
    return np.asarray((high << _LOW_BITS) + low)


def _bits_needed(polytope: ldp_polytope.LdpPolytope, epsilon: float) -> int:
    relevant = polytope.upper >= _IRRELEVANT_SHARE
    least = float(polytope.lower[relevant].min())
    # From ε itself where the bound underflows.
    needed = -math.log2(least) if least > 0 else epsilon / math.log(2) + 40
    bits = max(FEWEST_BITS, _PRECISION_BITS + math.ceil(needed))
    if bits > MOST_BITS:
        raise ValueError(
            f"epsilon must be small enough for weights of {MOST_BITS} bits. "
            f"Found {epsilon}, which needs {bits}."
        )
    return bits


def _products(weights: list[int], ratio: Fraction) -> list[int]:
    """Returns weights times a ratio, rounded down; each that recurs computed once."""
    up, down = ratio.numerator, ratio.denominator
    found = {weight: weight * up // down for weight in set(weights)}
    return [found[weight] for weight in weights]


def _reduce(lower: list[int], total: int) -> list[int]:
    """Returns least weights that sum to at most the total: rounding may exceed it."""
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
    """Returns least weights whose greatest ones can sum to the total."""
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
    """Returns weights the same way up between all bounds, the rest one by one."""
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
    """Returns shares times 2^bits, a power of two and so exact, as integers."""
    if bits <= FEWEST_BITS:
        return np.rint(np.ldexp(shares, bits)).astype(np.int64)
    scale = np.frompyfunc(lambda share: int(math.ldexp(share, bits)), 1, 1)
    return np.asarray(scale(shares))


def _repair(weights: IntegerArray, bounds: IntegerBounds) -> None:
    """Moves weights, in place, so that rows sum to W, where there is room first."""
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
        bits: Logarithm of that sum.
        rng: A seeded generator, for tests and simulations alone: its draws can be
            predicted. None draws from the operating system.

    Guarantees:
        Without `rng` the law is exactly the weights', as far as the operating
        system's bits are uniform.
    """
    sums = np.cumsum(weights, axis=1)
    places = [np.searchsorted(row, _uniform(bits, rng), side="right") for row in sums]
    return np.array(places, dtype=np.int64)


def _uniform(bits: int, rng: np.random.Generator | None) -> int:
    """Returns an integer below 2^bits."""
    if rng is None:
        return secrets.randbits(bits)
    octets = (bits + 7) // 8
    return int.from_bytes(rng.bytes(octets), "little") >> (8 * octets - bits)
