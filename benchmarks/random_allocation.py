"""Certified ε of random allocation: brackets, CPU seconds and memory, beside others.

Every row runs in a process of its own, so nothing is cached; imports are not
counted. Beside ours: PLD-accounting 2.0 at its default accuracy, where it is
installed (the `benchmark` extra), and the stock accountant's Poisson sampling with
rate k / t, an upper bound on another scheme.

    python benchmarks/random_allocation.py [--short] [--peer-seconds 60]

`--short`: a few rows, ours alone, each held to the gap and the CPU time in `GOALS`;
exit status 1 if one is missed.
"""

import argparse
from collections.abc import Callable
import importlib.util
import json
import resource
import subprocess
import sys

import measured_with
import numpy as np
import timing

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated

# σ, t, k, epochs, δ
GRID = [
    (1.0, 10, 1, 1, 1e-6),
    (1.0, 100, 1, 1, 1e-6),
    (1.0, 1000, 1, 1, 1e-6),
    (1.0, 10_000, 1, 1, 1e-6),
    (1.0, 1_000_000, 1, 1, 1e-6),
    (0.5, 1000, 1, 1, 1e-6),
    (0.3, 100, 1, 1, 1e-6),
    (2.0, 1000, 1, 1, 1e-6),
    (5.0, 1000, 1, 1, 1e-8),
    (1.0, 1000, 10, 1, 1e-6),
    (1.0, 1000, 7, 1, 1e-6),
    (0.5, 1000, 100, 1, 1e-6),
    (1.0, 1000, 1, 100, 1e-6),
    (0.8, 5000, 1, 10, 1e-10),
    (1.0, 1000, 1, 1, 1e-12),
    (10.0, 7, 1, 1, 1e-6),
    (1.0, 10**7, 1, 1, 1e-6),
]
# The rows of the short form: the widest gap, and the most yardsticks of `timing.py`.
GOALS = {
    (1.0, 1000, 1, 1, 1e-6): (3e-5, 60.0),
    (0.5, 1000, 1, 1, 1e-6): (2.6e-5, 150.0),
    (1.0, 1000, 10, 1, 1e-6): (2.1e-5, 42.0),
    (0.8, 5000, 1, 10, 1e-10): (1.8e-5, 110.0),
    (10.0, 7, 1, 1, 1e-6): (9e-7, 22.0),
    (1.0, 10**7, 1, 1, 1e-6): (6.6e-5, 100.0),
}
TRIES = 3  # A row that is too slow is run again, as other work may have slowed it.

Row = tuple[float, int, int, int, float]
Result = tuple[float, float, float, float, float]


def timed(job: Callable[[], tuple[float, float]]) -> Result:
    """Returns a job's bounds, CPU seconds, the MB it added to the peak, yardsticks."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, (lower, upper) = timing.clocked(job)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = min(timing.yardstick() for _ in range(5))
    return lower, upper, seconds, (after - before) / 1024, seconds / unit


def ours(row: Row) -> Result:
    """The bracket of the allocation for k = 1, of its block reduction for k > 1."""
    from dp_accounting_ext.bounds import privacy_bounds

    sigma, steps, selected, epochs, delta = row
    step = additive_noise.Gaussian(sigma)
    allocation = allocated.RandomAllocation(step, selected, steps)
    # The composition of blocks itself, which for k = 1 is the mechanism.
    counts = {allocation.blocks(): epochs}

    def job() -> tuple[float, float]:
        bounds = privacy_bounds.WorstOf([privacy_bounds.PrivacyBounds(counts, 1e-4)])
        (lower,), (upper,) = bounds.epsilon_bounds(np.array([delta]))
        return float(lower), float(upper)

    return timed(job)


def accountant(row: Row) -> Result:
    """The mechanism's own bracket, as `get_epsilon_bounds` gives it."""
    import dp_accounting

    import dp_accounting_ext as ext

    sigma, steps, selected, epochs, delta = row
    event = ext.RandomAllocationEvent(
        dp_accounting.GaussianDpEvent(sigma), selected, steps
    )
    return timed(
        lambda: ext.PLDAccountant().compose(event, epochs).get_epsilon_bounds(delta)
    )


def peer(row: Row) -> Result:
    """PLD-accounting 2.0, by the paper's authors, at its default accuracy."""
    import PLD_accounting

    sigma, steps, selected, epochs, delta = row

    def job() -> tuple[float, float]:
        bounds = PLD_accounting.gaussian_allocation_epsilon_range(
            delta=delta,
            sigma=sigma,
            num_steps=steps,
            num_selected=selected,
            num_epochs=epochs,
        )
        return min(bounds), max(bounds)

    if PLD_accounting.has_numba():  # Its compilation is no part of its work.
        PLD_accounting.gaussian_allocation_epsilon_range(
            delta=1e-3, sigma=2.0, num_steps=5
        )
    return timed(job)


