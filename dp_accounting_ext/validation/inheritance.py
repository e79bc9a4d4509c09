"""What a class inherits of a library that may be newer than it knows."""

from collections.abc import Set
from typing import Any
from typing import NoReturn

_OUTSIDE = "abc", "builtins"


def refuse_what_is_inherited(cls: type, *, keep: Set[str]) -> None:
    """Makes a class refuse what it inherits and does not define itself.

    A method that reads or adds to a state which the class does not keep up would
    answer without what was composed.

    Args:
        cls: A class.
        keep: Names that may be inherited.
    """
    own = [cls, *(each for each in cls.__mro__ if _root(each) == _root(_Refusal))]
    known = frozenset(keep).union(*(vars(each) for each in own))
    for parent in cls.__mro__:
        if parent in own or _root(parent) in _OUTSIDE:
            continue
        for name in vars(parent):
            is_special = name.startswith("__") and name.endswith("__")
            if not (is_special or name in known):
                setattr(cls, name, _Refusal(name))


def _root(cls: type) -> str:
    """Returns the package that a class is of."""
    return cls.__module__.split(".")[0]


class _Refusal:
    """Raises when it is looked up, of an object or of its class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"`{self.name}` is not supported: it is of the installed dp_accounting, "
            f"and {owner.__name__} knows nothing of it."
        )
