"""A cache of computed values, of limited size."""

from collections.abc import Callable
from collections.abc import Hashable
import enum
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

import numpy as np

Value = TypeVar("Value")


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
            self._nbytes += nbytes_of(value)
            while self._nbytes > self._most_bytes and len(self._values) > 1:
                self._drop(next(iter(self._values)))
        return value

    def _drop(self, key: Hashable) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._nbytes -= nbytes_of(value)


def nbytes_of(value: Any) -> int:
    """Returns the memory of the arrays in a value, in bytes.

    Args:
        value: An array; or an object or a tuple that holds such values. What is held
            twice counts once, and numbers do not count.
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        parts = {id(part): part for part in value}
    elif hasattr(value, "__dict__") and not isinstance(value, enum.Enum):
        parts = {id(part): part for part in vars(value).values()}
    else:
        return 0
    return sum(map(nbytes_of, parts.values()))
