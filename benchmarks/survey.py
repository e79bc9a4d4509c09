"""Random settings beside the stock accountant: which is slower, and which looser.

Nobody chose the settings: they are drawn from a seed, which is an argument, as is how
many there are. Of each are printed the CPU times of a first ε, of another ε and of
another δ, theirs over ours, and the first ε. A difference below 50 microseconds counts
for none. The last lines are what the README says of speed.

    python benchmarks/survey.py [number] [seed]
"""

from collections.abc import Callable
import dataclasses
import math
import sys

import dp_accounting
from dp_accounting import dp_event
import numpy as np
import questions
import timing

import dp_accounting_ext as ext

Event = dp_accounting.DpEvent
Relation = dp_accounting.NeighboringRelation

_DELTA = 1e-6
_NUMBER, _SEED = 60, 20
_OF_NO_ACCOUNT = 5e-5  # Seconds of difference.
_AS_TIGHT = 1 + 1e-6  # An ε that is no larger, relatively, counts as the same.
_REPEATS, _SPENT = 5, 0.5  # Of the first ε, at most; and seconds.


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is composed.

    Attributes:
        name: What it is called.
        tree: What both accountants compose.
    """

    name: str
    tree: questions.Tree


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def gaussian(rng: np.random.Generator) -> tuple[str, Event]:
    sigma = _log_uniform(rng, 0.7, 50)
    return f"G({sigma:.3g})", dp_accounting.GaussianDpEvent(sigma)


def laplace(rng: np.random.Generator) -> tuple[str, Event]:
    scale = _log_uniform(rng, 0.5, 100)
    return f"L({scale:.3g})", dp_accounting.LaplaceDpEvent(scale)


def discrete_laplace(rng: np.random.Generator) -> tuple[str, Event]:
    parameter, sensitivity = _log_uniform(rng, 0.01, 1.0), int(rng.integers(1, 20))
    name = f"DL({parameter:.3g},{sensitivity})"
    return name, dp_event.DiscreteLaplaceDpEvent(parameter, sensitivity)


def randomized_response(rng: np.random.Generator) -> tuple[str, Event]:
    noise, buckets = float(rng.uniform(0.05, 0.98)), int(rng.integers(2, 50))
    name = f"RR({noise:.3g},{buckets})"
    return name, dp_event.RandomizedResponseDpEvent(noise, buckets)


def sampled(rng: np.random.Generator) -> tuple[str, Event]:
    name, inner = (gaussian if rng.random() < 0.7 else laplace)(rng)
    rate = _log_uniform(rng, 1e-4, 0.5)
    event = dp_accounting.PoissonSampledDpEvent(rate, inner)
    return f"P({rate:.2g},{name})", event


_KINDS: list[Callable[[np.random.Generator], tuple[str, Event]]] = [
    gaussian,
    laplace,
    discrete_laplace,
    sampled,
    sampled,
]


def setting(rng: np.random.Generator) -> Setting:
    """Returns a random one: a single event, a composition, or training."""
    kind = rng.random()
    if kind < 0.1:
        name, event = randomized_response(rng)
        return Setting(name, questions.Tree([event], 1, Relation.REPLACE_ONE))
    if kind < 0.4:
        name, event = _KINDS[rng.integers(len(_KINDS))](rng)
        return Setting(name, questions.Tree([event]))
    if kind < 0.6:
        name, event = _KINDS[rng.integers(len(_KINDS))](rng)
        count = round(_log_uniform(rng, 2, 1000))
        return Setting(f"{name}×{count}", questions.Tree([event], count))
    if kind < 0.8:
        number = int(rng.integers(2, 9))
        each = [_KINDS[rng.integers(len(_KINDS))](rng) for _ in range(number)]
        name = "+".join(name for name, _ in each)
        return Setting(name, questions.Tree([event for _, event in each]))
    rate, sigma = _log_uniform(rng, 1e-4, 0.1), _log_uniform(rng, 0.6, 8)
    steps = round(_log_uniform(rng, 10, 1e5))
    event = questions.sampled_gaussian(rate, sigma)
    name = f"DP-SGD({rate:.2g},{sigma:.2g})×{steps}"
    return Setting(name, questions.Tree([event], steps))


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of CPU time of a first ε, another ε and another δ; and the ε."""

    cold: float
    epsilon: float
    delta: float
    answer: float

    def each(self) -> tuple[float, float, float]:
        return self.cold, self.epsilon, self.delta


def times(tree: questions.Tree, kind: Callable[..., questions.Accountant]) -> Times:
    """Returns the least times of some runs."""
    answer = float(tree.composed(kind).get_epsilon(_DELTA))
    found = []
    for name, first in (
        ("", 0.0),
        ("get_epsilon", _DELTA),
        ("get_delta", max(min(answer, 50.0), 1e-3) / 2),
    ):
        if name:
            job, asked = questions.warm(name, first, tree, kind), questions.TIMES
        else:
            job, asked = questions.cold(tree, kind), 1
        spent: list[float] = []
        while len(spent) < _REPEATS and sum(spent) < _SPENT:
            spent.append(timing.seconds(job))
        found.append(min(spent) / asked)
    return Times(found[0], found[1], found[2], answer)


def ratios(ours: Times, stock: Times) -> list[float]:
    """Returns how often ours fit into theirs, above 1 where ours are quicker."""
    return [
        max(theirs / mine, 1.0 if mine - theirs < _OF_NO_ACCOUNT else 0.0)
        for mine, theirs in zip(ours.each(), stock.each(), strict=True)
    ]


def line(name: str, ours: Times, stock: Times) -> str:
    cells = [
        f"{1e3 * mine:9.3f}{1e3 * theirs:10.3f}"
        for mine, theirs in zip(ours.each(), stock.each(), strict=True)
    ]
    return f"{name[:44]:<45}{''.join(cells)}  {ours.answer:.5g} {stock.answer:.5g}"


def main(number: int, seed: int) -> None:
    """Prints a line a setting, and what all of them have in common."""
    rng = np.random.default_rng(seed)
    heads = [f"{of:>9} ms{'stock':>7}" for of in ("first ε", "ε", "δ")]
    print(f"{'':<45}{''.join(heads)}  ε stock")
    found, looser = [], 0
    for _ in range(number):
        drawn = setting(rng)
        ours = times(drawn.tree, ext.PLDAccountant)
        stock = times(drawn.tree, dp_accounting.pld.PLDAccountant)
        found.append(ratios(ours, stock))
        is_looser = ours.answer > stock.answer * _AS_TIGHT
        looser += is_looser
        marks = " SLOWER" * (min(found[-1]) < 1) + " LOOSER" * is_looser
        print(line(drawn.name, ours, stock) + marks, flush=True)
    for name, column in zip(("first ε", "ε", "δ"), np.transpose(found), strict=True):
        low, quarter, middle, high = np.quantile(column, [0, 0.25, 0.5, 1])
        print(
            f"{name}: {low:.3g} to {high:.3g} times as fast, a quarter below "
            f"{quarter:.3g}, half below {middle:.3g}; {int((column < 1).sum())} slower"
        )
    print(f"{number} settings, {looser} looser")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [_NUMBER, _SEED][len(given) :]))
