"""Progress reports of long studies."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import TypeVar

__all__ = [
    "Progress",
    "counted",
]
__dir__ = __all__.copy

T = TypeVar("T")
# A function of the number of items that are done and of the number of all items.
Progress = Callable[[int, int], None]


def counted(items: Sequence[T], progress: Progress | None) -> Iterator[T]:
    """Yields items, and reports each as done when the next one is requested.

    Args:
        items: The items, which the caller processes one after another.
        progress: The function that progress is reported to, or None.
    """
    for number, item in enumerate(items):
        if progress is not None:
            progress(number, len(items))
        yield item
    if progress is not None:
        progress(len(items), len(items))
