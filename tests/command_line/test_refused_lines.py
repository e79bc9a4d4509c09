"""What is typed wrongly, or is wrong in a file: status 2, one line that tells, no file.

Of each row: the command, run in a folder of the files below, and what it tells.
"""

from command_runner import run
import pytest

POINTS = "name,lat,lon\nA,48.85,2.35\nB,48.86,2.29\nC,48.89,2.34\n"
FILES = {
    "cost": "0,1\n1,0\n",
    "cell": "0,1\n1,x\n",
    "words": "to my\naunt\n",
    "places": POINTS,
    "longer": "1,2\n3,4,5\n",
    "trace": "lat,lon\n48.851,2.351\n48.86,hjkl\n",
    "users": "who,lng,lat\nbob,2.29,48.86\nann,2.351,48.85\n",
    "scores": "score,member\n" + "".join(f"{i},{i % 2}\n" for i in range(9)),
    "no score": "score,member\nnan,1\n1,0\n",
    "member 3": "score,member\n2,1\n1,3\n",
    "other names": "score,in\n2,1\n1,0\n",
    "no names": "2,1\n1,0\n",
    "a word": "score,member\n2,1\nx,0\n",
    "members alone": "score,member\n" + "2,1\n" * 40,
    "one canary": "score,member\n2,1\n",
    "noise misspelt": "noise multiplier,steps_per_epoch\n1,5\n",
    "group misspelt": "noise_multiplier,numGroups\n1,5\n",
    "sampling misspelt": "noise_multiplier,sampler\n1,5\n",
    "a result": "delta,note\n1,x\n",
    "too many cells": "delta,epochs\n1e-6,1,5\n",
    "too few cells": "delta,epochs\n1e-6\n",
    "no sampling": "noise_multiplier,delta\n1,1e-6\n",
    "two lines": 'delta,who,sampling\n1e-6,"a\nb",shuffled\n',
    "no row": "delta,epochs\n",
    "empty": "",
    "latin": "delta,who\n1e-6,Zo\xeb\n",
    "grid": "noise_multiplier,steps_per_epoch,delta,sampling\n1,5,.1,shuffled\n",
    "half a row": "noise_multiplier,steps_per_epoch,delta,sampling\n1,5\n",
    "a row of another": "who,steps_per_epoch\n1,5\n",
}
BATCHES = "--dataset-size 6000 --batch-size 600 --epochs 1"
RISK = f"calibrate {BATCHES} --delta 1e-6 --sampling poisson-sampling --fpr 0.01"
RUN = "--steps-per-epoch 20 --epochs 2 --noise-multiplier 1"
CANARIES = f"canaries {RUN} --guesses 2 --scores"
STRATEGY = "compare --noise-multiplier 2 --steps-per-epoch 6 --epochs 2 --delta 1e-3"
DRAW = "wpm --points places --epsilon 2"
USERS = f"{DRAW} --trace users --metric haversine"
NEW = "new or with the columns of the grid"
ROWS = [
    ("compare --noise 1", "Did you mean --noise-multiplier?"),
    ("compare --batch=5 1", "Did you mean --batch-size or --batches-per-record?"),
    ("compare --epoks 1", "Did you mean --epochs?"),
    ("compare x 1", "unrecognized arguments: x"),
    ("compare --sampling-rat 1", "Did you mean --sampling-rate?"),
    ("compaer --delta 1", "Found 'compaer'. Did you mean compare?"),
    ("compaer --delta 1", "COMMAND must be one of compare, calibrate, "),
    ("wpm plann --epsilon 1", "Found 'plann'. Did you mean plan?"),
    (f"calibrate {BATCHES} --epsilon 0 --delta .1", "--epsilon must be positive"),
    (f"calibrate {BATCHES} --epsilon 0 --delta .1", "0.001 is hardly more"),
    (f"{STRATEGY} --strategy 1{',.5' * 6} --sampling b-min-sep", "balls-in-bins, no-"),
    ("explore --quiet --port -3", "--port must be from 0 to 65535. Found -3."),
    ("explore --quiet --port 99999", "--port must be from 0 to 65535. Found 99999."),
    # Risks.
    ("risk --mu 1 --noise-multiplier 1", "--noise-multiplier must be left out"),
    ("risk --mu 1 --delta 2", "--delta must be in (0, 1). Found 2."),
    ("risk --mu 1 --dataset-size 9", "--dataset-size must be left out with --mu"),
    ("risk --mu -1", "--mu must be non-negative"),
    ("risk --epsilon -1", "--epsilon must be non-negative"),
    ("risk --mu 1 --rho 1", "not allowed with"),
    ("risk --mu 1 --prior 1", "--prior must be in"),
    ("risk", "must be given"),
    (f"risk {BATCHES}", "--noise-multiplier must be given"),
    (f"{RISK} --tpr 0.005", "--tpr must be above --fpr"),
    (f"{RISK} --tpr 0.01", "--tpr must be above --fpr"),
    (f"{RISK} --ppv 0.3", "--ppv must be above --prior"),
    # Canaries.
    (f"canaries {RUN} --guesses 3", "--scores must be given. Found it missing."),
    (f"canaries {RUN} --scores scores", "--guesses, chosen before scores are seen"),
    (f"{CANARIES} scores --guesses x", "argument --guesses: invalid int value: 'x'"),
    (f"{CANARIES} scores --guess out", "--guess must be in or both. Found"),
    (f"{CANARIES} scores --significance 5", "--significance must be in (0, 1)"),
    (f"{CANARIES} scores --delta 1e-6", "unrecognized arguments: --delta."),
    (f"{CANARIES} none.csv", "must be a file that can be opened."),
    (f"{CANARIES} no_score", "Found an empty cell in line 2, column score of"),
    (f"{CANARIES} member_3", "members must be 0 or 1. Found 3.0."),
    (f"{CANARIES} other_names", "named score and member. Found score, in in"),
    (f"{CANARIES} no_names", "named score and member. Found no names in"),
    (f"{CANARIES} a_word", "Found 'x' in line 3, column score of"),
    (f"{CANARIES} members_alone", "drawn by fair coins. Found 40 of 40"),
    (f"{CANARIES} one_canary", "--guesses must be at most canaries. Found 2 of 1."),
    # The Wasserstein mechanism.
    ("wpm plan --epsilon 1 --cost words", "--cost must be a table, as CSV, JSON, Par"),
    ("wpm plan --epsilon 1 --cost words", "Found no numbers in words"),
    ("wpm plan --epsilon 1 --cost cell", "Found 'x' in line 2, column 2 of"),
    ("wpm plan --epsilon 1 --cost longer", "more cells than above in line 2 of"),
    ("wpm plan --epsilon 1 --cost cost --base-measure minmax", "uniform, minimax, or"),
    ("wpm plan --epsilon 1 --cost cost --base-measure words", "--base-measure must be"),
    ("wpm plan --epsilon 1 --cost cost --user 1", "--user must be left out of a plan"),
    ("wpm --epsilon 1 --cost cost --columns 1,2", "must "),
    ("wpm --epsilon 1 --cost cost --trace trace", "must "),
    (f"{DRAW} --public-trace users", "--public-trace must come with pla"),
    (f"{DRAW} --encoding klingon --trace x", "encoding must be one that Python knows"),
    (f"{DRAW} --trace trace", "line 3, column 2 of"),
    (f"{USERS} --user who --output draws --show-law", "--show-law must be left out"),
    (f"{USERS} --user whose --output draws", "--user must be of 1 to 3 in"),
    (f"{USERS} --user who", "must come with --"),
    (f"{USERS} --output draws", "must come with --"),
    # Sweeps.
    ("sweep --output new --grid noise_misspelt", "write noise_multiplier if that"),
    ("sweep --output new --grid group_misspelt", "write group_size if that"),
    ("sweep --output new --grid sampling_misspelt", "write sampling if that"),
    ("sweep --output new --grid a_result", "other names than results. Found 'note'"),
    ("sweep --output new --grid too_many_cells", "Found 3 cells in place of 2 in line"),
    ("sweep --output new --grid too_few_cells", "Found 1 cells in place of 2 in line"),
    ("sweep --output new --grid no_sampling", "sampling must be one of random-alloc"),
    ("sweep --output new --grid two_lines", "cells of one line each"),
    ("sweep --output new --grid no_row", "Found no row below the header of"),
    ("sweep --output new --grid empty", "Found an empty file"),
    ("sweep --output new --grid latin", "--encoding cp1252"),
    (
        "sweep --output new --grid grid --scheduler afar",
        "Dask scheduler that answers",
    ),
    *(
        (f"sweep --grid grid --output {name}", f"--output must be a file, {NEW}")
        for name in ("words", "grid", "half_a_row", "a_row_of_another", "latin")
    ),
]


@pytest.mark.parametrize(("command", "told"), ROWS)
def test_a_line_that_is_wrong(capsys, tmp_path, monkeypatch, command, told):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        path = tmp_path / name.replace(" ", "_")
        path.write_bytes(content.encode("latin-1"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, err = run(capsys, command)
    assert (status, out) == (2, "") and err.count("\n") == 1, err
    assert told in err
    assert "hjkl" not in err, "what is private is not shown"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
