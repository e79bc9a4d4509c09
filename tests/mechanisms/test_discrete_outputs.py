"""Discrete noise by its sums, with tails and largest losses cut, and by its atoms."""

import math

import mpmath
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import discrete_outputs


@pytest.mark.parametrize("tail_mass", [1e-9, 1e-300])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 30.0, 650.0])
@pytest.mark.parametrize(
    ("sigma", "shift"), [(0.05, 1), (0.09, 1), (0.2, 3), (1.0, 1), (7.0, 3)]
)
def test_a_discrete_gaussian_holds_the_truth(sigma, shift, epsilon, tail_mass):
    asked = accuracy.Accuracy.of_level(0, accuracy.CELLS).with_tails(tail_mass)
    lower, upper = (
        discrete_outputs.DiscreteGaussian(sigma, shift).pair(bound, asked)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    reach = math.ceil(60 * sigma) + 3 * shift
    with mpmath.workdps(40):
        kappa, deviation = mpmath.exp(epsilon), mpmath.mpf(sigma)
        p, q = (
            [
                mpmath.exp(-(((x - at) / deviation) ** 2) / 2)
                for x in range(-reach, reach)
            ]
            for at in (shift, 0)
        )
        excess = (max(a - kappa * b, 0) for a, b in zip(p, q, strict=True))
        truth = mpmath.fsum(excess) / mpmath.fsum(q)
        for way in Direction:
            low, high = lower.delta(epsilon, way), upper.delta(epsilon, way)
            assert low <= truth * (1 + mpmath.mpf(10) ** -30)
            assert high >= truth * (1 - mpmath.mpf(10) ** -30)
            if sigma >= 1:
                assert high - low <= 1e-9 * truth + 9 * tail_mass + 1e-280
