"""The example of a city: one draw a phone, repeated by a seed, and the picture."""

import importlib.util
import pathlib

import matplotlib
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example():
    path = ROOT / "docs" / "examples" / "private_places.py"
    found = importlib.util.spec_from_file_location("private_places", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_small_city(example, capsys, tmp_path):
    matplotlib.use("Agg")
    picture = tmp_path / "city.png"
    arguments = ["--users", "6", "--seed", "1", "--picture", str(picture)]
    example.main(arguments)
    first = capsys.readouterr().out
    assert first.startswith("6 places released, one each, of 1500")
    assert "a draw is 4-private" in first
    assert picture.stat().st_size > 1000
    example.main(arguments[:4])
    assert capsys.readouterr().out == first


def test_traces_are_around_two_places(example):
    city, traces = example.make_city(np.random.default_rng(0), 3, places=50)
    assert city.shape == (50, 2) and len(traces) == 3
    for trace in traces:
        distances = np.linalg.norm((trace[:, None] - city) * example.SCALE, axis=2)
        assert distances.min(axis=1).max() < 1
