"""How far long work is."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import sys
import threading
import time
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_PATIENCE = 1.0  # Tuning: seconds of silence that nobody minds.
_WIDTH = 60


@contextlib.contextmanager
def shown(words: Callable[[], str]) -> Iterator[None]:
    """Shows words, and the time that work takes, where someone may look at it.

    A line appears when work takes longer than a second, is renewed every second, also
    while nothing is finished, and is gone at the end.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_renew, args=(words, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _renew(words: Callable[[], str], ended: threading.Event) -> None:
    begin, line = time.monotonic(), ""
    while not ended.wait(_PATIENCE):
        line = f"{words()}, {time.monotonic() - begin:.0f} s"
        print(f"\r{line:<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)
    if line:
        print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)


def mapped(unit: str, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Returns the function's values, and shows how many of them there are."""
    found: list[T] = []
    with shown(lambda: f"{len(found)} of {len(items)} {unit}"):
        for item in items:
            found.append(function(item))
    return found
