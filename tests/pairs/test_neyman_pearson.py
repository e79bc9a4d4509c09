"""The closed profile against 40 digits, down to δ = 1e-30 and below."""

import itertools
import math

import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.pairs import laplace_mixture
from dp_accounting_ext.pairs import sampled_members

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


def closed_delta(mixture, epsilon, direction, bound):
    return mixture.closed_deltas(np.array([epsilon]), direction, bound)[0]


def split(group, rate, noise, removed):
    return (
        tuple((s / noise, w) for s, w in sampled_members.poisson(removed, rate)),
        tuple(
            (-s / noise, w) for s, w in sampled_members.poisson(group - removed, rate)
        ),
    )


@pytest.mark.parametrize(
    ("group", "rate", "noise"),
    [(1, 1e-4, 1.0), (16, 1e-3, 5.0), (64, 0.3, 0.3), (64, 1e-4, 20.0), (3, 1.0, 1.0)],
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_gaussian_mixtures(group, rate, noise, share):
    p, q = split(group, rate, noise, math.ceil(share * group))
    mixture = additive_noise.GaussianMixture(p, q)
    for epsilon in (-0.1, 0.0, 0.1, 12.0):
        truths = oracles.shift_mixture_deltas(p, q, epsilon)
        for direction in Direction:
            truth = truths[direction.value]
            lower, upper = (
                closed_delta(mixture, epsilon, direction, bound)
                for bound in (Bound.LOWER, Bound.UPPER)
            )
            assert lower <= truth <= upper
            if truth > 1e-30:
                assert upper <= truth * (1 + 1e-6)
                assert lower >= truth * (1 - 1e-6)


def laplace_truths(p, q, epsilon):
    """Between kinks the gain is a e^x + b e^{−x}, which is integrated as it stands."""
    with mpmath.workdps(60):
        kappa = mpmath.exp(mpmath.mpf(epsilon))

        def integral(gain, spend):
            parts = [(mpmath.mpf(s), mpmath.mpf(w) / 2) for s, w in gain]
            parts += [(mpmath.mpf(s), -kappa * mpmath.mpf(w) / 2) for s, w in spend]
            kinks = sorted({s for s, _ in parts})
            total = mpmath.mpf(0)
            for low, high in itertools.pairwise([-mpmath.inf, *kinks, mpmath.inf]):
                rising = sum(w * mpmath.exp(-s) for s, w in parts if s >= high)
                falling = sum(w * mpmath.exp(s) for s, w in parts if s <= low)

                def value(x, a=rising, b=falling):
                    up = a * mpmath.exp(x) if a else 0
                    return up - (b * mpmath.exp(-x) if b else 0)

                ends = [low, high]
                if rising * falling < 0:
                    root = mpmath.log(-falling / rising) / 2
                    ends = [low, *([root] if low < root < high else []), high]
                for start, end in itertools.pairwise(ends):
                    total += max(value(end) - value(start), 0)
            return total

        return {"remove": integral(p, q), "add": integral(q, p)}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_laplace_pairs_hold_the_profile(share):
    p, q = split(4, 0.5, 2.0, math.ceil(share * 4))
    mixture = additive_noise.LaplaceMixture(p, q)
    upper, lower = (mixture.pairs(bound, 1e-15).remove for bound in Bound)
    for pair in (lower, upper):
        assert pair.infinity_mass == pair.zero_mass == 0.0
        assert abs(pair.masses.sum() - 1) < 1e-12
        assert abs(pair.p_masses.sum() - 1) < 1e-12
    for epsilon in (-0.5, 0.0, 0.2, 0.8, 1.0):
        truths = laplace_truths(p, q, epsilon)
        for direction in Direction:
            truth = truths[direction.value]
            low, high = (pair.delta(epsilon, direction) for pair in (lower, upper))
            assert low <= truth <= high
            assert high <= low * (1 + 1e-5) + 1e-11


def test_largest_loss_of_laplace_mixtures():
    """All-remove by K members: K ln(1 + r (e^{1/b} − 1)), by the design's formula."""
    group, rate, noise = 3, 0.4, 1.5
    p, q = split(group, rate, noise, group)
    largest = laplace_mixture.largest_loss(
        laplace_mixture.Mixture(p), laplace_mixture.Mixture(q)
    )
    assert largest == pytest.approx(group * math.log1p(rate * math.expm1(1 / noise)))


def epsilons_of(mixture, deltas):
    asked = privacy_bounds.PrivacyBounds({mixture: 1}, 1e-4)
    return asked.lower_epsilons(deltas), asked.upper_epsilons(deltas)


@pytest.mark.parametrize(
    ("kind", "truths_of"),
    [("GaussianMixture", oracles.shift_mixture_deltas), ("LaplaceMixture", None)],
)
@pytest.mark.parametrize("removed", [0, 3, 4])
def test_epsilons_invert_the_profile(kind, truths_of, removed):
    truths_of = truths_of or laplace_truths
    p, q = split(4, 0.1, 1.0, removed)
    deltas = np.array([0.3, 1e-4, 1e-12, 1e-40])
    lowers, uppers = epsilons_of(getattr(additive_noise, kind)(p, q), deltas)
    for delta, lower, upper in zip(deltas, lowers, uppers, strict=True):
        assert lower <= upper <= lower * (1 + 1e-5) + 1e-9
        assert max(truths_of(p, q, upper).values()) <= delta
        assert max(truths_of(p, q, lower).values()) >= delta or lower == 0


def test_beyond_the_largest_loss_nothing_is_left():
    mixture = additive_noise.GaussianMixture(*split(3, 0.1, 1.0, 3))
    largest = -3 * math.log(0.9)
    add = [
        closed_delta(mixture, x, Direction.ADD, Bound.UPPER)
        for x in (0.9 * largest, largest + 1e-6)
    ]
    assert add[0] > add[1] == 0.0


def test_out_of_range():
    mixture = additive_noise.GaussianMixture(((1.0, 1.0),), ((-1.0, 1.0),))
    for direction in Direction:
        assert closed_delta(mixture, 1000.0, direction, Bound.UPPER) == 1.0
        assert closed_delta(mixture, 1000.0, direction, Bound.LOWER) == 0.0
