"""DP-SGD with PREAMBLE beside plain DP-SGD."""

import math

import dp_accounting
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.papers import preamble_noise


def test_a_preamble_setting():
    setting = preamble_noise.Setting(2**10, 0.01)
    assert (setting.num_selected, setting.num_steps) == (32, 1024)
    assert setting.num_updates == 1000
    assert setting.contribution == 1.0
    event = setting.event(2.0)
    assert event.count == 1000
    assert event.event == ext.PLDSubsampleEvent(
        0.01, ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(2.0), 32, 1024)
    )


def test_the_ratio_is_one_where_every_block_is_sent(monkeypatch):
    monkeypatch.setattr(preamble_noise, "plain_noise", lambda rate: 1.5)
    setting = preamble_noise.Setting(2**16, 0.1, communication=preamble_noise.DIMENSION)
    assert setting.num_selected == setting.num_steps == 16
    noise = preamble_noise.noise_of(setting, 1.0)
    assert noise / math.sqrt(16) == pytest.approx(1.5, rel=1e-15)
    plain = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.5)),
        100,
    )
    epsilons = [
        ext.PLDAccountant().compose(event).get_epsilon(1e-6)
        for event in (setting.event(noise), plain)
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-4)


def test_the_ratio_needed_uses_up_epsilon():
    # One block of each user's: the search is the same, and an answer takes .03 s.
    setting = preamble_noise.Setting(2**15, 0.1)
    ratio = preamble_noise.ratio_needed(setting)
    assert 1.3 < ratio < 1.35
    for factor in (1.0, 1 - 1e-4):
        event = setting.event(preamble_noise.noise_of(setting, factor * ratio))
        epsilon = ext.PLDAccountant().compose(event).get_epsilon(preamble_noise.DELTA)
        assert (epsilon <= preamble_noise.TARGET_EPSILON) == (factor == 1.0)


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_bounds_are_below_those_of_poisson_sampling_alone(noise):
    """Whoever sends k of t blocks is no more exposed than by t blocks at once."""
    setting = preamble_noise.Setting(2**12, 0.1)
    lower, upper = preamble_noise.epsilon_bounds(setting, noise)
    assert 0 < lower <= upper <= lower * 1.03
    every = dp_accounting.PoissonSampledDpEvent(
        setting.rate,
        dp_accounting.GaussianDpEvent(noise / math.sqrt(setting.num_selected)),
    )
    known = ext.PLDAccountant().compose(every, setting.num_updates)
    assert upper <= known.get_epsilon(preamble_noise.DELTA)


def test_rows_are_of_every_setting():
    rows = list(preamble_noise.noise_needed((0.1,), (2**14, 2**15), 1e-1))
    assert [row.setting.block_size for row in rows] == [2**14, 2**15]
    for row in rows:
        assert row.noise_multiplier == preamble_noise.noise_of(row.setting, row.ratio)
        assert row.plain_noise == preamble_noise.plain_noise(0.1)
        accountant = ext.PLDAccountant().compose(
            row.setting.event(row.noise_multiplier)
        )
        upper = accountant.get_epsilon(preamble_noise.DELTA)
        assert upper <= preamble_noise.TARGET_EPSILON
