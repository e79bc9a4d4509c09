"""Beside prv_accountant itself: its brackets hold ours, where they are right."""

import inspect

import prv_accountant
from prv_accountant import dpsgd
import pytest

from dp_accounting_ext.integrations import prv_accountant as ours

pytestmark = pytest.mark.filterwarnings("ignore")
DELTA = 1e-6


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        (dpsgd.DPSGDAccountant, ours.DPSGDAccountant),
        (prv_accountant.PRVAccountant, ours.PRVAccountant),
        (dpsgd.find_noise_multiplier, ours.find_noise_multiplier),
        (
            prv_accountant.PoissonSubsampledGaussianMechanism,
            ours.PoissonSubsampledGaussianMechanism,
        ),
        (prv_accountant.GaussianMechanism, ours.GaussianMechanism),
        (prv_accountant.LaplaceMechanism, ours.LaplaceMechanism),
        (prv_accountant.PureDPMechanism, ours.PureDPMechanism),
        (prv_accountant.ApproximateDPMechanism, ours.ApproximateDPMechanism),
        (
            dpsgd.DPSGDAccountant.compute_epsilon,
            ours.DPSGDAccountant.compute_epsilon,
        ),
        (
            prv_accountant.PRVAccountant.compute_delta,
            ours.PRVAccountant.compute_delta,
        ),
    ],
)
def test_the_parameters_have_the_same_names_in_the_same_order(theirs, mine):
    assert list(inspect.signature(mine).parameters) == list(
        inspect.signature(theirs).parameters
    )


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(0.8, 5e-3, 1000), (1.0, 0.01, 1000), (2.0, 0.1, 100)]
)
def test_its_bracket_holds_ours(noise, rate, steps):
    arguments = {
        "noise_multiplier": noise,
        "sampling_probability": rate,
        "max_steps": steps,
        "eps_error": 0.01,
        "delta_error": DELTA / 1000,
    }
    theirs = dpsgd.DPSGDAccountant(**arguments).compute_epsilon(DELTA, steps)
    found = ours.DPSGDAccountant(**arguments).compute_epsilon(DELTA, steps)
    assert theirs[0] <= found[0] <= found[2] <= theirs[2]
    assert found[2] - found[0] < 0.01 * (theirs[2] - theirs[0])


def test_several_mechanisms():
    epsilons = []
    for library in (prv_accountant, ours):
        accountant = library.PRVAccountant(
            prvs=[
                library.PoissonSubsampledGaussianMechanism(
                    noise_multiplier=0.8, sampling_probability=5e-3
                ),
                library.GaussianMechanism(noise_multiplier=8.0),
                library.LaplaceMechanism(mu=0.1),
            ],
            max_self_compositions=[1000, 1000, 1000],
            eps_error=0.05,
            delta_error=1e-10,
        )
        epsilons.append(
            accountant.compute_epsilon(
                delta=DELTA, num_self_compositions=[100, 200, 100]
            )
        )
    theirs, found = epsilons
    assert theirs[0] <= found[0] <= found[2] <= theirs[2]
