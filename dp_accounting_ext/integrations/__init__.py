"""Calls of other libraries, answered by certified bounds: opacus, jax_privacy."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Modules are imported at their first use, because their libraries are extras.
    from dp_accounting_ext.integrations import jax_privacy as jax_privacy
    from dp_accounting_ext.integrations import opacus as opacus

_MODULES = {"jax_privacy", "opacus"}


def __getattr__(name: str) -> ModuleType:
    """Imports a module at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(_MODULES)
