"""Questions cold, warm, many at once and of many mechanisms, held to a yardstick.

`stock_pld.py` prints these rows below its own.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import sys
from typing import Any

import dp_accounting
from dp_accounting import dp_event
import numpy as np
import numpy.typing as npt
import timing

import dp_accounting_ext as ext

Accountant = dp_accounting.PrivacyAccountant

FloatArray = npt.NDArray[np.float64]

ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
# Kinds of many different mechanisms, and the yardsticks of a hundred of them.
KINDS = {
    "Laplace": 50.0,
    "randomized response": 36.0,
    "discrete Laplace": 32.0,
    "sampled Gaussian": 155.0,
}
TIMES = 50


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to both accountants.

    Attributes:
        name: What the row is called.
        ours: Makes a job of ours, which may keep what an earlier one found.
        stock: That of dp_accounting; None where it takes long.
        goal: The most yardsticks that ours may take.
        times: How often a job asks.
    """

    name: str
    ours: Callable[[], timing.Job]
    stock: Callable[[], timing.Job] | None
    goal: float
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Answer:
    """What was measured, in seconds of one question."""

    name: str
    ours: float
    stock: float | None
    yardsticks: float
    goal: float


def measured(question: Question) -> Answer:
    """Returns the least times of both accountants."""
    ours = timing.least(question.ours())
    stock = None
    if question.stock is not None:
        job = question.stock()
        stock = min(timing.seconds(job) for _ in range(3)) / question.times
    each = ours.seconds / question.times
    return Answer(question.name, each, stock, ours.yardsticks, question.goal)


def violations(answer: Answer) -> list[str]:
    """Returns the goal that a row misses, if it does; NaN misses it."""
    return timing.missed(answer.name, answer.yardsticks, answer.goal, "yardsticks")


def printed(answer: Answer) -> str:
    """Returns a row as a line."""
    stock = "" if answer.stock is None else f"{1e3 * answer.stock:.3g}"
    return (
        f"{answer.name:<46}{stock:>10}{1e3 * answer.ours:>10.3g}"
        f"{answer.yardsticks:>12.3g}  ≤ {answer.goal:g}"
    )


HEADING = f"{'':<46}{'stock ms':>10}{'ours ms':>10}{'yardsticks':>12}  goal"


def sampled_gaussian(rate: float, sigma: float) -> dp_accounting.DpEvent:
    return dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(sigma)
    )


@dataclasses.dataclass(frozen=True)
class Tree:
    """What is composed, by either accountant."""

    events: Sequence[dp_accounting.DpEvent]
    count: int = 1
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE

    def composed(self, kind: Callable[..., Accountant]) -> Any:
        event = dp_accounting.ComposedDpEvent(list(self.events))
        return kind(self.relation).compose(event, self.count)


def cold(tree: Tree, kind: Callable[..., Accountant]) -> timing.Job:
    """Returns a job that composes and asks for ε, of which nothing is known."""

    def job() -> None:
        timing.forget()
        tree.composed(kind).get_epsilon(1e-6)

    return job


def warm(
    name: str, first: float, tree: Tree, kind: Callable[..., Accountant]
) -> timing.Job:
    """Returns a job that asks ever other questions after a first one."""
    timing.forget()
    question = getattr(tree.composed(kind), name)
    question(first)
    numbers = itertools.count(1)

    def job() -> None:
        for _ in range(TIMES):
            question(first * (1 + 1e-5 * next(numbers)))

    return job


def vector(name: str, values: FloatArray, tree: Tree) -> timing.Job:
    """Returns a job that composes and asks a thousand questions at once."""

    def job() -> None:
        timing.forget()
        getattr(tree.composed(ext.PLDAccountant), name)(values)

    return job


def question(
    name: str, tree: Tree, goal: float, *, slow_stock: bool = False
) -> Question:
    """Returns the row of a first question."""
    stock = functools.partial(cold, tree, dp_accounting.pld.PLDAccountant)
    return Question(
        name,
        functools.partial(cold, tree, ext.PLDAccountant),
        None if slow_stock else stock,
        goal,
    )


def another(name: str, first: float, tree: Tree, goal: float, of: str) -> Question:
    """Returns the row of questions after the first."""
    return Question(
        f"another {name}, {of}",
        functools.partial(warm, name, first, tree, ext.PLDAccountant),
        functools.partial(warm, name, first, tree, dp_accounting.pld.PLDAccountant),
        goal,
        TIMES,
    )


