"""Certified answers of a composition: truths of what has one, and laws of the rest."""

import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import oracles
import pytest

from dp_accounting_ext import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled

Gaussian = additive_noise.Gaussian
Response = discrete_outputs.RandomizedResponse
LAPLACE = additive_noise.laplace(2.0)
SAMPLE = subsampled.on_poisson_sample(0.1, Gaussian(1.0))

# None of them needs another's pairs: each is one kind of route to an answer.
COMPOSITIONS = [
    {Gaussian(2.0): 1},
    {Gaussian(3.0): 5, Gaussian(5.0): 2},
    {SAMPLE: 1},
    {SAMPLE: 40},
    {LAPLACE: 3, Response(0.5, 3, True): 1},
    {subsampled.poisson_sampled(0.1, LAPLACE): 10, Gaussian(4.0): 1},
    {allocated.RandomAllocation(Gaussian(1.0), 1, 20): 2},
    {
        discrete_outputs.RandomizedResponseWithAbstention(
            0.5, 0.4, 0.4 * math.exp(-0.5)
        ): 8
    },
]
DELTAS = (0.0, 1e-200, 1e-12, 1e-6, 0.01, 0.5)
EPSILONS = (-50.0, -1.0, 0.0, 0.3, 2.0, 30.0)


def bounds_of(counts, interval=1e-4):
    return privacy_bounds.PrivacyBounds(counts, interval)


def brackets(bounds):
    """Returns both bounds on ε at each δ, and on δ at each ε."""
    epsilons = [(bounds.lower_epsilon(d), bounds.upper_epsilon(d)) for d in DELTAS]
    uppers = [bounds.upper_delta(e) for e in EPSILONS]
    lowers = [bounds.lower_delta(e, u) for e, u in zip(EPSILONS, uppers, strict=True)]
    return epsilons, list(zip(lowers, uppers, strict=True))


@pytest.mark.parametrize("counts", COMPOSITIONS, ids=range(len(COMPOSITIONS)))
def test_bounds_are_ordered_and_fall(counts):
    epsilons, deltas = brackets(bounds_of(counts))
    assert all(0 <= low <= high for low, high in epsilons)
    assert all(0 <= low <= high <= 1 for low, high in deltas)
    for (_, before), (after, _) in itertools.pairwise(epsilons):
        assert after <= before
    for (_, before), (after, _) in itertools.pairwise(deltas):
        assert after <= before


@pytest.mark.parametrize("counts", COMPOSITIONS, ids=range(len(COMPOSITIONS)))
def test_epsilon_at_delta_has_that_delta(counts):
    bounds = bounds_of(counts)
    for delta in (1e-12, 1e-6, 0.01):
        epsilon = bounds.upper_epsilon(delta)
        # Near the largest loss of all, rounding is about as much.
        assert bounds.upper_delta(epsilon) <= delta * 1.01 + 1e-12
        assert bounds.lower_delta(epsilon, 1.0) <= delta


@pytest.mark.parametrize("counts", COMPOSITIONS[3:7], ids=range(4))
def test_wider_intervals_only_widen(counts):
    fine, coarse = bounds_of(counts, 1e-4), bounds_of(counts, 0.05)
    for delta in (1e-9, 0.01):
        assert fine.lower_epsilon(delta) <= coarse.upper_epsilon(delta)
        assert coarse.lower_epsilon(delta) <= fine.upper_epsilon(delta)
        assert fine.upper_epsilon(delta) <= coarse.upper_epsilon(delta) * 1.001


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.floats(0.3, 50.0).map(Gaussian),
        st.integers(1, 50),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.0, 8.0),
)
def test_gaussians_are_one(counts, epsilon):
    with mpmath.workdps(40):
        precision = sum(
            n / mpmath.mpf(part.noise_multiplier) ** 2 for part, n in counts.items()
        )
        mean = mpmath.sqrt(precision)
    truth = oracles.gaussian_delta(mean, epsilon)
    bounds = bounds_of(counts)
    upper = bounds.upper_delta(epsilon)
    assert bounds.lower_delta(epsilon, upper) <= truth <= upper
    if 1e-280 < truth < 1:
        delta = float(truth)
        high, low = bounds.upper_epsilon(delta), bounds.lower_epsilon(delta)
        assert oracles.gaussian_delta(mean, high) <= delta
        assert low == 0 or oracles.gaussian_delta(mean, low) >= delta


