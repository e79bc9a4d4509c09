"""What all subcommands share: one line of what is wrong, options with defaults."""

import pytest

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.studies import training_run


@pytest.fixture
def whole():
    whole = parser.Parser(prog="prog", allow_abbrev=False)
    commands = whole.add_subparsers(parser_class=parser.Parser)
    run = "train", lambda options: ({}, ""), "trains", "", "--delta D"
    parser.add_run(parser.add_command(commands, *run), "noise_multiplier")
    return whole


def test_the_options_of_a_training_have_defaults(whole):
    options = whole.parse_args(["train", "--steps-per-epoch", "7", "--delta", "1e-6"])
    assert (options.steps_per_epoch, options.delta) == (7, 1e-6)
    assert (options.batches_per_record, options.group_size) == (1, 1)
    assert options.json is False
    assert options.prog == "prog train"
    assert options.run(options) == ({}, "")
    setting = parser.training_run(options, delta=1e-9)
    assert "noise_multiplier" not in vars(options)
    assert setting == training_run.TrainingRun(None, 7, delta=1e-9)


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
