"""The benchmark scripts judge and convert as they say; none is run in full here."""

import dataclasses
import importlib.util
import io
import math
import pathlib
import sys

import dp_accounting
import mpmath
import numpy as np
import pytest

import dp_accounting_ext as ext

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"


def benchmark(name):
    spec = importlib.util.spec_from_file_location(
        f"benchmarks_{name}", FOLDER / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stock_pld = benchmark("stock_pld")
preamble = benchmark("preamble")
jax_privacy_suite = benchmark("jax_privacy_suite")

GOOD_ROW = stock_pld.Row("row", 1.0, 1.0, 0.9, 0.4, 0.1, goal=3.0)


def with_changes(**changes):
    return dataclasses.replace(GOOD_ROW, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stock": math.inf},
        {"ours": 0.91},
        {"ours": 1 + 0.9e-6},
        {"lower": math.nan},
        {"our_seconds": 0.9e-3, "stock_seconds": 0.1e-3},
        {"exact": 1.0},
        {"exact": 1 - 0.9e-6},
        {"is_same": True},
    ],
)
def test_a_row_that_meets_its_goals(changes):
    assert stock_pld.violations(with_changes(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"our_seconds": 0.14}, "times as fast"),
        ({"our_seconds": 0.14, "goal": 2.9}, "times as fast"),
        ({"our_seconds": 1.1e-3, "stock_seconds": 0.1e-3}, "times as fast"),
        ({"stock_seconds": math.nan}, "times as fast"),
        ({"ours": 1 + 1.1e-6}, "above dp_accounting's"),
        ({"ours": math.inf, "stock": math.inf}, "no finite answer"),
        ({"ours": math.nan}, "no finite answer"),
        ({"ours": 0.89}, "below the certified"),
        ({"stock": 0.89, "ours": 0.89}, "dp_accounting's 0.89 is below"),
        ({"exact": 1 - 1.1e-6}, "is exact"),
        ({"exact": 1 + 1e-11}, "is exact"),
        ({"ours": 1 - 1.1e-6, "is_same": True}, "off dp_accounting's"),
    ],
)
def test_a_row_that_misses_a_goal(changes, reason):
    found = stock_pld.violations(with_changes(**changes))
    assert any(reason in line for line in found), found
    assert all(line.startswith("row: ") for line in found)


@pytest.mark.parametrize(("seconds", "status"), [(0.1, 0), (0.2, 1)])
def test_exit_status_of_the_comparison(monkeypatch, capsys, seconds, status):
    row = with_changes(our_seconds=seconds)
    monkeypatch.setattr(stock_pld, "sections", lambda short: [("heading", [row])])
    monkeypatch.setattr(sys, "argv", ["stock_pld.py", "--short"])
    with pytest.raises(SystemExit) as exit_status:
        stock_pld.main()
    assert exit_status.value.code == status
    assert ("MISSED row: 2.00 times" in capsys.readouterr().out) == bool(status)


def test_both_accountants_take_every_case():
    everyday = [
        *stock_pld.dp_sgd_cases(),
        *stock_pld.mixture_cases(),
        *stock_pld.everyday_cases(),
    ]
    cases = [*everyday, *stock_pld.small_delta_cases()]
    assert len(everyday) >= 14
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        for accountant in (dp_accounting.pld.PLDAccountant, ext.PLDAccountant):
            assert accountant(case.relation).supports(case.event), case.name


def test_the_short_form_leaves_out_what_is_slow():
    names = {case.name for case in stock_pld.mixture_cases() if not case.slow}
    assert len(names) == 1


def test_a_row_is_measured_on_both_sides(monkeypatch):
    monkeypatch.setattr(stock_pld, "MOST_ROUNDS", 1)
    case = stock_pld.Case("Laplace", dp_accounting.LaplaceDpEvent(1.0), 10, goal=0.0)
    row = stock_pld.row_of(case)
    expected = dp_accounting.pld.PLDAccountant().compose(case.event, 10)
    assert row.stock == expected.get_epsilon(1e-6)
    assert row.lower <= row.ours <= row.stock * (1 + 1e-6)
    assert min(row.stock_seconds, row.our_seconds) > 0
    assert "Laplace" in stock_pld.printed(row)


@pytest.mark.parametrize(
    ("sigma", "delta"), [(0.5, 1e-6), (3.0, 1e-6), (0.2, 1e-30), (5.0, 1e-30)]
)
def test_epsilon_of_a_gaussian_gives_its_delta(sigma, delta):
    epsilon = stock_pld.gaussian_epsilon(sigma, delta)
    with mpmath.workdps(60):
        shift, loss = 1 / mpmath.mpf(sigma), mpmath.mpf(epsilon)
        first = mpmath.ncdf(shift / 2 - loss / shift)
        second = mpmath.exp(loss) * mpmath.ncdf(-shift / 2 - loss / shift)
        assert float(first - second) == pytest.approx(delta, rel=1e-10)


