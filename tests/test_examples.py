"""The examples do what they say: sampling and accounting agree."""

import dataclasses
import importlib.util
import itertools
import pathlib
import sys

import dp_accounting
import matplotlib
import numpy as np
import pytest

import dp_accounting_ext as ext

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


dp_sgd = example("dp_sgd_balls_and_bins")
private_places = example("private_places")
matrix_mechanism = example("matrix_mechanism")
canaries = example("canaries")


def small(**changes):
    fields = {"num_records": 300, "num_steps": 20, "num_epochs": 3} | changes
    return dp_sgd.Settings(**fields)


@pytest.mark.parametrize("selected", [1, 3, 20])
def test_every_record_takes_part_as_often_as_is_accounted_for(selected):
    settings = small(num_selected=selected)
    rng = np.random.default_rng(0)
    run = dp_sgd.train(settings, *dp_sgd.make_data(settings, rng), rng)
    event = dp_sgd.event_of(settings)
    assert len(run.batches) == event.count
    allocation = event.event
    for batches in run.batches:
        assert batches.shape == (allocation.num_steps, settings.num_records)
        assert (batches.sum(axis=0) == allocation.num_selected).all()
    assert len(run.noises) == event.count * allocation.num_steps
    noise = allocation.event.noise_multiplier * settings.clip
    assert set(run.noises) == {noise}


def test_draws_are_uniform_and_anew_in_every_epoch():
    settings = small(num_records=20_000, num_selected=2)
    rng = np.random.default_rng(3)
    first, second = (dp_sgd.draw_batches(settings, rng) for _ in range(2))
    assert (first != second).any()
    mean = settings.num_records * settings.num_selected / settings.num_steps
    assert np.abs(first.sum(axis=1) - mean).max() < 6 * np.sqrt(mean)
    # Pairs of steps of one record are as uniform.
    together = (first[0] & first[1]).sum()
    steps = settings.num_steps
    pairs = settings.num_records * 2 / (steps * (steps - 1))
    assert abs(together - pairs) < 6 * np.sqrt(pairs)


def test_what_it_prints(capsys):
    dp_sgd.main(["--seed", "1"])
    first = capsys.readouterr().out
    dp_sgd.main(["--seed", "1"])
    assert capsys.readouterr().out == first
    assert float(first.split()[1]) > 0.9
    settings = dp_sgd.Settings()
    step = dp_accounting.GaussianDpEvent(settings.noise_multiplier)
    event = ext.RandomAllocationEvent(step, 1, settings.num_steps)
    accountant = ext.PLDAccountant().compose(event, settings.num_epochs)
    lower, upper = accountant.get_epsilon_bounds(settings.delta)
    assert f"[{lower:.6f}, {upper:.6f}]" in first
    assert first.count("[") == 3


@pytest.mark.nightly
def test_the_gallerys_pictures_are_drawn(tmp_path, capsys):
    gallery = example("gallery")
    # Few large batches, for which the same curves cost less.
    gallery.RUN = dataclasses.replace(gallery.RUN, batch_size=6000, epochs=2)
    gallery.main(["--folder", str(tmp_path), "--points", "2"])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"trade_off.png", "calibration.png"}
    page = (FOLDER.parent / "index.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in page for name in names)
    assert "wrote" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_small_city(capsys, tmp_path):
    matplotlib.use("Agg")
    picture = tmp_path / "city.png"
    arguments = ["--users", "3", "--seed", "1", "--picture", str(picture)]
    private_places.main(arguments)
    first = capsys.readouterr().out
    assert first.startswith("3 places released, one each, of 1500")
    assert "a draw is 4-private" in first
    assert picture.stat().st_size > 1000
    private_places.main(arguments[:4])
    assert capsys.readouterr().out == first
    private_places.main([*arguments[:4], "--linear"])
    assert "a draw is 4-private" in capsys.readouterr().out


def test_traces_are_around_two_places():
    city, traces = private_places.make_city(np.random.default_rng(0), 3, places=50)
    assert city.shape == (50, 2) and len(traces) == 3
    for trace in traces:
        away = (trace[:, None] - city) * private_places.SCALE
        assert np.linalg.norm(away, axis=2).min(axis=1).max() < 1


@pytest.mark.parametrize(
    "event",
    [
        ext.WindowedAllocationEvent((1.0, 0.5), 2.0, 6, 3, 4, 0.7),
        ext.MinSepSamplingEvent((1.0, 0.5), 2.0, 0.2, 3, 32),
        ext.MinSepSamplingEvent((1.0, 0.5), 2.0, 1.0, 4, 32, warm_start=False),
    ],
)
def test_batches_of_correlated_noise_are_those_of_the_event(event):
    """Shares of all records, and how far apart a record's steps are."""
    rng, records = np.random.default_rng(3), 4000
    if isinstance(event, ext.WindowedAllocationEvent):
        batches = list(matrix_mechanism.fresh_window_batches(event, records, rng))
        share = event.sampling_probability / 8
    else:
        batches = list(matrix_mechanism.min_sep_batches(event, records, rng))
        p, b = event.sampling_probability, event.separation
        share = p / (1 + (b - 1) * p)
    assert len(batches) == 32
    steps = [[] for _ in range(records)]
    for step, batch in enumerate(batches):
        for record in batch:
            steps[record].append(step)
    apart = [b - a for each in steps for a, b in itertools.pairwise(each)]
    assert min(apart) >= event.separation
    sizes = [len(batch) for batch in batches]
    assert np.mean(sizes) / records == pytest.approx(share, rel=0.05)
    if getattr(event, "warm_start", True):
        assert max(sizes) < 1.3 * min(sizes)


def test_an_audit_refutes_the_run_that_leaves_noise_out(capsys):
    canaries.main(seed=1)
    shown = " ".join(capsys.readouterr().out.split())
    claimed, faulty = shown.split("audit of 1000 canaries ")[1:]
    assert "not refuted" in claimed and "does not show that it is true" in claimed
    assert "is refuted" in faulty and "not refuted" not in faulty
