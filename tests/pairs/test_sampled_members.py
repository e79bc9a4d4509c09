"""Numbers of a group's members in a sample: weights err by no more than is said."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import sampled_members

GAUSSIAN = gaussian_mixture.Mixture


def assert_weights(law, truth):
    allowed = Fraction(GAUSSIAN(law).weight_error())
    for number, weight in law:
        exact = truth(int(number))
        if exact > Fraction(10) ** -250:
            assert abs(Fraction(weight) - exact) <= allowed * exact


@pytest.mark.parametrize("rate", [4.64e-82, 1e-9, 0.1, 1 / 3, 0.999, 1 - 2**-53])
@pytest.mark.parametrize("members", [1, 2, 3, 17, 400])
def test_binomial_weights_err_by_no_more_than_is_said(members, rate):
    exact = Fraction(rate)
    assert_weights(
        sampled_members.poisson(members, rate),
        lambda i: math.comb(members, i) * exact**i * (1 - exact) ** (members - i),
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10**15), st.integers(0, 10**6))
def test_two_weights_of_a_batch_err_by_no_more_than_is_said(batch, others, extra):
    """One record, in a batch of fixed size or drawn again and again."""
    size = batch + others + 1
    assert_weights(
        sampled_members.without_replacement(1, size, batch),
        lambda i: Fraction(batch if i else size - batch, size),
    )
    members = min(1 + extra, size - 1)
    assert_weights(
        sampled_members.with_replacement(members, size, 1),
        lambda i: Fraction(members if i else size - members, size),
    )


@pytest.mark.parametrize(("members", "size"), [(2, 9), (7, 10**9), (300, 10**4)])
def test_batches_of_all_but_one_record(members, size):
    """All members are in it, or all but one."""
    assert_weights(
        sampled_members.without_replacement(members, size, size - 1),
        lambda i: Fraction(size - members if i == members else members, size),
    )
