"""How far long work is."""

import sys
import threading
import time

_PATIENCE = 1.0  # Tuning: seconds of silence that nobody minds.
_WIDTH = 60


class Progress:
    """A line where someone may look at it: what is done, and the time that it takes.

    It appears when work takes longer than a second, is renewed every second, also
    while nothing is finished, and is gone at the end.

        with Progress("rows") as progress:
            work(progress=progress.show)

    Args:
        unit: What is counted, in the plural.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._begin = time.monotonic()
        self._done, self._total = 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> "Progress":
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def show(self, done: int, total: int) -> None:
        """Tells what is done, of how much."""
        self._done, self._total = done, total

    def line(self) -> str:
        """Returns what is known by now."""
        spent = time.monotonic() - self._begin
        if not self._done:
            return f"{self._unit}: {spent:.0f} s"
        left = spent / self._done * (self._total - self._done)
        return f"{self._done} of {self._total} {self._unit}, about {left:.0f} s left"

    def _renew(self) -> None:
        shown = False
        while not self._ended.wait(_PATIENCE):
            self._print(self.line())
            shown = True
        if shown:
            self._print("")

    def _print(self, line: str) -> None:
        print(f"\r{line:<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)
