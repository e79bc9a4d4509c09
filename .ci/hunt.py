"""Searches for a fault by the referee's trees and the laws, a few of each in turn.

    python .ci/hunt.py SEED SECONDS

Prints what failed first, its seed, and after how much CPU time; ends with status 3 if
anything did. `PYTHONPATH` has the package, the tests, and those of laws and referee.
"""

from collections.abc import Callable
from collections.abc import Iterator
import importlib
import itertools
import os
import sys
import time
import traceback

import hypothesis
import test_referee

# Before the next one has its turn: few, so that a minute is enough for each.
EXAMPLES, LAW_EXAMPLES = 2, 2
# Trees with parameters at their ends have most of the turns.
EDGES = ("edges", "edges of few", "edges of runs", "rare edges", "mixed edges")
EDGES += ("mixed extremes",)
LAWS = ("trees", "rare_parts", "relations", "accountants", "renyi", "trade_off")
LAWS += ("matrices",)
MOST = 300  # Letters of what is told.
Turn = tuple[str, Callable[[int], None]]


def of_kind(kind: str) -> Turn:
    """Returns a turn of one kind of the referee's trees."""

    def run(number: int) -> None:
        @hypothesis.seed(number)
        @test_referee.quietly(EXAMPLES, phases=[hypothesis.Phase.generate])
        @hypothesis.given(test_referee.questions(kind))
        def judged(question: object) -> None:
            assert test_referee.judged_of(kind, question).violations == []

        judged()

    return f"the referee, {kind}", run


def laws() -> list[Turn]:
    """Returns a turn of each law, one of every module before another of the same."""
    # Read where the laws are imported.
    os.environ["LAW_EXAMPLES"] = str(LAW_EXAMPLES)
    modules = [
        [
            (name, law)
            for name, law in vars(importlib.import_module(f"test_{module}")).items()
            if hasattr(law, "hypothesis")
        ]
        for module in LAWS
    ]
    found: list[Turn] = []
    for name, law in filter(None, itertools.chain(*itertools.zip_longest(*modules))):

        def run(number: int, law: Callable[[], None] = law) -> None:
            hypothesis.seed(number)(law)()

        found.append((f"laws, {name}", run))
    return found


def turns() -> Iterator[Turn]:
    """Yields what is tried, for ever."""
    others = [kind for kind in test_referee.KINDS if kind not in EDGES]
    kinds = itertools.cycle(itertools.chain(*zip(itertools.cycle(EDGES), others)))
    every = laws()
    while True:
        for place, law in enumerate(every):
            yield law
            if place % 2:
                yield of_kind(next(kinds))


def main() -> int:
    """Searches until something fails or the time is over."""
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    start = time.process_time()
    for number, (name, run) in enumerate(turns(), start=seed):
        if time.process_time() - start > seconds:
            return 0
        try:
            run(number)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            notes = " ".join(getattr(error, "__notes__", []))
            told = " ".join(f"{error} {line} {notes}".split())[:MOST]
            print(f"{time.process_time() - start:.0f} s, {name}, seed {number}: {told}")
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
