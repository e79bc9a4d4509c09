"""The noise that is returned is enough, and hardly more."""

import dataclasses
import decimal
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import oracles
import pytest

from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import training_run


def run(steps, selected, epochs, delta, group=1):
    return training_run.TrainingRun(None, steps, selected, epochs, delta, group)


def accountant_at(row, setting, factor=1.0):
    """An accountant that knows of no calibration."""
    noise = row.noise_multiplier * factor
    noisy = {"noise_multiplier": noise, "sampling": row.sampling}
    return dataclasses.replace(setting, **noisy).accountant()


def six_digits_less(noise):
    context = decimal.Context(prec=6)
    return float(decimal.Decimal(repr(noise)).next_minus(context))


def check_least(row, setting, epsilon):
    assert row.epsilon_upper <= epsilon
    assert accountant_at(row, setting).get_epsilon(setting.delta) <= epsilon
    assert row.noise_multiplier == float(f"{row.noise_multiplier:.6g}")
    less = six_digits_less(row.noise_multiplier) / row.noise_multiplier
    assert 1 - 1.1e-5 < less < 1
    assert accountant_at(row, setting, less).get_epsilon(setting.delta) > epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-3, 1e-15), (100.0, 1e-15), (2.0, 1e-6), (1e-3, 0.1), (2.0, 0.1)],
)
def test_every_target_is_met_with_the_least_noise(epsilon, delta):
    setting = run(10, 1, 2, delta)
    for row in calibration.calibrate(setting, epsilon):
        check_least(row, setting, epsilon)


@settings(max_examples=4, deadline=None)
@given(
    st.floats(-3, 1.5).map(lambda power: 10**power),
    st.integers(1, 20),
    st.just(1),
    st.integers(1, 4),
    st.floats(-15, -1).map(lambda power: 10**power),
    st.sampled_from([1, 1, 3]),
)
def test_any_target(epsilon, steps, selected, epochs, delta, group):
    setting = run(steps, selected, epochs, delta, group)
    for row in calibration.calibrate(setting, epsilon):
        if row.note != "less noise is enough, too":
            check_least(row, setting, epsilon)


def test_less_noise_is_too_little_for_the_mechanism_itself():
    """Not for the upper bound alone, that is: the lower one is above the target."""
    setting = run(100, 1, 3, 1e-6)
    for row in calibration.calibrate(setting, 2.0):
        accountant = accountant_at(row, setting, 1 - 1e-3)
        assert accountant.get_epsilon_bounds(setting.delta)[0] > 2.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (20.0, 1e-12)])
def test_known_batches_are_gaussian(epsilon, delta):
    setting = dataclasses.replace(run(30, 2, 8, delta), sampling="no-amplification")
    (row,) = calibration.calibrate(setting, epsilon)
    mean = math.sqrt(16) / row.noise_multiplier
    assert oracles.gaussian_delta(mean, epsilon) <= delta
    assert oracles.gaussian_delta(mean * (1 + 3e-5), epsilon) > delta


@pytest.mark.parametrize("epsilon", [1e-300, 5e-324])
def test_hardly_any_loss(epsilon):
    setting = dataclasses.replace(run(10, 1, 1, 1e-6), sampling="poisson-sampling")
    (row,) = calibration.calibrate(setting, epsilon)
    assert row.epsilon_upper <= epsilon


def test_shuffled_batches_need_twice_the_noise():
    *_, known, shuffled = calibration.calibrate(run(50, 1, 2, 1e-6), 2.0)
    assert shuffled.adjacency == "replace"
    twice = 2 * known.noise_multiplier
    assert shuffled.noise_multiplier == pytest.approx(twice, rel=3e-5)


def test_a_group_needs_more():
    one = calibration.calibrate(run(50, 1, 2, 1e-6), 2.0)
    allocation, *others = calibration.calibrate(run(50, 1, 2, 1e-6, 3), 2.0)
    assert allocation.is_wide == ("wide" in allocation.note)
    assert allocation.noise_multiplier > one[0].noise_multiplier
    for row, single in zip(others, one[1:], strict=True):
        assert row.noise_multiplier > single.noise_multiplier
    assert others[-1].noise_multiplier == pytest.approx(
        3 * one[-1].noise_multiplier, rel=3e-5
    )


def test_hardly_any_noise():
    setting, epsilon = run(4, 2, 1, 1e-6), calibration.LARGEST_EPSILON
    for row in calibration.calibrate(setting, epsilon):
        again = accountant_at(row, setting).get_epsilon(setting.delta)
        assert again == row.epsilon_upper <= epsilon


def test_a_target_that_no_noise_meets():
    with pytest.raises(ValueError, match=r"epsilon must be such as a noise of"):
        calibration.calibrate(run(10, 1, 1, 1e-15), 1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive and at most 690. Found 0"),
        ({"epsilon": math.inf}, "epsilon must be positive and at most 690. Found inf"),
        ({"epsilon": 691.0}, "epsilon must be positive and at most 690. Found"),
        ({"epsilon": 1e300}, "epsilon must be positive and at most 690. Found"),
        ({"epsilon": math.nan}, "epsilon must be a number. Found nan"),
        ({"epsilon": "2"}, "epsilon must be a real number"),
    ],
)
def test_bad_fields_are_named(change, message):
    with pytest.raises((TypeError, ValueError)) as error:
        calibration.calibrate(run(10, 1, 1, 1e-6), **change)
    assert message in str(error.value)


def test_a_delta_is_needed():
    with pytest.raises(ValueError, match=r"delta must be given\. Found it missing"):
        calibration.calibrate(training_run.TrainingRun(None, 10), 1.0)
