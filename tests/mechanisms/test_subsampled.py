"""Mechanisms on a sample: laws of samples, and truths where the sample is small."""

import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mechanism_laws
import mpmath
import oracles
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Gaussian = additive_noise.Gaussian
INNER = [
    Gaussian(1.3),
    additive_noise.laplace(0.8),
    discrete_outputs.DiscreteLaplace(0.5, 2),
    discrete_outputs.PrivacyParameters(1.0, 1e-3),
    compositions.Composed(((Gaussian(2.0), 3), (additive_noise.laplace(3.0), 1))),
]


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("rate", [1e-4, 0.3, 0.999])
def test_laws(rate, inner):
    mechanism_laws.assert_laws(subsampled.on_poisson_sample(rate, inner))
    mechanism_laws.assert_laws(subsampled.PoissonSampled(rate, inner))


@pytest.mark.parametrize("inner", INNER)
def test_rates_of_zero_and_one(inner):
    assert subsampled.poisson_sampled(1.0, inner) == inner
    everybody = subsampled.on_poisson_sample(1.0, inner)
    for epsilon, direction in itertools.product((0.0, 0.5), Direction):
        found = mechanism_laws.bounds_of(everybody, epsilon, direction)
        expected = mechanism_laws.bounds_of(inner, epsilon, direction)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)
    for sample in (subsampled.on_poisson_sample, subsampled.poisson_sampled):
        assert sample(0.0, inner) == compositions.NO_OP
        assert sample(0.5, compositions.NO_OP) == compositions.NO_OP
    revealed = known_bounds.NonPrivate()
    assert subsampled.poisson_sampled(0.5, revealed) == revealed.on_a_sample(0.5)


@pytest.mark.parametrize("inner", INNER[:2])
@pytest.mark.parametrize("rate", [1e-3, 0.4])
def test_a_mixture_of_shifts_is_the_sampled_pair(rate, inner):
    """In closed form, and by the theorem for any pair: they meet."""
    mixture = subsampled.on_poisson_sample(rate, inner)
    assert isinstance(
        mixture, additive_noise.GaussianMixture | additive_noise.LaplaceMixture
    )
    by_theorem = subsampled.PoissonSampled(rate, inner)
    for epsilon in (0.0, 0.2, 1.0):
        for direction in Direction:
            one = mechanism_laws.bounds_of(mixture, epsilon, direction)
            other = mechanism_laws.bounds_of(by_theorem, epsilon, direction)
            assert one[0] <= other[1]
            assert other[0] <= one[1]
            assert other[1] == pytest.approx(one[1], rel=1e-4, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
@pytest.mark.parametrize("inner", INNER[:2])
def test_a_sample_of_a_sample_is_a_sample(inner, rate, other, epsilon):
    twice = subsampled.on_poisson_sample(
        rate, subsampled.on_poisson_sample(other, inner)
    )
    once = subsampled.on_poisson_sample(rate * other, inner)
    for direction in Direction:
        found, expected = (
            each.closed_form_delta(epsilon, direction, Bound.UPPER)
            for each in (twice, once)
        )
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-13)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(0.0, 2.0), st.floats(0.0, 1.0))
@pytest.mark.parametrize("inner", [INNER[2], INNER[3]])
def test_smaller_samples_never_tell_more(inner, rate, epsilon, factor):
    small, large = (
        subsampled.poisson_sampled(each, inner) for each in (rate * factor, rate)
    )
    for direction in Direction:
        least = mechanism_laws.bounds_of(small, epsilon, direction)[0]
        assert least <= mechanism_laws.bounds_of(large, epsilon, direction)[1]


@pytest.mark.parametrize("rate", [1e-9, 0.1, 1.0])
@pytest.mark.parametrize("loss", [1e-9, 1.0, 30.0, 699.0])
def test_the_largest_loss_of_a_sample(rate, loss):
    """ln(1 + λ (e^loss − 1))."""
    inner = discrete_outputs.PrivacyParameters(loss)
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(loss)))
        found = subsampled.PoissonSampled(rate, inner).largest_loss()
        assert exact <= found <= exact * (1 + mpmath.mpf(3e-12))
    vast = discrete_outputs.PrivacyParameters(1e4)
    assert subsampled.PoissonSampled(rate, vast).largest_loss() == 1e4


