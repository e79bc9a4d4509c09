"""The script in docs/examples, run small."""

import importlib.util
import pathlib

import pytest

PATH = pathlib.Path(__file__).parents[2] / "docs" / "examples" / "mean_estimation.py"
SMALL = [
    "--epsilon",
    "1",
    "--delta",
    "1e-5",
    "--steps",
    "10",
    "--runs",
    "20",
    "--sizes",
    "100",
    "1000",
]


@pytest.fixture(scope="module")
def example():
    found = importlib.util.spec_from_file_location("mean_estimation_example", PATH)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_it_prints_and_draws(example, capsys, tmp_path):
    example.main([*SMALL, "--output", str(tmp_path / "errors.png")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ε = 1, δ = 1e-05, d = 1, t = 10, p = 0.9"
    rows = [line.split() for line in lines if line.lstrip().startswith("1,000")]
    allocation, poisson, renyi = (float(row[1]) for row in rows)
    assert allocation < renyi < poisson
    assert (tmp_path / "errors.png").stat().st_size > 5_000


def test_a_bad_output_is_told_first(example, capsys, tmp_path):
    with pytest.raises(ValueError, match="must end in"):
        example.main([*SMALL, "--output", str(tmp_path / "errors.jpg")])
    assert capsys.readouterr().out == ""
