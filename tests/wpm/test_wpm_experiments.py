"""The experiments, on small made-up data of the real files' shape."""

import matplotlib
import numpy as np
import pytest
import wpm_experiments as experiments


@pytest.mark.nightly
def test_films(tmp_path):
    experiments.write_films(tmp_path, users=40, films=80)
    films = experiments.read_films(tmp_path)
    assert films.ratings.shape == (40, 80) and films.genres.shape == (80, 19)
    assert (np.unique(films.ratings) == np.arange(6)).all()
    task = experiments.make_task(films, 0, candidates=8, size=5)
    assert task.cost.shape == (64, 8) and task.genre_films.shape == (19, 8)
    low, high = (experiments.hit_rates(task, epsilon) for epsilon in (0.2, 8.0))
    assert set(low) == {"WPM", "WPM, Alg. 1", "KL by genre", "exponential"}
    for name in ("WPM", "WPM, Alg. 1"):
        assert high[name][0] > 1.1 * low[name][0]
        assert 0 < high[name][1] < 0.2
    assert high["WPM, Alg. 1"][0] == pytest.approx(high["WPM"][0], rel=0.1)


def test_ring(capsys):
    experiments.run_ring(5.0)
    rows = capsys.readouterr().out.splitlines()
    means = [float(row[14:].split()[0]) for row in rows[1:5]]
    assert means[0] < 0.6 * means[2] < 0.6 * means[3]


@pytest.mark.nightly
def test_made_up_data_go_through(tmp_path, capsys, monkeypatch):
    """Figures 2 to 4 in little, with progress and a limit for what is learned."""
    matplotlib.use("Agg")
    little = {"GRID_EPSILONS": (4.0,), "GRID": 6, "EPSILONS": (2.0,), "SCALES": 2}
    for name, value in little.items():
        monkeypatch.setattr(experiments, name, value)
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
    assert "learning" in captured.err and "movielens: ε = 2" in captured.err


def test_a_population_is_found_from_linear_draws(capsys, monkeypatch):
    monkeypatch.setattr(experiments, "GRID", 6)
    experiments.run_population((5_000,), (4.0,))
    row = capsys.readouterr().out.splitlines()[-1].split()
    average, bound, bias, other, likeliest = map(float, row[2:])
    assert average <= bound and bias <= other
    assert likeliest < 0.7 * average
