"""k-out-of-t random allocation itself: its bracket, its cost, and the noise it needs.

    python benchmarks/k_out_of_t.py [--published]

Rows: one run, ε at δ of `PLDAccountant.get_epsilon_bounds`; beside it the composition
of k blocks (Lemma 2.8), which was the bound before. `10 epochs` is the gap of ten runs.

`--published` asks instead for the noise multiplier at which ε is certain, for settings
of the Monte Carlo accountant of balanced iteration subsampling, whose answer holds but
for a probability and its rounding, beside that of Poisson sampling.

Source: https://arxiv.org/abs/2602.17284, Lemma 2.8; docs/mathematics.md, "k out of t:
the theorem"; https://arxiv.org/abs/2605.07072 and its public code, bis-mc-accountant,
for the settings.
"""

import argparse
from collections.abc import Callable
import functools
import math
import resource
import time

import dp_accounting
import measured_with
import numpy as np
from scipy import optimize

import dp_accounting_ext as ext
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import interface

# σ, t, k, δ.
ROWS = (
    (0.5, 1000, 100, 1e-6),
    (1.0, 1000, 100, 1e-6),
    (0.7, 1000, 30, 1e-6),
    (0.7, 240, 12, 1e-7),
    (0.8, 390, 10, 1e-5),
    (0.55, 391, 5, 1.25e-5),
    (1.0, 1000, 10, 1e-6),
    (1.0, 100, 2, 1e-6),
    (2.0, 1000, 100, 1e-6),
    (1.42, 10_000, 205, 1e-5),
    (0.5, 1000, 250, 1e-6),
    (0.8, 200, 8, 1e-6),
    (0.7, 100, 4, 1e-6),
    (0.55, 391, 2, 1e-5),
    (0.7, 240, 3, 1e-7),
    (1.5, 20, 3, 1e-6),
    (0.8, 10, 3, 1e-6),
    (0.32, 17, 5, 1e-6),
)
# t, k, δ, ε, and σ there: where the sweep of the accountant's first example starts and
# goes down by 0.05, where that of its second starts and goes down by 0.02, and the σ of
# its benchmark, which names no δ.
PUBLISHED = (
    (391, 5, 1.25e-5, 8.0, 0.6),
    (10_000, 205, 1e-5, 8.0, 1.42),
    (2000, 655, 1e-5, 3.0, 20.5),
)
INTERVAL = 1e-4
NOISE_ACCURACY = 1e-4
FIRST_STEP = 0.02  # Of a logarithm of the noise.


def allocation(sigma: float, selected: int, steps: int) -> dp_accounting.DpEvent:
    return ext.RandomAllocationEvent(
        dp_accounting.GaussianDpEvent(sigma), selected, steps
    )


def bounds(
    event: dp_accounting.DpEvent, epochs: int, delta: float
) -> tuple[float, float]:
    return ext.PLDAccountant().compose(event, epochs).get_epsilon_bounds(delta)


def print_rows() -> None:
    print(
        f"{'σ':>5}{'t':>7}{'k':>5}{'δ':>9}{'ε lower':>11}{'ε upper':>11}{'gap':>8}"
        f"{'blocks':>11}{'CPU s':>7}{'10 epochs':>11}"
    )
    for sigma, steps, selected, delta in ROWS:
        interface._PAIRS.clear()
        event = allocation(sigma, selected, steps)
        begin = time.process_time()
        lower, upper = bounds(event, 1, delta)
        seconds = time.process_time() - begin
        low, high = bounds(event, 10, delta)
        run = allocated.RandomAllocation(
            additive_noise.Gaussian(sigma), selected, steps
        )
        blocks = privacy_bounds.PrivacyBounds({run.blocks(): 1}, INTERVAL)
        of_blocks = blocks.upper_epsilons(np.array([delta]))
        print(
            f"{sigma:>5g}{steps:>7}{selected:>5}{delta:>9g}{lower:>11.5g}"
            f"{upper:>11.5g}{1 - lower / upper:>8.2%}"
            f"{float(of_blocks[0]):>11.5g}{seconds:>7.2f}"
            f"{1 - low / high:>11.2%}",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of the process: {peak // 1024} MB")


def least_noise(
    epsilon_of: Callable[[float], float], epsilon: float, start: float
) -> float:
    """Returns the least noise multiplier, to 1e-4 of it, with at most that ε.

    The secant method in logarithms asks for few bounds: a handful where it starts near.
    """
    known: dict[float, float] = {}

    def excess(log_noise: float) -> float:
        if log_noise not in known:
            known[log_noise] = math.log(epsilon_of(math.exp(log_noise)) / epsilon)
        return known[log_noise]

    low = high = math.log(start)
    step = FIRST_STEP
    while excess(low) <= 0:
        low, step = low - step, 2 * step
    while excess(high) > 0:
        high, step = high + step, 2 * step
    optimize.brentq(excess, low, high, xtol=NOISE_ACCURACY / 2)
    return math.exp(min(noise for noise, found in known.items() if found <= 0))


def print_published() -> None:
    print(
        f"{'t':>6}{'k':>5}{'δ':>10}{'ε':>5}{'published':>11}{'certified':>11}"
        f"{'not below':>11}{'Poisson':>9}{'CPU s':>7}"
    )
    for steps, selected, delta, epsilon, sigma in PUBLISHED:
        begin = time.process_time()
        least, certified, poisson = noises(steps, selected, delta, epsilon)
        print(
            f"{steps:>6}{selected:>5}{delta:>10g}{epsilon:>5g}{sigma:>11g}"
            f"{certified:>11.5g}{least:>11.5g}{poisson:>9.5g}"
            f"{time.process_time() - begin:>7.1f}",
            flush=True,
        )


def noises(
    steps: int, selected: int, delta: float, epsilon: float
) -> tuple[float, float, float]:
    """Returns noise by the lower bound, by the upper, and of Poisson sampling."""

    @functools.cache
    def certified(noise: float) -> tuple[float, float]:
        return bounds(allocation(noise, selected, steps), 1, delta)

    def sampled(noise: float) -> float:
        step = dp_accounting.PoissonSampledDpEvent(
            selected / steps, dp_accounting.GaussianDpEvent(noise)
        )
        return bounds(step, steps, delta)[1]

    poisson = least_noise(sampled, epsilon, 1.0)
    most = least_noise(lambda noise: certified(noise)[1], epsilon, poisson)
    least = least_noise(lambda noise: certified(noise)[0], epsilon, most)
    return least, most, poisson


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", action="store_true")
    options = parser.parse_args()
    print(measured_with.versions())
    if options.published:
        print_published()
    else:
        print_rows()


if __name__ == "__main__":
    main()