@pytest.mark.parametrize("count", [1, 2, 4])
def test_responses_by_enumeration(count):
    noise, buckets = 0.5, 3
    with mpmath.workdps(40):
        other = mpmath.mpf(noise) / buckets
        truth = 1 - mpmath.mpf(noise) + other
        laws = [truth, other, other], [other, truth, other]
        p, q = (
            [mpmath.fprod(way) for way in itertools.product(law, repeat=count)]
            for law in laws
        )
    bounds = bounds_of({Response(noise, buckets, True): count})
    for epsilon in (-1.0, 0.0, 0.7, 1.9):
        exact = oracles.discrete_deltas(p, q, epsilon)["remove"]
        upper = bounds.upper_delta(epsilon)
        lower = bounds.lower_delta(epsilon, upper)
        assert lower <= exact <= upper <= exact * 1.01 + 1e-12
    with mpmath.workdps(40):
        assert bounds.upper_epsilon(0.0) >= count * mpmath.log(truth / other)
        assert bounds.upper_epsilon(0.0) <= count * mpmath.log(truth / other) * (
            1 + mpmath.mpf(1e-9)
        )


def test_above_the_largest_loss_nothing_is_left():
    bounds = bounds_of({LAPLACE: 4})
    largest = bounds.upper_epsilon(0.0)
    assert 2.0 <= largest <= 2.0 * (1 + 1e-9)
    for epsilon in (largest, 3.0, 1e300):
        assert bounds.upper_delta(epsilon) == bounds.lower_delta(epsilon, 1.0) == 0.0
    assert bounds.lower_delta(2.0 * (1 - 1e-3), 1.0) > 0
    # Of a Gaussian every loss is possible.
    assert bounds_of({LAPLACE: 4, Gaussian(9.0): 1}).upper_epsilon(0.0) == math.inf


def test_nothing_at_all():
    bounds = bounds_of({})
    assert bounds.upper_epsilon(0.0) == bounds.upper_epsilon(1e-6) == 0.0
    assert bounds.upper_delta(0.0) == 0.0
    assert bounds.lower_delta(-1.0, 1.0) <= -math.expm1(-1.0) <= bounds.upper_delta(-1)


def test_what_is_known_above_only_has_no_lower_bound():
    bounds = bounds_of({known_bounds.UpperOnly(Gaussian(1.0)): 2})
    same = bounds_of({Gaussian(1.0): 2})
    assert bounds.lower_epsilon(1e-6) == 0.0
    assert bounds.lower_delta(0.5, 1.0) == 0.0
    assert bounds.upper_epsilon(1e-6) >= same.lower_epsilon(1e-6)
    assert bounds.upper_epsilon(1e-6) == pytest.approx(same.upper_epsilon(1e-6), 1e-3)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.sampled_from([COMPOSITIONS[i] for i in (0, 1, 2, 4, 7)]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(DELTAS),
    st.sampled_from(EPSILONS),
)
def test_the_worst_of_several_is_the_largest(counts, delta, epsilon):
    each = [bounds_of(given_counts) for given_counts in counts]
    worst = privacy_bounds.WorstOf(each)
    high = max(one.upper_epsilon(delta) for one in each)
    assert worst.upper_epsilon(delta) == high
    low, same = worst.epsilon_bounds(delta)
    assert same == high
    # A lower bound of any scenario is one of the largest.
    assert low in [0.0, high, *(one.lower_epsilon(delta) for one in each)]
    high = max(one.upper_delta(epsilon) for one in each)
    assert worst.upper_delta(epsilon) == high
    low, same = worst.delta_bounds(epsilon)
    assert same == high
    assert 0 <= low <= high
    lowers = [one.lower_delta(epsilon, one.upper_delta(epsilon)) for one in each]
    assert low <= max(lowers)
    assert (low > 0) == (max(lowers) > 0)
