"""The subcommand sweep: many settings, from a file to a file."""

import argparse
from collections.abc import Iterator
from concurrent import futures
import csv
import multiprocessing
from multiprocessing import resource_tracker
import os
import pathlib
import signal
import threading
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import progress_line
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run

_EPILOG = """\
example:
  printf '%s\\n' noise_multiplier,dataset_size,batch_size,epochs,delta \\
      1,60000,600,10,1e-6 2,60000,600,10,1e-6 > grid.csv
  python -m dp_accounting_ext sweep --grid grid.csv --output table.csv

The grid is a CSV file with a setting a row. Its columns are noise_multiplier,
delta, epochs, dataset_size and batch_size (or steps_per_epoch and
batches_per_record) and, if you like, group_size and sampling: random-allocation
(which an empty cell is), poisson-sampling, no-amplification or shuffled.

The output has these columns and epsilon_lower, epsilon_upper, seconds (of CPU)
and note. Each row is added as soon as it is found, so that a stopped run goes
on where it stopped when it is started again. Rows that the output has are left
out, wherever they stand in the grid; those without bounds are tried again.

Exit status: 0; 1 if a row has no bounds, and a note that says why; 2 for bad
input; 130 if interrupted.
"""
_OUTPUT = "a file, new or with the columns of the grid, that can be written"
_KILLED = "failed: its worker was killed, as for want of memory"
_KEPT = "surrogateescape"  # Bytes that are no text stay as they are.
_MOST_WORKERS = 1024  # Tuning: each is a process with all of NumPy in it.

Row = dict[str, Any]
Content = training_run.TrainingRun | tuple[str, ...]


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "bounds on ε of many settings, from a file to a file"
    command = parser.add_command(commands, "sweep", _run, words, _EPILOG)
    parser.add(command, "grid", str, "FILE", "settings, a row each", required=True)
    parser.add(command, "output", str, "FILE", "that rows are added to", required=True)
    cores = os.cpu_count() or 1
    words = "processes; default: as many as there are cores"
    parser.add(command, "workers", int, "N", words, default=cores)


def _run(options: argparse.Namespace) -> str:
    if not 1 <= options.workers <= _MOST_WORKERS:
        raise ValueError(
            f"workers must be from 1 to {_MOST_WORKERS}. Found {options.workers}."
        )
    rows = _grid(options.grid)
    added: list[Row] = []
    there = _resumed(options.output, [*rows[0], *sweep.RESULTS])
    left = {_content(row): row for row in rows if _content(row) not in there}
    kept, total = len(rows) - len(left), len(left)
    with (
        open(options.output, "a", encoding="utf-8", newline="") as file,
        progress_line.shown(lambda: f"{len(added)} of {total} rows"),
    ):
        try:
            for row in _swept(left, options.workers):
                csv.writer(file, lineterminator="\n").writerow(row.values())
                file.flush()
                added.append(row)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; run it again to go on.") from None
    seconds = sum(row["seconds"] for row in added)
    bare = sum(row["epsilon_upper"] is None for row in added)
    printed = f"{options.output}: {kept} rows kept, {len(added)} added"
    printed += f" in {seconds:.1f} CPU s" * bool(added)
    printed += f", {bare} of these without bounds (see note)" * bool(bare)
    if options.json:
        known = {"grid": options.grid, "output": options.output, "rows": len(rows)}
        known |= {"kept": kept, "added": len(added), "without_bounds": bare}
        printed = text.as_json({**known, "seconds": seconds})
    if bare:
        raise text.IncompleteError(printed)
    return printed


def _swept(left: dict[Content, Row], workers: int) -> Iterator[Row]:
    """Yields rows with results, also of one that kills its worker, and takes them away.

    Who killed it is not told: what was running is run again, each row alone.
    """
    in_flight, alone = 4 * workers, False
    while left:
        rows = list(left.values())[: in_flight if alone else None]
        try:
            with WorkerPool(1 if alone else workers) as pool:
                at_once = 1 if alone else in_flight
                for row in sweep.sweep(rows, pool, in_flight=at_once):
                    del left[_content(row)]
                    yield row
            alone = False
        except futures.BrokenExecutor:
            if alone:
                yield {**left.pop(next(iter(left))), **sweep.without_bounds(_KILLED)}
            alone = not alone


class WorkerPool(futures.ProcessPoolExecutor):
    """Processes that end with this one, also if it is killed, and leave Ctrl-C to it.

    Its `with` statement ends at once where it ends by an error, or by Ctrl-C.
    """

    def __init__(self, workers: int) -> None:
        # A fork of a process with threads may never run; a new process does.
        context = multiprocessing.get_context("spawn")
        # Started along with the first worker, it would let interrupts through.
        resource_tracker.ensure_running()
        super().__init__(workers, mp_context=context, initializer=_end_with_parent)

    def submit(self, *args: Any, **kwargs: Any) -> "futures.Future[Any]":
        """As in `Executor`; a worker that this starts inherits a mask of interrupts."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            # First what waits is forgotten: of broken pools Python would complain.
            self.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.kill()
        super().__exit__(kind, error, trace)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _content(row: Row) -> Content:
    """Returns what tells rows apart: their runs; their cells, where these are none."""
    cells = {name: row[name] for name in row if name not in sweep.RESULTS}
    try:
        return sweep.run_of(cells)
    except (TypeError, ValueError):
        return tuple(cells.values())


def _grid(path: str) -> list[Row]:
    """Returns the rows of a CSV file with a header, from columns to cells."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            # A quote that is never closed is an error, no cell to the end of the file.
            lines = [cells for cells in csv.reader(file, strict=True) if cells]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"grid must be a CSV file in UTF-8. {error}.") from None
    if len(lines) < 2:
        raise ValueError("grid must have a header and a row at least. Found less.")
    header, *rows = lines
    sweep.check_columns(header)
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(header) or any(len(c.splitlines()) > 1 for c in cells):
            raise ValueError(
                f"grid's rows must have {len(header)} cells of one line each. Found "
                f"others in row {number}."
            )
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def _resumed(path: str, header: list[str]) -> set[Content]:
    """Makes a table fit to be added to; returns what it has bounds of.

    Raises:
        OSError: If the file cannot be read or written.
        ValueError: If it is no table with these columns; it is left as it was.
    """
    before = ""
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise ValueError(f"output must be {_OUTPUT}. Found {path!r}.")
        with open(path, encoding="utf-8", newline="", errors=_KEPT) as file:
            before = file.read()
    first = ",".join(header) + "\n"
    if not first.startswith(before[: len(first)]):
        raise ValueError(
            f"output must be {_OUTPUT}. Found {path!r}, whose first line is another; "
            f"name another file."
        )
    kept: dict[str, Content] = {}
    whole = before[: before.rfind("\n") + 1]  # The last line may be written in part.
    for number, line in enumerate(whole.split("\n")[1:-1], start=2):
        try:
            (cells,) = csv.reader([line], strict=True)
            row = dict(zip(header, cells, strict=True))
        except (ValueError, csv.Error):
            raise ValueError(
                f"output must be {_OUTPUT}. Found {path!r}, whose line {number} is no "
                f"row; mend it, or name another file."
            ) from None
        if row["epsilon_upper"]:
            kept[line] = _content(row)
    after = first + "".join(f"{line}\n" for line in kept)
    if after != before:
        part = pathlib.Path(f"{path}.part")
        part.write_text(after, encoding="utf-8", newline="", errors=_KEPT)
        part.replace(path)
    return set(kept.values())
