"""Ways of drawing batches, side by side, and what is said of a wide bracket."""

import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run


@settings(max_examples=3)
@given(
    st.floats(0.02, 200.0),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.9, 0.5, 1e-3, 1e-8, 1e-25]),
)
def test_any_setting_gives_ordered_rows(noise, steps, count, epochs, delta):
    run = training_run.TrainingRun(noise, steps, min(count, steps), epochs, delta)
    found = comparison.compare(run)
    assert [each.sampling for each in found] == list(training_run.SCHEMES)
    for each in found:
        assert 0 <= each.epsilon_lower <= each.epsilon_upper
        assert each.seconds >= 0
        assert (each.noise_multiplier, each.delta) == (noise, delta)


def test_shuffled_batches_have_the_bounds_of_a_replaced_record_and_no_others():
    """Two records away from each other: a Gaussian twice as far, and nothing else."""
    run = training_run.TrainingRun(2.0, 7, epochs=3, delta=1e-6, sampling="shuffled")
    found = comparison.bracket(run)
    far = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0), 3)
    assert found.adjacency == "replace"
    assert found.epsilon_lower <= far.get_epsilon_bounds(1e-6)[1]
    assert found.epsilon_upper >= far.get_epsilon_bounds(1e-6)[0]
    (alone,) = comparison.compare(run)
    assert alone.epsilon_upper == found.epsilon_upper
    add = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    unknown = comparison.bracket(run, add)
    assert unknown.epsilon_lower is unknown.epsilon_upper is None
    assert "no bound is known" in unknown.note and not unknown.is_wide


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1.0, 1.0), ""),
        ((1.0, 2.0), "50.0% wide; where brackets overlap, either row may"),
        ((0.0, math.inf), "no finite bound"),
    ],
)
def test_a_bracket_that_is_wide_says_so(bounds, said):
    found = comparison.timed(("one", "replace", 1, 1.0, 1e-6), lambda: bounds)
    assert (found.epsilon_lower, found.epsilon_upper) == bounds
    assert said in found.note and bool(said) == bool(found.note) == found.is_wide
