"""Strategy matrices: each condition has its own message."""

import numpy as np
import pytest

from dp_accounting_ext.validation import strategies


@pytest.mark.parametrize(
    ("value", "steps", "message"),
    [
        ((), 4, "a coefficient at least. Found none"),
        ((1.0, -0.5), 4, r"no negative coefficient.*Found -0.5 at 1"),
        ((0.0, 1.0), 4, "begin with a positive coefficient. Found 0.0"),
        ((1.0, np.nan), 4, "must be a number. Found nan"),
        ((1.0, np.inf), 4, "Found inf at 1"),
        ((1.0, 1e-200), 4, "write 0 for what has died out.*Found 1e-200 at 1"),
        (((1.0,),), 2, "a row for each of the 2 steps.*Found 1 rows"),
        (((1.0,),) * 1025, 1025, "at most 1024 rows.*Found 1025 rows"),
        (((1.0,), (1.0, 2.0)), 2, "square. Found 1 entries in row 0 of 2"),
        (((1.0, 0.0), (1.0,)), 2, "square. Found 1 entries in row 1 of 2"),
        (((1.0, 0.5), (0.0, 1.0)), 2, "lower triangular.*row 0"),
        (((1.0, 0.0), (-1.0, 1.0)), 2, "no negative entry of row 1.*Found -1.0 at 0"),
        (((1.0, 0.0), (1.0, 0.0)), 2, "positive diagonal. Found 0 in row 1"),
    ],
)
def test_bad_strategies(value, steps, message):
    with pytest.raises(ValueError, match=message):
        strategies.strategy(value, steps)


@pytest.mark.parametrize("value", ["1", 1.0, None, ("1",), (1.0, (1.0,)), (1j,)])
def test_what_is_no_strategy(value):
    with pytest.raises(TypeError):
        strategies.strategy(value, 2)


@pytest.mark.parametrize(
    ("bins", "epochs", "message"),
    [
        (0, 1, "num_bins must be at least 1"),
        (1, 0, "num_epochs must be at least 1"),
        (5000, 1, "num_bins must be at most 4096. Found 5000"),
        (4096, 33, "times num_epochs must be at most 131072. Found 135168"),
    ],
)
def test_bad_bins(bins, epochs, message):
    with pytest.raises(ValueError, match=message):
        strategies.bins(bins, epochs)


def test_coefficients_beyond_the_run_and_last_zeros_do_not_count():
    assert strategies.strategy([1, 0.5, 0, 0], 4) == (1.0, 0.5)
    assert strategies.strategy((1.0, 0.5, 0.25), 2) == (1.0, 0.5)
    assert strategies.strategy(np.eye(2).tolist(), 2) == ((1.0, 0.0), (0.0, 1.0))
