"""The ledger: what answers cost, and how tight they are, for settings of every kind.

    python .ci/ledger.py --write         # all rows anew, some ten CPU minutes
    python .ci/ledger.py [--rows 40]     # are the code's answers those of the ledger?

A row is a setting, drawn at random as those of `beside.py`, with its bounds on ε, its
CPU time in yardsticks, and the memory that it took. A yardstick is the time of a fixed
question, asked just before. Truth is held by tests, tightness by the ledger: a route, a
theorem or a fast path stays if rows become worse without it. The script ends with
status 3 if an answer is wider than its row, or slower. `beside.py --ledger` asks two
revisions for the same settings.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import json
import pathlib
import sys

import beside

PATH = pathlib.Path(__file__).with_name("ledger.json")
ROWS, SEED = 252, 20
# An answer is worse than its row if its upper bound, or its width over the upper bound,
# is larger by this; or if it takes so many times as long and some seconds.
WIDER, SLOWER, SECONDS = 0.02, 1.5, 0.3
# How often a question that seems slow is asked again: clocks of shared machines lie.
AGAIN = 2
YARDSTICK = beside.Setting(
    "yardstick",
    "stock.SelfComposedDpEvent("
    "stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(1.0)), 1000)",
    1e-6,
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A setting, and what it cost.

    Attributes:
        setting: The question.
        lower: The lower bound on ε; None if the question has no answer.
        upper: The upper bound.
        yardsticks: The CPU time, in yardsticks.
        seconds: The CPU time on the machine that wrote the row.
        megabytes: The most memory that the process had had by then.
    """

    setting: beside.Setting
    lower: float | None
    upper: float | None
    yardsticks: float
    seconds: float
    megabytes: float

    def worse(self, found: "Row") -> list[str]:
        """Returns in which ways another row of the same setting is worse."""
        if self.upper is None or found.upper is None:
            return [] if found.upper == self.upper else [f"{found.upper} is its answer"]
        assert self.lower is not None and found.lower is not None
        words = []
        scale = max(self.upper, 1e-300)
        if found.upper > self.upper * (1 + WIDER):
            words.append(f"upper bound: {self.upper:.6g} to {found.upper:.6g}")
        if self.lower - found.lower > WIDER * scale:
            words.append(f"lower bound: {self.lower:.6g} to {found.lower:.6g}")
        slow = found.yardsticks > SLOWER * self.yardsticks
        if slow and found.seconds > SECONDS:
            words.append(f"time: {self.yardsticks:.1f} to {found.yardsticks:.1f}")
        return words


def asked(code: beside.Revision, settings: Iterable[beside.Setting]) -> Iterator[Row]:
    """Yields the rows of settings, as some code answers them."""
    for setting in settings:
        code.ask(YARDSTICK)  # It warms the machine up.
        yardstick = code.ask(YARDSTICK).seconds
        answer = code.ask(setting)
        lower, upper = answer.bounds or (None, None)
        yield Row(
            setting,
            lower,
            upper,
            round(answer.seconds / yardstick, 2),
            round(answer.seconds, 3),
            round(answer.megabytes),
        )


def rows() -> list[Row]:
    """Returns the rows of the ledger."""
    return [
        Row(beside.Setting(**row.pop("setting")), **row)
        for row in json.loads(PATH.read_text())
    ]


def check(code: beside.Revision, known: Iterable[Row]) -> int:
    """Prints what is worse than the ledger says. Returns the number of such rows."""
    worse = 0
    for row in known:
        words: list[str] = []
        for _ in range(1 + AGAIN):
            (found,) = asked(code, [row.setting])
            words = row.worse(found)
            if not words or any("bound" in word for word in words):
                break
        worse += bool(words)
        if words:
            print(f"{'; '.join(words)}\n    {row.setting}", flush=True)
    return worse


def main() -> int:
    """Writes the ledger, or compares it with the code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=int, help="so many of them, of all kinds")
    arguments = parser.parse_args()
    code = beside.Revision(beside.ROOT)
    try:
        if arguments.write:
            drawn = beside.settings(ROWS, SEED, list(beside.KINDS))
            written = [dataclasses.asdict(row) for row in asked(code, drawn)]
            lines = ",\n".join(json.dumps(row) for row in written)
            PATH.write_text(f"[\n{lines}\n]\n")
            return 0
        known = rows()[: arguments.rows]
        worse = check(code, known)
        print(f"{worse} of {len(known)} rows are worse than the ledger says")
        return 3 if worse else 0
    finally:
        code.close()


if __name__ == "__main__":
    sys.exit(main())
