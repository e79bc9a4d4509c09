"""The noise that is returned is enough, and hardly more."""

import decimal
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import oracles
import pytest

from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import training_run


def epsilon_at(row, target, factor=1.0):
    """The certified bounds on ε, from an accountant that knows of no calibration."""
    setting = target.with_noise(row.noise_multiplier * factor)
    accountant = training_run.accountant(row.scheme, setting)
    return accountant.get_epsilon_bounds(target.delta)


def six_digits_less(noise):
    context = decimal.Context(prec=6)
    return float(decimal.Decimal(repr(noise)).next_minus(context))


def check_least(row, target):
    assert row.epsilon_upper <= target.epsilon
    assert epsilon_at(row, target)[1] <= target.epsilon
    assert row.noise_multiplier == float(f"{row.noise_multiplier:.6g}")
    less = six_digits_less(row.noise_multiplier) / row.noise_multiplier
    assert 1 - 1.1e-5 < less < 1
    assert epsilon_at(row, target, less)[1] > target.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-3, 2.0, 100.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.1])
def test_every_target_is_met_with_the_least_noise(epsilon, delta):
    target = calibration.Target(epsilon, 20, 1, 2, delta)
    for row in calibration.calibrate(target):
        check_least(row, target)


@settings(max_examples=8, deadline=None)
@given(
    st.floats(-3, 2).map(lambda power: 10**power),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 4),
    st.floats(-15, -1).map(lambda power: 10**power),
    st.sampled_from([1, 1, 3]),
)
def test_any_target(epsilon, steps, selected, epochs, delta, group):
    selected = min(steps, selected) if group == 1 else 1
    target = calibration.Target(epsilon, steps, selected, epochs, delta, group)
    for row in calibration.calibrate(target):
        if row.note != "less noise is enough, too":
            check_least(row, target)


def test_less_noise_is_too_little_for_the_mechanism_itself():
    """Not for the upper bound alone, that is: the lower one is above the target."""
    target = calibration.Target(2.0, 100, 1, 3, 1e-6)
    for row in calibration.calibrate(target):
        assert epsilon_at(row, target, 1 - 1e-3)[0] > target.epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (20.0, 1e-12)])
def test_no_amplification_is_a_gaussian(epsilon, delta):
    target = calibration.Target(epsilon, 30, 2, 8, delta)
    noise = calibration.calibrate(target)[-1].noise_multiplier
    mean = math.sqrt(16) / noise
    assert oracles.gaussian_delta(mean, epsilon) <= delta
    assert oracles.gaussian_delta(mean * (1 + 3e-5), epsilon) > delta


def test_where_any_noise_will_do():
    target = calibration.Target(1.0, 100, 1, 1, 0.9)
    noise, note = calibration._least_noise(lambda noise: 0.5, target)
    assert 0 < noise < 0.01
    assert note == "less noise is enough, too"


def test_a_group_needs_more():
    one = calibration.calibrate(calibration.Target(2.0, 50, 1, 2, 1e-6))
    allocation, *others = calibration.calibrate(
        calibration.Target(2.0, 50, 1, 2, 1e-6, group_size=3)
    )
    assert allocation.note.startswith("chained: bracket is")
    assert allocation.noise_multiplier > one[0].noise_multiplier
    for row, single in zip(others, one[1:], strict=True):
        assert row.noise_multiplier > single.noise_multiplier
    assert others[-1].noise_multiplier == pytest.approx(
        3 * one[-1].noise_multiplier, rel=3e-5
    )


@pytest.mark.parametrize("epsilon", [1e6, 1e300])
def test_hardly_any_noise(epsilon):
    target = calibration.Target(epsilon, 10, 2, 1, 1e-6)
    for row in calibration.calibrate(target):
        assert epsilon_at(row, target)[1] == row.epsilon_upper <= epsilon


def test_a_target_that_no_noise_meets():
    with pytest.raises(ValueError, match=r"epsilon must be such as a noise_multiplier"):
        calibration.calibrate(calibration.Target(1e-12, 10, 1, 1, 1e-15))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive and finite. Found 0.0"),
        ({"epsilon": math.inf}, "epsilon must be positive and finite. Found inf"),
        ({"epsilon": math.nan}, "epsilon must be a number. Found nan"),
        ({"epsilon": "2"}, "epsilon must be a real number"),
        ({"delta": 1.0}, "delta must be in (0, 1). Found 1.0"),
        ({"num_selected": 11}, "num_selected must be at most num_steps"),
        ({"group_size": 0}, "group_size must be at least 1"),
    ],
)
def test_bad_fields_are_named(change, message):
    fields = {
        "epsilon": 2.0,
        "num_steps": 10,
        "num_selected": 1,
        "num_epochs": 1,
        "delta": 1e-6,
    }
    with pytest.raises((TypeError, ValueError)) as error:
        calibration.Target(**{**fields, **change})
    assert message in str(error.value)
