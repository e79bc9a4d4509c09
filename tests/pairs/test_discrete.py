"""Mechanisms with closed forms: Laplace, and those with discrete ratios."""

import fractions
import math

import mpmath
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import discrete

Bound = dominating_pair.Bound


@pytest.mark.parametrize("replace_one", [True, False])
@pytest.mark.parametrize("noise", [1e-9, 0.3, 0.999])
@pytest.mark.parametrize("buckets", [2, 3, 40])
def test_responses_in_closed_form(noise, buckets, replace_one):
    p, q = discrete.responses(noise, buckets, replace_one=replace_one)
    exact_noise = fractions.Fraction(noise)
    other = exact_noise / buckets
    truth = 1 - exact_noise + other
    mine = [truth, *[other] * (buckets - 1)]
    theirs = [fractions.Fraction(1, buckets)] * buckets
    if replace_one:
        theirs = [other, truth, *[other] * (buckets - 2)]
    for laws, exact in (((p, q), (mine, theirs)), ((q, p), (theirs, mine))):
        for epsilon in (-2.0, 0.0, 0.5, 5.0, 30.0):
            with mpmath.workdps(60):
                known = mpmath.fsum(
                    max(_exactly(a) - mpmath.exp(epsilon) * _exactly(b), 0)
                    for a, b in zip(*exact, strict=True)
                )
                lower, upper = (
                    discrete.few_outcomes_delta(*laws, epsilon, bound)
                    for bound in (Bound.LOWER, Bound.UPPER)
                )
                assert lower <= known <= upper
                assert upper - lower <= 1e-13 * (1 + math.exp(epsilon))
        for delta in (1e-12, 1e-3, 0.2, 0.9):
            lower, upper = (
                discrete.few_outcomes_epsilon(*laws, delta, bound)
                for bound in (Bound.LOWER, Bound.UPPER)
            )
            assert upper - lower <= 1e-12
            with mpmath.workdps(60):
                at_lower, at_upper = (
                    mpmath.fsum(
                        max(_exactly(a) - mpmath.exp(at) * _exactly(b), 0)
                        for a, b in zip(*exact, strict=True)
                    )
                    for at in (lower, upper)
                )
                assert at_upper <= delta
                assert at_lower >= delta or lower == 0


def _exactly(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator
