"""What the subcommands' output has in common."""

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

WIDTH = 80
T = TypeVar("T")


def write(whole: str) -> None:
    """Prints on standard output; letters that it does not have are replaced.

    A reader who has left is no error: they have seen what they wanted.

    Raises:
        OSError: If it cannot be written.
    """
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    with contextlib.suppress(BrokenPipeError):
        print(whole.encode(encoding, "replace").decode(encoding), flush=True)


def complain(prog: str, message: str, kind: str = "error") -> None:
    """Prints one line on standard error, whatever the message."""
    if sys.stderr is not None:
        print(f"{prog}: {kind}: {' '.join(message.split())}", file=sys.stderr)


def counted(found: Iterable[T], total: int) -> Iterator[T]:
    """Yields what is found; shows how much of it, where someone may look at it."""
    _show(f"0 of {total}")
    for number, each in enumerate(found, start=1):
        yield each
        _show(f"{number} of {total}")
    _show("")


@contextlib.contextmanager
def waiting(words: str, quiet_seconds: float = 3.0) -> Iterator[None]:
    """Shows how long something takes, each second, if it takes longer than a few."""
    done, begin = threading.Event(), time.monotonic()

    def tell() -> None:
        wait = quiet_seconds
        while not done.wait(wait):
            _show(f"{words}, {time.monotonic() - begin:.0f} s")
            wait = 1.0

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        _show("")


def _show(words: str) -> None:
    """Shows a line on a terminal, in place of the one before it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r{words:<{WIDTH - 1}}\r", end="", file=sys.stderr, flush=True)


def table(title: str, heads: Sequence[str], rows: Sequence[comparison.Row]) -> str:
    """Returns a title, a table, and the notes of its rows.

    Args:
        title: A paragraph.
        heads: Of its columns, in `comparison.COLUMNS`.
        rows: What it is of.
    """
    found = comparison.table(title, heads, rows)
    lines = displays.aligned([found.heads, *found.rows])
    above, *below = (textwrap.fill(words, WIDTH) for words in (title, *found.notes))
    return "\n".join([above, "", *lines, *[""] * bool(below), *below])


def as_json(value: Any) -> str:
    """Returns JSON, also of rows and curves; inf is a string, what is missing null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    value = value.to_dict() if hasattr(value, "to_dict") else value
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
