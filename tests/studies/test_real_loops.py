"""What is said of real loops is what the accountant says."""

import math

import dp_accounting
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.studies import real_loops

DELTA = 1e-6
Gaussian = dp_accounting.GaussianDpEvent


def epsilon(event, count=100):
    return ext.PLDAccountant().compose(event, count).get_epsilon_bounds(DELTA)


def sampled(*events):
    return dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.ComposedDpEvent(list(events))
    )


def test_every_practice_is_judged_in_its_first_words():
    for name, sentence in real_loops.PRACTICES.items():
        verdict = sentence.split(" ", 2)[0]
        assert verdict in ("Breaks", "Costs", "Keeps"), name
    text = real_loops.in_words()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("\n\n") == len(real_loops.PRACTICES) - 1
    with pytest.raises(ValueError, match="Found 'early stopping'"):
        real_loops.in_words(["early stopping"])


def test_adaptive_clipping_is_one_gaussian():
    """Two on one sample; and more than the gradients' alone."""
    lower, upper = epsilon(sampled(Gaussian(1.2), Gaussian(5.0)))
    merged = 1 / math.sqrt(1.2**-2 + 5.0**-2)
    one_lower, one_upper = epsilon(sampled(Gaussian(merged)))
    assert one_lower <= upper and lower <= one_upper
    assert lower > epsilon(sampled(Gaussian(1.2)))[1]


def test_several_poisson_samples_are_more_than_a_larger_one():
    """Two samples of rate q: an example may be in both, two clips."""
    rate = 0.05
    both = [(1 - rate) ** 2, 2 * rate * (1 - rate), rate**2]
    mixture = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(1.0, [0, 1, 2], both)
    larger = dp_accounting.PoissonSampledDpEvent(2 * rate, Gaussian(1.0))
    assert epsilon(mixture)[0] > epsilon(larger)[1]
