"""Long studies that tell how much of them is done."""

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
# It is called with how many are done, and how many there are.
Progress = Callable[[int, int], None]


def counted(items: Sequence[T], progress: Progress | None) -> Iterator[T]:
    """Yields items, and tells of each as soon as the next one is asked for.

    Args:
        items: What takes time for whoever is handed one.
        progress: Whom to tell; None for nobody.
    """
    for number, item in enumerate(items):
        if progress is not None:
            progress(number, len(items))
        yield item
    if progress is not None:
        progress(len(items), len(items))
