"""Many settings, on as many processes or machines as there are."""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import time

from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import grid_file
from dp_accounting_ext.studies import results_file

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Result:
    """What one row of a table says of its setting.

    Attributes:
        epsilon_lower: Lower bound on ε, in nats; None where there is none.
        epsilon_upper: Upper bound on ε, in nats; None with the lower one.
        seconds: CPU time.
        note: Why there are no bounds, or what a reader must know of them; one line.
    """

    epsilon_lower: float | None
    epsilon_upper: float | None
    seconds: float
    note: str

    def cells(self) -> grid_file.Cells:
        """Returns the text of `results_file.RESULTS`; no digit of a bound is lost."""
        lower, upper = (
            "" if bound is None else repr(float(bound))
            for bound in (self.epsilon_lower, self.epsilon_upper)
        )
        return lower, upper, f"{self.seconds:.3f}", " ".join(self.note.split())


@dataclasses.dataclass
class Summary:
    """What a sweep did.

    Attributes:
        num_rows: Rows of the grid.
        num_kept: Rows that were there before.
        num_without_bounds: Rows that were added and have no bounds, but a reason.
        seconds: CPU time of the rows that were added.
    """

    num_rows: int
    num_kept: int
    num_without_bounds: int = 0
    seconds: float = 0.0


def sweep(
    grid: grid_file.Path,
    output: grid_file.Path,
    executor: futures.Executor,
    *,
    in_flight: int = 128,
    progress: Progress | None = None,
) -> Summary:
    """Bounds ε at every setting of a grid, in its order, and appends them to a table.

    Args:
        grid: The grid's file, see `grid_file.read`.
        output: The table's file: the grid's columns and `results_file.RESULTS`. What
            it has is kept byte for byte, and the rest of the grid is added. It can be
            killed at any moment, and called again with the same arguments.
        executor: Where settings are computed: of processes, or of another library
            that has one machine or many. `bound_row` and its argument are sent to it.
        in_flight: The largest number of rows handed to the executor at a time.
        progress: Called with the number of rows done, and of all, after each.

    Raises:
        OSError: If a file cannot be read or written.
        ValueError: If the grid is malformed, or the output of another grid; nothing
            is written.
        concurrent.futures.BrokenExecutor: If the executor breaks, all of it. Go on
            with another one.

    Guarantees:
        A setting that is no setting, fails, or kills the worker it runs on, has a row
        with empty bounds and the reason.
    """
    whole = grid_file.read(grid)
    with results_file.resume(output, whole) as table:
        summary = Summary(len(whole.rows), table.num_rows)
        rest = whole.rows[table.num_rows :]
        rows = [dict(zip(whole.columns, cells, strict=True)) for cells in rest]
        results = _in_order(rows, executor, in_flight)
        for cells, result in zip(rest, results, strict=True):
            table.append([*cells, *result.cells()])
            summary.num_without_bounds += result.epsilon_upper is None
            summary.seconds += result.seconds
            if progress:
                progress(table.num_rows, summary.num_rows)
    return summary


def bound_row(row: Mapping[str, str]) -> Result:
    """Returns the result of one row, from columns to cells; never raises."""
    begin = time.process_time()
    try:
        bracket = comparison.bracket(*grid_file.read_row(row))
    except (TypeError, ValueError) as error:
        return Result(None, None, time.process_time() - begin, str(error))
    except Exception as error:  # Whatever it is, the other settings go on.
        reason = f"failed: {type(error).__name__}: {error}"
        return Result(None, None, time.process_time() - begin, reason)
    return Result(
        bracket.epsilon_lower, bracket.epsilon_upper, bracket.seconds, bracket.note
    )


def _in_order(
    rows: Sequence[Mapping[str, str]], executor: futures.Executor, in_flight: int
) -> Iterator[Result]:
    """Yields the rows' results in order, a few of them computed ahead."""
    ahead: collections.deque[futures.Future[Result]] = collections.deque()
    try:
        for row in rows:
            ahead.append(executor.submit(bound_row, row))
            if len(ahead) >= in_flight:
                yield _outcome(ahead.popleft())
        while ahead:
            yield _outcome(ahead.popleft())
    finally:
        for future in ahead:
            future.cancel()


def _outcome(future: "futures.Future[Result]") -> Result:
    """Returns the result, or what became of the worker that was to find it."""
    try:
        return future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        raise
    except Exception as error:
        reason = f"failed: {type(error).__name__}: {error}"
        return Result(None, None, 0.0, reason)
