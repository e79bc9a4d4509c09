"""Refusal of methods that a class inherits from a newer version of a library."""

from collections.abc import Set
from typing import Any
from typing import NoReturn

_OUTSIDE = "abc", "builtins"


def refuse_what_is_inherited(cls: type, *, keep: Set[str]) -> None:
    """Makes a class refuse every inherited method that it does not define itself.

    Inherited methods that read base-class state would ignore our composition.

    Args:
        cls: A class.
        keep: The names that may be inherited.
    """
    own = [cls, *(base for base in cls.__mro__ if _root(base) == _root(_Refusal))]
    known = frozenset(keep).union(*(vars(base) for base in own))
    for parent in cls.__mro__:
        if parent in own or _root(parent) in _OUTSIDE:
            continue
        for name in vars(parent):
            is_special = name.startswith("__") and name.endswith("__")
            if not (is_special or name in known):
                setattr(cls, name, _Refusal(name))


def _root(cls: type) -> str:
    """Returns the name of the package that defines a class."""
    return cls.__module__.split(".")[0]


class _Refusal:
    """A descriptor that raises when it is looked up on an object or its class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"`{self.name}` is not supported: it is of the installed dp_accounting, "
            f"and {owner.__name__} knows nothing of it."
        )
