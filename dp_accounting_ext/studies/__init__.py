"""Studies of training runs: ways of drawing batches, compared and calibrated."""

from dp_accounting_ext.studies import calibration as calibration
from dp_accounting_ext.studies import canaries as canaries
from dp_accounting_ext.studies import comparison as comparison
from dp_accounting_ext.studies import curves as curves
from dp_accounting_ext.studies import progress as progress
from dp_accounting_ext.studies import statement as statement
from dp_accounting_ext.studies import strategy_comparison as strategy_comparison
from dp_accounting_ext.studies import sweep as sweep
from dp_accounting_ext.studies import training_run as training_run

__all__ = [
    "calibration",
    "canaries",
    "comparison",
    "curves",
    "progress",
    "second_opinion",
    "statement",
    "strategy_comparison",
    "sweep",
    "training_run",
]
__dir__ = __all__.copy
