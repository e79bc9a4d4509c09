"""The output of subcommands: text, errors, progress, tables and JSON."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import math
import sys
import textwrap
import threading
import time
from typing import Any
from typing import TypeVar

from dp_accounting_ext import displays
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run

WIDTH = 80
_FEW = 5  # The time that is left is estimated once so many items are done.
T = TypeVar("T")


def write(whole: str) -> None:
    """Prints on standard output, with replacements for letters that it cannot encode.

    It is not an error if the reader has closed the pipe.
    """
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(BrokenPipeError):
        print(whole.encode(encoding, "replace").decode(encoding), flush=True)


def complain(prog: str, message: str, kind: str = "error") -> None:
    """Prints one line on standard error, whatever the message contains."""
    if sys.stderr is not None:
        print(f"{prog}: {kind}: {' '.join(message.split())}", file=sys.stderr)


class Progress:
    """Shows the progress of a task that takes more than a few seconds, on a terminal.

        with text.Progress("curves") as progress:
            rows = statement.claims(run, progress)

    The words name the items that are counted, or the task. The line is rewritten each
    second, and erased at the end.
    """

    def __init__(self, words: str, quiet_seconds: float = 3.0) -> None:
        self._words, self._quiet = words, quiet_seconds
        self._count: tuple[int, int] | None = None
        self._begin = time.monotonic()
        self._done = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __call__(self, done: int, total: int) -> None:
        """Sets the number of items that are done, and the number of all items."""
        self._count = done, total

    def __enter__(self) -> "Progress":
        if _is_terminal():
            self._teller.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._teller.ident is not None:  # The thread was started.
            self._teller.join()
            _show("")

    @property
    def line(self) -> str:
        """The line that is shown now."""
        seconds = time.monotonic() - self._begin
        if self._count is None:
            return f"{self._words}, {_duration(seconds)}"
        done, total = self._count
        line = f"{done} of {total} {self._words}, {_duration(seconds)}"
        if done >= _FEW:
            line += f", about {_duration(seconds / done * (total - done))} left"
        return line

    def _tell(self) -> None:
        wait = self._quiet
        while not self._done.wait(wait):
            _show(self.line)
            wait = 1.0


def counted(items: Iterable[T], total: int, words: str) -> Iterator[T]:
    """Yields `total` items, and shows how many were processed, with their name."""
    with Progress(words) as progress:
        yield from progress_of.counted(items, progress, total)


def counted_ways(
    run: training_run.TrainingRun,
) -> Iterator[tuple[str, training_run.TrainingRun]]:
    """Yields a run with each way of drawing batches, its name, and shows progress."""
    runs = training_run.schemes_of(run)
    for way in counted(runs, len(runs), "ways of drawing batches"):
        changed = comparison.ADJACENCIES[way.neighboring_relation]
        yield f"{way.scheme} ({changed})", way


def _duration(seconds: float) -> str:
    """Returns seconds, minutes or hours in whole numbers."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _show(words: str) -> None:
    """Shows a line on a terminal, in place of the one before it."""
    print(f"\r{words[: WIDTH - 1]:<{WIDTH - 1}}\r", end="", file=sys.stderr, flush=True)


def title(subject: str, run: training_run.TrainingRun) -> str:
    """Returns what is shown, and of which run."""
    return f"{subject}, noise multiplier {run.noise_multiplier:g}, {run.in_words}"


def table(title: str, heads: Sequence[str], rows: Sequence[comparison.Row]) -> str:
    """Returns a title, a table with heads of `comparison.COLUMNS`, and its notes."""
    shown = comparison.table(title, heads, rows)
    lines = displays.aligned([shown.heads, *shown.rows])
    above, *below = (textwrap.fill(words, WIDTH) for words in (title, *shown.notes))
    return "\n".join([above, "", *lines, *[""] * bool(below), *below])


def headed(name: str, words: str) -> str:
    """Returns words about a run below its name."""
    return f"{textwrap.fill(f'With {name}:', WIDTH)}\n{words}"


def as_json(value: Any) -> str:
    """Returns JSON, also for rows and curves. Infinity is a string, None is null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    value = value.to_dict() if hasattr(value, "to_dict") else value
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return value
