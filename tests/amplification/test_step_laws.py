"""Laws of steps, each against mpmath or rational arithmetic."""

from hypothesis import given
from hypothesis import strategies as st
import strategies

from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Bound


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
