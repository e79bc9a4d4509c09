"""The benchmark of group privacy computes and judges as it says."""

import dataclasses
import importlib.util
import math
import pathlib
import sys

import oracles
import pytest

from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import dominating_pair

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
Direction = dominating_pair.Direction


def script(name, called):
    spec = importlib.util.spec_from_file_location(called, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    spec.loader.exec_module(module)
    return module


benchmark = script("group_privacy", "benchmarks_group_privacy")

SMALL = benchmark.Training(3, 0.05, 1.5, 20, 0.6)
SEVERAL_STEPS = [
    (1, 0, 0.3, 1.0, 1.0),
    (0, 1, 0.3, 1.0, 0.1),
    (2, 3, 0.2, 0.8, 0.5),
    (8, 8, 0.01, 0.3, 4.0),
    (5, 0, 1.0, 20.0, 0.1),
]


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("expected", [1, 2, 66, 18_806, 39_999])
def test_the_largest_count(power, expected):
    asked = []

    def delta(count):
        asked.append(count)
        return 1e-6 * (count / (expected + 0.5)) ** power

    assert benchmark.largest_count(delta, 1e-6, 1, 40_000) == expected
    assert len(asked) < 12


def test_the_largest_count_of_what_is_no_power():
    def delta(count):
        return math.exp(-1e6 / count**2) if count > 3 else 0.0

    found = benchmark.largest_count(delta, 1e-6, 1, 100_000)
    assert delta(found) <= 1e-6 < delta(found + 1)


@pytest.mark.parametrize(("low", "high"), [(11, 20), (2, 10)])
def test_the_largest_count_must_be_between_the_ends(low, high):
    with pytest.raises(ValueError, match="The count must be at least"):
        benchmark.largest_count(float, 10.0, low, high)


def test_post_hoc_bounds_are_in_order():
    found = benchmark.gaussian_step(4)
    assert list(found) == [
        "lower",
        "tight",
        "agnostic",
        "optimal",
        "geometric",
        "linear",
    ]
    assert found["lower"] <= found["tight"] < found["optimal"]
    assert found["optimal"] < found["geometric"] < found["linear"]
    assert found["tight"] < found["agnostic"]


def test_bounds_of_a_small_training():
    group = benchmark.tight_delta(SMALL)
    profile = SMALL.profile_of_one(30)
    assert profile(0.2) == pytest.approx(SMALL.of_one(0.2), rel=1e-3)
    assert SMALL.of_leaving_group().upper_delta(SMALL.epsilon) == group
    assert group < benchmark.geometric_delta(SMALL) < benchmark.linear_delta(SMALL)
    assert benchmark.geometric_delta(SMALL) < benchmark.twice_counted_delta(SMALL)


def test_the_optimal_bound_of_a_small_training(monkeypatch):
    monkeypatch.setattr(benchmark, "FINE_POINTS", 30)
    optimal = benchmark.optimal_delta(SMALL)
    assert benchmark.tight_delta(SMALL) < optimal < benchmark.geometric_delta(SMALL)


def test_steps_are_counted_of_the_training(monkeypatch):
    monkeypatch.setattr(benchmark, "COUNTED", dataclasses.replace(SMALL, steps=1))
    monkeypatch.setattr(benchmark, "TARGET_DELTA", 1e-2)
    found = benchmark.affordable(benchmark.geometric_delta, 1, 1000)
    assert benchmark.geometric_delta(dataclasses.replace(SMALL, steps=found)) <= 1e-2
    more = dataclasses.replace(SMALL, steps=found + 1)
    assert benchmark.geometric_delta(more) > 1e-2


def test_what_is_not_excluded_is_told(monkeypatch):
    monkeypatch.setattr(benchmark, "COUNTED", SMALL)
    lower, upper = SMALL.of_group().get_delta_bounds(SMALL.epsilon)
    for target, count in ((lower * 0.999, 0), (upper, 1)):
        monkeypatch.setattr(benchmark, "TARGET_DELTA", target)
        assert len(benchmark.excluded(SMALL.steps)) == count


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ((0.9999, 1.0001), 0),
        ((1.000001, 1.0005), 0),
        ((0.9995, 0.999999), 0),
        ((1.00001, 1.0002), 1),
        ((0.9999, 0.99999), 1),
        ((0.99, 1.01), 1),
        ((1.0001, 0.9999), 2),
        ((math.nan, 1.0), 2),
        ((0.5, math.nan), 2),
    ],
)
def test_a_bracket_must_hold_what_is_known(bounds, count):
    training = dataclasses.replace(SMALL, known=1.0, rounding=2e-6)
    assert len(benchmark.holds_known(training, bounds)) == count


@pytest.mark.parametrize(
    ("value", "baseline", "count"),
    [(1.0, 1.0, 0), (0.0, 0.0, 0), (1 + 1e-8, 1.0, 1), (math.nan, 1.0, 1)],
)
def test_a_tight_bound_is_no_more_than_a_baseline(value, baseline, count):
    assert len(benchmark.no_more("row", value, baseline)) == count


@pytest.mark.parametrize("step", SEVERAL_STEPS)
def test_the_exact_delta_is_that_of_another_oracle(step):
    removed, inserted, rate, sigma, epsilon = step
    p = [(float(s), float(w)) for s, w in benchmark.exact_shifts(removed, rate, sigma)]
    q = [
        (-float(s), float(w)) for s, w in benchmark.exact_shifts(inserted, rate, sigma)
    ]
    expected = oracles.shift_mixture_deltas(p, q, epsilon)
    for direction in Direction:
        found = benchmark.Step(*step, direction).truth()
        assert float(found) == pytest.approx(
            float(expected[direction.value]), rel=1e-10, abs=1e-40
        )


def test_the_exact_delta_is_zero_where_losses_are_less():
    largest = -4 * math.log1p(-0.3)
    assert benchmark.exact_delta(0, 4, 0.3, 1.0, largest + 1e-9) == 0
    assert benchmark.exact_delta(0, 4, 0.3, 1.0, largest - 1e-2) > 0


def test_errors_of_steps():
    steps = [
        benchmark.Step(*step, direction)
        for step in SEVERAL_STEPS
        for direction in Direction
    ]
    found = benchmark.errors_of(steps)
    assert 5 <= found.count <= len(steps)
    assert 0 < found.upper < 1e-6
    assert 0 < found.lower < 1e-6
    assert found.least >= benchmark.LEAST_DELTA
    assert found.wrong == ()


@pytest.mark.parametrize("factor", [1 - 1e-5, 1 + 1e-5])
def test_errors_on_the_wrong_side_are_told(monkeypatch, factor):
    monkeypatch.setattr(
        benchmark.Step, "bound", lambda step, bound: float(step.truth() * factor)
    )
    step = benchmark.Step(*SEVERAL_STEPS[0], Direction.REMOVE)
    found = benchmark.errors_of([step])
    assert found.wrong == (step,)
    assert found.upper == pytest.approx(factor - 1, rel=1e-6)
    assert found.lower == pytest.approx(1 - factor, rel=1e-6)


def test_goals_of_the_accuracy_table(monkeypatch, capsys):
    step = benchmark.Step(*SEVERAL_STEPS[0], Direction.REMOVE)
    monkeypatch.setattr(benchmark, "grid", lambda short: [step])
    assert benchmark.print_accuracy(short=True) == []
    monkeypatch.setattr(
        benchmark.Step, "bound", lambda step, bound: float(step.truth() * (1 + 1e-5))
    )
    missed = benchmark.print_accuracy(short=True)
    assert [("wrong side" in line, "goal" in line) for line in missed] == [
        (False, True),
        (True, False),
    ]
    monkeypatch.setattr(benchmark, "mpmath", None)
    assert benchmark.print_accuracy(short=True) == []
    assert "skipped" in capsys.readouterr().out


def test_the_grid_has_all_settings_and_the_short_one_fewer():
    steps = list(benchmark.grid(short=False))
    assert len(set(steps)) == len(steps) == (2 + 3 + 3 + 3) * 4 * 4 * 5 * 2
    assert {(step.removed, step.inserted) for step in steps} >= {
        (64, 0),
        (32, 32),
        (0, 64),
        (0, 1),
    }
    assert {step.rate for step in steps} == {1e-4, 0.01, 0.3, 1.0}
    short = set(benchmark.grid(short=True))
    assert short < set(steps)
    assert len(short) < len(steps) / 4


def test_the_pair_has_components_that_none_leaves_out():
    shifts = benchmark.pair_shifts()
    assert len(shifts) == 65
    assert min(weight for _, weight in shifts) > benchmark.PAIR_TAIL / 4
    assert math.fsum(weight for _, weight in shifts) == pytest.approx(1, rel=1e-14)


def test_what_has_no_closed_form_is_refused():
    revealed = known_bounds.NonPrivate()
    with pytest.raises(ValueError, match="closed form"):
        benchmark.closed_form_delta(
            revealed, 1.0, Direction.REMOVE, dominating_pair.Bound.UPPER
        )


def test_the_least_time_is_that_of_the_work():
    runs = []
    seconds = benchmark.least_seconds(lambda: runs.append(sum(range(10_000))), 3)
    assert len(runs) == 3
    assert 0 <= seconds < 1


@pytest.mark.parametrize(("missed", "status"), [([], 0), (["a row"], 1)])
def test_exit_status(monkeypatch, capsys, missed, status):
    monkeypatch.setattr(benchmark, "sections", lambda short: iter([[], missed]))
    monkeypatch.setattr(sys, "argv", ["group_privacy.py", "--short"])
    with pytest.raises(SystemExit) as exit_status:
        benchmark.main()
    assert exit_status.value.code == status
    assert ("MISSED a row" in capsys.readouterr().out) == bool(missed)