def written(name: str, tree: Tree, goal: float) -> Question:
    """Returns the row of a stock distribution, written of all that is composed."""
    (each,) = tree.events
    event = dp_accounting.SelfComposedDpEvent(each, tree.count)

    def job() -> None:
        timing.forget()
        ext.pld.from_event(event, neighboring_relation=tree.relation)

    return Question(f"pld.from_event: {name}", lambda: job, None, goal)


def many(kind: str, number: int) -> Tree:
    """Returns so many different mechanisms of a kind."""
    shares = np.arange(number) / number
    if kind == "Laplace":
        return Tree([dp_accounting.LaplaceDpEvent(100 + 200 * x) for x in shares])
    if kind == "sampled Gaussian":
        return Tree([sampled_gaussian(0.01, 1 + 2 * x) for x in shares])
    if kind == "discrete Laplace":
        each = [dp_event.DiscreteLaplaceDpEvent(0.01 + 0.02 * x, 3) for x in shares]
        return Tree(each)
    responses = [dp_event.RandomizedResponseDpEvent(0.9 + 0.08 * x, 4) for x in shares]
    return Tree(responses, 1, REPLACE_ONE)


def questions(short: bool) -> Iterator[Question]:
    """Yields the rows."""
    laplace, gaussian = dp_accounting.LaplaceDpEvent, dp_accounting.GaussianDpEvent
    dp_sgd = Tree([sampled_gaussian(0.01, 1.0)], 1000)
    thirty = Tree([sampled_gaussian(0.01 + 0.001 * i, 1 + 0.02 * i) for i in range(30)])
    one = Tree([laplace(10.0)])
    yield question("cold: DP-SGD q=0.01 σ=1 T=1000", dp_sgd, 2.9)
    yield question("cold: Laplace b=10", one, 0.05)
    yield question("cold: Laplace b=10 ×10", Tree([laplace(10.0)], 10), 1.3)
    both = Tree([gaussian(50.0), laplace(50.0)])
    yield question("cold: Gaussian 50 and Laplace 50", both, 2.3)
    discrete = Tree([dp_event.DiscreteLaplaceDpEvent(0.5, 3)], 5)
    yield question("cold: discrete Laplace ×5", discrete, 0.25)
    once = Tree([sampled_gaussian(0.01, 5.0)])
    yield question("cold: sampled Gaussian q=0.01 σ=5, once", once, 0.08)
    yield another("get_epsilon", 1e-6, dp_sgd, 1.4, "DP-SGD T=1000")
    yield another("get_delta", 2.0, dp_sgd, 0.9, "DP-SGD T=1000")
    yield another("get_epsilon", 1e-6, thirty, 2.0, "30 sampled Gaussians")
    yield another("get_epsilon", 1e-6, one, 0.62, "one Laplace")
    response = Tree([dp_event.RandomizedResponseDpEvent(0.5, 4)], 1, REPLACE_ONE)
    yield question("cold: randomized response", response, 0.06)
    yield another("get_epsilon", 1e-6, once, 1.3, "one sampled Gaussian")
    yield written("randomized response", response, 0.35)
    yield written("Laplace b=10 ×100", Tree([laplace(10.0)], 100), 10.0)
    deltas = np.geomspace(1e-1, 1e-12, 1000)
    epsilons = np.linspace(0.01, 4.0, 1000)
    for name, values, goal in (
        ("get_epsilon", deltas, 60.0),
        ("get_delta", epsilons, 60.0),
    ):
        job = functools.partial(vector, name, values, dp_sgd)
        yield Question(f"1000 {name} at once, DP-SGD T=1000", job, None, goal)
    number = 100 if short else 2000
    for kind, goal in KINDS.items():
        name = f"cold: {number} different: {kind}"
        goal = goal if short else 20 * goal
        yield question(name, many(kind, number), goal, slow_stock=True)


if __name__ == "__main__":
    print(HEADING)
    missed = []
    for each in questions("--short" in sys.argv):
        answer = measured(each)
        print(printed(answer), flush=True)
        missed += violations(answer)
    for line in missed:
        print(f"MISSED {line}")
    raise SystemExit(1 if missed else 0)
