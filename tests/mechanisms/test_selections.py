"""The best of a random number of runs."""

import math

from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import selections


def test_runs_that_tell_everything_are_counted():
    """Any of a Poisson number of runs does so with the chance 1 − e^{−mean δ}."""
    one = discrete_outputs.PrivacyParameters(1.0, 1e-3)
    found = selections.BestOf(one, 5.0, math.inf).rdp([2.0]).failure_probability
    assert -math.expm1(-5e-3) <= found <= 5e-3 * (1 + 1e-12)
