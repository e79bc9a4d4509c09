"""Mechanisms with closed forms: Laplace, and those with discrete ratios."""

import fractions
import functools
import math

import mpmath
import oracles
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import discrete
from dp_accounting_ext.pairs import laplace_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
EPSILONS = [-0.2, 0.0, 0.3, 0.9, 2.0, 4.9]


def laplace(scale, bound):
    return laplace_mixture.dominating_pair_of(
        laplace_mixture.Mixture(((1 / scale, 1.0),)),
        laplace_mixture.Mixture(((0.0, 1.0),)),
        bound,
    )


def assert_between(pair_of, truths, epsilon, rtol, atol=1e-13):
    for direction in Direction:
        truth = truths[direction.value]
        lower, upper = (
            pair_of(bound).delta(epsilon, direction)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        assert lower <= truth <= upper
        assert upper - lower <= rtol * upper + atol


@pytest.mark.parametrize("scale", [0.01, 0.2, 1.0, 50.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace(scale, epsilon):
    truth = oracles.laplace_delta(scale, epsilon)
    assert_between(
        lambda bound: laplace(scale, bound),
        {"remove": truth, "add": truth},
        epsilon,
        1e-5,
    )


def test_laplace_loses_no_more_than_one_over_its_scale():
    pair = laplace(0.5, Bound.UPPER)
    assert pair.infinity_mass == pair.zero_mass == 0.0
    assert pair.delta(2.0 * (1 + 1e-12), Direction.REMOVE) <= 1e-12
    assert laplace(1e-3, Bound.UPPER).infinity_mass == 1.0


@functools.cache
def discrete_laplace_laws(parameter, sensitivity):
    """P and Q, to 60 digits."""
    with mpmath.workdps(60):
        a = mpmath.mpf(parameter)
        outputs = range(-3000, 3000)
        norm = mpmath.tanh(a / 2)
        q = [norm * mpmath.exp(-a * abs(x)) for x in outputs]
        p = [norm * mpmath.exp(-a * abs(x - sensitivity)) for x in outputs]
    return p, q


@pytest.mark.parametrize(("parameter", "sensitivity"), [(0.3, 1), (1.0, 3), (0.05, 40)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_discrete_laplace(parameter, sensitivity, epsilon):
    p, q = discrete_laplace_laws(parameter, sensitivity)
    assert_between(
        lambda bound: discrete.discrete_laplace(parameter, sensitivity, bound),
        oracles.discrete_deltas(p, q, epsilon),
        epsilon,
        1e-10,
    )


@functools.cache
def discrete_gaussian_laws(sigma, sensitivity):
    """P and Q, to 60 digits."""
    with mpmath.workdps(60):
        variance = 2 * mpmath.mpf(sigma) ** 2
        outputs = range(-300, 301)
        norm = sum(mpmath.exp(-(mpmath.mpf(x) ** 2) / variance) for x in outputs)
        q = [mpmath.exp(-(mpmath.mpf(x) ** 2) / variance) / norm for x in outputs]
        p = [
            mpmath.exp(-(mpmath.mpf(x - sensitivity) ** 2) / variance) / norm
            for x in outputs
        ]
    return p, q


@pytest.mark.parametrize(("sigma", "sensitivity"), [(0.4, 1), (1.0, 1), (5.0, 3)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_discrete_gaussian(sigma, sensitivity, epsilon):
    p, q = discrete_gaussian_laws(sigma, sensitivity)
    truths = oracles.discrete_deltas(p, q, epsilon)
    for tail_mass in (1e-30, 1e-6):
        assert_between(
            lambda bound, tail_mass=tail_mass: discrete.discrete_gaussian(
                sigma, sensitivity, bound, tail_mass=tail_mass
            ),
            truths,
            epsilon,
            1e-10,
            10 * tail_mass * math.exp(max(epsilon, 0.0)) + 1e-13,
        )


@pytest.mark.parametrize("replace_one", [True, False])
@pytest.mark.parametrize(("noise", "buckets"), [(0.5, 4), (0.1, 2), (0.9, 100)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response(noise, buckets, replace_one, epsilon):
    with mpmath.workdps(60):
        other = mpmath.mpf(noise) / buckets
        truth = 1 - mpmath.mpf(noise) + other
        p = [truth] + [other] * (buckets - 1)
        q = [other, truth] + [other] * (buckets - 2)
        if not replace_one:
            q = [mpmath.mpf(1) / buckets] * buckets
    assert_between(
        lambda bound: discrete.randomized_response(
            noise, buckets, replace_one=replace_one, bound=bound
        ),
        oracles.discrete_deltas(p, q, epsilon),
        epsilon,
        1e-10,
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 1e-3), (0.0, 0.2)])
def test_privacy_parameters(epsilon, delta):
    """The best profile: δ at ε, and the lines through it."""
    pair = discrete.privacy_parameters(epsilon, delta, Bound.UPPER)
    for direction in Direction:
        assert pair.delta(epsilon, direction) >= delta
        assert pair.delta(epsilon, direction) <= delta + 1e-13
        at_zero = delta + (1 - delta) * math.tanh(epsilon / 2)
        assert pair.delta(0.0, direction) == pytest.approx(at_zero, rel=1e-12)
    assert discrete.privacy_parameters(epsilon, delta, Bound.LOWER).zero_mass == 0.0


@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(0.0, 1), (1e6, 1), (float("nan"), 1), (1.0, 0)]
)
def test_discrete_gaussians_out_of_range(sigma, sensitivity):
    name = "sensitivity" if sensitivity < 1 else "sigma"
    with pytest.raises(ValueError, match=rf"{name} must be between .* Found"):
        discrete.discrete_gaussian(sigma, sensitivity, Bound.UPPER, tail_mass=1e-12)


@pytest.mark.parametrize("replace_one", [True, False])
@pytest.mark.parametrize("noise", [1e-9, 0.3, 0.999])
@pytest.mark.parametrize("buckets", [2, 3, 40])
def test_responses_against_exact_numbers(noise, buckets, replace_one):
    exact_noise = fractions.Fraction(noise)
    other = exact_noise / buckets
    truth = 1 - exact_noise + other
    mine = [truth, *[other] * (buckets - 1)]
    theirs = [fractions.Fraction(1, buckets)] * buckets
    if replace_one:
        theirs = [other, truth, *[other] * (buckets - 2)]
    upper, lower = (
        discrete.randomized_response(
            noise, buckets, replace_one=replace_one, bound=bound
        )
        for bound in Bound
    )
    exact = {Direction.REMOVE: (mine, theirs), Direction.ADD: (theirs, mine)}
    for direction, laws in exact.items():
        for epsilon in (-2.0, 0.0, 0.5, 5.0, 30.0):
            with mpmath.workdps(60):
                known = mpmath.fsum(
                    max(_exactly(a) - mpmath.exp(epsilon) * _exactly(b), 0)
                    for a, b in zip(*laws, strict=True)
                )
                low, high = (pair.delta(epsilon, direction) for pair in (lower, upper))
                assert low <= known <= high
                assert high - low <= 1e-12 * (1 + math.exp(epsilon))


def _exactly(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator
