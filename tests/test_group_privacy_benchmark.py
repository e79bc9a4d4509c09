"""The benchmark of group privacy computes and judges as it says."""

import importlib.util
import math
import pathlib
import sys

import pytest

from dp_accounting_ext.papers import group_experiments

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"


def script(name, called):
    spec = importlib.util.spec_from_file_location(called, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    spec.loader.exec_module(module)
    return module


benchmark = script("group_privacy", "benchmarks_group_privacy")


@pytest.mark.parametrize(
    ("value", "earlier", "count"),
    [(1.0, 1.0, 0), (0.0, 0.0, 0), (1 + 1e-8, 1.0, 1), (math.nan, 1.0, 1)],
)
def test_a_tight_bound_is_no_more_than_an_earlier_one(value, earlier, count):
    assert len(benchmark.no_more("row", value, earlier)) == count
    row = group_experiments.Row(2, 1, 0.5, 0.0, value, {"old": earlier})
    assert len(benchmark.print_rows("rows", [row])) == count


def test_no_response_is_above_the_agnostic_bound(capsys):
    assert benchmark.print_randomized_response() == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + len(benchmark.TRUTHS) * len(benchmark.ORDERS)


def test_bounds_of_a_small_training_are_in_order(monkeypatch):
    step = group_experiments.sampled_gaussian(0.05, 1.5)
    monkeypatch.setattr(benchmark, "FIGURE_6_STEP", step)
    monkeypatch.setattr(benchmark, "FIGURE_6_SIZE", 3)
    monkeypatch.setattr(benchmark, "FIGURE_6_EPSILON", 0.6)
    monkeypatch.setattr(benchmark, "FINE_POINTS", 30)
    geometric, linear = (
        benchmark.post_hoc_delta(group_experiments.POST_HOC[name], 20)
        for name in ("geometric", "linear")
    )
    assert benchmark.tight_delta(20) < benchmark.optimal_delta(20) < geometric < linear
    # What counts the group twice is no bound of anything, but far above them all.
    assert geometric < benchmark.twice_counted_delta(20)


@pytest.mark.parametrize(("goal", "count"), [(6000.0, 0), (0.0, 1)])
def test_the_goal_of_a_pair(monkeypatch, capsys, goal, count):
    monkeypatch.setattr(benchmark, "PAIR_YARDSTICKS", goal)
    assert len(benchmark.print_pairs(short=True)) == count
    assert "pair of 65 components" in capsys.readouterr().out


@pytest.mark.parametrize(("missed", "status"), [([], 0), (["a row"], 1)])
def test_exit_status(monkeypatch, capsys, missed, status):
    monkeypatch.setattr(benchmark, "sections", lambda short: iter([[], missed]))
    monkeypatch.setattr(sys, "argv", ["group_privacy.py", "--short"])
    with pytest.raises(SystemExit) as exit_status:
        benchmark.main()
    assert exit_status.value.code == status
    assert ("MISSED a row" in capsys.readouterr().out) == bool(missed)
