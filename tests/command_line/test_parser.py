"""What all subcommands share: one line of what is wrong, help on standard output."""

import pytest

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.studies import training_run


@pytest.fixture
def whole():
    whole = parser.Parser(prog="prog", allow_abbrev=False)
    commands = parser.add_commands(whole)
    command = parser.add_command(commands, "train", lambda options: "", "trains", "")
    parser.add_run(command, "delta", "group-size")
    return whole


def test_the_options_of_a_training_have_defaults(whole):
    options = whole.parse_args(["train", "--steps-per-epoch", "7", "--delta", "1e-6"])
    assert (options.steps_per_epoch, options.delta) == (7, 1e-6)
    assert (options.batches_per_record, options.epochs, options.group_size) == (1, 1, 1)
    assert options.json is False
    assert options.prog == "prog train"
    assert options.run(options) == ""
    setting = parser.training_run(options, delta=1e-9)
    assert setting == training_run.TrainingRun(None, 7, delta=1e-9)


def test_the_options_of_a_dataset(whole):
    arguments = "train --dataset-size 90 --batch-size 9 --epochs 2.5 --delta 1e-6"
    setting = parser.training_run(whole.parse_args(arguments.split()))
    assert setting == training_run.TrainingRun(
        dataset_size=90, batch_size=9, epochs=2.5, delta=1e-6
    )


def test_no_name_is_broken_at_its_hyphens(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    whole = parser.Parser(prog="prog")
    commands = whole.add_subparsers()
    names = "first-of-all, second-to-none, third-rate, fourth-estate"
    command = parser.add_command(commands, "train", lambda options: "", "trains", "")
    command.add_argument("--name", help=f"one of these names: {names}")
    with pytest.raises(SystemExit):
        whole.parse_args(["train", "--help"])
    shown = capsys.readouterr().out
    assert [name for name in names.split(", ") if name not in shown] == []


def test_steps_are_said_to_be_those_of_an_epoch(whole, capsys):
    with pytest.raises(SystemExit):
        whole.parse_args(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "N / B, not the steps of the whole run" in shown
    assert "Trains." in shown.partition("options:")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "required: --delta"),
        (
            ["train", "--steps-per-epoch", "x", "--delta", "1"],
            "--steps-per-epoch must be a whole number. Found 'x'.",
        ),
        (
            ["train", "--step", "7"],
            "--step. Did you mean --steps-per-epoch?",
        ),
        (
            ["train", "--steps-per-epoch", "7", "--delta", "\n"],
            "--delta must be a number, such as 0.5 or 1e-6. Found",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(whole, capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        whole.parse_args(arguments)
    assert error.value.code == parser.BAD_INPUT == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err and printed.err.count("\n") == 1


def test_help_is_on_standard_output(whole, capsys):
    with pytest.raises(SystemExit) as error:
        whole.parse_args(["train", "--help"])
    assert error.value.code == 0
    printed = capsys.readouterr()
    assert "--group-size" in printed.out and printed.err == ""


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("steps_per_epoch must be …", "--steps-per-epoch must be …"),
        ("dataset_size must be …", "--dataset-size must be …"),
        ("delta is small at this delta.", "--delta is small at this delta."),
        ("mu must be …; see num_epochs", "mu must be …; see num_epochs"),
    ],
)
def test_messages_name_what_was_typed(message, typed):
    assert (
        parser.as_typed(message, ["steps_per_epoch", "dataset_size", "delta"]) == typed
    )
