"""For which δ compositions are computed: fixed levels, whatever is asked.

A composition is computed for δ down to a level, the first that is enough: an answer
does not depend on others, and few pairs are made for many questions. Of pairs that were
allocated those for smaller δ are less tight.
"""

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
Guess = TypeVar("Guess", float, FloatArray)

# Tuning, all of it.
SMALLEST_DELTA = 1e-270
_EXPONENTS = [3, 6, 9, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 270]
LEVELS = np.array([float(f"1e-{exponent}") for exponent in _EXPONENTS])
FORGIVEN = 10.0  # So much below a level a δ may be that is read at it.
FIRST = 1  # Where nothing is known of δ.
# What a guess at δ must lack of a level for that to be passed over.
SURELY_MORE = math.exp(2.0)
_LAST = len(_EXPONENTS) - 1
# To where one goes on from each at most: far below a level a guess is no guide.
_FURTHEST = [
    min(int(np.searchsorted(_EXPONENTS, 2 * exponent)), _LAST)
    for exponent in _EXPONENTS
]
_LEAST = (LEVELS / FORGIVEN).tolist()


def enough_for(deltas: FloatArray) -> IndexArray:
    """Returns the (n,) levels that are enough for (n,) δ, the last if none is."""
    found = np.searchsorted(-LEVELS, -deltas)
    return np.asarray(np.minimum(found, _LAST), dtype=np.int64)


def is_asked(level: int, guesses: Guess) -> npt.NDArray[np.bool_]:
    """Tells of (n,) guesses at δ, or of one, whether it is read at a level."""
    return np.asarray((guesses > _LEAST[level]) | (level == _LAST))


def following(level: int, guesses: FloatArray) -> IndexArray:
    """Returns the (n,) levels to go on to from guesses at (n,) δ, or −1 if none is."""
    if level == _LAST:
        return np.full(guesses.shape, -1, dtype=np.int64)
    # Not np.clip, which takes as long as all the rest.
    found = np.minimum(np.maximum(enough_for(guesses), level + 1), _FURTHEST[level])
    return np.where(guesses >= _LEAST[level], -1, found)


def next_one(level: int, guess: float) -> int:
    """Returns what `following` does from one guess."""
    if level == _LAST or guess >= _LEAST[level]:
        return -1
    found = int(np.searchsorted(-LEVELS, -guess))
    return min(max(found, level + 1), _FURTHEST[level])
