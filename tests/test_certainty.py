"""Bounds that rounding put on the wrong side, and inputs that ended in a traceback."""

import math

import dp_accounting
from dp_accounting import dp_event
import mpmath
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian_mixture

Bound = dominating_pair.Bound
NeighborRel = dp_accounting.NeighboringRelation


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def gaussian_delta(epsilon, mean=1):
    """δ of N(mean, 1) against N(0, 1)."""
    kappa = mpmath.exp(mpmath.mpf(epsilon))
    half, crossing = mpmath.mpf(mean) / 2, epsilon / mpmath.mpf(mean)
    return mpmath.ncdf(half - crossing) - kappa * mpmath.ncdf(-half - crossing)


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("tail_mass", [1e-14, 1e-25, 1e-100, 1e-280])
@pytest.mark.parametrize("shift", [0.01, 0.1, 1.0, 3.0, 20.0])
def test_masses_of_a_gaussian_pair_err_by_no_more_than_they_say(
    shift, tail_mass, bound
):
    """They sum to one, tails and sinks included."""
    pair = gaussian_mixture.dominating_pair_of(
        gaussian_mixture.Mixture(((shift, 1.0),)),
        gaussian_mixture.Mixture(((0.0, 1.0),)),
        bound,
        tail_mass=tail_mass,
    )
    masses = math.fsum(pair.masses) + pair.zero_mass
    gains = math.fsum(pair.p_masses) + pair.infinity_mass
    if bound is Bound.UPPER:
        assert masses >= 1 - pair.mass_error
        assert gains >= 1 - pair.mass_error - pair.ratio_error
    else:
        assert masses <= 1 + pair.mass_error
        assert gains <= 1 + pair.mass_error + pair.ratio_error


@pytest.mark.parametrize("runs", [10**8, 10**9])
def test_a_bound_on_very_many_runs_is_one(runs):
    """σ = √T: together, the Gaussian mechanism with noise multiplier one."""
    event = dp_event.MixtureOfGaussiansDpEvent(math.sqrt(runs), [1.0], [1.0])
    accountant = ext.PLDAccountant().compose(event, runs)
    lower, upper = accountant.get_delta_bounds(2.0)
    with mpmath.workdps(40):
        mean = mpmath.sqrt(runs) / mpmath.mpf(math.sqrt(runs))
        assert lower <= gaussian_delta(2.0, mean) <= upper


@pytest.mark.parametrize(
    "relation", [NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL]
)
@pytest.mark.parametrize("buckets", [2, 3, 7, 10, 1000])
@pytest.mark.parametrize("truthful", [1e-1, 1e-3, 1e-6, 3e-9, 1e-10, 1e-12, 1e-15])
def test_pure_epsilon_of_randomized_response(truthful, buckets, relation):
    """The largest loss is a logarithm of what is near one: no cancellation."""
    noise = 1 - truthful
    event = dp_accounting.RandomizedResponseDpEvent(noise, buckets)
    accountant = ext.PLDAccountant(relation).compose(event)
    uniform = mpmath.mpf(noise)
    truth = 1 - uniform + uniform / buckets
    if relation is NeighborRel.REPLACE_ONE:
        exact = mpmath.log(truth * buckets / uniform)
    else:
        exact = max(mpmath.log(truth * buckets), -mpmath.log(uniform))
    assert accountant.get_epsilon(0.0) >= exact
    # A little below it, something is left.
    before = float(exact * (1 - mpmath.mpf(10) ** -6))
    assert accountant.get_delta(before) > 0


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 1e-10, 1e-15, 1e-20, 1e-200])
def test_randomized_response_of_a_group_that_hardly_lies(noise):
    """One record, no sample: it is the plain randomized response."""
    response = dp_accounting.RandomizedResponseDpEvent(noise, 2)
    accountant = ext.PLDAccountant().compose(ext.GroupSubsampledEvent(1, response))
    lie = mpmath.mpf(noise) / 2
    largest = mpmath.log((1 - lie) / lie)
    for share in (0.0, 0.5, 0.9, 0.98, 0.999):
        epsilon = float(largest * share)
        exact = 1 - lie - mpmath.exp(mpmath.mpf(epsilon)) * lie
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= exact <= upper


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_what_is_not_private_on_a_sample_has_that_chance(rate):
    """δ is the chance to be in the sample: no lower bound may be above it."""
    for event in (
        dp_accounting.GaussianDpEvent(0.0),
        dp_accounting.NonPrivateDpEvent(),
    ):
        sampled = dp_accounting.PoissonSampledDpEvent(rate, event)
        accountant = ext.PLDAccountant().compose(sampled)
        # Added: H(Q‖P) = 1 − κ (1 − λ); removed: λ.
        lower, upper = accountant.get_delta_bounds(3.0)
        assert lower <= rate <= upper
        lower, _ = accountant.get_epsilon_bounds(rate * 1.1)
        assert lower <= -math.log1p(-rate)


@pytest.mark.parametrize("epsilon", [705.0, 710.0, 1e4, 1e155, 1e300, 1.7e308])
@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.GaussianDpEvent(1.0),
        ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, 10),
        dp_accounting.SelfComposedDpEvent(
            ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, 10), 3
        ),
        dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0),
        ext.PLDSubsampleEvent(
            0.1, dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(1.0), 3)
        ),
    ],
    ids=["gaussian", "allocation", "allocations", "truncated", "sampled"],
)
def test_delta_at_an_epsilon_beyond_floats(event, epsilon):
    """It is hardly anything, and a number."""
    lower, upper = ext.PLDAccountant().compose(event).get_delta_bounds(epsilon)
    assert type(lower) is type(upper) is float
    assert 0 <= lower <= upper < 1e-12
