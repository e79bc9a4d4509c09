"""What the explorer shows, by its functions; tests/browser opens its page."""

import dataclasses
import re
import threading
import time

import command_runner
import pytest

from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.command_line import explore_command
from dp_accounting_ext.command_line import explorer
from dp_accounting_ext.command_line import workers
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(
    dataset_size=6000, batch_size=1000, epochs=2, noise_multiplier=1.3, delta=1e-6
)
UNKNOWN = dataclasses.replace(RUN, noise_multiplier=None)
WAYS = {str(run.sampling): run for run in training_run.schemes_of(RUN)}


def cells(table):
    rows = re.findall(r"<tr>(<td.*?)</tr>", table)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


def test_the_table_has_each_ways_bounds_rounded_outwards():
    rows = {way: explorer.row_of(run, None) for way, run in WAYS.items()}
    found = {way: explorer.curve_of(run) for way, run in WAYS.items()}
    shown = cells(explorer.table_of(RUN, None, rows, found))
    for line, (way, row) in zip(shown, rows.items(), strict=True):
        assert line[0] == way
        assert float(line[1]) <= row.epsilon_lower <= row.epsilon_upper
        assert row.epsilon_upper <= float(line[2]) <= row.epsilon_upper * 1.001
        accountant = WAYS[way].accountant()
        lower, upper = accountant.get_true_positive_rate_bounds([1e-3])
        assert lower[0] <= float(line[3]) <= upper[0] * 1.01


def test_what_is_not_known_yet_and_what_has_no_answer():
    rows = {training_run.SHUFFLED: "group_size must be small. Found <9>."}
    table = explorer.table_of(RUN, None, rows, {})
    assert [line[1:] for line in cells(table)] == 3 * [["…"] * 3] + [["–"] * 3]
    assert "group_size must be small. Found &lt;9&gt;." in table
    risky = dataclasses.replace(RUN, delta=0.1)
    assert "is not below 1/6000" in explorer.table_of(risky, None, {}, {})


def test_noise_for_a_target_has_a_column():
    way = training_run.POISSON_SAMPLING
    row = explorer.row_of(dataclasses.replace(UNKNOWN, sampling=way), 2.0)
    assert row.epsilon_upper <= 2.0
    table = explorer.table_of(UNKNOWN, 2.0, {way: row}, {})
    assert [line[-1] for line in cells(table)][1] == f"{row.noise_multiplier:g}"


def test_numbers_are_as_people_write_them():
    written, spoken = explorer.written, explorer.spoken
    numbers = [60_000, 60_000.0, 1.1, 0.001, 1e-6, 1.23456e-12, 2.5e-4]
    words = ["60,000", "60,000", "1.1", "0.001", "10⁻⁶", "1.23456 · 10⁻¹²"]
    assert [*map(written, numbers)] == [*words, "2.5 · 10⁻⁴"]
    assert spoken(1e-6) == "10 to the minus 6"
    assert spoken(2.5e-4) == "2.5 times 10 to the minus 4"
    assert spoken(60_000) == "60,000"


def test_what_is_read_aloud():
    rows = {way: explorer.row_of(run, None) for way, run in WAYS.items()}
    words = explorer.words_of(rows)
    upper = decimals.rounded_up(rows[training_run.POISSON_SAMPLING].epsilon_upper, 5)
    assert f"Poisson sampling: ε at most {upper} with noise multiplier 1.3;" in words
    rows[training_run.SHUFFLED] = "group_size must be small."
    assert explorer.words_of(rows).endswith("shuffled or fixed batches: no answer.")
    del rows[training_run.SHUFFLED]
    assert explorer.words_of(rows) == "Computing."


def printed(capsys, command):
    status, out, err = command_runner.run(capsys, command.partition("_ext ")[2])
    assert (status, err) == (0, "")
    return out


@pytest.mark.parametrize(
    ("target", "way", "members"),
    [(None, training_run.SHUFFLED, 2), (2.0, training_run.POISSON_SAMPLING, 1)],
)
def test_commands_and_python_give_the_same(capsys, target, way, members):
    run = dataclasses.replace(WAYS[way], group_size=members)
    table, quoted = explorer.commands_of(run, target).splitlines()
    sentence = explorer.sentence_of(run)
    assert " ".join(printed(capsys, quoted).split()) == sentence
    names = {}
    exec(explorer.python_of(run, target), names)
    assert " ".join(names["sentence"].split()) == sentence
    out = printed(capsys, table)
    asked = dataclasses.replace(run, sampling=None)
    expected = comparison.compare(asked)
    if target is not None:
        expected = calibration.calibrate(asked, target)
    for row, other in zip(names["rows"], expected, strict=True):
        assert dataclasses.replace(row, seconds=0) == dataclasses.replace(
            other, seconds=0
        )
        assert decimals.rounded_up(row.epsilon_upper) in out
    assert names["found"][0].sampling == way == names["quoted"].sampling
    assert isinstance(names["found"], curves.Curves)
    assert isinstance(names["sentence"], statement.Statement)


def test_the_command_gives_the_page_where_to_begin(capsys, monkeypatch):
    served = []
    monkeypatch.setattr(
        explore_command, "serve", lambda *all, show: served.append((*all, show))
    )
    line = "explore --quiet --dataset-size 6000 --batch-size 1000 --epochs 2"
    for given in ("--noise-multiplier 1.3", "--epsilon 2"):
        status, out, err = command_runner.run(capsys, f"{line} {given}")
        assert (status, out, err) == (0, "The page has ended.\n", "")
    begun = dataclasses.replace(RUN, noise_multiplier=1.1)
    assert served == [(RUN, None, 0, False), (begun, 2.0, 0, False)]


def test_without_panel_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "panel", None)
    status, out, err = command_runner.run(capsys, "explore --quiet")
    assert (status, out) == (2, "")
    assert "panel must be installed" in err


@pytest.fixture
def asked():
    """Answers, and what looks at them until a list is so long."""
    answered = threading.Event()
    kept = workers.Answers(answered.set)

    def look_until(found, number):
        while len(found) < number:
            assert answered.wait(timeout=120)
            answered.clear()
            kept.look()

    yield kept, look_until
    kept.end()


def test_answers_are_kept_and_errors_are_words(asked):
    kept, look_until = asked
    found = []
    kept.ask(found.append, pow, 3, 4)
    kept.ask(found.append, int, "x")
    assert found == []
    look_until(found, 2)
    assert sorted(found, key=str)[0] == 81
    assert any("invalid literal" in str(answer) for answer in found)
    kept.ask(found.append, pow, 3, 4)  # At once, for it is known.
    assert found[2:] == [81]


def test_what_is_forgotten_is_stopped_and_not_handed_over(asked):
    kept, look_until = asked
    found = []
    for seconds in (600, 601, 602):
        kept.ask(found.append, time.sleep, seconds)
    kept.forget()
    kept.ask(found.append, pow, 2, 5)
    look_until(found, 1)
    assert found == [32]
    assert threading.active_count() < 50


def test_an_answer_that_was_found_before_it_was_forgotten_is_not_handed_over(asked):
    kept, look_until = asked
    found, other = [], []
    kept.ask(other.append, pow, 3, 4)
    while kept._arrived.empty():
        time.sleep(0.01)
    kept.forget()
    kept.ask(found.append, pow, 2, 5)
    look_until(found, 1)
    assert (found, other) == ([32], [])
