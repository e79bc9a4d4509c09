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
