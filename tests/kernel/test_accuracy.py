"""How accurate an answer is, which is decided in one module; what is kept."""

import math
import pathlib
import re

import dp_accounting
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import memory

Accuracy = accuracy.Accuracy
PACKAGE = pathlib.Path(ext.__file__).parent


def test_no_other_module_chooses_a_resolution():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "accuracy.py":
            chosen = re.findall(r"\bAccuracy\([^(),]+,[^)]+\)", path.read_text())
            assert not chosen, path


def test_the_width_of_a_bracket_is_in_proportion_to_the_interval():
    """Between the fewest and the most cells; beyond these it does not change."""
    event = dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.GaussianDpEvent(1.0)
    )
    found = {}
    for interval in (1e-8, 7.9e-6, 1e-4, 1e-3, 2.1e-3, 1.0):
        accountant = ext.PLDAccountant(value_discretization_interval=interval)
        found[interval] = accountant.compose(event, 50).get_epsilon_bounds(1e-5)
    widths = {each: upper - lower for each, (lower, upper) in found.items()}
    assert 5 < widths[1e-3] / widths[1e-4] < 20
    assert found[1e-8] == found[7.9e-6]
    assert found[2.1e-3] == found[1.0]


def test_so_is_that_of_a_trade_off_curve():
    event = dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.GaussianDpEvent(1.0)
    )
    bounds = []
    for interval in (1e-4, 1e-3):
        accountant = ext.PLDAccountant(value_discretization_interval=interval)
        accountant.compose(event, 50)
        bounds.append(accountant.get_true_positive_rate_bounds([1e-5, 1e-3, 0.1]))
    (fine_lower, fine_upper), (lower, upper) = bounds
    assert (lower <= fine_upper).all() and (fine_lower <= upper).all()
    ratios = (upper - lower) / (fine_upper - fine_lower)
    assert (ratios > 4).all() and (ratios < 20).all()


def test_cells_of_an_interval():
    assert accuracy.cells_of_interval(accuracy.STOCK_INTERVAL) == accuracy.CELLS
    assert accuracy.cells_of_interval(4e-4) == accuracy.CELLS // 2
    assert accuracy.cells_of_interval(math.inf) == accuracy.FEWEST_CELLS
    assert accuracy.cells_of_interval(1e-300) == accuracy.MOST_CELLS


def made(size, log=None, name=None):
    def make():
        if log is not None:
            log.append(name)
        return np.zeros(size, dtype=np.uint8)

    return make


def test_what_was_asked_for_last_is_kept():
    kept, log = memory.Memory(100), []
    for name in "abcabdacd":
        assert kept.get(name, made(30, log, name)).size == 30
        assert kept.nbytes <= 100
    # Three fit: d drives out c, then c drives out b.
    assert "".join(log) == "abcdc"


def test_a_value_that_is_too_large_is_kept_alone():
    kept, log = memory.Memory(100), []
    kept.get("small", made(50, log, "small"))
    kept.get("large", made(500, log, "large"))
    assert kept.nbytes == 500
    kept.get("large", made(500, log, "large"))
    assert log == ["small", "large"]
    kept.get("small", made(50))
    assert kept.nbytes == 50


@pytest.mark.nightly
def test_mechanisms_that_differ_are_as_tight_as_runs_of_one():
    accountant = ext.PLDAccountant()
    for share in np.linspace(0, 1, 100):
        noise = dp_accounting.GaussianDpEvent(0.7 + 2 * share)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, noise))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + 1e-4)
