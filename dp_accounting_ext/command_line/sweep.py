"""The subcommand sweep: many settings, from a file to a file."""

import argparse
from collections.abc import Callable
from concurrent import futures
import contextlib
import csv
import io
import os
import pathlib
import pickle
import subprocess
import sys
import threading
from typing import Any

from dp_accounting_ext.command_line import parser
from dp_accounting_ext.command_line import text
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

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

_SERVE = "from dp_accounting_ext.command_line import sweep; sweep.serve()"
Row = dict[str, Any]
Content = training_run.TrainingRun | tuple[str, ...]


def add_to(commands: Any) -> None:
    """Adds the subcommand."""
    words = "bounds on ε of many settings, from a file to a file"
    usage = "--grid FILE --output FILE"
    command = parser.add_command(commands, "sweep", _run, words, _EPILOG, usage)
    parser.add(command, "grid", pathlib.Path, "settings, a row each", required=True)
    parser.add(command, "output", pathlib.Path, "what rows are added to", required=True)
    cores = os.cpu_count() or 1
    parser.add(command, "workers", int, "processes at a time", default=cores)


def _run(options: argparse.Namespace) -> parser.Printed:
    number = fields.positive_integer("workers", options.workers)
    rows = _rows("grid", options.grid.read_bytes())
    if not rows:
        raise ValueError("grid must have a header and a row. Found less.")
    sweep.check_columns(rows[0])
    there = _resumed(options.output, [*rows[0], *sweep.RESULTS])
    left = {_content(row): row for row in rows if _content(row) not in there}
    found: dict[str, Any] = {"grid": str(options.grid), "output": str(options.output)}
    found |= {"rows": len(rows), "kept": len(rows) - len(left)}
    found |= {"added": 0, "without_bounds": 0, "seconds": 0.0}
    try:
        with (
            open(options.output, "a", encoding="utf-8", newline="") as file,
            Workers(number) as pool,
        ):
            for row in text.counted(
                sweep.sweep(left.values(), pool), len(left), "settings"
            ):
                csv.writer(file, lineterminator="\n").writerow(row.values())
                file.flush()
                found["added"] += 1
                found["without_bounds"] += row["epsilon_upper"] is None
                found["seconds"] += row["seconds"]
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run it again to go on.") from None
    printed = "{output}: {kept} rows kept, {added} added in {seconds:.1f} CPU s"
    if found["without_bounds"]:
        printed += ", {without_bounds} of these without bounds (see note)"
    return found, printed.format(**found)


def _content(row: Row) -> Content:
    """Returns what tells rows apart: their runs; their cells, where these are none."""
    cells = {name: row[name] for name in row if name not in sweep.RESULTS}
    try:
        return sweep.run_of(cells)
    except (TypeError, ValueError):
        return tuple(cells.values())


def _rows(option: str, content: bytes) -> list[Row]:
    """Returns the rows of a CSV file, from columns to cells of one line each."""
    try:
        # A quote that is never closed is an error, no cell to the end of the file.
        lines = io.StringIO(content.decode("utf-8-sig"), newline="")
        table = csv.DictReader(lines, strict=True)
        rows = list(table)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{option} must be a CSV file in UTF-8. {error}.") from None
    for number, row in enumerate(rows, start=1):
        is_whole = len(row) == len(table.fieldnames or ()) and None not in row.values()
        if not is_whole or any(len(cell.splitlines()) > 1 for cell in row.values()):
            raise ValueError(
                f"{option}'s rows must have a cell of one line for each column, and "
                f"columns other names. Found others in row {number}."
            )
    return rows


def _resumed(path: pathlib.Path, header: list[str]) -> set[Content]:
    """Makes a table fit to be added to; returns what it has bounds of.

    Raises:
        OSError: If the file cannot be read or written.
        ValueError: If it is no table with these columns; it is left as it was.
    """
    before = path.read_bytes() if path.exists() else b""
    first = f"{','.join(header)}\n".encode()
    try:
        if before[: len(first)] != first[: len(before)]:
            raise ValueError("Its first line is another.")
        # The last line may be written in part.
        rows = _rows("output", before[: before.rfind(b"\n") + 1])
    except ValueError as error:
        raise ValueError(
            f"output must be a file, new or with the columns of the grid and of "
            f"results; name another one, or mend it. Found {str(path)!r}. {error}"
        ) from None
    rows = [row for row in rows if row["epsilon_upper"]]
    part = pathlib.Path(f"{path}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)
    return {_content(row) for row in rows}


class Workers(futures.ThreadPoolExecutor):
    """Threads, each with a process that does what is submitted.

    Where a process is killed its task fails, and no other. At the end of the `with`
    statement all that is not done is left.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._mine = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "futures.Future[Any]":
        """As in `Executor`; all must be such as can be pickled."""
        return super().submit(self._answer, function, args, kwargs)

    def _answer(self, *task: Any) -> Any:
        process = getattr(self._mine, "process", None) or self._started()
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer, error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._mine.process = None
            reason = "its worker was killed, as for want of memory"
            raise ChildProcessError(reason) from None
        if error is not None:
            raise error
        return answer

    def _started(self) -> Any:
        self._mine.process = process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Where a terminal's Ctrl-C does not go.
        )
        self._processes.append(process)
        return process

    def __exit__(self, *error: Any) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
            process.communicate()


def serve() -> None:
    """Does the tasks of the standard input, until that or the output ends."""
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            function, args, kwargs = pickle.load(sys.stdin.buffer)
            answer: tuple[Any, Exception | None]
            try:
                answer = function(*args, **kwargs), None
            except Exception as error:
                answer = None, error
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.flush()
