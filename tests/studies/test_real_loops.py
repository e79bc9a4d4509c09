"""What is said of real loops is what the accountant says."""

import math

import dp_accounting
import numpy as np
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


def test_truncated_batches_cost_more():
    truncated = dp_accounting.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 40, 1.0)
    plain = dp_accounting.PoissonSampledDpEvent(0.05, Gaussian(1.0))
    assert epsilon(truncated)[1] > epsilon(plain)[1]


def test_the_size_of_a_batch_tells_who_is_in_it():
    """Noise over the size: two laws of one mean differ by their spread alone."""
    sizes, rate = np.arange(4), 0.5
    without = [0.25, 0.5, 0.25, 0.0]
    added = np.convolve(without[:3], [1 - rate, rate])
    spread = 1.0 / np.maximum(sizes, 1)
    points = np.linspace(-8, 8, 200_001)
    laws = [
        sum(
            chance * np.exp(-((points / width) ** 2) / 2) / width
            for chance, width in zip(chances, spread, strict=True)
        )
        for chances in (without, added)
    ]
    # Gradients of zero: a mechanism that fixed its divisor would tell nothing.
    assert np.abs(laws[0] - laws[1]).sum() / laws[0].sum() / 2 > 0.02


def test_a_run_that_may_stop_has_the_plan_s_epsilon():
    """Two answers of a bit; a run that stops after a no tells as much as both."""
    flip, kappa = 0.3, math.exp(0.5)
    yes, no = (1 - flip, flip), (flip, 1 - flip)

    def divergence(ends):
        return sum(max(p - kappa * q, 0.0) for p, q in ends)

    both = [(a * c, b * d) for a, b in (yes, no) for c, d in (yes, no)]
    stopped = [no] + [(yes[0] * c, yes[1] * d) for c, d in (yes, no)]
    assert divergence([yes, no]) < divergence(stopped) <= divergence(both)
