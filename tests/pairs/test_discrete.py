"""Mechanisms with closed forms: Laplace, and those with discrete ratios."""

import fractions
import math

import mpmath
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import discrete

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction


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
