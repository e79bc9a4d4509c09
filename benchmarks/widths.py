"""How wide brackets are: random settings over the stated domain, and hard ones by name.

Every row runs in a process of its own with a time limit, so nothing is cached; imports
are not counted. A width is (upper − lower) / upper. Printed are the shares of rows
wider than 1e-4, 1e-3 and 1e-2, the worst ten, and CPU seconds.

    python benchmarks/widths.py [--rows 200] [--seed 1] [--most-selected 1] [--named]
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import math
import multiprocessing
from multiprocessing import connection
import time

import dp_accounting
import measured_with
import numpy as np

import dp_accounting_ext as ext

LIMITS = (1e-4, 1e-3, 1e-2)
WORST = 10

Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Repeated = dp_accounting.SelfComposedDpEvent
Allocated = ext.RandomAllocationEvent


@dataclasses.dataclass(frozen=True)
class Setting:
    """A question: ε at δ of an event, or δ at ε where no δ is given."""

    name: str
    event: dp_accounting.DpEvent
    runs: int = 1
    delta: float | None = None
    epsilon: float = 0.0

    def bounds(self) -> tuple[float, float]:
        """Returns what the accountant answers."""
        accountant = ext.PLDAccountant().compose(self.event, self.runs)
        if self.delta is None:
            return accountant.get_delta_bounds(self.epsilon)
        return accountant.get_epsilon_bounds(self.delta)


@dataclasses.dataclass(frozen=True)
class Result:
    """A bracket and its price; the bracket is nan where there is none in time."""

    name: str
    lower: float
    upper: float
    seconds: float

    @property
    def width(self) -> float:
        """The bracket's width over its upper end."""
        if self.upper == self.lower:
            return 0.0
        if not math.isfinite(self.upper):
            return 1.0
        return (self.upper - self.lower) / self.upper


def random_settings(rows: int, seed: int, most_selected: int = 1) -> Iterator[Setting]:
    """Yields random allocations of Gaussian noise, log-uniform in each parameter.

    σ from 0.4 to 10, t from 7 to 10⁷, 1 to 3000 epochs, δ from 1e-30 to 1e-5, and
    up to `most_selected` of the t steps.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(math.log(low), math.log(high))))

    for _ in range(rows):
        sigma, steps = round(between(0.4, 10), 3), round(between(7, 1e7))
        runs, delta = round(between(1, 3000)), float(f"{between(1e-30, 1e-5):.2g}")
        selected = min(round(between(1, most_selected)), steps)
        name = f"σ={sigma} t={steps} k={selected} epochs={runs} δ={delta}"
        yield Setting(name, Allocated(Gaussian(sigma), selected, steps), runs, delta)


def _tree() -> dp_accounting.DpEvent:
    return dp_accounting.ComposedDpEvent([Gaussian(2.0), Laplace(3.0)])


def _deep(depth: int) -> dp_accounting.DpEvent:
    """Returns allocations of Poisson samples of allocations …, so many deep."""
    event: dp_accounting.DpEvent = Gaussian(1.0)
    for _ in range(depth):
        event = Allocated(Poisson(0.5, event), 1, 3)
    return event


def named_settings() -> Iterator[Setting]:
    """Yields settings that were found to be hard."""
    for scale in (1e3, 1e5, 1e6):
        yield Setting(f"Laplace {scale:g} twice, δ(0)", Laplace(scale), 2)
    yield Setting("Poisson(1e-6) twice, δ(0)", Poisson(1e-6, Gaussian(1.0)), 2)
    for depth in (6, 8):
        yield Setting(f"A(P) nested {depth} deep", _deep(depth), delta=1e-6)
    small = Allocated(Laplace(573.734), 1, 290748)
    for runs in (10**6, 10_900_000):
        yield Setting(f"Laplace(573.734), {runs} runs", small, runs, 4.5e-4)
    hard = [
        (1.0989, 835, 1, 940_133, 1.2e-28),
        (3.0, 10**7, 1, 3000, 1e-5),
        (1.3, 10**7, 1, 1, 1e-15),
        (3.0, 10**5, 1, 1, 1e-30),
        (1.3, 65536, 5, 1, 1e-30),
    ]
    for sigma, steps, selected, runs, delta in hard:
        name = f"σ={sigma} t={steps} k={selected} epochs={runs} δ={delta}"
        yield Setting(name, Allocated(Gaussian(sigma), selected, steps), runs, delta)
    yield Setting("tree, t=1e5, 300 epochs", Allocated(_tree(), 1, 10**5), 300, 1e-6)
    sampled = Poisson(0.1, Gaussian(1.5))
    yield Setting("sample inside, t=65536", Allocated(sampled, 1, 65536), 1, 1e-6)
    nested = Poisson(0.1, Allocated(Gaussian(1.5), 5, 1000))
    yield Setting("P(A(G)), k=5, δ=1e-30", nested, 1, 1e-30)
    part = Poisson(0.1, Allocated(_tree(), 1, 1000))
    both = dp_accounting.ComposedDpEvent([part, Poisson(0.1, Gaussian(1.0))])
    yield Setting("P(C[P(A(tree)), P(G)])", Poisson(0.1, both), 1, 1e-6)


def _answer(setting: Setting, channel: connection.Connection) -> None:
    begin = time.process_time()
    lower, upper = setting.bounds()
    channel.send((lower, upper, time.process_time() - begin))


def measured(setting: Setting, seconds: float) -> Result:
    """Returns what a setting gives in a process of its own, within so many seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(setting, sender))
    process.start()
    sender.close()
    lower, upper, spent = math.nan, math.inf, seconds
    try:
        if receiver.poll(seconds):
            lower, upper, spent = receiver.recv()
    except EOFError:
        pass  # It ended without an answer: counted as none.
    process.terminate()
    process.join()
    return Result(setting.name, lower, upper, spent)


def report(results: list[Result]) -> str:
    """Returns the shares of wide brackets, the worst ones, and the CPU spent."""
    lines = [
        f"wider than {limit:g}: {sum(r.width > limit for r in results)}"
        f" of {len(results)}"
        for limit in LIMITS
    ]
    lines += [
        f"{r.width:9.2e}  [{r.lower:.8g}, {r.upper:.8g}]  {r.seconds:5.2f} s  {r.name}"
        for r in sorted(results, key=lambda r: -r.width)[:WORST]
    ]
    seconds = sorted(r.seconds for r in results)
    lines.append(
        f"CPU seconds: median {seconds[len(seconds) // 2]:.2f},"
        f" largest {seconds[-1]:.2f}, all {sum(seconds):.0f}"
    )
    return "\n".join(lines)


def _printed(settings: Iterator[Setting], limit: float) -> list[Result]:
    results = []
    for setting in settings:
        result = measured(setting, limit)
        row = f"{result.width:9.2e}  {result.seconds:5.2f} s  [{result.lower:.8g}, "
        print(f"{row}{result.upper:.8g}]  {result.name}", flush=True)
        results.append(result)
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-selected", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a row")
    parser.add_argument("--named", action="store_true", help="the hard settings")
    return parser.parse_args()


def main() -> None:
    """Measures the rows and prints them, worst first in the summary."""
    arguments = _arguments()
    print(measured_with.versions())
    chosen: Callable[[], Iterator[Setting]] = named_settings
    if not arguments.named:

        def chosen() -> Iterator[Setting]:
            return random_settings(
                arguments.rows, arguments.seed, arguments.most_selected
            )

    results = _printed(chosen(), arguments.seconds)
    print(report(results))


if __name__ == "__main__":
    main()
