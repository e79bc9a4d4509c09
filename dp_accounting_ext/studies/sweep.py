"""Many settings, on as many processes or machines as there are."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import contextlib
import dataclasses
from typing import Any

from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

__all__ = [
    "COLUMNS",
    "RESULTS",
    "bound_row",
    "check_columns",
    "run_of",
    "sweep",
]
__dir__ = __all__.copy

Cells = Mapping[str, Any]

RESULTS = ("epsilon_lower", "epsilon_upper", "seconds", "note")
COLUMNS = tuple(field.name for field in dataclasses.fields(training_run.TrainingRun))


def sweep(
    rows: Iterable[Cells], executor: futures.Executor
) -> Iterator[dict[str, Any]]:
    """Yields the rows with bounds on ε, each as soon as it is found.

        list(sweep(frame.to_dict("records"), executor))  # of a pandas.DataFrame

    Args:
        rows: From fields of a `TrainingRun` to values or to their text, `sampling` by
            default random allocation.
        executor: Where rows are bounded: on processes, or on the machines of another
            library. `bound_row` and its argument are sent to it.

    Yields:
        The row, with `epsilon_lower` and `epsilon_upper` (in nats; None where there are
        no bounds), `seconds` of CPU time, and `note`: why there are none, or what a
        reader must know of them.

    Raises:
        concurrent.futures.BrokenExecutor: If the executor breaks; what was not yielded
            can be swept with another one.
    """
    pending = {executor.submit(bound_row, dict(row)): row for row in rows}
    for future in futures.as_completed(pending):
        yield {**pending.pop(future), **_outcome(future)}


def bound_row(row: Cells) -> dict[str, Any]:
    """Returns the results of one row.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    found = comparison.bracket(run_of(row))
    return {name: getattr(found, name) for name in RESULTS}


def run_of(row: Cells) -> training_run.TrainingRun:
    """Returns the run of a row, from fields to values or to their text.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    check_columns(row)
    known: dict[str, Any] = {"sampling": training_run.RANDOM_ALLOCATION}
    for name, value in row.items():
        if value is not None and value == value and value != "":  # NaN: left out.
            known[name] = _number(value)
    return training_run.TrainingRun(**known)


def check_columns(names: Iterable[str]) -> None:
    """Raises ValueError unless these are fields of a run."""
    for name in names:
        if name not in COLUMNS:
            raise ValueError(
                f"columns must be of {', '.join(COLUMNS)}, in a file separated by "
                f"commas. Found {name!r}."
            )


def _number(value: Any) -> Any:
    """Returns the number that a text means; a whole one is an integer, as in pandas."""
    with contextlib.suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _outcome(future: "futures.Future[dict[str, Any]]") -> dict[str, Any]:
    """Returns the results, or what became of the row or of its worker."""
    try:
        return future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        raise
    except (TypeError, ValueError) as error:
        note = str(error)
    except Exception as error:  # Whatever it is, the other settings go on.
        note = f"failed: {type(error).__name__}: {error}"
    return dict(zip(RESULTS, (None, None, 0.0, " ".join(note.split())), strict=True))
