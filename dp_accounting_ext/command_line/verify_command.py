"""The subcommand verify: ε of a training run by a second, independent computation."""

import argparse
import textwrap
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import second_opinion
from dp_accounting_ext.studies import training_run

_VERIFY = """\
example:
  python -m dp_accounting_ext verify --noise-multiplier 1 --delta 1e-6 \\
      --dataset-size 60000 --batch-size 600 --sampling poisson-sampling

A run is computed again, by code that shares nothing with the accountant but
the classes of events: in ball arithmetic where a theorem gives both bounds,
else by draws from the definition of the run, which can refute a number and
say what they could have seen. It takes about a minute for each way of drawing
batches. It needs python-flint: pip install '.[verify]'.

Exit status: 0 where every bound is confirmed; 1 where one is certainly wrong;
4 where none is refuted but not all are confirmed; 3 where there is no bound
to compare with; 2 for bad input.
"""


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "a second opinion on the bounds, by arithmetic of its own"
    usage = "--noise-multiplier X --delta X"
    command = parser.add_command(commands, "verify", _verify, words, _VERIFY, usage)
    parser.add_run(command)


def _verify(options: argparse.Namespace) -> parser.Printed:
    run = parser.training_run(options)
    runs = training_run.schemes_of(run)
    opinions = map(second_opinion.opinion, runs)
    found = list(text.counted(opinions, len(runs), "second opinions"))
    verdict = second_opinion.worst(found).value
    title = f"ε at δ = {run.delta:g}, noise multiplier {run.noise_multiplier:g}, "
    lines = [f"{title}{run.in_words}", *(each.in_words for each in found)]
    printed = "\n\n".join(textwrap.fill(line, text.WIDTH) for line in lines)
    return {"setting": run.to_dict(), "verdict": verdict, "results": found}, printed
