"""The subcommand sweep: many settings, from a file to a file."""

import argparse
import os
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import worker_pool
from dp_accounting_ext.validation import fields

_EPILOG = """\
example:
  printf '%s\\n' noise_multiplier,steps,selected,epochs,delta \\
      1,100,1,10,1e-6 2,100,1,10,1e-6 > grid.csv
  python -m dp_accounting_ext sweep --grid grid.csv --output table.csv

The grid is a CSV file with columns noise_multiplier, steps (of one epoch),
selected, epochs and delta and, if you like, scheme ("random allocation", which
an empty cell is, "Poisson sampling" or "no amplification") and group_size. The
output has them too, and epsilon_lower, epsilon_upper, seconds (of CPU) and
note: why a bracket is wide, or why there is none. Rows are appended as they
are found. A run that was stopped, however it was, goes on where it stopped
when it is started again.
"""
_OUTPUT = "a file, new or of this grid, in a directory that can be written to"
# Tuning: each is a process with all of NumPy in it.
_MOST_WORKERS = 1024


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    command = parser.add_command(
        commands,
        "sweep",
        _run,
        help="ε of many settings, from a file to a file",
        epilog=_EPILOG,
    )
    command.add_argument(
        "--grid", required=True, metavar="FILE", help="settings, a row each"
    )
    command.add_argument(
        "--output", required=True, metavar="FILE", help="that rows are added to"
    )
    command.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes; default: as many as there are cores",
    )


def _run(options: argparse.Namespace) -> str:
    cores = os.cpu_count() or 1
    workers = cores if options.workers is None else options.workers
    if fields.positive_integer("workers", workers) > _MOST_WORKERS:
        raise ValueError(f"workers must be at most {_MOST_WORKERS}. Found {workers}.")
    pool = worker_pool.WorkerPool(workers)
    try:
        with (
            parser.named_file("output", options.output, _OUTPUT),
            parser.named_file("grid", options.grid, "a CSV file that can be read"),
            progress_line.Progress("rows") as progress,
        ):
            summary = sweep.sweep(
                options.grid,
                options.output,
                pool,
                in_flight=max(128, 4 * workers),
                progress=progress.show,
            )
        # Threads that still end when Python does complain on standard error.
        pool.shutdown()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run it again to go on.") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if options.json:
        return _json(options, summary)
    return _sentence(options, summary)


def _json(options: argparse.Namespace, summary: sweep.Summary) -> str:
    return text.as_json(
        {
            "grid": options.grid,
            "output": options.output,
            "rows": summary.num_rows,
            "kept": summary.num_kept,
            "added": summary.num_rows - summary.num_kept,
            "without_bounds": summary.num_without_bounds,
            "seconds": summary.seconds,
        }
    )


def _sentence(options: argparse.Namespace, summary: sweep.Summary) -> str:
    added = summary.num_rows - summary.num_kept
    words = f"{options.output}: {summary.num_kept} rows kept, {added} added"
    if added:
        words += f" in {summary.seconds:.1f} CPU s"
    if summary.num_without_bounds:
        words += f", {summary.num_without_bounds} of these without bounds (see note)"
    return words
