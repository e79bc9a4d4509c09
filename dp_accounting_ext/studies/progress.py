"""Progress reports of long studies."""

from collections.abc import Callable
from collections.abc import Iterable
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


def counted(
    items: Iterable[T], progress: Progress | None, total: int | None = None
) -> Iterator[T]:
    """Yields items, and reports each as done when the next one is requested.

    Args:
        items: The items, which the caller processes one after another.
        progress: The function that progress is reported to, or None.
        total: The number of items; that of a sequence is known.
    """
    if total is None:
        assert isinstance(items, Sequence)
        total = len(items)
    report = progress or (lambda done, total: None)
    report(0, total)
    for number, item in enumerate(items, start=1):
        yield item
        report(number, total)
