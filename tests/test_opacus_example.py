"""The Opacus accountants count what ran; Opacus itself is too large for these tests."""

import importlib.util
import pathlib
import sys
import types

import dp_accounting
import pytest

import dp_accounting_ext as ext

PATH = pathlib.Path(__file__).parent.parent / "docs/examples/opacus_accountant.py"


@pytest.fixture
def module(monkeypatch):
    """The example, on a stand-in for the two names that it takes from Opacus."""
    opacus = types.ModuleType("opacus")
    accountants = types.ModuleType("opacus.accountants")
    registry = types.ModuleType("opacus.accountants.registry")
    known = {}
    accountants.IAccountant = object
    registry.known = known
    registry.register_accountant = lambda name, kind, force: known.update({name: kind})
    opacus.accountants, accountants.registry = accountants, registry
    for each in (opacus, accountants, registry):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    spec = importlib.util.spec_from_file_location("opacus_accountant", PATH)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(accountant, *steps):
    for noise, rate, count in steps:
        for _ in range(count):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant


def test_poisson_samples_are_counted(module):
    accountant = run(module.CertifiedAccountant(), (1.0, 0.1, 5), (2.0, 0.1, 3))
    assert accountant.history == [(1.0, 0.1, 5), (2.0, 0.1, 3)]
    assert len(accountant) == 2
    expected = ext.PLDAccountant()
    for noise, count in ((1.0, 5), (2.0, 3)):
        step = dp_accounting.GaussianDpEvent(noise)
        expected.compose(dp_accounting.PoissonSampledDpEvent(0.1, step), count)
    assert accountant.get_epsilon(1e-5, eps_error=0.1) == expected.get_epsilon(1e-5)
    lower, upper = accountant.get_epsilon_bounds(1e-5)
    assert lower <= upper == accountant.get_epsilon(1e-5)


def test_epochs_of_balls_and_bins(module):
    """Two epochs as they are, one whose noise changes, and one that was stopped."""
    accountant = run(module.BallsAndBinsAccountant(), (1.0, 0.25, 10), (2.0, 0.25, 5))
    first, second = (dp_accounting.GaussianDpEvent(noise) for noise in (1.0, 2.0))
    expected = ext.PLDAccountant()
    expected.compose(ext.RandomAllocationEvent(first, 1, 4), 2)
    expected.compose(ext.ScheduledAllocationEvent([first, second], [2, 2], 4))
    expected.compose(ext.ScheduledAllocationEvent([second], [3], 4))
    epsilon = expected.get_epsilon(1e-5)
    assert accountant.get_epsilon(1e-5) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("steps", "message"),
    [([(1.0, 0.3, 1)], "must be 1 / t"), ([(1.0, 0.5, 1), (1.0, 0.25, 1)], "whole")],
)
def test_rates_that_are_no_epochs(module, steps, message):
    with pytest.raises(ValueError, match=message):
        run(module.BallsAndBinsAccountant(), *steps).get_epsilon(1e-5)


def test_both_are_registered(module):
    module.register()
    assert module.registry.known == {
        "certified": module.CertifiedAccountant,
        "balls and bins": module.BallsAndBinsAccountant,
    }
