"""Bounds for many settings, on several processes or machines."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import pathlib
from typing import Any

from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import result_file
from dp_accounting_ext.studies import sweep_rows
from dp_accounting_ext.studies.sweep_rows import COLUMNS as COLUMNS
from dp_accounting_ext.studies.sweep_rows import RESULTS as RESULTS
from dp_accounting_ext.studies.sweep_rows import Cells as Cells
from dp_accounting_ext.studies.sweep_rows import Setting as Setting
from dp_accounting_ext.studies.sweep_rows import bound_row as bound_row
from dp_accounting_ext.studies.sweep_rows import check_columns as check_columns
from dp_accounting_ext.studies.sweep_rows import columns_of as columns_of
from dp_accounting_ext.studies.sweep_rows import setting_of as setting_of

__all__ = [
    "COLUMNS",
    "RESULTS",
    "Setting",
    "Summary",
    "bound_row",
    "check_columns",
    "columns_of",
    "setting_of",
    "sweep",
    "sweep_to_file",
]
__dir__ = __all__.copy

# The identity of a row of a file: its setting, or all of its cells if these are not a
# valid setting; and the cells of the user's own columns.
_Content = tuple[Any, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Summary:
    """The outcome of a sweep to a file.

    Attributes:
        rows: The number of rows of the grid.
        kept: The number of rows that had results in the file, or are duplicates.
        added: The number of rows that were added.
        without_bounds: The number of added rows without results; their note gives the
            reason.
        seconds: CPU time of the added rows, in seconds.
    """

    rows: int
    kept: int
    added: int
    without_bounds: int
    seconds: float


def sweep(
    rows: Iterable[Cells],
    executor: futures.Executor,
    results: Sequence[str] = ("epsilon",),
) -> Iterator[dict[str, Any]]:
    """Yields the rows with results, each as soon as it is found.

        list(sweep(frame.to_dict("records"), executor))  # of a pandas.DataFrame

    Args:
        rows: Mappings from column names to values or their text. Columns are the fields
            of a `TrainingRun`, of which `sampling` must be given where `strategy` is
            not; `strategy`, `epsilon` and `fpr`, as in `Setting`; and any others, which
            are passed through.
        executor: The executor that computes the rows, on processes or on machines.
            `bound_row` and its arguments are sent to it.
        results: Names in `RESULTS`: "epsilon" for bounds on ε, "noise" for the least
            noise that meets the column `epsilon`, and "risks" for bounds on the
            advantage and on the true positive rate at the rate `fpr`.

    Yields:
        The row, with the columns of `columns_of(results)`: results (ε in nats; None
        where there are none), `seconds` of CPU time, and `note`: why there are none, or
        what a reader must know of them.

    Raises:
        ValueError: If results are unknown.
        concurrent.futures.BrokenExecutor: If the executor breaks; what was not yielded
            can be swept with another one.
    """
    asked, columns = tuple(results), columns_of(results)
    pending = {executor.submit(bound_row, dict(row), asked): row for row in rows}
    for future in futures.as_completed(pending):
        yield {**pending.pop(future), **_outcome(future, columns)}


def sweep_to_file(
    rows: Iterable[Cells],
    path: str | pathlib.Path,
    executor: futures.Executor,
    results: Sequence[str] = ("epsilon",),
    progress: progress_of.Progress | None = None,
) -> Summary:
    """Adds the rows with results to a CSV file, each as soon as it is found.

    Rows that have results in the file, in any order, are skipped; others are computed
    again. So a sweep that was stopped, or whose executor broke, continues when it is
    started again. Two rows are the same if their settings and their values in the
    user's own columns are equal.

    Args:
        rows: As for `sweep`; all have the same columns.
        path: The path of a new file, or of the file of an earlier sweep.
        executor: As for `sweep`.
        results: As for `sweep`.
        progress: Called after each row with the number of rows that are done, and of
            all that were not in the file.

    Raises:
        OSError: If the file cannot be read or written.
        ValueError: If results are unknown, columns are wrong or differ, or the file has
            other columns. The file is then left as it was.
        concurrent.futures.BrokenExecutor: If the executor breaks.
    """
    found = columns_of(results)
    grid = [{str(name).strip(): row[name] for name in row} for row in rows]
    if not grid:
        raise ValueError("rows must have a row. Found none.")
    header = tuple(grid[0])
    check_columns(header, results)
    for row in grid:
        if tuple(row) != header:
            raise ValueError(
                f"rows must all have the columns {', '.join(header)}. Found one with "
                f"{', '.join(row)}."
            )
        if any(set("\r\n") & set(sweep_rows._text(value)) for value in row.values()):
            raise ValueError(
                "rows must have cells of one line each. Found one of several lines."
            )
    target = pathlib.Path(path)
    done = result_file.resumed(
        target,
        [*header, *found],
        "the columns of the grid and of results",
        lambda row: bool(row[found[0]]),
    )
    there = {_content({name: row[name] for name in header}) for row in done}
    left = {_content(row): row for row in grid if _content(row) not in there}
    added, without, seconds = 0, 0, 0.0
    with result_file.appended(target) as add:
        if progress is not None:
            progress(0, len(left))
        for row in sweep(left.values(), executor, results):
            add(map(sweep_rows._text, row.values()))
            added += 1
            without += row[found[0]] is None
            seconds += row["seconds"]
            if progress is not None:
                progress(added, len(left))
    return Summary(len(grid), len(grid) - len(left), added, without, seconds)


def _outcome(
    future: "futures.Future[dict[str, Any]]", columns: Sequence[str]
) -> dict[str, Any]:
    """Returns the results, or a note on the error of the row or of its worker."""
    try:
        return future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        raise
    except (TypeError, ValueError) as error:
        note = str(error)
    except Exception as error:  # The other settings are computed anyway.
        note = f"failed: {type(error).__name__}: {error}"
    none = dict.fromkeys(columns)
    return {**none, "seconds": 0.0, "note": " ".join(note.split())}


def _content(row: Cells) -> _Content:
    """Returns the identity of a row: its setting, and the user's own columns."""
    own = tuple(sweep_rows._text(row[name]) for name in row if name not in COLUMNS)
    try:
        return setting_of(row), own
    except (TypeError, ValueError):
        return tuple(map(sweep_rows._text, row.values())), own
