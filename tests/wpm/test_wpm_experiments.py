"""The experiments, on small made-up data of the real files' shape."""

import importlib.util
import pathlib

import matplotlib
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiments():
    path = ROOT / "benchmarks" / "wpm_experiments.py"
    found = importlib.util.spec_from_file_location("wpm_experiments", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def write_films(directory, users=40, films=60):
    """Two kinds of users, who rate films of their kind high."""
    generator = np.random.default_rng(0)
    lines = []
    for user in range(users):
        for film in generator.choice(films, 20, replace=False):
            rating = 5 if (user + film) % 2 == 0 else 2
            lines.append(f"{user + 1}\t{film + 1}\t{rating}\t881250949")
    (directory / "u.data").write_text("\n".join(lines))
    items = []
    for film in range(films):
        genres = "|".join(str(int(genre == film % 2)) for genre in range(19))
        items.append(f"{film + 1}|Café {film}|01-Jan-1995||http://a|{genres}")
    (directory / "u.item").write_text("\n".join(items), encoding="latin-1")


def test_films(experiments, tmp_path):
    write_films(tmp_path)
    films = experiments.read_films(tmp_path)
    assert films.ratings.shape == (40, 60) and films.genres.shape == (60, 19)
    assert (np.unique(films.ratings) == [0, 2, 5]).all()
    task = experiments.make_task(films, 0, candidates=8, size=5)
    assert task.cost.shape == (48, 8) and task.genre_films.shape == (19, 8)
    low, high = (experiments.hit_rates(task, epsilon) for epsilon in (0.2, 8.0))
    assert set(low) == {"WPM", "KL by genre", "exponential"}
    assert high["WPM"] > 1.2 * low["WPM"]


def test_checkins(experiments, tmp_path):
    generator = np.random.default_rng(0)
    south, north, west, east = experiments.AUSTIN
    lines = []
    for user in range(8):
        for _ in range(12):
            latitude = generator.uniform(south, north)
            longitude = generator.uniform(west, east)
            place = f"{latitude}\t{longitude}\t7"
            lines.append(f"{user}\t2010-10-19T23:55:27Z\t{place}\n")
    lines.append("99\t2010-10-19T23:55:27Z\t0.0\t0.0\t7\n")
    path = tmp_path / "checkins.txt"
    path.write_text("".join(lines))
    users, places = experiments.read_checkins(path)
    assert users.size == 96 and ((places >= 0) & (places < 1)).all()
    protected, public = experiments.make_visitors(users, places, 0)
    assert protected.shape == public.shape == (4, 400)
    np.testing.assert_allclose(protected.sum(axis=1), 1)


def test_ring(experiments, capsys):
    experiments.run_ring(5.0)
    rows = capsys.readouterr().out.splitlines()
    means = [float(row[14:].split()[0]) for row in rows[1:5]]
    assert means[0] < 0.6 * means[2] < 0.6 * means[3]


def test_made_up_data_go_through(experiments, tmp_path, capsys, monkeypatch):
    """Figures 2 to 4 in little, with progress and a limit for what is learned."""
    matplotlib.use("Agg")
    monkeypatch.setattr(experiments, "GRID_EPSILONS", (4.0,))
    monkeypatch.setattr(experiments, "GRID", 6)
    monkeypatch.setattr(experiments, "EPSILONS", (2.0,))
    monkeypatch.setattr(experiments, "SCALES", 2)
    checkins, maps = tmp_path / "checkins.txt", tmp_path / "maps.png"
    experiments.write_checkins(checkins, users=12)
    experiments.run_gowalla(
        checkins, tmp_path / "errors.png", 0, 2, learn_rounds=2, heat_map=maps
    )
    experiments.write_films(tmp_path, users=30, films=60)
    experiments.run_movielens(tmp_path, tmp_path / "hits.png", 0)
    captured = capsys.readouterr()
    assert maps.stat().st_size > 1000
    assert "WPM, learned" in captured.out and "exponential" in captured.out
    assert "learning: 1" in captured.err and "movielens: ε = 2" in captured.err
