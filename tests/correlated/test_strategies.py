"""Strategy matrices: each condition has its own message."""

import numpy as np
import pytest

from dp_accounting_ext.correlated import strategies


@pytest.mark.parametrize("value", ["1", 1.0, None, ("1",), (1.0, (1.0,)), (1j,)])
def test_what_is_no_strategy(value):
    with pytest.raises(TypeError):
        strategies.strategy(value, 2)


def test_coefficients_beyond_the_run_and_last_zeros_do_not_count():
    assert strategies.strategy([1, 0.5, 0, 0], 4) == (1.0, 0.5)
    assert strategies.strategy((1.0, 0.5, 0.25), 2) == (1.0, 0.5)
    assert strategies.strategy(np.eye(2).tolist(), 2) == ((1.0, 0.0), (0.0, 1.0))
