"""The command as a shell user meets it."""

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from dp_accounting_ext import command_line
from dp_accounting_ext import comparison

README_COMMAND = (
    "compare --noise-multiplier 1 --steps 1000 --selected 1 --epochs 10 --delta 1e-6"
)


def run(capsys, arguments):
    try:
        status = command_line.main(arguments.split())
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_readme_command_in_a_shell():
    done = subprocess.run(
        [sys.executable, "-m", "dp_accounting_ext", *README_COMMAND.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert "10 epochs" in lines[0]
    schemes = ["random allocation", "Poisson sampling", "no amplification"]
    assert [line[:20].strip() for line in lines[3:]] == schemes
    for line in lines[3:]:
        lower, upper = (float(part) for part in line[20:].split()[:2])
        assert lower <= upper <= lower * 1.0001
    assert done.stderr == ""


def test_printed_ends_are_rounded_outwards(capsys):
    _, table, _ = run(capsys, README_COMMAND)
    _, text, _ = run(capsys, README_COMMAND + " --json")
    results = json.loads(text)["results"]
    for line, result in zip(table.splitlines()[3:], results, strict=True):
        lower, upper = (float(part) for part in line[20:].split()[:2])
        assert lower <= result["epsilon_lower"] <= result["epsilon_upper"] <= upper


def test_several_steps_show_the_reduction_and_the_truth(capsys):
    command = (
        "compare --noise-multiplier 1 --steps 1000 --selected 7 --delta 1e-6 --json"
    )
    status, text, _ = run(capsys, command)
    assert status == 0
    whole = json.loads(text)
    truth, reduction, poisson, plain = whole["results"]
    assert whole["setting"]["num_selected"] == 7
    assert truth["scheme"] == "random allocation"
    assert reduction["scheme"] == "- block reduction"
    assert truth["epsilon_upper"] == reduction["epsilon_upper"]
    assert truth["epsilon_lower"] < reduction["epsilon_lower"]
    assert reduction["epsilon_upper"] <= reduction["epsilon_lower"] * 1.0001
    assert "bracket is 0.9% wide" in truth["note"]
    assert poisson["epsilon_lower"] > truth["epsilon_upper"]
    assert plain["epsilon_lower"] > poisson["epsilon_upper"]


@pytest.mark.parametrize(
    "options", ["--noise-multiplier 0.01", "--noise-multiplier 0.02"]
)
def test_a_bracket_that_is_wide_says_so(capsys, options):
    status, table, _ = run(capsys, f"compare {options} --steps 50 --delta 1e-6")
    assert status == 0
    assert "wide" in table.splitlines()[3]


BAD = [
    ("--noise-multiplier 0", "noise_multiplier must be positive. Found 0"),
    (
        "--noise-multiplier -1",
        "noise_multiplier must be non-negative and finite. Found -1",
    ),
    ("--noise-multiplier nan", "noise_multiplier must be a number. Found nan"),
    ("--noise-multiplier inf", "noise_multiplier must be non-negative and finite"),
    ("--noise-multiplier x", "invalid float value: 'x'"),
    ("--steps 0", "num_steps must be at least 1. Found 0"),
    ("--steps 1.5", "invalid int value: '1.5'"),
    ("--selected 0", "num_selected must be at least 1. Found 0"),
    ("--selected 11", "num_selected must be at most num_steps. Found 11 of 10"),
    ("--epochs 0", "num_epochs must be at least 1. Found 0"),
    ("--delta 0", "delta must be in (0, 1). Found 0"),
    ("--delta 1", "delta must be in (0, 1). Found 1"),
    ("--delta nan", "delta must be a number. Found nan"),
    ("--colour red", "unrecognized arguments"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_one_line_and_status_2(capsys, options, message):
    base = "compare --noise-multiplier 1 --steps 10 --selected 1 --delta 1e-6 "
    status, out, err = run(capsys, base + options)
    assert status == 2
    assert out == ""
    assert message in err
    assert err.startswith("dp-accounting-ext")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["", "compare", "compare --steps 10", "confuse"])
def test_missing_arguments_are_named(capsys, arguments):
    status, _, err = run(capsys, arguments)
    assert status == 2
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["--help", "compare --help"])
def test_help(capsys, arguments):
    status, out, _ = run(capsys, arguments)
    assert status == 0
    assert "compare" in out


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0.02, 200.0),
    st.integers(1, 300),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.9, 0.5, 1e-3, 1e-8, 1e-25]),
)
def test_any_setting_gives_ordered_rows(noise, steps, selected, epochs, delta):
    setting = comparison.Setting(noise, steps, min(selected, steps), epochs, delta)
    for row in comparison.compare(setting):
        assert 0 <= row.epsilon_lower <= row.epsilon_upper
        assert row.seconds >= 0


class TestWpm:
    @pytest.fixture
    def files(self, tmp_path):
        (tmp_path / "cost.csv").write_text("0,1,4\n1,0,1\n4,1,0\n")
        (tmp_path / "mu.csv").write_text("0.25\n0.75\n0\n")
        (tmp_path / "m.csv").write_text("0.2,0.6,0.2\n")
        (tmp_path / "bad.csv").write_text("0.25,secret,0\n")
        return tmp_path

    def wpm(self, capsys, files, rest, cost="cost.csv", masses="mu.csv"):
        command = f"wpm --cost {files / cost} --distribution {files / masses} {rest}"
        return run(capsys, command)

    @pytest.mark.parametrize("measure", ["uniform", "minimax", "m.csv"])
    def test_the_distribution_and_a_draw(self, capsys, files, measure):
        if measure.endswith("csv"):
            measure = files / measure
        rest = f"--epsilon 2 --base-measure {measure} --sample"
        status, text, _ = self.wpm(capsys, files, rest)
        assert status == 0
        first, second = text.splitlines()
        law = [
            float(share) for share in first.removeprefix("distribution: ").split(",")
        ]
        assert len(law) == 3
        assert sum(law) == pytest.approx(1.0, abs=1e-15)
        assert law[1] == max(law)
        assert int(second.removeprefix("sample: ")) in range(3)

    def test_json(self, capsys, files):
        _, text, _ = self.wpm(capsys, files, "--epsilon 2 --sample --json")
        result = json.loads(text)
        assert set(result) == {"distribution", "sample"}
        _, text, _ = self.wpm(capsys, files, "--epsilon 2 --json")
        assert set(json.loads(text)) == {"distribution"}

    @pytest.mark.parametrize(
        ("rest", "options", "message"),
        [
            ("--epsilon -1", {}, "epsilon must be positive"),
            ("--epsilon 2", {"masses": "none.csv"}, "none.csv"),
            ("--epsilon 2", {"masses": "bad.csv"}, "distribution must be a file"),
            ("--epsilon 2", {"cost": "m.csv"}, "mu"),
            ("--epsilon 2 --base-measure nowhere.csv", {}, "nowhere.csv"),
        ],
    )
    def test_bad_input(self, capsys, files, rest, options, message):
        status, out, err = self.wpm(capsys, files, rest, **options)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
        assert "secret" not in err
