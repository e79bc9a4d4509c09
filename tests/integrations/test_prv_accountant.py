"""The calls of prv_accountant have the accountant's own numbers."""

import math
import pickle

import dp_accounting
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.integrations import prv_accountant as prv

DELTA = 1e-6
STEP = dp_accounting.PoissonSampledDpEvent(5e-3, dp_accounting.GaussianDpEvent(0.8))


def test_dp_sgd():
    accountant = prv.DPSGDAccountant(
        noise_multiplier=0.8,
        sampling_probability=5e-3,
        max_steps=1000,
        eps_error=0.1,
        delta_error=1e-10,
    )
    lower, estimate, upper = accountant.compute_epsilon(delta=DELTA, num_steps=900)
    composed = ext.PLDAccountant().compose(STEP, 900)
    assert (lower, upper) == composed.get_epsilon_bounds(DELTA)
    assert lower <= estimate <= upper
    lower, estimate, upper = accountant.compute_delta(1.0, 900)
    assert (lower, upper) == composed.get_delta_bounds(1.0)
    assert lower <= estimate <= upper
    copy = pickle.loads(pickle.dumps(accountant))
    assert copy.compute_delta(1.0, 900) == (lower, estimate, upper)


def test_several_mechanisms():
    accountant = prv.PRVAccountant(
        prvs=[
            prv.PoissonSubsampledGaussianMechanism(5e-3, 0.8),
            prv.GaussianMechanism(noise_multiplier=8.0),
            prv.LaplaceMechanism(mu=0.1),
        ],
        max_self_compositions=[1000, 1000, 1000],
        eps_error=0.1,
        delta_error=1e-10,
    )
    found = accountant.compute_epsilon(DELTA, num_self_compositions=[100, 200, 0])
    composed = ext.PLDAccountant().compose(STEP, 100)
    composed.compose(dp_accounting.GaussianDpEvent(8.0), 200)
    truth = composed.get_epsilon_bounds(DELTA)
    assert truth[0] <= found[2] <= truth[1] * (1 + 1e-9)
    found = accountant.compute_epsilon(DELTA, [0, 0, 50])
    composed = ext.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(10.0), 50)
    truth = composed.get_epsilon_bounds(DELTA)
    assert truth[0] <= found[2] <= truth[1] * (1 + 1e-9)
    alone = prv.PRVAccountant(prv.GaussianMechanism(4.0, 2.0))
    one = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(2.0))
    assert alone.compute_delta(0.5)[2] >= one.get_delta(0.5)
    assert alone.compute_epsilon(DELTA, 1)[2] < one.get_epsilon(DELTA) * (1 + 1e-9)


def test_mechanisms_known_by_their_parameters():
    pure = prv.PRVAccountant(prv.PureDPMechanism(0.25), max_self_compositions=4)
    assert pure.compute_epsilon(0.0, 4)[2] == pytest.approx(1.0, abs=1e-9)
    assert pure.compute_epsilon(0.0, 4)[2] >= 1.0
    both = prv.PRVAccountant([prv.ApproximateDPMechanism(0.5, 1e-7)])
    assert both.compute_delta(0.5)[2] >= 1e-7
    assert both.compute_epsilon(0.0)[1:] == (math.inf, math.inf)


def test_noise_for_a_target():
    noise = prv.find_noise_multiplier(5e-3, 1000, 2.0, DELTA, eps_error=0.05)
    step = prv.PoissonSubsampledGaussianMechanism(5e-3, noise)
    upper = ext.PLDAccountant().compose(step, 1000).get_epsilon(DELTA)
    assert 1.9999 < upper <= 2.0
    with pytest.raises(ValueError, match="mu_max must be at least"):
        prv.find_noise_multiplier(5e-3, 1000, 2.0, DELTA, mu_max=noise / 2)


def test_what_is_refused():
    accountant = prv.DPSGDAccountant(1.0, 0.1, 10)
    for count, message in (
        (11, "at most max_self_compositions, 10. Found 11"),
        ([1, 2], "a number for each of the 1 prvs"),
        (-1, "num_self_compositions"),
    ):
        with pytest.raises(ValueError, match=message):
            accountant.compute_epsilon(DELTA, count)
    with pytest.raises(TypeError, match="prvs must be events"):
        prv.PRVAccountant([1.0])
    for sensitivity in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="sensitivity must be"):
            prv.GaussianMechanism(1.0, sensitivity)
