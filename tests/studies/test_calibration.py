"""The noise that is returned is enough, and hardly more."""

import dataclasses
import decimal

import nights
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
    [(2.0, 1e-6), *nights.at_night((1e-3, 1e-15), (100.0, 1e-15), (2.0, 0.1))],
)
def test_every_target_is_met_with_the_least_noise(epsilon, delta):
    setting = run(4, 1, 2, delta)
    for row in calibration.calibrate(setting, epsilon):
        check_least(row, setting, epsilon)


def test_less_noise_is_too_little_for_the_mechanism_itself():
    """Not for the upper bound alone, that is: the lower one is above the target."""
    setting = run(4, 1, 3, 1e-6)
    for row in calibration.calibrate(setting, 2.0):
        accountant = accountant_at(row, setting, 1 - 1e-3)
        assert accountant.get_epsilon_bounds(setting.delta)[0] > 2.0


def test_hardly_any_loss():
    setting = dataclasses.replace(run(10, 1, 1, 1e-6), sampling="poisson-sampling")
    (row,) = calibration.calibrate(setting, 5e-324)
    assert row.epsilon_upper <= 5e-324


@pytest.mark.parametrize("epsilon", [1e5, *nights.at_night(1000.0)])
def test_targets_whose_likelihood_ratios_fit_no_float(epsilon):
    setting = run(4, 1, 2, 1e-6)
    rows = calibration.calibrate(setting, epsilon)
    assert [row.sampling for row in rows] == list(training_run.SCHEMES)
    for row in rows:
        check_least(row, setting, epsilon)
        assert "nothing is promised" in row.note
