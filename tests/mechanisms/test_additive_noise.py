"""Gaussian and Laplace noise: every mechanism's laws, and truths of mixtures."""

import dataclasses
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mechanism_laws
import mpmath
import oracles
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
GaussianMixture = additive_noise.GaussianMixture
LaplaceMixture = additive_noise.LaplaceMixture
UNSHIFTED = additive_noise.UNSHIFTED

HALVES = ((0.0, 0.5), (0.8, 0.25), (2.0, 0.25))
RARE = ((0.0, 0.999), (1.5, 0.001))


def opposite(weighted):
    return tuple((-shift, weight) for shift, weight in weighted)


PAIRS = [
    (((1.0, 1.0),), UNSHIFTED),
    (HALVES, UNSHIFTED),
    (RARE, UNSHIFTED),
    (UNSHIFTED, opposite(HALVES)),
    (HALVES, opposite(RARE)),
    (RARE, opposite(RARE)),
]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 17.0])
def test_laws_of_the_gaussian_mechanism(sigma):
    mechanism_laws.assert_laws(additive_noise.Gaussian(sigma))


@pytest.mark.parametrize("kind", [GaussianMixture, LaplaceMixture])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_laws_of_mixtures(kind, p, q):
    mechanism_laws.assert_laws(kind(p, q))


@pytest.mark.parametrize("scale", [0.05, 1.0, 40.0])
def test_laws_of_the_laplace_mechanism(scale):
    mechanism = additive_noise.laplace(scale)
    mechanism_laws.assert_laws(mechanism)
    with mpmath.workdps(40):
        exact = 1 / mpmath.mpf(scale)
        assert exact <= mechanism.largest_loss() <= exact * (1 + mpmath.mpf(3e-12))


@pytest.mark.parametrize("kind", [GaussianMixture, LaplaceMixture])
@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.1])
def test_mixtures_against_the_truth(kind, p, q, epsilon):
    mechanism = kind(p, q)
    truths = oracles.shift_mixture_deltas(p, q, epsilon, kind is LaplaceMixture)
    for direction in Direction:
        truth = truths[direction.value]
        low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
        assert low <= truth <= high
        low, high = (
            mechanism.closed_form_delta(epsilon, direction, bound)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        assert low <= truth <= high
        assert high <= truth * (1 + 1e-9) + 1e-13


weights = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=5)


@settings(max_examples=6, deadline=None)
@given(weights, st.lists(st.floats(0.0, 3.0), min_size=5, max_size=5, unique=True))
@pytest.mark.parametrize("tail_mass", [1e-6, 5e-3])
def test_rare_shifts_are_cut_on_the_side_of_the_bound(tail_mass, parts, shifts):
    total = math.fsum(parts)
    p = tuple((s, w / total) for s, w in zip(shifts, parts, strict=False))
    mechanism = GaussianMixture(p, UNSHIFTED)
    for epsilon in (0.0, 0.5):
        truths = oracles.shift_mixture_deltas(p, UNSHIFTED, epsilon)
        for direction in Direction:
            truth = truths[direction.value]
            bounds = mechanism_laws.bounds_of(mechanism, epsilon, direction, tail_mass)
            # Weights sum to one but for a rounding.
            assert bounds[0] <= truth + mpmath.mpf(1e-15)
            assert bounds[1] >= truth - mpmath.mpf(1e-15)
            assert bounds[1] <= truth + 3 * tail_mass + 1e-6


def test_of_many_weights_three_are_kept():
    """Two of them would be taken for a probability and the rest, which err by less."""
    tail_mass = 0.5
    p = ((0.0, 0.9), (1.0, 0.07), (2.0, 0.02), (3.0, 0.01))
    kept, lost = additive_noise.without_rare(p, tail_mass, Bound.UPPER)
    assert kept == p[:3]
    assert 0.01 <= lost <= 0.01 * (1 + 1e-8)
    kept, lost = additive_noise.without_rare(p, tail_mass, Bound.LOWER)
    assert [shift for shift, _ in kept] == [0.0, 1.0, 2.0]
    assert math.fsum(weight for _, weight in kept) == pytest.approx(1, rel=1e-15)
    assert lost == 0


