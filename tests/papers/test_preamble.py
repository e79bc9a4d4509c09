"""DP-SGD with PREAMBLE beside plain DP-SGD."""

import math

import dp_accounting
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.papers import preamble


def test_a_preamble_setting():
    setting = preamble.Setting(2**10, 0.01)
    assert (setting.num_selected, setting.num_steps) == (32, 1024)
    assert setting.num_updates == 1000
    assert setting.contribution == 1.0
    event = setting.event(2.0)
    assert event.count == 1000
    assert event.event == ext.PLDSubsampleEvent(
        0.01, ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(2.0), 32, 1024)
    )


def test_the_ratio_is_one_where_every_block_is_sent(monkeypatch):
    monkeypatch.setattr(preamble, "plain_noise", lambda rate: 1.5)
    setting = preamble.Setting(2**16, 0.1, communication=preamble.DIMENSION)
    assert setting.num_selected == setting.num_steps == 16
    noise = preamble.noise_of(setting, 1.0)
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
    setting = preamble.Setting(2**10, 0.1)
    ratio = preamble.ratio_needed(setting)
    assert 1.0 < ratio < 1.1
    for factor in (1.0, 1 - 1e-4):
        event = setting.event(preamble.noise_of(setting, factor * ratio))
        epsilon = ext.PLDAccountant().compose(event).get_epsilon(preamble.DELTA)
        assert (epsilon <= preamble.TARGET_EPSILON) == (factor == 1.0)
