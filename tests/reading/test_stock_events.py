"""The stock library's base mechanisms, against the truth."""

import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import oracles
import pytest

import dp_accounting_ext as ext

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("relation", "count"), list(zip(NeighborRel, (7, 1, 1), strict=True))
)
def test_truncated_sampling_is_the_librarys(relation, count):
    event = stock_events.TruncatedSubsampledGaussianDpEvent(40, 0.2, 9, 2.0)
    stock = dp_accounting.pld.PLDAccountant(relation).compose(event, count)
    ours = accountant_of(event, count, relation)
    expected = stock.get_epsilon(1e-6)
    lower, upper = ours.get_epsilon_bounds(1e-6)
    assert upper == pytest.approx(expected, rel=1e-6)
    assert 0 < lower <= upper


@pytest.mark.parametrize("noise", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("buckets", [2, 5, 10**9])
@pytest.mark.parametrize(
    "relation", [NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL]
)
def test_randomized_response_at_its_largest_loss(noise, buckets, relation):
    accountant = accountant_of(
        stock_events.RandomizedResponseDpEvent(noise, buckets), 1, relation
    )
    with mpmath.workdps(60):
        p = mpmath.mpf(noise)
        truth, other = 1 - p + p / buckets, p / buckets
        if relation is NeighborRel.REPLACE_ONE:
            loss = mpmath.log(truth / other)
        else:
            loss = max(mpmath.log(truth * buckets), -mpmath.log(p))
    assert loss <= accountant.get_epsilon(0.0) <= loss * (1 + 1e-9)


def test_randomized_response_composes_to_the_binomial():
    """Under REPLACE_ONE with two buckets: a sum of ± the loss."""
    event = stock_events.RandomizedResponseDpEvent(0.5, 2)
    count, loss = 12, math.log(3)
    with mpmath.workdps(40):
        p = [mpmath.binomial(count, i) * mpmath.mpf(3) ** i for i in range(count + 1)]
        p = [value / mpmath.mpf(4) ** count for value in p]
        q = p[::-1]
    accountant = accountant_of(event, count, NeighborRel.REPLACE_ONE)
    for epsilon in (0.0, 2 * loss, 7.0, 12.9):
        truth = oracles.discrete_deltas(p, q, epsilon)["remove"]
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= truth <= upper
        assert upper <= lower * (1 + 1e-2)
    assert accountant.get_delta(count * loss * (1 + 1e-9)) == 0.0


def single_gaussian_truth(p, q, epsilon):
    return max(oracles.shift_mixture_deltas(p, q, epsilon).values())


TRUTHS = [
    # event, relation, shifts of P, shifts of Q: one run.
    (Gaussian(2.0), NeighborRel.ADD_OR_REMOVE_ONE, [(0.5, 1.0)], [(0.0, 1.0)]),
    (Gaussian(2.0), NeighborRel.REPLACE_ONE, [(0.5, 1.0)], [(-0.5, 1.0)]),
    (
        stock_events.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 4.0], [0.5, 0.25, 0.25]),
        NeighborRel.ADD_OR_REMOVE_ONE,
        [(0.0, 0.5), (0.5, 0.25), (2.0, 0.25)],
        [(0.0, 1.0)],
    ),
]


@pytest.mark.parametrize(("event", "relation", "p", "q"), TRUTHS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.1, 3.0])
def test_one_run_against_the_truth(event, relation, p, q, epsilon):
    lower, upper = accountant_of(event, 1, relation).get_delta_bounds(epsilon)
    truth = single_gaussian_truth(p, q, epsilon)
    assert lower <= truth <= upper
    assert upper <= lower * (1 + 1e-4)


@pytest.mark.parametrize(
    "relation", [NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL]
)
@pytest.mark.parametrize("buckets", [2, 3, 7, 10, 1000])
@pytest.mark.parametrize("truthful", [1e-1, 1e-3, 1e-6, 3e-9, 1e-10, 1e-12, 1e-15])
def test_pure_epsilon_of_randomized_response(truthful, buckets, relation):
    """The largest loss is a logarithm of what is near one: no cancellation."""
    noise = 1 - truthful
    event = dp_accounting.RandomizedResponseDpEvent(noise, buckets)
    accountant = ext.PLDAccountant(relation).compose(event)
    with mpmath.workdps(50):
        uniform = mpmath.mpf(noise)
        truth = 1 - uniform + uniform / buckets
        if relation is NeighborRel.REPLACE_ONE:
            exact = mpmath.log(truth * buckets / uniform)
        else:
            exact = max(mpmath.log(truth * buckets), -mpmath.log(uniform))
        assert accountant.get_epsilon(0.0) >= exact
        # A little below it, something is left.
        before = float(exact * (1 - mpmath.mpf(10) ** -6))
        assert accountant.get_delta(before) > 0


def test_a_true_answer_may_be_the_special_records_by_chance():
    """Of two buckets it is, half of the time: δ is 1 − 1/4 for two runs."""
    true_answer = stock_events.RandomizedResponseDpEvent(0.0, 2)
    relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    accountant = ext.PLDAccountant(relation).compose(true_answer, 2)
    for epsilon in (0.0, 0.9):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= 0.75 <= upper
