"""Laws of steps, each against mpmath or rational arithmetic."""

import math

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np
import strategies

from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Bound

U = 2.0**-53


@given(st.just(0.0) | st.floats(1e-290, 1e8), st.floats(1e-6, 0.98))
def test_scores_err_as_little_as_they_say(ratio, rate):
    score, mean, variance = step_laws.scores(np.array([ratio]), rate)
    with mpmath.workdps(40):
        mixed = 1 - mpmath.mpf(rate) + mpmath.mpf(rate) * ratio
        truth = mpmath.log(mixed)
        chance = mpmath.mpf(rate) * ratio / mixed
        assert abs(score[0] - truth) <= (8 + 8 * abs(truth)) * U
        assert abs(mean[0] - chance) <= 16 * U * chance
        exact = chance * (1 - chance)
        assert abs(variance[0] - exact) <= 16 * U * exact


@given(st.integers(1, 3000), st.floats(1e-5, 0.98), st.data())
def test_the_binomial_errs_as_little_as_it_says(steps, rate, data):
    selected = data.draw(st.integers(0, steps))
    value, error = step_laws.log_binomial(selected, steps, rate)
    with mpmath.workdps(40):
        truth = mpmath.log(math.comb(steps, selected))
        truth += selected * mpmath.log(rate)
        truth += (steps - selected) * mpmath.log(1 - mpmath.mpf(rate))
        assert abs(value - truth) <= error
    assert error < 1e-9


@given(strategies.pairs(Bound.UPPER), st.integers(1, 4), st.floats(1e-9, 0.9))
def test_what_is_lost_with_large_ratios_is_counted(pair, selected, mass):
    steps = step_laws.Steps.of([step_laws.Kind(pair, 6)], selected)
    kept, lost = steps.without_largest(mass)
    assert lost <= mass * (1 + 1e-8)
    first = kept.ratios.size
    assert kept.ratios.tolist() == steps.ratios[:first].tolist()
    gone = sum(n * masses[first:].sum() for masses, n in steps.with_record([selected]))
    assert gone <= lost
    assert kept.num_selected == selected
