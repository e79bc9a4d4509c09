"""Rényi divergences from pairs: never below, or above, quadrature and exact sums."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import pair_divergences
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import sampled_members

Bound = dominating_pair.Bound
ORDERS = (1.001, 1.5, 2.0, 7.5, 64.0, 1000.0)


def bounds(mechanism, orders=ORDERS):
    lower = pair_divergences.divergences(mechanism, orders, Bound.LOWER)
    upper = pair_divergences.divergences(mechanism, orders, Bound.UPPER)
    return list(zip(*lower, strict=True)), list(zip(*upper, strict=True))


def discrete_truths(p, q, order):
    """Both directions, of floats taken as they are, to 60 digits."""
    with mpmath.workdps(60):
        found = []
        for one, other in ((p, q), (q, p)):
            terms = [
                mpmath.mpf(a) ** order * mpmath.mpf(b) ** (1 - mpmath.mpf(order))
                for a, b in zip(one, other, strict=True)
            ]
            found.append(mpmath.log(mpmath.fsum(terms)) / (mpmath.mpf(order) - 1))
        return found


def laplace_truths(p, q, order):
    """Both directions of mixtures of shifted Laplace noise, by quadrature."""
    with mpmath.workdps(30):
        alpha = mpmath.mpf(order)

        def density(law, x):
            return mpmath.fsum(w / 2 * mpmath.exp(-abs(x - s)) for s, w in law)

        kinks = sorted({mpmath.mpf(s) for s, _ in p + q})
        found = []
        for one, other in ((p, q), (q, p)):

            def term(x, one=one, other=other):
                return density(one, x) ** alpha * density(other, x) ** (1 - alpha)

            # Below all kinks and above them the ratio is constant.
            total = mpmath.fsum(
                (density(one, end) / density(other, end)) ** alpha * density(other, end)
                for end in (kinks[0], kinks[-1])
            )
            for left, right in itertools.pairwise(kinks):
                total += mpmath.quad(term, mpmath.linspace(left, right, 9))
            found.append(mpmath.log(total) / (alpha - 1))
        return found


@pytest.mark.parametrize("noise", [0.5, 1e-6])
@pytest.mark.parametrize("rate", [1.0, 0.01, 1e-5])
def test_randomized_response(noise, rate):
    """Two outcomes, on a sample or not; the atoms are exact."""
    response = discrete_outputs.RandomizedResponse(noise, 2, replace_one=True)
    mechanism = subsampled.poisson_sampled(rate, response)
    lie = mpmath.mpf(noise) / 2
    p = [(1 - lie) * rate + lie * (1 - rate), lie * rate + (1 - lie) * (1 - rate)]
    lowers, uppers = bounds(mechanism)
    with mpmath.workdps(60):
        rate = mpmath.mpf(rate)
        p = [(1 - lie) * rate + lie * (1 - rate), lie * rate + (1 - lie) * (1 - rate)]
        q = [lie, 1 - lie]
    for order, lower, upper in zip(ORDERS, lowers, uppers, strict=True):
        for below, truth, above in zip(
            lower, discrete_truths(p, q, order), upper, strict=True
        ):
            assert below <= truth <= above
            assert above <= below * (1 + 1e-7) + 1e-20


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (((1.0, 1.0),), ((0.0, 1.0),)),
        (((0.0, 0.75), (2.0, 0.25)), ((0.0, 1.0),)),
        (((0.0, 0.999), (0.5, 0.001)), ((-0.5, 0.001), (0.0, 0.999))),
    ],
)
def test_laplace_mixtures(p, q):
    mechanism = additive_noise.LaplaceMixture(p, q)
    orders = (1.5, 4.0, 64.0)
    lowers, uppers = bounds(mechanism, orders)
    for order, lower, upper in zip(orders, lowers, uppers, strict=True):
        truths = laplace_truths(p, q, order)
        for below, truth, above in zip(lower, truths, upper, strict=True):
            # Within the quadrature's own error, below the cells' by four digits.
            assert below <= truth * (1 + mpmath.mpf("1e-14"))
            assert truth * (1 - mpmath.mpf("1e-14")) <= above
            assert above <= below * (1 + 1e-5)


@pytest.mark.parametrize("sigma", [0.7, 3.0, 50.0])
def test_gaussians_are_their_closed_form(sigma):
    lowers, uppers = bounds(additive_noise.Gaussian(sigma))
    for order, lower, upper in zip(ORDERS, lowers, uppers, strict=True):
        truth = mpmath.mpf(order) / (2 * mpmath.mpf(sigma) ** 2)
        assert max(lower) <= truth <= min(upper)
        assert max(upper) <= truth * (1 + mpmath.mpf("1e-6"))


def test_a_sampled_gaussian_at_integer_orders():
    """The binomial expansion; where the tail rules, from above what has no sample."""
    rate, sigma = 0.01, 2.0
    sampled = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(sigma))
    orders = (2.0, 5.0, 20.0, 200.0)
    lowers, uppers = bounds(sampled, orders)
    for order, lower, upper in zip(orders, lowers, uppers, strict=True):
        with mpmath.workdps(60):
            r, alpha = mpmath.mpf(rate), int(order)
            moment = mpmath.fsum(
                mpmath.binomial(alpha, i)
                * r**i
                * (1 - r) ** (alpha - i)
                * mpmath.exp(mpmath.mpf(i * i - i) / (2 * sigma**2))
                for i in range(alpha + 1)
            )
            truth = mpmath.log(moment) / (alpha - 1)
        assert lower[0] <= truth <= upper[0] <= order / (2 * sigma**2) * (1 + 1e-6)
        if order <= 20:
            assert upper[0] <= truth * (1 + mpmath.mpf("1e-5"))


def test_compositions_add_up():
    laplace, gaussian = additive_noise.laplace(2.0), additive_noise.Gaussian(3.0)
    both = compositions.compose({laplace: 3, gaussian: 2})
    orders = ORDERS[:-1]  # Beyond, lower bounds miss a Gaussian's tail.
    for bound in Bound:
        one = pair_divergences.divergences(laplace, orders, bound)[0]
        other = pair_divergences.divergences(gaussian, orders, bound)[0]
        found = pair_divergences.divergences(both, orders, bound)[0]
        np.testing.assert_allclose(found, 3 * one + 2 * other, rtol=1e-5)
    nothing = pair_divergences.divergences(compositions.NO_OP, ORDERS, Bound.UPPER)
    assert not np.any(nothing)


def test_order_infinity_is_the_largest_loss():
    laplace = subsampled.on_poisson_sample(0.25, additive_noise.laplace(2.0))
    lower, upper = bounds(laplace, [math.inf])
    truths = math.log1p(0.25 * math.expm1(0.5)), -math.log1p(0.25 * math.expm1(-0.5))
    assert lower[0] == pytest.approx(truths, rel=1e-3)
    assert upper[0][0] == pytest.approx(truths[0], rel=1e-9)
    assert all(above >= truth for above, truth in zip(upper[0], truths, strict=True))
    assert bounds(additive_noise.Gaussian(1.0), [math.inf])[1] == [(math.inf,) * 2]


@pytest.mark.parametrize(
    "mechanism",
    [known_bounds.NonPrivate(), discrete_outputs.PrivacyParameters(1.0, 1e-9)],
)
def test_infinite_losses_have_no_divergence(mechanism):
    upper = pair_divergences.upper_rdp((1.0, 2.0, 64.0), mechanism)
    assert np.isinf(upper).all()


def test_a_sink_below_is_worth_its_mass():
    """P has nothing where Q has 1/4: −α/(α − 1) … of Q‖P infinite, of P‖Q not."""
    known = dominating_pair.DominatingPair(
        np.array([4 / 3]), np.array([0.75]), 0.0, 0.25, Bound.UPPER
    )
    mechanism = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(known))
    ((first, second),) = bounds(mechanism, [2.0])[1]
    assert math.log(4 / 3) <= first <= math.log(4 / 3) * (1 + 1e-9)
    assert second == math.inf


def test_what_is_known_by_its_divergences():
    known = renyi_bounded.RenyiBounded.at_orders([1.5, 2.0, 8.0], [0.1, 0.2, 0.9])
    upper = pair_divergences.upper_rdp((1.0, 1.5, 2.0, 4.0, 9.0), known)
    # Between the orders of a grid, a little more.
    assert 0.1 <= upper[0] <= 0.11 and 0.1 <= upper[1] <= 0.11
    assert 0.2 <= upper[2] <= 0.21
    assert (0.2 + 6.3 * 2 / 6) / 3 * 0.9 <= upper[3] <= 0.9
    assert upper[4] == math.inf


def test_the_order_one_is_answered_from_above():
    """Kullback and Leibler's divergence of Laplace noise: e^{−1}."""
    upper = pair_divergences.upper_rdp((1.0,), additive_noise.laplace(1.0))
    assert math.exp(-1) <= upper[0] <= math.exp(-1) * (1 + 1e-6)


def test_pairs_of_each_direction_are_read_for_their_side():
    """Pairs that bound one direction each, and tell nothing of the other."""
    law = additive_noise.LaplaceMixture(
        sampled_members.poisson(2, 0.25), sampled_members.unsampled(0)
    )
    pairs = interface.pairs_of(law, Bound.UPPER, 1e-30)
    trivial = dominating_pair.trivial_pair(Bound.UPPER)
    known = known_bounds.KnownPairs(
        dominating_pair.DirectedPairs(pairs.remove, trivial)
    )
    (remove,), _ = (
        found.tolist()
        for found in pair_divergences.divergences(known, [2.0], Bound.UPPER)
    )
    # All that Q has may be where P has nothing.
    both = pair_divergences.divergences(law, [2.0], Bound.UPPER)[0][0]
    assert remove >= math.log(2 - 1e-9)
    assert remove > both
