"""Ways of drawing batches, side by side."""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run


@settings(max_examples=5, deadline=None)
@given(
    st.floats(0.02, 200.0),
    st.integers(1, 100),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.9, 0.5, 1e-3, 1e-8, 1e-25]),
)
def test_any_setting_gives_ordered_rows(noise, steps, selected, epochs, delta):
    setting = training_run.TrainingRun(
        noise, steps, min(selected, steps), epochs, delta
    )
    for row in comparison.compare(setting):
        assert 0 <= row.epsilon_lower <= row.epsilon_upper
        assert row.seconds >= 0


def test_ratios_that_no_float_holds_are_left_out_of_lower_bounds():
    """Without a warning, which users would see."""
    setting = training_run.TrainingRun(0.05, 10, 1, 10, 1e-300, group_size=3)
    row = comparison.bracket("Poisson sampling", setting)
    assert 0 < row.epsilon_lower <= row.epsilon_upper
