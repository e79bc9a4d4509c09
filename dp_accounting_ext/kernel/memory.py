"""A cache of computed values, of limited size."""

from collections.abc import Callable
from collections.abc import Hashable
import threading
from typing import Generic
from typing import Protocol
from typing import TypeVar


class Sized(Protocol):
    """A value that knows how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """The memory that the value takes, in bytes."""


Value = TypeVar("Value", bound=Sized)


class Memory(Generic[Value]):
    """A cache that forgets the values that were not used for longest.

    A value must be a function of its key alone, so that the cache changes no answer.
    Threads may share a cache.

    Args:
        most_bytes: The largest total size of the values. A single value may be larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._nbytes = 0
        self._values: dict[Hashable, Value] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The total size of the values, in bytes."""
        return self._nbytes

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value of a key; makes it if it is not in the cache."""
        with self._lock:
            cached = self._values.pop(key, None)
            if cached is not None:
                self._values[key] = cached  # The last one is forgotten last.
                return cached
        value = make()
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self._nbytes += value.nbytes
            while self._nbytes > self._most_bytes and len(self._values) > 1:
                self._drop(next(iter(self._values)))
        return value

    def _drop(self, key: Hashable) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._nbytes -= value.nbytes
