"""What all subcommands share: one line of what is wrong, help on standard output."""

import pytest

from dp_accounting_ext.command_line import parser


@pytest.fixture
def whole():
    whole = parser.Parser(prog="prog", allow_abbrev=False)
    commands = whole.add_subparsers(required=True)
    command = parser.add_command(commands, "train", lambda options: "", help="trains")
    parser.add_training(command)
    return whole


def test_the_options_of_a_training_have_defaults(whole):
    options = whole.parse_args(["train", "--steps", "7", "--delta", "1e-6"])
    assert (options.steps, options.delta) == (7, 1e-6)
    assert (options.selected, options.epochs, options.group_size) == (1, 1, 1)
    assert options.json is False
    assert options.prog == "prog train"
    assert options.run(options) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required"),
        (["train"], "required: --steps, --delta"),
        (["train", "--steps", "x", "--delta", "1"], "invalid int value: 'x'"),
        (["train", "--step", "7", "--delta", "1"], "--steps"),
        (["train", "--steps", "7", "--delta", "\n"], "invalid float value"),
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
