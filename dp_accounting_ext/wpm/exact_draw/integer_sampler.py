"""Exact draws from integer weights."""

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

IntegerArray = npt.NDArray[Any]


def draw(
    weights: IntegerArray, bits: int, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """Returns one index for every row, with probability weight / 2^bits.

    Args:
        weights: (n, k_v) integers, rows summing to 2^bits.
        bits: Logarithm of that sum.
        rng: A seeded generator, for tests and simulations alone: its draws can be
            foretold. None draws from the operating system.

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
