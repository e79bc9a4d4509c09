"""Gaussian noise, around one shift or a random one, and numbers of members."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import oracles
import pytest
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import sampled_members
from dp_accounting_ext.pairs import shifts


@given(st.floats(0.01, 60.0), st.floats(0.0, 2.0), st.sampled_from(list(Bound)))
def test_closed_form_errs_on_its_side(mean, share, bound):
    epsilon = share * (mean**2 / 2 + 6 * mean)
    truth = oracles.gaussian_delta(mean, epsilon)
    found = gaussian.delta(mean, epsilon, bound)
    if bound is Bound.UPPER:
        assert found >= truth
    else:
        assert found <= truth
    if truth > 1e-300 and mean < 10:
        assert found == pytest.approx(float(truth), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-300, 6.2e-26, 1e-9, 0.5, 0.999])
@pytest.mark.parametrize("mean", [1e-12, 0.03, 40.0, 1e3, 1e7, 1e10, 6e10, 1e13])
def test_epsilon_of_any_mean(mean, delta):
    """Where δ falls at once from one to nothing, its slope is no float."""
    lower, upper = (
        gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert 0 <= lower <= upper < math.inf
    assert gaussian.delta(mean, upper, Bound.UPPER) <= delta
    if mean >= 40:
        # With t the quantile of δ, ε = m (m/2 − t): no digit of it is lost.
        assert upper <= lower * (1 + 1e-12)
        limit = mean * (mean / 2 - special.ndtri(delta))
        assert lower == pytest.approx(limit, rel=1 / mean**1.5 + 1e-13)
    if lower > 0:
        assert gaussian.delta(mean, lower, Bound.LOWER) >= delta * (1 - 1e-9)
        assert upper <= lower * (1 + 1e-6) + 1e-10


def bracket(p, q, epsilon, direction, tail_mass=1e-30):
    return [
        gaussian.of_mixtures(tuple(p), tuple(q), bound, tail_mass=tail_mass).delta(
            epsilon, direction
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


def test_out_of_range_nothing_is_claimed():
    p, q = [(201.0, 1.0)], [(0.0, 1.0)]
    for direction in Direction:
        assert bracket(p, q, 1.0, direction) == [0.0, 1.0]


def test_one_weight_is_exact():
    assert shifts.weight_error(((3.0, 1.0),)) == 0.0


def test_shifts_of_p_are_not_below_zero_nor_those_of_q_above():
    def law(shift):
        return ((0.0, 0.5), (shift, 0.5))

    shifts.check_order(law(0.0), law(0.0))
    shifts.check_order(law(5e-324), law(-5e-324))
    for p, q in ((law(-5e-324), law(0.0)), (law(0.0), law(5e-324))):
        with pytest.raises(ValueError, match=r"^Shifts of P must be .* Found .* and "):
            shifts.check_order(p, q)


def assert_weights(law, truth):
    allowed = Fraction(shifts.weight_error(law))
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


def below_and_above(trials, rate, number):
    """Both tails from sums of 40 digits, from `number` on until terms do not count."""
    with mpmath.workdps(40):
        odds = mpmath.mpf(rate) / (1 - mpmath.mpf(rate))
        log_ways = mpmath.loggamma(trials + 1) - mpmath.loggamma(number + 1)
        log_ways -= mpmath.loggamma(trials - number + 1)
        at = number * mpmath.log(odds) + trials * mpmath.log1p(-mpmath.mpf(rate))
        start = mpmath.exp(log_ways + at)
        below, term, i = mpmath.mpf(0), start, number
        while i >= 0 and (term > below * mpmath.mpf(10) ** -20 or i > trials * rate):
            below += term
            term *= i / (odds * (trials - i + 1))
            i -= 1
        above, i = mpmath.mpf(0), number + 1
        term = start * odds * (trials - number) / (number + 1)
        while i <= trials and (
            term > above * mpmath.mpf(10) ** -20 or i < trials * rate
        ):
            above += term
            i += 1
            term *= odds * (trials - i + 1) / i
        return below, above


@pytest.mark.parametrize(
    ("trials", "mean"),
    [
        (1, 1e-9),
        (1, 1 - 1e-6),
        (7, 0.3),
        (60, 54),
        (5000, 1),
        (5000, 2500),
        (10**6, 300),
        (10**8, 3),
        (10**9, 800),
        (10**12, 60),
    ],
)
@pytest.mark.parametrize("deviations", [-25, -8, -1, 0, 1, 8, 30])
def test_binomial_tails(trials, mean, deviations):
    """SciPy's own tails err by 4e-8 for 1e8 trials, and its 0 is 1e-275 once."""
    spread = math.sqrt(max(mean * (1 - mean / trials), 0.3))
    number = math.floor(mean + deviations * spread)
    if not 0 <= number < trials:
        return
    rate = mean / trials
    found = sampled_members.binomial_tails(trials, rate, number)
    for value, exact in zip(found, below_and_above(trials, rate, number), strict=True):
        if exact > 1e-290:
            assert abs(value / exact - 1) <= 4e-10


def test_a_tail_of_few_of_many():
    """SciPy finds 0."""
    found, _ = sampled_members.binomial_tails(6446, 0.10592659613620384, 20)
    exact, _ = below_and_above(6446, 0.10592659613620384, 20)
    assert abs(found / exact - 1) <= 4e-10
    assert exact < 1e-270


def test_tails_outside_all_numbers():
    assert sampled_members.binomial_tails(10, 0.5, -1) == (0.0, pytest.approx(1.0))
    assert sampled_members.binomial_tails(10, 0.5, 10) == (pytest.approx(1.0), 0.0)
    assert sampled_members.binomial_tails(10, 1.0, 9) == (0.0, 1.0)