def stock(row: Row) -> Result:
    """Poisson sampling by the stock accountant."""
    import dp_accounting

    sigma, steps, selected, epochs, delta = row
    event = dp_accounting.PoissonSampledDpEvent(
        selected / steps, dp_accounting.GaussianDpEvent(sigma)
    )

    def job() -> tuple[float, float]:
        made = dp_accounting.pld.PLDAccountant().compose(event, steps * epochs)
        epsilon = made.get_epsilon(delta)
        return epsilon, epsilon

    return timed(job)


JOBS = {"ours": ours, "accountant": accountant, "peer": peer, "stock": stock}


def in_a_new_process(name: str, index: int, limit: float) -> Result | str:
    """Returns a job's result, or why there is none."""
    command = [sys.executable, __file__, "--job", name, str(index)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"none in {limit:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    lower, upper, seconds, memory, yardsticks = json.loads(done.stdout)
    return lower, upper, seconds, memory, yardsticks


def gap(result: Result) -> float:
    lower, upper, *_ = result
    return (upper - lower) / upper if upper else 0.0


def violations(row: Row, result: Result) -> tuple[list[str], list[str]]:
    """Returns a line if a row of the short form is too wide, and one if too slow."""
    widest, most = GOALS[row]
    name = "σ = {:g}, t = {}, k = {}, {} epochs, δ = {:g}".format(*row)
    return (
        timing.missed(name, gap(result), widest, "of ε between the bounds"),
        timing.missed(name, result[-1], most, "yardsticks"),
    )


def printed(row: Row, result: Result) -> str:
    sigma, steps, selected, epochs, delta = row
    lower, upper, seconds, memory, yardsticks = result
    return (
        f"{sigma:>4g}{steps:>9}{selected:>5}{epochs:>7}{delta:>7.0e}  "
        f"{lower:>12.7g}{upper:>12.7g}{gap(result):>9.1e}{seconds:>7.2f}{memory:>5.0f}"
        f"{yardsticks:>6.0f}"
    )


def held_to_goals(row: Row) -> list[str]:
    """Prints a row of the short form; returns the goals that it misses."""
    for _ in range(TRIES):
        result = in_a_new_process("ours", GRID.index(row), 60.0)
        if isinstance(result, str):
            return [f"{row}: {result}"]
        wide, slow = violations(row, result)
        if wide or not slow:
            break
    print(printed(row, result), flush=True)
    return [*wide, *slow]


def beside_others(row: Row, peer_seconds: float) -> str:
    """Returns a row's line, with what other software says in it."""
    index = GRID.index(row)
    mine = in_a_new_process("ours", index, 60.0)
    if isinstance(mine, str):
        raise SystemExit(f"row {row}: {mine}")
    line = printed(row, mine)
    if row[2] > 1:
        truth = in_a_new_process("accountant", index, 60.0)
        if not isinstance(truth, str):
            line += f"   mechanism's lower {truth[0]:.6g} ({truth[2]:.2f} s)"
    if importlib.util.find_spec("PLD_accounting"):
        other = in_a_new_process("peer", index, peer_seconds)
        if isinstance(other, str):
            line += f"   peer: {other}"
        else:
            line += f"   peer [{other[0]:.5g}, {other[1]:.5g}] gap {gap(other):.1e}"
            line += f", {other[2]:.2f} s = {other[2] / mine[2]:.0f}×"
    poisson = in_a_new_process("stock", index, peer_seconds)
    if isinstance(poisson, str):
        return f"{line}   Poisson: {poisson}"
    return f"{line}   Poisson {poisson[1]:.6g} ({poisson[2]:.2f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Certified ε of random allocation, beside other software's."
    )
    parser.add_argument("--short", action="store_true", help="few rows, with goals")
    parser.add_argument("--peer-seconds", type=float, default=60.0)
    parser.add_argument(
        "--job", nargs=2, metavar=("NAME", "ROW"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.job:
        name, index = options.job
        print(json.dumps(JOBS[name](GRID[int(index)])))
        return
    print(measured_with.versions("PLD-accounting"))
    print("gap: (upper − lower) / upper; for k > 1 of the block reduction")
    print("unit: CPU time over that of the yardstick of timing.py")
    print(
        f"{'σ':>4}{'t':>9}{'k':>5}{'epochs':>7}{'δ':>7}  {'ε lower':>12}{'ε upper':>12}"
        f"{'gap':>9}{'CPU s':>7}{'MB':>5}{'unit':>6}"
    )
    if options.short:
        missed = [line for row in GOALS for line in held_to_goals(row)]
        for line in missed:
            print(f"MISSED {line}")
        raise SystemExit(1 if missed else 0)
    for row in GRID:
        print(beside_others(row, options.peer_seconds), flush=True)


if __name__ == "__main__":
    main()
