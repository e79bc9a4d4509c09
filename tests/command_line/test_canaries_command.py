"""The subcommand canaries: a file of scores, and the claims that it refutes."""

import json

from command_runner import run
import numpy as np
import pytest

from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import training_run

RUN = "--steps-per-epoch 20 --epochs 2 --noise-multiplier 1"


def write(path, rows, header="score,member"):
    path.write_text("\n".join([header, *(f"{x},{s}" for x, s in rows)]) + "\n")


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    members = (rng.random(2000) < 0.5).astype(int)
    found = np.round(members + 0.2 * rng.normal(size=2000), 3)
    write(tmp_path / "scores.csv", zip(found, members, strict=True))
    return tmp_path / "scores.csv", found, members


@pytest.mark.nightly
def test_each_way_of_drawing_batches_has_its_audit(capsys, scores):
    path, values, members = scores
    command = f"canaries --scores {path} --guesses 300 --guess both {RUN}"
    status, out, err = run(capsys, command)
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("2000 canaries, ")
    found = json.loads(run(capsys, f"{command} --json")[1])["results"]
    assert [each["sampling"] for each in found] == list(training_run.SCHEMES)
    run_of = training_run.TrainingRun(1.0, 20, epochs=2)
    for each, claim in zip(found, training_run.schemes_of(run_of), strict=True):
        truth = canaries.audit(
            claim.accountant(), values, members, guesses=300, guess="both"
        )
        for name in ("canaries", "guesses", "right", "needed", "p_value", "refuted"):
            assert each[name] == getattr(truth, name)
        assert f"{claim.sampling}: Of 300 guesses" in out
    assert {each["refuted"] for each in found} == {True, False}


def test_one_way_alone_has_a_sentence(capsys, scores):
    command = (
        f"canaries --scores {scores[0]} --guesses 200 {RUN} --sampling poisson-sampling"
    )
    out = run(capsys, command)[1]
    assert "\nOf 200 guesses" in out and out.count("\nPoisson sampling") == 1
    stricter = run(capsys, f"{command} --significance 0.02")[1]
    assert "with a probability of at most 0.02" in " ".join(stricter.split())


def test_columns_are_found_by_their_names(capsys, scores, tmp_path):
    path, values, members = scores
    other = tmp_path / "other.csv"
    rows = zip(members, np.char.mod("%g", values), strict=True)
    other.write_text("Member;name;Score\n" + "\n".join(f"{s};a;{x}" for s, x in rows))
    one, two = (
        run(capsys, f"canaries --scores {file} --guesses 99 {RUN}")[1]
        for file in (path, other)
    )
    assert one == two
