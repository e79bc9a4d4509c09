"""Laplace mixtures: the largest loss to forty digits, however small it is."""

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import pytest

from dp_accounting_ext.mechanisms import additive_noise


def exact_loss(p, q):
    """The logarithm of the ratio of the densities, at either end of the shifts."""
    with mpmath.workdps(60):

        def log_ratio(x):
            laws = [
                sum(mpmath.mpf(w) * mpmath.exp(-abs(x - mpmath.mpf(s))) for s, w in law)
                for law in (p, q)
            ]
            return mpmath.log(laws[0] / laws[1])

        high = max(mpmath.mpf(s) for s, _ in p)
        low = min(mpmath.mpf(s) for s, _ in q)
        return max(log_ratio(high), -log_ratio(low))


@given(
    st.floats(-30.0, -0.001), st.floats(-12.0, 3.0), st.sampled_from([0.0, 0.5, 1.0])
)
def test_the_largest_loss_of_a_sample(log_rate, log_shift, also_below):
    """Small rates, small shifts: what used to be a difference of equal logarithms."""
    rate, shift = 10.0**log_rate, 10.0**log_shift
    with mpmath.workdps(60):
        rest = 1 - mpmath.mpf(rate)
    p = ((0.0, 1 - rate), (shift, rate))
    q = ((0.0, 1 - rate), (-also_below * shift, rate)) if also_below else ((0.0, 1.0),)
    truth = exact_loss(
        [(0, rest), (shift, rate)],
        [(0, rest), (-also_below * shift, rate)] if also_below else [(0, 1)],
    )
    found = additive_noise.LaplaceMixture(p, q).claims().loss
    assert truth * (1 - 1e-30) <= found == pytest.approx(float(truth), rel=2e-12)
