"""The subcommand statement: what a training run promises, in words."""

import argparse
from typing import Any

from dp_accounting_ext import risk
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import real_loops
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  python -m dp_accounting_ext statement --dataset-size 60000 --batch-size 250 \\
      --epochs 15 --noise-multiplier 1.1 --delta 1e-6 --group-size 5

A text to stand beside a model: ε for one example and, with --group-size, for a
user with so many; if an example is added or removed, and if it is replaced; for
each way of drawing batches, with what would break it. Numbers are certified
upper bounds, rounded up; --json has both bounds in full. With --risk, what an
attacker can do as well; with --loop, what becomes of the promise in a real
loop.
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands, "statement", _run, "what a training run promises, in words", _EPILOG
    )
    parser.add_run(command, "noise-multiplier", "delta", "group-size")
    form = command.add_mutually_exclusive_group()
    form.add_argument(
        "--markdown", action="store_true", help="a section for a model's card"
    )
    form.add_argument("--brief", action="store_true", help="three sentences")
    command.add_argument(
        "--risk", action="store_true", help="what an attacker can do, in words"
    )
    command.add_argument(
        "--loop",
        nargs="+",
        default=[],
        metavar="PRACTICE",
        help="what the loop does: " + ", ".join(map(repr, real_loops.PRACTICES)),
    )


def _run(options: argparse.Namespace) -> str:
    run = parser.training_run(options)
    loops = real_loops.in_words(options.loop)
    with progress_line.shown(lambda: "statement"):
        rows = statement.claims(run)
        risks = _risks(run) if options.risk else {}
    if options.json:
        known = {"setting": run.to_dict(), "warnings": statement.warnings(run)}
        if options.risk:
            known["risk"] = risks
        if loops:
            known["loop"] = {name: real_loops.PRACTICES[name] for name in options.loop}
        return text.json_of_rows(known, rows)
    form = statement.card if options.markdown else statement.words
    parts = [(statement.brief if options.brief else form)(run, rows)]
    for scheme, told in risks.items():
        # In Markdown a table of plain text stays one between fences.
        fenced = f"\n\n```text\n{told}\n```" if options.markdown else f" {told}"
        parts.append(f"With {scheme}:{fenced}")
    return "\n\n".join([*parts, *[loops] * bool(loops)])


def _risks(run: training_run.TrainingRun) -> dict[str, str]:
    """Returns risks in words, for each way of drawing batches."""
    found = {}
    for each in training_run.schemes_of(run):
        name = f"{each.sampling} ({comparison.ADJACENCIES[each.neighboring_relation]})"
        if each.group_size > 1:
            name += f", {each.group_size} records in place of the one record"
        found[name] = risk.in_words(each.accountant())
    return found
