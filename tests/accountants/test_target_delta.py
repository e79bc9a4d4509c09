"""What is no δ is refused in one way by every accountant; at a δ of 1 all warn."""

import math

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext

GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
NOTHING_PRIVATE = dp_accounting.NonPrivateDpEvent()


def questions():
    """Every method that takes a δ, of both accountants, with what ran."""
    for ran in (GAUSSIAN, NOTHING_PRIVATE, dp_accounting.NoOpDpEvent()):
        exact, renyi = ext.PLDAccountant(), ext.RdpAccountant()
        for accountant in (exact.compose(ran), renyi.compose(ran)):
            yield accountant.get_epsilon
        yield exact.get_epsilon_bounds
        yield renyi.get_epsilon_and_optimal_order


QUESTIONS = list(questions())
NO_DELTA = [1e5, -1, -1e-300, np.nextafter(1.0, 2.0), math.inf]


@pytest.mark.parametrize("wrong", NO_DELTA)
def test_what_is_no_delta_is_refused(wrong):
    for question in QUESTIONS:
        with pytest.raises(ValueError, match=r"target_delta must be in \[0, 1\]. Fou"):
            question(wrong)


def test_one_of_many_is_refused():
    for question in QUESTIONS[:3]:
        with pytest.raises(ValueError, match="Found 100000"):
            question([1e-5, 1e5])


def test_at_a_delta_of_one_epsilon_promises_nothing():
    answers = []
    for question in QUESTIONS:
        with pytest.warns(UserWarning, match="must be below 1 to promise") as warned:
            answers.append(np.array(question(1.0)).flat[0])
        assert [each.filename for each in warned] == [__file__]
    assert answers == [0.0] * 4 + [math.inf] * 4 + [0.0] * 4
