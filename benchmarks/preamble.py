"""The noise of DP-SGD with PREAMBLE against that of plain DP-SGD, at (1, 1e-6).

What is compared, and on what scale, is told in `dp_accounting_ext.papers.preamble`.
Here d = 2^20, C = 2^15, E = 10.

The paper's figure is over "all the settings" of Asi et al. (2025), whose values of B
and q are not in it; those here are ours: B = 2^5 … 2^15 (one block of 32 is sent) and
q = 0.001, 0.01, 0.1. n = 6·10^5 only says what batch is expected, n q.

    python benchmarks/preamble.py [--short]

`gap` is (upper − lower) / upper of the ε of the block reduction (Lemma 2.8) at the z
found. `--short`: only the inner evaluations, one ε at one z; exit status 1 if one takes
2 CPU seconds or has a gap of 1e-3.

Source: https://arxiv.org/abs/2602.17284, section 5, Figure 5;
https://eprint.iacr.org/2025/490.
"""

import argparse
from collections.abc import Sequence
import dataclasses
import time

import measured_with

import dp_accounting_ext as ext
from dp_accounting_ext import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.papers import preamble

USERS = 600_000

RATES = (0.001, 0.01, 0.1)
BLOCK_SIZES = tuple(2**exponent for exponent in range(5, 16))
INTERVAL = 1e-4

INNER_BLOCK_SIZE = 2**10
INNER_RATE = 0.01
INNER_NOISES = (1.0, 3.0)
INNER_SECONDS = 2.0
INNER_GAP = 1e-3


def reduction(
    setting: preamble.Setting, noise_multiplier: float
) -> interface.Mechanism:
    """Returns one update, of k independent 1-out-of-t/k allocations."""
    allocation = allocated.RandomAllocation(
        additive_noise.Gaussian(noise_multiplier),
        setting.num_selected,
        setting.num_steps,
    )
    return subsampled.poisson_sampled(setting.rate, allocation.blocks())


@dataclasses.dataclass(frozen=True)
class Bracket:
    """What one noise multiplier gives.

    Attributes:
        setting: The setting.
        noise_multiplier: z.
        lower: A lower bound on ε of the block reduction.
        upper: An upper bound on ε of the block reduction and of the mechanism.
        seconds: CPU seconds of both.
    """

    setting: preamble.Setting
    noise_multiplier: float
    lower: float
    upper: float
    seconds: float

    @property
    def gap(self) -> float:
        return (self.upper - self.lower) / self.upper


def violations(inner: Sequence[Bracket]) -> list[str]:
    """Returns the goals that inner evaluations miss, a line each."""
    found = []
    for row in inner:
        name = f"z = {row.noise_multiplier:g}"
        if not 0 <= row.gap < INNER_GAP:
            found.append(f"{name}: gap {row.gap:.1e}, goal {INNER_GAP:g}")
        if not row.seconds < INNER_SECONDS:
            found.append(f"{name}: {row.seconds:.2f} CPU s, goal {INNER_SECONDS:g}")
    return found


def bracket(setting: preamble.Setting, noise_multiplier: float) -> Bracket:
    """Returns the bounds at one noise multiplier, nothing kept of earlier ones."""
    interface._pairs_of.cache_clear()
    begin = time.process_time()
    accountant = ext.PLDAccountant().compose(setting.event(noise_multiplier))
    upper = accountant.get_epsilon(preamble.DELTA)
    counts = {reduction(setting, noise_multiplier): setting.num_updates}
    lower = privacy_bounds.PrivacyBounds(counts, INTERVAL).lower_epsilon(preamble.DELTA)
    seconds = time.process_time() - begin
    return Bracket(setting, noise_multiplier, lower, upper, seconds)


def print_inner() -> list[Bracket]:
    """Prints and returns the inner evaluations."""
    setting = preamble.Setting(INNER_BLOCK_SIZE, INNER_RATE)
    print(
        f"inner evaluation: B = {setting.block_size}, q = {setting.rate:g}, "
        f"{setting.num_updates} updates, δ = {preamble.DELTA:g}"
    )
    print(f"{'z':>4}{'ε lower':>13}{'ε upper':>13}{'gap':>9}{'CPU s':>7}")
    rows = []
    for noise in INNER_NOISES:
        row = bracket(setting, noise)
        rows.append(row)
        print(
            f"{noise:>4g}{row.lower:>13.7g}{row.upper:>13.7g}{row.gap:>9.1e}"
            f"{row.seconds:>7.2f}",
            flush=True,
        )
    return rows


def print_ratios() -> None:
    """Prints the noise needed in every setting."""
    target = f"({preamble.TARGET_EPSILON:g}, {preamble.DELTA:g})-DP"
    print(f"noise for {target}; ratio = (z √t/k) / z₀")
    print(
        f"{'q':>6}{'batch':>7}{'updates':>8}{'B':>7}{'k':>6}{'t':>7}"
        f"{'z₀':>10}{'z':>10}{'ratio':>9}{'gap':>9}{'CPU s':>7}"
    )
    for rate in RATES:
        for block_size in BLOCK_SIZES:
            setting = preamble.Setting(block_size, rate)
            plain = preamble.plain_noise(rate)
            begin = time.process_time()
            ratio = preamble.ratio_needed(setting)
            seconds = time.process_time() - begin
            found = bracket(setting, preamble.noise_of(setting, ratio))
            print(
                f"{rate:>6g}{USERS * rate:>7.0f}{setting.num_updates:>8}"
                f"{block_size:>7}{setting.num_selected:>6}{setting.num_steps:>7}"
                f"{plain:>10.6f}{found.noise_multiplier:>10.6f}{ratio:>9.5f}"
                f"{found.gap:>9.1e}{seconds:>7.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The noise of DP-SGD with PREAMBLE against plain DP-SGD's."
    )
    parser.add_argument("--short", action="store_true", help="inner evaluations only")
    options = parser.parse_args()
    print(measured_with.versions())
    missed = violations(print_inner())
    if not options.short:
        print_ratios()
    print(f"{time.process_time():.0f} CPU s")
    for line in missed:
        print(f"MISSED {line}")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
