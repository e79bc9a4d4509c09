"""The closed profile against 40 digits, down to δ = 1e-30 and below."""

import itertools
import math

import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.pairs import neyman_pearson
from dp_accounting_ext.pairs import sampled_members

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


def closed_delta(mixture, epsilon, direction, bound):
    return mixture.closed_form(bound).deltas(np.array([epsilon]), direction)[0]


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
def test_laplace_mixtures(share):
    p, q = split(4, 0.5, 2.0, math.ceil(share * 4))
    mixture = additive_noise.LaplaceMixture(p, q)
    for epsilon in (0.2, 0.8):
        truths = laplace_truths(p, q, epsilon)
        for direction in Direction:
            truth = truths[direction.value]
            lower, upper = (
                closed_delta(mixture, epsilon, direction, bound)
                for bound in (Bound.LOWER, Bound.UPPER)
            )
            assert lower <= truth <= upper
            assert upper <= lower * (1 + 1e-9) + 1e-12


DELTAS = [0.3, 1e-4, 1e-12, 1e-40]


def epsilons_of(mixture, deltas):
    return [mixture.closed_form(bound).epsilons(np.array(deltas)) for bound in Bound]


@pytest.mark.parametrize(("group", "removed"), [(4, 3), (4, 0), (16, 8)])
def test_epsilons_invert_the_profile(group, removed):
    p, q = split(group, 0.1, 1.0, removed)
    uppers, lowers = epsilons_of(additive_noise.GaussianMixture(p, q), DELTAS)
    for delta, lower, upper in zip(DELTAS, lowers, uppers, strict=True):
        assert lower <= upper <= lower * (1 + 1e-9) + 1e-12
        assert max(oracles.shift_mixture_deltas(p, q, upper).values()) <= delta
        truths = oracles.shift_mixture_deltas(p, q, lower)
        assert max(truths.values()) >= delta or lower == 0


@pytest.mark.parametrize("kind", ["GaussianMixture", "LaplaceMixture"])
def test_the_certified_profile_is_on_the_side_of_every_epsilon(kind):
    """Rounding may be large beside what δ changes by."""
    mixture = getattr(additive_noise, kind)(*split(300, 0.01, 9.0, 120))
    deltas = np.append(np.geomspace(1e-100, 0.03, 40), 0.04 - 2.0 ** -np.arange(6, 50))
    for bound, epsilons in zip(Bound, epsilons_of(mixture, deltas), strict=True):
        found = np.max(
            [mixture.closed_form(bound).deltas(epsilons, way) for way in Direction],
            axis=0,
        )
        if bound is Bound.UPPER:
            assert (found <= deltas).all()
        else:
            assert ((found >= deltas) | (epsilons == 0)).all()


@pytest.mark.parametrize("step", [1e-200, 0.3])
def test_the_search_for_a_tiny_epsilon_ends(step):
    """A profile that is flat and then falls takes hundreds of bisections."""

    def profile(epsilon, bound):
        return 0.5 if epsilon < step else 1e-9

    upper, lower = (neyman_pearson.epsilon(profile, 1e-3, bound) for bound in Bound)
    assert lower < step <= upper < lower * (1 + 1e-11)
