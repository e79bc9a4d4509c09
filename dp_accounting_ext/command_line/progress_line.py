"""How far long work is."""

import sys
import time


class Progress:
    """A count, and the time left, where someone may look at them.

    Args:
        unit: What is counted, in the plural.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._begin = time.monotonic()
        self._found = 0

    def show(self, done: int, total: int) -> None:
        """Overwrites the line."""
        self._found += 1
        left = (time.monotonic() - self._begin) / self._found * (total - done)
        line = f"{done} of {total} {self._unit}, about {left:.0f} s left"
        if self._is_seen:
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leaves the line."""
        if self._is_seen and self._found:
            print(file=sys.stderr)
