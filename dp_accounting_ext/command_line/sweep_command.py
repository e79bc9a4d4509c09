"""The subcommand sweep: many settings, from a file to a file."""

import argparse
from collections.abc import Iterator
from concurrent import futures
import contextlib
import csv
import dataclasses
import itertools
import logging
import os
import pathlib
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import tables
from dp_accounting_ext.command_line import text
from dp_accounting_ext.command_line import workers
from dp_accounting_ext.studies import result_file
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.validation import fields

_EPILOG = """\
example:
  printf '%s\\n' run,noise_multiplier,steps_per_epoch,epochs,delta,sampling \\
      a,1,100,10,1e-6,poisson-sampling b,1,100,10,1e-6,shuffled > grid.csv
  python -m dp_accounting_ext sweep --grid grid.csv --output table.csv

The grid is a CSV file with a setting a row. Its columns are noise_multiplier,
delta, epochs (or num_steps), dataset_size and batch_size (or sampling_rate; or
steps_per_epoch and batches_per_record); sampling: random-allocation,
poisson-sampling, no-amplification or shuffled; or in its place strategy, of
correlated noise: "1,0.5,0.25" for a banded Toeplitz matrix, blt:DECAYS:SCALES
for a BLT; and, if you like, group_size. Other columns, as run here, are passed
through.

--results are epsilon: bounds on ε; noise: the least noise_multiplier that meets
the ε in the column epsilon; risks: bounds on the advantage of a membership test
and on its true positive rate at the false positive rate fpr (0.001, unless
there is such a column). The output has the grid's columns and those of results,
as epsilon_lower and epsilon_upper, then seconds (of CPU) and note.

Each row is added as soon as it is found, so that a stopped run goes on where it
stopped when it is started again. Rows that the output has are left out,
wherever they stand in the grid; those without bounds are tried again.

With --scheduler, the workers of a Dask cluster do it (pip install '.[dask]');
the package must be installed where they are. Where one dies, others take over.

Exit status: 0; 1 if a row has no bounds, and a note that says why; 2 for bad
input; 130 if interrupted.
"""

_AGAIN = "run it again to go on"
# The number of further attempts at a row on a cluster, besides those after a worker
# died.
_RETRIES = 3


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "bounds on ε, noise or risks of many settings, from a file to a file"
    usage = "--grid FILE --output FILE"
    command = parser.add_command(commands, "sweep", _run, words, _EPILOG, usage)
    parser.add(command, "grid", pathlib.Path, "settings, a row each", required=True)
    parser.add(command, "output", pathlib.Path, "what rows are added to", required=True)
    words = f"what is found: {', '.join(sweep.RESULTS)}; default: epsilon"
    parser.add(command, "results", str, words, nargs="+")
    words = "of the grid, where it has no mark, such as cp1252"
    parser.add(command, "encoding", str, words, default="utf-8")
    where = command.add_mutually_exclusive_group()
    cores = os.cpu_count() or 1
    parser.add(where, "workers", int, f"processes at a time; default: {cores}")
    parser.add(
        where, "scheduler", str, "address of a Dask scheduler, as tcp://host:8786"
    )


def _run(options: argparse.Namespace) -> parser.Printed:
    results = options.results or ["epsilon"]
    header, rows = _grid(options.grid, options.encoding)
    sweep.check_columns(header, results)
    try:
        with _executor(options) as executor, text.Progress("settings") as progress:
            summary = sweep.sweep_to_file(
                rows, options.output, executor, results, progress
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_AGAIN}.") from None
    except (futures.BrokenExecutor, futures.CancelledError) as error:
        raise ValueError(
            f"scheduler must stay there until the last row is found. Found that it "
            f"left ({type(error).__name__}); {_AGAIN}."
        ) from None
    outcome = {"grid": str(options.grid), "output": str(options.output)}
    outcome |= dataclasses.asdict(summary)
    printed = "{output}: {kept} rows kept, {added} added in {seconds:.1f} CPU s"
    if summary.without_bounds:
        printed += ", {without_bounds} of these without bounds (see note)"
    return outcome, printed.format(**outcome)


def _grid(path: pathlib.Path, encoding: str) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the columns and the rows of a grid."""
    form = "grid must be a CSV file with a header and a row for each setting"
    text = tables.text_of("grid", path.read_bytes(), path, encoding)
    separator = max(",;\t", key=text.lstrip().partition("\n")[0].count)
    try:
        lines = result_file.table_of(text, delimiter=separator, skipinitialspace=True)
    except csv.Error as error:
        raise ValueError(f"{form}. Found {error} of {path}.") from None
    table = [
        cells for cells in ([*map(str.strip, line)] for line in lines) if any(cells)
    ]
    if len(table) < 2:
        words = "no row below the header of" if table else "an empty file,"
        raise ValueError(f"{form}. Found {words} {path}.")
    is_used = [any(column) for column in zip(*table, strict=True)]
    header, *body = (list(itertools.compress(cells, is_used)) for cells in table)
    rows = [dict(zip(header, cells, strict=True)) for cells in body]
    if separator == ";":  # Semicolons separate cells if commas are decimal points.
        rows = [{name: _pointed(name, row[name]) for name in row} for row in rows]
    return header, rows


def _pointed(column: str, cell: str) -> str:
    """Returns the cell, with a decimal point if it is a number with a comma."""
    is_number = column in sweep.COLUMNS and column != "strategy"
    return cell.replace(",", ".") if is_number and cell.count(",") == 1 else cell


@contextlib.contextmanager
def _executor(options: argparse.Namespace) -> Iterator[futures.Executor]:
    """Returns the executor that computes the rows."""
    if options.scheduler is None:
        number = os.cpu_count() or 1
        if options.workers is not None:
            number = fields.positive_integer("workers", options.workers)
        with workers.Workers(number) as pool:
            yield pool
        return
    import distributed

    # Rows report what failed. These loggers report event loops that an interrupt ended.
    # Dask sets the levels of two of them, so that these are named, too.
    for name in (
        *("distributed", "distributed.client"),
        *("tornado", "tornado.application", "asyncio"),
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(options.scheduler)
    except Exception as error:
        raise ValueError(
            "scheduler must be the address of a Dask scheduler that answers, as "
            f"tcp://host:8786. Found {options.scheduler!r}: {error}."
        ) from None
    with client:
        yield client.get_executor(retries=_RETRIES)