@pytest.mark.parametrize(
    ("gap", "seconds", "count"), [(5e-4, 1.9, 0), (1e-2, 1.9, 1), (-0.1, 2.1, 2)]
)
def test_goals_of_the_inner_evaluation(gap, seconds, count):
    assert len(preamble.violations(1.0, gap, seconds)) == count


def mismatch(actual, expected=1.0):
    return jax_privacy_suite.MismatchError("", actual, expected)


@pytest.mark.parametrize(
    ("ours", "finer_stock", "count"),
    [
        (mismatch(0.9), mismatch(0.91), 1),
        (mismatch(0.9), mismatch(1.1), 0),
        (mismatch(1.1), mismatch(0.9), 0),
        (mismatch(0.9), mismatch(0.9, 2.0), 0),
        (mismatch(0.9), None, 0),
    ],
)
def test_tighter_is_below_as_the_finer_stock(ours, finer_stock, count):
    others = {} if finer_stock is None else {"test": finer_stock}
    assert len(jax_privacy_suite.tighter_ones({"test": ours}, others)) == count


def test_comparisons_tell_their_numbers():
    compare = jax_privacy_suite.telling(np.testing.assert_allclose)
    compare(1.0, 1.0 + 1e-9, rtol=1e-6)
    with pytest.raises(jax_privacy_suite.MismatchError) as single:
        compare(1.0, 2.0, rtol=1e-6)
    assert (single.value.actual, single.value.expected) == (1.0, 2.0)
    with pytest.raises(AssertionError, match="Mismatched") as several:
        compare([1.0, 2.0], [1.0, 3.0])
    assert not isinstance(several.value, jax_privacy_suite.MismatchError)


TESTS_OF_A_USER = """
import unittest

import dp_accounting
import numpy as np


def epsilon():
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-2)
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(4))
    return accountant.compose(event, 1000).get_epsilon(1e-5)


class UserTest(unittest.TestCase):
    def test_epsilon_of_the_stock(self):
        np.testing.assert_allclose(epsilon(), {stock}, rtol=1e-5)

    def test_wrong(self):
        np.testing.assert_allclose(epsilon(), 0.01, rtol=1e-5)

    def test_that_raises(self):
        raise ValueError

    def test_class(self):
        name = dp_accounting.pld.PLDAccountant.__module__
        assert name != "dp_accounting.pld.pld_privacy_accountant"
"""


def test_a_suite_is_run_and_judged(monkeypatch, tmp_path):
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(4))
    stock = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-2)
    path = tmp_path / "user_test.py"
    path.write_text(
        TESTS_OF_A_USER.format(stock=stock.compose(event, 1000).get_epsilon(1e-5))
    )
    monkeypatch.setattr(jax_privacy_suite, "installed_file", lambda *names: path)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    outcome = jax_privacy_suite.outcome_of("user_test.py", ext.PLDAccountant)
    assert (outcome.run, outcome.skipped, outcome.queries) == (4, 0, 2)
    names = {test.rsplit(".", 1)[1] for test in outcome.failed}
    assert names == {"test_epsilon_of_the_stock", "test_wrong", "test_that_raises"}
    (tighter,) = outcome.tighter
    assert tighter.test.endswith("test_epsilon_of_the_stock")
    assert tighter.ours < tighter.expected
    assert tighter.finer_stock < tighter.expected
    judged = jax_privacy_suite.violations
    assert len(judged([outcome], allow_tighter=False)) == 3
    assert len(judged([outcome], allow_tighter=True)) == 2
    unused = dataclasses.replace(outcome, failed=(), tighter=(), run=0, queries=0)
    assert len(judged([unused], allow_tighter=False)) == 2


def test_the_stock_is_back_afterwards():
    stock = dp_accounting.pld.PLDAccountant
    compare, ask = np.testing.assert_allclose, ext.PLDAccountant.get_epsilon
    with jax_privacy_suite.in_place_of_the_stock(ext.PLDAccountant) as queries:
        assert dp_accounting.pld.PLDAccountant is ext.PLDAccountant
        accountant = dp_accounting.pld.PLDAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(1.0)).get_epsilon(1e-6)
        assert queries.call_count == 1
    assert dp_accounting.pld.PLDAccountant is stock
    assert np.testing.assert_allclose is compare
    assert ext.PLDAccountant.get_epsilon is ask
