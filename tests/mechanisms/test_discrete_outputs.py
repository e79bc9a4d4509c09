"""Mechanisms with discrete outputs, against their outputs one by one."""

import math

import mechanism_laws
import mpmath
import oracles
import pytest

from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction

EPSILONS = (0.0, 0.2, 1.0, 2.7)


def two_sided(weight, sensitivity, reach):
    """P and Q of integer noise whose law is ∝ weight, P with the shift."""
    total = mpmath.fsum(weight(x) for x in range(-reach, reach + 1))
    outputs = range(-reach, reach + sensitivity + 1)
    return [[weight(x - s) / total for x in outputs] for s in (sensitivity, 0)]


def discrete_laplace(a, sensitivity):
    return two_sided(
        lambda x: mpmath.exp(-mpmath.mpf(a) * abs(x)), sensitivity, int(60 / a)
    )


def discrete_gaussian(sigma, sensitivity):
    return two_sided(
        lambda x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2)),
        sensitivity,
        int(14 * sigma) + 14,
    )


def response(noise, buckets, replace_one):
    other = mpmath.mpf(noise) / buckets
    truth = 1 - mpmath.mpf(noise) + other
    p = [truth, other, *[other] * (buckets - 2)]
    if replace_one:
        return [p, [other, truth, *[other] * (buckets - 2)]]
    return [p, [mpmath.mpf(1) / buckets] * buckets]


# Two laws, exact as they are written.
DRAW = ((0.5, 0.25), (0.25, 0.25), (0.25, 0.5))


def parameters(epsilon, delta):
    """The worst of all: it tells all with probability δ, else it responds."""
    tells = mpmath.mpf(delta)
    growth = mpmath.exp(mpmath.mpf(epsilon))
    p = [(1 - tells) * x / (1 + growth) for x in (growth, 1)]
    return [[tells, *p, mpmath.mpf(0)], [mpmath.mpf(0), *p[::-1], tells]]


MECHANISMS = [
    (discrete_outputs.DiscreteLaplace(0.7, 1), discrete_laplace(0.7, 1)),
    (discrete_outputs.DiscreteLaplace(0.25, 4), discrete_laplace(0.25, 4)),
    (discrete_outputs.DiscreteGaussian(0.6, 1), discrete_gaussian(0.6, 1)),
    (discrete_outputs.DiscreteGaussian(3.0, 2), discrete_gaussian(3.0, 2)),
    *(
        (
            discrete_outputs.RandomizedResponse(noise, buckets, replaced),
            response(noise, buckets, replaced),
        )
        for noise in (0.01, 0.5, 0.97)
        for buckets in (2, 5)
        for replaced in (True, False)
    ),
    (discrete_outputs.PrivateDraw(DRAW, (DRAW,)), list(zip(*DRAW, strict=True))),
    (discrete_outputs.PrivacyParameters(0.9), parameters(0.9, 0.0)),
    (discrete_outputs.PrivacyParameters(0.5, 0.01), parameters(0.5, 0.01)),
    (discrete_outputs.PrivacyParameters(0.0, 0.25), parameters(0.0, 0.25)),
]
IDS = [f"{type(mechanism).__name__}{i}" for i, (mechanism, _) in enumerate(MECHANISMS)]


@pytest.mark.parametrize(("mechanism", "laws"), MECHANISMS, ids=IDS)
def test_laws(mechanism, laws):
    mechanism_laws.assert_laws(mechanism)


@pytest.mark.parametrize(("mechanism", "laws"), MECHANISMS, ids=IDS)
def test_against_all_outputs(mechanism, laws):
    p, q = laws
    for epsilon in EPSILONS:
        truths = oracles.discrete_deltas(p, q, epsilon)
        for direction in Direction:
            truth = truths[direction.value]
            low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
            assert low <= truth <= high
            assert high <= truth * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("mechanism", "laws"), MECHANISMS, ids=IDS)
def test_the_largest_loss_is_that_of_an_output(mechanism, laws):
    with mpmath.workdps(40):
        p, q = ([mpmath.mpf(mass) for mass in law] for law in laws)
        if not all(p) or not all(q):
            assert mechanism.largest_loss() == math.inf or mechanism.delta == 0
            return
        exact = max(abs(mpmath.log(x / y)) for x, y in zip(p, q, strict=True))
    found = mechanism.largest_loss()
    if isinstance(mechanism, discrete_outputs.DiscreteGaussian):
        assert found == math.inf
    else:
        assert abs(found - exact) <= 3e-12 * exact


@pytest.mark.parametrize("noise", [1e-12, 1e-5, 0.3, 1 - 1e-9, 1 - 1e-15])
@pytest.mark.parametrize("buckets", [2, 7, 10**9])
@pytest.mark.parametrize("replaced", [True, False])
def test_no_digit_of_a_largest_loss_cancels(noise, buckets, replaced):
    mechanism = discrete_outputs.RandomizedResponse(noise, buckets, replaced)
    with mpmath.workdps(60):
        other = mpmath.mpf(noise) / buckets
        truth = 1 - mpmath.mpf(noise) + other
        exact = (
            mpmath.log(truth / other)
            if replaced
            else max(mpmath.log(truth * buckets), -mpmath.log(noise))
        )
        assert exact <= mechanism.largest_loss() <= exact * (1 + mpmath.mpf(3e-12))


def test_a_draw_has_two_pairs_from_below_if_they_differ():
    """Each says what it says of its laws, in either direction."""
    above = ((0.7, 0.3), (0.3, 0.7))
    pairs = ((0.6, 0.3), (0.4, 0.7)), ((0.5, 0.2), (0.5, 0.8))
    mechanism = discrete_outputs.PrivateDraw(above, pairs)
    assert mechanism.parts(Bound.LOWER) == {mechanism: 1}
    assert mechanism.other_parts(Bound.UPPER) == {mechanism: 1}
    (other,) = mechanism.other_parts(Bound.LOWER)
    assert other == discrete_outputs.PrivateDraw(above, pairs[1:])
    assert other.other_parts(Bound.LOWER) == {other: 1}
    assert not mechanism.is_symmetric()
    for found, laws in ((mechanism, pairs[0]), (other, pairs[1])):
        p, q = zip(*laws, strict=True)
        truths = oracles.discrete_deltas(p, q, 0.4)
        for direction in Direction:
            low, _ = mechanism_laws.bounds_of(found, 0.4, direction)
            assert low <= truths[direction.value] <= low * (1 + 1e-12)
