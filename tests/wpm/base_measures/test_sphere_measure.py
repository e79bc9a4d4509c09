"""The sphere, by quadrature and by the paper's own integrals."""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import sphere_measure


def sphere_truth(dimension, epsilon, order):
    """α* and the cost by quadrature and root finding in 40 digits."""
    with mpmath.workdps(40):
        d, p = mpmath.mpf(dimension), mpmath.mpf(order)
        low, high = (
            mpmath.exp(-mpmath.mpf(epsilon) / 2),
            mpmath.exp(mpmath.mpf(epsilon) / 2),
        )

        def cap(x):
            return mpmath.betainc(d / 2, d / 2, 0, x, regularized=True)

        whole = mpmath.mpf(4) ** (p / 2) * mpmath.beta((d + p) / 2, d / 2)
        whole /= mpmath.beta(d / 2, d / 2)

        def inside(x):
            return whole * mpmath.betainc((d + p) / 2, d / 2, 0, x, regularized=True)

        def condition(x):
            left = (high - low) * inside(x) + low * whole
            return left - (4 * x) ** (p / 2) * (low + (high - low) * cap(x))

        lower, upper = mpmath.mpf(10) ** -30, mpmath.mpf(1)
        for _ in range(300):
            middle = mpmath.sqrt(lower * upper)
            if condition(middle) > 0:
                lower = middle
            else:
                upper = middle
        scale = 1 / (low + (high - low) * cap(lower))
        return float(scale), float((4 * lower) ** (p / 2))


@pytest.mark.parametrize("dimension", [1, 2, 9, 50])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_sphere_to_twelve_digits(dimension, epsilon, order):
    scale, cost = sphere_truth(dimension, epsilon, order)
    assert wpm.sphere_scale(dimension, epsilon, order) == pytest.approx(
        scale, rel=1e-12
    )
    found = sphere_measure.sphere_worst_case(dimension, epsilon, order)
    assert found == pytest.approx(cost, rel=1e-12)


def test_sphere_condition_is_the_papers_in_its_own_integrals():
    """The integrals over t, of the density (1 − u²)^{(d−2)/2}, not incomplete betas."""
    dimension, epsilon, order = 3, 2.0, 2.0
    cost = sphere_measure.sphere_worst_case(dimension, epsilon, order)
    t = 1 - mpmath.mpf(cost) ** (2 / mpmath.mpf(order)) / 2
    norm = mpmath.gamma((dimension + 1) / 2) / (
        mpmath.sqrt(mpmath.pi) * mpmath.gamma(mpmath.mpf(dimension) / 2)
    )

    def density(u):
        return norm * (1 - u * u) ** (mpmath.mpf(dimension - 2) / 2)

    def distance(u):
        return (2 - 2 * u) ** (order / 2)

    cap = mpmath.quad(density, [t, 1])
    inside = mpmath.quad(lambda u: distance(u) * density(u), [t, 1])
    whole = mpmath.quad(lambda u: distance(u) * density(u), [-1, 1])
    low, high = np.exp(-epsilon / 2), np.exp(epsilon / 2)
    assert (high - low) * inside + low * whole == pytest.approx(
        distance(t) * (low + (high - low) * cap), rel=1e-12
    )
    assert wpm.sphere_scale(dimension, epsilon, order) == pytest.approx(
        float(1 / (low + (high - low) * cap)), rel=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0.01, 40), st.floats(1, 9), st.floats(0.05, 3))
def test_sphere_scale_falls_with_the_order(dimension, epsilon, order, more):
    lower = wpm.sphere_scale(dimension, epsilon, order + more)
    assert lower < wpm.sphere_scale(dimension, epsilon, order) * (1 + 1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1.0, 2), ValueError, "dimension must be at least 1. Found 0"),
        ((2.5, 1.0, 2), TypeError, "dimension must be an integer. Found 2.5"),
        ((2, 1.0, 0.5), ValueError, "order must be at least 1 and finite. Found 0.5"),
        ((2, 0.0, 2), ValueError, "epsilon must be positive and finite. Found 0.0"),
    ],
)
def test_bad_spheres(arguments, error, message):
    with pytest.raises(error, match=message):
        wpm.sphere_scale(*arguments)
