"""Levels: what is enough for a δ, and that one number is told as many are."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.bounds import levels

LAST = levels.LEVELS.size - 1
GUESSES = st.floats(-700, 0).map(lambda x: float(np.exp(x)))


@given(st.lists(GUESSES, min_size=1))
def test_the_first_that_is_enough(deltas):
    found = levels.enough_for(np.array(deltas))
    for delta, level in zip(deltas, found.tolist(), strict=True):
        assert levels.LEVELS[level] <= delta or level == LAST
        assert level == 0 or levels.LEVELS[level - 1] > delta


@given(st.integers(0, LAST), GUESSES)
def test_one_goes_on_as_many_do(level, guess):
    (following,) = levels.following(level, np.array([guess])).tolist()
    assert levels.next_one(level, guess) == following
    assert following == -1 or level < following <= LAST
    # What is surely there is asked for, and then nothing is left to do.
    if guess > levels.LEVELS[level]:
        assert levels.is_asked(level, guess)
        assert following == -1


@given(st.integers(0, LAST))
def test_a_guess_far_below_is_no_guide(level):
    following = levels.next_one(level, 0.0)
    if level < LAST:
        exponents = -np.log10(levels.LEVELS)
        assert exponents[following] <= max(3 * exponents[level], 9)
