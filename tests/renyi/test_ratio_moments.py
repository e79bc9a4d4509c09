"""Excesses over the mean, moments and sums, without cancellation."""

from hypothesis import given
from hypothesis import strategies as st
import mpmath
import numpy as np

from dp_accounting_ext.renyi import ratio_moments


@given(
    st.floats(-60.0, 200.0) | st.floats(-1e-3, 1e-3),
    st.floats(ratio_moments.LOWEST_ORDER, 4000.0) | st.floats(1.0 + 1e-9, 1.1),
)
def test_excess_keeps_its_relative_accuracy(loss, order):
    (got,) = ratio_moments.log_mean_excesses([order], np.zeros(1), np.array([loss]))
    with mpmath.workdps(800):
        z, a = mpmath.exp(mpmath.mpf(loss)), mpmath.mpf(order)
        truth = (z**a - 1 - a * (z - 1)) / (a - 1)
        if truth < mpmath.mpf(10) ** -290:
            return  # Squares of losses below 1e-145 are no floats; they weigh nothing.
        # Only rounding α log Z costs more than a few roundings.
        allowed = 1e-13 + 1e-15 * abs(order * loss)
        assert abs(got - mpmath.log(truth)) <= allowed


@given(
    st.lists(st.floats(-3.0, 3.0) | st.floats(-1e-2, 1e-2), min_size=1, max_size=200),
    st.floats(ratio_moments.LOWEST_ORDER, 300.0),
    st.randoms(use_true_random=False),
)
def test_the_mean_of_many_is_the_sum_of_each(losses, order, random):
    masses = [random.random() ** 8 + 1e-250 for _ in losses]
    (found,) = ratio_moments.log_mean_excesses(
        [order], np.log(masses), np.array(losses)
    )
    with mpmath.workdps(310):  # An excess is as small as 1e-280.
        a = mpmath.mpf(order)
        powers = [mpmath.exp(mpmath.mpf(loss)) for loss in losses]
        excesses = [(z**a - 1 - a * (z - 1)) / (a - 1) for z in powers]
        truth = mpmath.fdot(map(mpmath.mpf, masses), excesses)
        if truth < mpmath.mpf(10) ** -280:
            return
        assert abs(found - mpmath.log(truth)) <= 1e-12


@given(st.floats(-600.0, 600.0), st.floats(1.0 + 1e-9, 4096.0))
def test_the_moment_is_that_of_its_excess(log_excess, order):
    found = ratio_moments.rdp_from_excess(log_excess, order)
    with mpmath.workdps(400):
        slope = mpmath.mpf(order) - 1
        truth = mpmath.log1p(slope * mpmath.exp(mpmath.mpf(log_excess))) / slope
        assert truth <= found <= truth * (1 + 1e-10)
