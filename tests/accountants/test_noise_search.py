"""The least noise for a risk."""

import dp_accounting
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import risk

Gaussian = dp_accounting.GaussianDpEvent


@pytest.mark.parametrize("target", [0.01, 0.1, 0.9])
def test_noise_for_an_advantage(target):
    """2 Φ(1 / 2σ) − 1 is the advantage."""
    noise = budget.calibrate(Gaussian, risk.advantage, target)
    truth = 1 / (2 * stats.norm.ppf((1 + target) / 2))
    assert truth * (1 - 1e-12) <= noise <= truth * (1 + 2e-5)
    found = risk.advantage(ext.PLDAccountant().compose(Gaussian(noise)))
    assert found[1] <= target


@pytest.mark.parametrize(
    ("measure", "target", "error", "match"),
    [
        (risk.advantage, 0.0, ValueError, "target .* 1e.09, the most that is tried"),
        (risk.advantage, -1.0, ValueError, "target must be such as a noise"),
        (risk.advantage, 1e-12, ValueError, "the most that is tried.* is reached"),
        (risk.advantage, 1.0, ValueError, "target must be such as noise is needed"),
        (lambda a: 1 / risk.advantage(a)[1], 0.5, ValueError, "measure must decrease"),
        (lambda a: 1 / risk.advantage(a)[1], 9.0, ValueError, "measure must decrease"),
        (1.0, 0.5, TypeError, "measure must be callable. Found 1.0"),
        (lambda a: (1.0,), 0.5, TypeError, "measure must be a real number"),
    ],
)
def test_what_cannot_be_met_is_said_quickly(measure, target, error, match):
    """Neither search takes more than the widenings from 1 to 1e9."""
    asked = []

    def noisy(noise):
        asked.append(noise)
        return Gaussian(noise)

    with pytest.raises(error, match=match):
        budget.calibrate(noisy, measure, target)
    assert len(asked) <= 25


def test_what_makes_no_event():
    with pytest.raises(TypeError, match="make_event must be callable. Found 2.0"):
        budget.calibrate(2.0, risk.advantage, 0.5)


@pytest.mark.parametrize(
    ("target", "measure"),
    [
        (0.0, lambda accountant: accountant.get_epsilon(1e-3)),
        (1.0, lambda accountant: round(accountant.get_epsilon(1e-6), 1)),
    ],
)
def test_a_target_that_many_noises_meet_exactly(target, measure):
    """The search does not stop in the middle of a plain, and walk on digit by digit."""
    asked = []

    def noisy(noise):
        asked.append(noise)
        return Gaussian(noise)

    noise = budget.calibrate(noisy, measure, target)
    assert len(asked) <= 100
    accountant = ext.PLDAccountant()
    assert measure(accountant.compose(Gaussian(noise))) == target
    accountant = ext.PLDAccountant()
    assert measure(accountant.compose(Gaussian(noise * (1 - 1.1e-5)))) > target
