"""The subcommand canaries: whether guesses of membership refute a run's claim."""

import argparse
import pathlib
import textwrap
from typing import Any

from dp_accounting_ext.command_line import columns
from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import tables
from dp_accounting_ext.command_line import text
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  printf 'score,member\\n2.1,1\\n-0.3,0\\n0.4,1\\n-1.2,0\\n' > scores.csv
  python -m dp_accounting_ext canaries --scores scores.csv --guesses 2 \\
      --noise-multiplier 1 --dataset-size 60000 --batch-size 600 --epochs 10

Before the run a fair coin decides of each canary, a record of your own, whether
it takes part (with --sampling shuffled: which of two records does). The file
has a row for each canary: a score, from all that the run released, which is
larger if the canary seems to have taken part; and 1 if it did, otherwise 0. Of
the highest scores it is guessed that they took part. Choose the number of
guesses before you look at scores, as canaries.plan does in Python.

If more guesses are right than a row of the table allows, the run was not as the
row says, or the audit was not: noise, batches, coins. A true row is refuted
with a probability of at most --significance. Not refuted does not mean private:
no attack finds every fault.
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "an audit of what was trained, by canaries and guesses of membership"
    usage = "--scores FILE --guesses N"
    command = parser.add_command(commands, "canaries", _audit, words, _EPILOG, usage)
    parser.add(command, "scores", pathlib.Path, "CSV file: columns score, member")
    parser.add(command, "guesses", int, "guesses, chosen before looking at scores")
    words = '"in", or "both": half of the guesses say that canaries were out'
    parser.add(command, "guess", str, words, default="in")
    words = "largest probability with which a true claim is refuted"
    parser.add(command, "significance", float, words, default=0.05)
    parser.add_run(command, "delta")


def _audit(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    scores, members = _columns(training_run.given("scores", options.scores))
    asked = "guesses, chosen before scores are seen, as canaries.plan does,"
    guesses = training_run.given(asked, options.guesses)
    settings = {name: getattr(options, name) for name in ("guess", "significance")}
    runs, found = training_run.schemes_of(run), {}
    for each in text.counted(runs, len(runs), "ways of drawing batches"):
        found[str(each.sampling)] = canaries.audit(
            each.accountant(), scores, members, guesses=guesses, **settings
        )
    title = f"{scores.size} canaries, noise multiplier {run.noise_multiplier:g}, "
    title = textwrap.fill(title + run.in_words, text.WIDTH)
    table = canaries.table(title + "\n", found)
    results = [
        {"sampling": name, **vars(each), "refuted": each.refuted}
        for name, each in found.items()
    ]
    return {"setting": run.to_dict(), "results": results}, table.text()


def _columns(path: pathlib.Path) -> tuple[FloatArray, FloatArray]:
    table = tables.read("scores", path)
    names = [name.casefold() for name in table.header]
    if not {"score", "member"} <= set(names):
        raise ValueError(
            f"scores must be a file with columns named score and member. Found "
            f"{', '.join(filter(None, names)) or 'no names'} in {path}."
        )
    places = [names.index("score"), names.index("member")]
    scores, members = columns.numbers(table, places).T
    return scores, members
