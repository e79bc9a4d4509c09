"""The noise of DP-SGD with PREAMBLE against that of plain DP-SGD, at (1, 1e-6).

What is compared, and on what scale, is told in
`dp_accounting_ext.papers.preamble_noise`. Here d = 2^20, C = 2^15, E = 10.

The paper's figure is over "all the settings" of Asi et al. (2025), whose values of B
and q are not in it; those here are ours: B = 2^5 … 2^15 (one block of 32 is sent) and
q = 0.001, 0.01, 0.1. n = 6·10^5 only says what batch is expected, n q.

    python benchmarks/preamble.py [--short]

`gap` is (upper − lower) / upper of the certified bounds on ε at the z
found. `--short`: only the inner evaluations, one ε at one z; exit status 1 if one takes
1200 yardsticks of `timing.py`, or has a gap of 2 %.

Source: https://arxiv.org/abs/2602.17284, section 5, Figure 5;
https://eprint.iacr.org/2025/490.
"""

import argparse
import functools
import time

import measured_with
import timing

from dp_accounting_ext.papers import preamble_noise

USERS = 600_000

RATES = (0.001, 0.01, 0.1)
BLOCK_SIZES = tuple(2**exponent for exponent in range(5, 16))

INNER_SETTING = preamble_noise.Setting(2**10, 0.01)
INNER_NOISES = (1.0, 3.0)
INNER_YARDSTICKS = 1200.0
INNER_GAP = 0.02


def violations(noise: float, gap: float, yardsticks: float) -> list[str]:
    """Returns the goals that an inner evaluation misses, a line each."""
    name = f"z = {noise:g}"
    below = [f"{name}: gap {gap:.1e} is below 0"] if gap < 0 else []
    return [
        *below,
        *timing.missed(name, gap, INNER_GAP, "of ε between the bounds"),
        *timing.missed(name, yardsticks, INNER_YARDSTICKS, "yardsticks"),
    ]


def inner_bounds(noise: float) -> tuple[float, float]:
    timing.forget()
    return preamble_noise.epsilon_bounds(INNER_SETTING, noise)


def print_inner() -> list[str]:
    """Prints the inner evaluations; returns the goals missed."""
    setting = INNER_SETTING
    print(
        f"inner evaluation: B = {setting.block_size}, q = {setting.rate:g}, "
        f"{setting.num_updates} updates, δ = {preamble_noise.DELTA:g}"
    )
    print(f"{'z':>4}{'ε lower':>13}{'ε upper':>13}{'gap':>9}{'CPU s':>7}  yardsticks")
    missed = []
    for noise in INNER_NOISES:
        timed = timing.least(functools.partial(inner_bounds, noise))
        lower, upper = timed.result
        gap = (upper - lower) / upper
        missed += violations(noise, gap, timed.yardsticks)
        print(
            f"{noise:>4g}{lower:>13.7g}{upper:>13.7g}{gap:>9.1e}{timed.seconds:>7.2f}"
            f"{timed.yardsticks:>12.0f}",
            flush=True,
        )
    return missed


def print_noise() -> None:
    """Prints the noise needed in every setting."""
    target = f"({preamble_noise.TARGET_EPSILON:g}, {preamble_noise.DELTA:g})-DP"
    print(f"noise for {target}; ratio = (z √t/k) / z₀")
    print(
        f"{'q':>6}{'batch':>7}{'updates':>8}{'B':>7}{'k':>6}{'t':>7}"
        f"{'z₀':>10}{'z':>10}{'ratio':>9}{'gap':>9}{'CPU s':>7}"
    )
    for row in preamble_noise.noise_needed(RATES, BLOCK_SIZES):
        setting, noise = row.setting, row.noise_multiplier
        lower, upper = preamble_noise.epsilon_bounds(setting, noise)
        print(
            f"{setting.rate:>6g}{USERS * setting.rate:>7.0f}{setting.num_updates:>8}"
            f"{setting.block_size:>7}{setting.num_selected:>6}{setting.num_steps:>7}"
            f"{row.plain_noise:>10.6f}{noise:>10.6f}{row.ratio:>9.5f}"
            f"{(upper - lower) / upper:>9.1e}{row.seconds:>7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The noise of DP-SGD with PREAMBLE against plain DP-SGD's."
    )
    parser.add_argument("--short", action="store_true", help="inner evaluations only")
    options = parser.parse_args()
    print(measured_with.versions())
    missed = print_inner()
    if not options.short:
        print_noise()
    print(f"{time.process_time():.0f} CPU s")
    for line in missed:
        print(f"MISSED {line}")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
