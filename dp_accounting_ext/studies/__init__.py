"""Studies of training runs: ways of drawing batches, compared and calibrated."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # They come when they are asked for; a type checker knows them at once.
    from dp_accounting_ext.studies import calibration as calibration
    from dp_accounting_ext.studies import comparison as comparison
    from dp_accounting_ext.studies import curves as curves
    from dp_accounting_ext.studies import statement as statement
    from dp_accounting_ext.studies import strategy_comparison as strategy_comparison
    from dp_accounting_ext.studies import sweep as sweep
    from dp_accounting_ext.studies import training_run as training_run
    from dp_accounting_ext.studies import worker_pool as worker_pool

_MODULES = {"calibration", "comparison", "curves", "statement", "strategy_comparison"}
_MODULES |= {"sweep", "training_run", "worker_pool"}


def __getattr__(name: str) -> ModuleType:
    """Imports a module when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Returns the public names."""
    return sorted(_MODULES)
