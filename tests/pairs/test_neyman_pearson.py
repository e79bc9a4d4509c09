"""The closed profile against 40 digits, down to δ = 1e-30 and below."""

import math

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


KINDS = {False: additive_noise.GaussianMixture, True: additive_noise.LaplaceMixture}


def closed_delta(mixture, epsilon, direction, bound):
    return mixture.closed_deltas(np.array([epsilon]), direction, bound)[0]


def split(group, rate, noise, removed):
    return (
        tuple((s / noise, w) for s, w in sampled_members.poisson(removed, rate)),
        tuple(
            (-s / noise, w) for s, w in sampled_members.poisson(group - removed, rate)
        ),
    )


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize(
    ("group", "rate", "noise"),
    [(1, 1e-4, 1.0), (16, 1e-3, 5.0), (40, 0.3, 0.3), (3, 1.0, 1.0)],
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_mixtures_of_noise(group, rate, noise, share, laplace):
    p, q = split(group, rate, noise, math.ceil(share * group))
    mixture = KINDS[laplace](p, q)
    for epsilon in (-0.1, 0.1, 12.0):
        truths = oracles.shift_mixture_deltas(p, q, epsilon, laplace)
        for direction in Direction:
            truth = truths[direction.value]
            for bound, sign in ((Bound.LOWER, 1), (Bound.UPPER, -1)):
                pair = mixture.pairs(bound, 1e-15).of(direction)
                closed = mixture.closed_deltas(np.array([epsilon]), direction, bound)
                assert sign * (truth - pair.delta(epsilon, direction)) >= 0
                if closed is not None:
                    assert sign * (truth - closed[0]) >= 0
                    if truth > 1e-30:
                        assert abs(closed[0] - truth) <= truth * 1e-6


def test_largest_loss_of_laplace_mixtures():
    """All-remove by K members: K ln(1 + r (e^{1/b} − 1)), by the design's formula."""
    group, rate, noise = 3, 0.4, 1.5
    p, q = split(group, rate, noise, group)
    largest = laplace_mixture.largest_loss(
        laplace_mixture.Mixture(p), laplace_mixture.Mixture(q)
    )
    assert largest == pytest.approx(group * math.log1p(rate * math.expm1(1 / noise)))


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("removed", [0, 3, 4])
def test_epsilons_invert_the_profile(laplace, removed):
    p, q = split(4, 0.1, 1.0, removed)
    deltas = np.array([0.3, 1e-4, 1e-12, 1e-40])
    bounds = privacy_bounds.PrivacyBounds({KINDS[laplace](p, q): 1}, 1e-4)
    lowers, uppers = bounds.lower_epsilons(deltas), bounds.upper_epsilons(deltas)
    for delta, lower, upper in zip(deltas, lowers, uppers, strict=True):
        assert lower <= upper <= lower * (1 + 1e-5) + 1e-9
        most, least = (
            max(oracles.shift_mixture_deltas(p, q, e, laplace).values())
            for e in (upper, lower)
        )
        assert most <= delta and (least >= delta or lower == 0)


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