@pytest.mark.parametrize("kind", [GaussianMixture, LaplaceMixture])
def test_so_many_shifts_and_no_more(kind):
    def shifted(number):
        return tuple((i / number, 1 / number) for i in range(number))

    for p, q in ((shifted(4096), UNSHIFTED), (UNSHIFTED, shifted(4096))):
        assert kind(p, q).p == p
    for p, q in ((shifted(4097), UNSHIFTED), (UNSHIFTED, shifted(4097))):
        with pytest.raises(ValueError, match=r"4096 shifts at most. Found 4097\.$"):
            kind(p, q)


@pytest.mark.parametrize("kind", [GaussianMixture, LaplaceMixture])
def test_a_mixture_is_symmetric_where_its_shifts_are(kind):
    assert kind(HALVES, opposite(HALVES)).is_symmetric()
    assert kind(HALVES[::-1], opposite(HALVES)).is_symmetric()
    assert not kind(HALVES, UNSHIFTED).is_symmetric()
    assert not kind(HALVES, opposite(RARE)).is_symmetric()


@pytest.mark.parametrize("kind", [GaussianMixture, LaplaceMixture])
@given(factor=st.floats(1.0, 10.0), epsilon=st.floats(0.0, 2.0))
@settings(max_examples=15, deadline=None)
def test_more_noise_never_tells_more(kind, factor, epsilon):
    mechanism = kind(HALVES, opposite(RARE))
    noisier = dataclasses.replace(
        mechanism,
        p=tuple((s / factor, w) for s, w in mechanism.p),
        q=tuple((s / factor, w) for s, w in mechanism.q),
    )
    for direction in Direction:
        less = noisier.closed_form_delta(epsilon, direction, Bound.LOWER)
        assert less <= mechanism.closed_form_delta(epsilon, direction, Bound.UPPER)


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("direction", list(Direction))
def test_rough_pairs_dominate(p, q, direction):
    """And are not far above, in an eighth of the atoms."""
    mechanism = GaussianMixture(p, q)
    rough = mechanism.rough_pairs(1e-12, 4096).of(direction)
    assert rough.masses.size <= 4096
    for epsilon in (0.0, 0.1, 0.7, 2.0):
        exact = mechanism.closed_form_delta(epsilon, direction, Bound.LOWER)
        assert exact <= rough.delta(epsilon, direction) <= 1.0001 * exact + 1e-9


@pytest.mark.parametrize("rate", [1e-15, 1e-9, 0.3])
@pytest.mark.parametrize("shift", [1e-8, 0.7])
@pytest.mark.parametrize("replaced", [False, True])
def test_total_variation_of_a_rare_sample(rate, shift, replaced):
    """That of one shift times the rate, to nine digits, in both directions."""
    p = ((0.0, 1 - rate), (shift, rate))
    q = opposite(p) if replaced else UNSHIFTED
    distance = 2 * shift if replaced else shift
    for kind, truth in (
        (GaussianMixture, oracles.gaussian_delta(distance, 0.0)),
        (LaplaceMixture, oracles.laplace_delta(1 / mpmath.mpf(distance), 0.0)),
    ):
        for mixture in (kind(p, q), kind(opposite(q), opposite(p))):
            for direction in Direction:
                upper, lower = (
                    mixture.closed_form_delta(0.0, direction, bound) for bound in Bound
                )
                assert lower <= rate * truth <= upper <= lower * (1 + 3e-9)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (((0.0, 0.5), (1.0, 0.5)), ((0.0, 0.75), (-1.0, 0.25))),
        (HALVES, UNSHIFTED),
        (((0.0, 0.25), (1.0, 0.5), (2.0, 0.25)), ((0.0, 0.5), (-1.0, 0.5))),
    ],
)
def test_total_variation_where_several_weights_move(p, q):
    """No product: the same as next to ε = 0."""
    mixture = GaussianMixture(p, q)
    for direction in Direction:
        at, near = (
            mixture.closed_form_delta(epsilon, direction, Bound.UPPER)
            for epsilon in (0.0, 1e-12)
        )
        assert at == pytest.approx(near, abs=1e-11)