@pytest.mark.parametrize("rate", [1e-3, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_a_sampled_record_that_is_replaced(rate, epsilon):
    mechanism = subsampled.sampled_gaussian_replace_one(rate, 0.9)
    mechanism_laws.assert_laws(mechanism)
    assert mechanism.is_symmetric()
    with mpmath.workdps(40):
        shift = 1 / mpmath.mpf(0.9)
        p = [(0, 1 - mpmath.mpf(rate)), (shift, mpmath.mpf(rate))]
    q = [(-s, w) for s, w in p]
    p, q = ([(s, w) for s, w in law if w] for law in (p, q))
    truth = oracles.shift_mixture_deltas(p, q, epsilon)["remove"]
    for direction in Direction:
        low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
        assert low <= truth <= high <= truth * (1 + 1e-3)


@pytest.mark.parametrize("inner", INNER[:2])
@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_laws_of_batches_in_which_a_record_is_replaced(rate, inner):
    mechanism = subsampled.substituted_sample(inner, rate)
    mechanism_laws.assert_laws(mechanism)
    assert mechanism.gaussian_precision() <= inner.gaussian_precision()
    assert mechanism.largest_loss() <= inner.largest_loss()
    sample = subsampled.poisson_sampled(rate, inner)
    for epsilon in (0.0, 0.4, 1.0):
        truth = mechanism_laws.bounds_of(sample, epsilon, Direction.REMOVE)
        for direction in Direction:
            low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
            assert low <= truth[1]
            assert low == truth[0] or direction is Direction.ADD
            assert high >= truth[0]
            assert high == pytest.approx(truth[1], rel=1e-6, abs=1e-12)


def truncated(size, rate, batch, sigma, epsilon, *, replace_one):
    """By enumeration of the other records' draws, as the reduction has it.

    Given the record: with the probability that the others fill the batch it takes
    another's place, and moves the sum twice as far; else its sample is plain.
    """
    draws = itertools.product((0, 1), repeat=size - 1)
    with mpmath.workdps(40):
        r = mpmath.mpf(rate)

        def chance_of(number, total):
            return r**number * (1 - r) ** (total - number)

        full = mpmath.fsum(
            chance_of(sum(drawn), size - 1) for drawn in draws if sum(drawn) >= batch
        )
        either = mpmath.fsum(
            chance_of(sum(drawn), size)
            for drawn in itertools.product((0, 1), repeat=size)
            if sum(drawn) > batch
        )
        inside = either * batch / (full * size)
        shift = 1 / mpmath.mpf(sigma)
        plain = [(0, 1 - r), (shift, r)]
        taken = [(0, 1 - inside), (2 * shift, inside)]
        others = [(0, 1)]
        if replace_one:
            others = [(-s, w) for s, w in plain]
        deltas = [
            oracles.shift_mixture_deltas(p, q, epsilon)
            for p, q in (
                (taken, [(-s, w) for s, w in taken]),
                (plain, others),
            )
        ]
        return {
            way: full * deltas[0][way] + (1 - full) * deltas[1][way]
            for way in ("remove", "add")
        }


def among_nothing(size, rate, batch, sigma, epsilon, *, replace_one):
    """Two datasets, one record of which contributes: by enumeration of all draws."""
    with mpmath.workdps(40):
        r, inside = mpmath.mpf(rate), mpmath.mpf(0)
        for drawn in itertools.product((0, 1), repeat=size - 1):
            others = sum(drawn)
            chance = r**others * (1 - r) ** (size - 1 - others)
            inside += chance * r * min(1, mpmath.mpf(batch) / (others + 1))
        shift = 1 / mpmath.mpf(sigma)
        p = [(0, 1 - inside), (shift, inside)]
        q = [(-s, w) for s, w in p] if replace_one else [(0, 1)]
        return oracles.shift_mixture_deltas(p, q, epsilon)


@pytest.mark.parametrize("replace_one", [True, False])
@pytest.mark.parametrize(("size", "rate", "batch"), [(6, 0.4, 3), (8, 0.1, 2)])
def test_batches_that_are_cut_against_enumeration(size, rate, batch, replace_one):
    mechanism = subsampled.TruncatedSampledGaussian(size, rate, batch, 1.1, replace_one)
    mechanism_laws.assert_laws(mechanism)
    for epsilon in (0.0, 0.6):
        truths = truncated(size, rate, batch, 1.1, epsilon, replace_one=replace_one)
        alone = among_nothing(size, rate, batch, 1.1, epsilon, replace_one=replace_one)
        for direction in Direction:
            low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
            assert (1 - 1e-6) * alone[direction.value] <= low <= alone[direction.value]
            assert truths[direction.value] <= high
            assert high <= truths[direction.value] * (1 + 1e-3)


def test_a_batch_that_is_never_full_is_a_poisson_sample():
    mechanism = subsampled.TruncatedSampledGaussian(10, 0.2, 10, 1.0, False)
    sample = subsampled.on_poisson_sample(0.2, Gaussian(1.0))
    for direction in Direction:
        cut, plain = (
            mechanism_laws.bounds_of(each, 0.3, direction)[1]
            for each in (mechanism, sample)
        )
        assert cut == plain
    assert mechanism.gaussian_precision() == 1.0
    full = subsampled.TruncatedSampledGaussian(10, 0.2, 3, 1.0, False)
    assert full.gaussian_precision() == 16.0
    assert math.isclose(
        subsampled.TruncatedSampledGaussian(
            10, 0.2, 10, 1.0, True
        ).gaussian_precision(),
        4.0,
    )
