"""Progress reports of long studies."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import TypeVar

__all__ = [
    "Progress",
    "counted",
    "part_of",
]
__dir__ = __all__.copy

T = TypeVar("T")
# It is called with how many are done, and how many there are.
Progress = Callable[[int, int], None]


def counted(items: Sequence[T], progress: Progress | None) -> Iterator[T]:
    """Yields items, and tells of each as soon as the next one is asked for.

    Args:
        items: What takes time for whoever is handed one.
        progress: The function that is called with progress, or None.
    """
    for number, item in enumerate(items):
        if progress is not None:
            progress(number, len(items))
        yield item
    if progress is not None:
        progress(len(items), len(items))


def part_of(progress: Progress | None, part: int, parts: int) -> Progress | None:
    """Returns what to call in one of several passes over the same items.

    Args:
        progress: What is called with the items of all passes; None for nobody.
        part: The pass, from zero.
        parts: How many passes there are.
    """
    if progress is None:
        return None
    tell = progress

    def told(done: int, total: int) -> None:
        tell(part * total + done, parts * total)

    return told
