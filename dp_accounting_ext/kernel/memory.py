"""What was computed last, up to so many bytes."""

from collections.abc import Callable
from collections.abc import Hashable
import threading
from typing import Generic
from typing import Protocol
from typing import TypeVar


class Sized(Protocol):
    """A value that tells how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """Its size, in bytes."""


Value = TypeVar("Value", bound=Sized)


class Memory(Generic[Value]):
    """Values by their keys; those that were asked for longest ago are forgotten.

    A value must follow from its key alone, so that it makes no difference but in time
    whether one is still there. Threads may share a memory.

    Args:
        most_bytes: The size of all that is kept, but for a value that is larger alone.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._nbytes = 0
        self._values: dict[Hashable, Value] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The size of all that is kept."""
        return self._nbytes

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value of a key, made if it is not there."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is not None:
                self._values[key] = found  # Last in line again.
                return found
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
