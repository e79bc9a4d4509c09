"""Many settings, on as many processes or machines as there are."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import dataclasses
import itertools
from typing import Any

from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

Cells = Mapping[str, Any]

RESULTS = ("epsilon_lower", "epsilon_upper", "seconds", "note")
_FLOATS = ("noise_multiplier", "epochs", "delta")
COLUMNS = tuple(field.name for field in dataclasses.fields(training_run.TrainingRun))


def sweep(
    rows: Iterable[Cells], executor: futures.Executor, *, in_flight: int = 128
) -> Iterator[dict[str, Any]]:
    """Yields the rows with bounds on ε, each as soon as it is found.

        list(sweep(frame.to_dict("records"), executor))  # of a pandas.DataFrame

    Args:
        rows: From fields of a `TrainingRun` to values or to their text, `sampling` by
            default random allocation.
        executor: Where rows are bounded: on processes, or on the machines of another
            library. `bound_row` and its argument are sent to it.
        in_flight: The largest number of rows handed to the executor at a time.

    Yields:
        The row, with `epsilon_lower` and `epsilon_upper` (in nats; None where there are
        no bounds), `seconds` of CPU time, and `note`: why there are none, or what a
        reader must know of them.

    Raises:
        concurrent.futures.BrokenExecutor: If the executor breaks; what was not yielded
            can be swept with another one.
    """
    left = iter(rows)
    pending: dict[futures.Future[dict[str, Any]], Cells] = {}
    while True:
        for row in itertools.islice(left, in_flight - len(pending)):
            pending[executor.submit(bound_row, dict(row))] = row
        if not pending:
            return
        done, _ = futures.wait(pending, return_when=futures.FIRST_COMPLETED)
        for future in [each for each in pending if each in done]:
            yield {**pending.pop(future), **_outcome(future)}


def bound_row(row: Cells) -> dict[str, Any]:
    """Returns the results of one row.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    return comparison.bracket(run_of(row)).to_dict()


def run_of(row: Cells) -> training_run.TrainingRun:
    """Returns the run of a row, from fields to values or to their text.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    check_columns(row)
    known: dict[str, Any] = {"sampling": training_run.RANDOM_ALLOCATION}
    for name, value in row.items():
        if value is not None and value == value and value != "":  # NaN: left out.
            known[name] = _value(name, value)
    return training_run.TrainingRun(**known)


def check_columns(names: Iterable[str]) -> None:
    """Raises ValueError unless these are fields of a run, each once."""
    found = list(names)
    for name in found:
        if name not in COLUMNS or found.count(name) > 1:
            raise ValueError(
                f"columns must be of {', '.join(COLUMNS)}, each once. Found {name!r}."
            )


def _value(name: str, value: Any) -> Any:
    """Returns the number that a text means; what is no text, as it is."""
    kind, word = (float, "a number") if name in _FLOATS else (int, "an integer")
    if isinstance(value, float) and value.is_integer() and kind is int:
        return int(value)  # In a column of pandas with gaps.
    if not isinstance(value, str) or name == "sampling":
        return value
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} must be {word}. Found {value!r:.60}.") from None


def without_bounds(note: str) -> dict[str, Any]:
    """Returns the results of a row that has no bounds, and says why."""
    return dict(zip(RESULTS, (None, None, 0.0, " ".join(note.split())), strict=True))


def _outcome(future: "futures.Future[dict[str, Any]]") -> dict[str, Any]:
    """Returns the results, or what became of the row or of its worker."""
    try:
        found = future.result()
    except (futures.BrokenExecutor, futures.CancelledError):
        raise
    except (TypeError, ValueError) as error:
        return without_bounds(str(error))
    except Exception as error:  # Whatever it is, the other settings go on.
        return without_bounds(f"failed: {type(error).__name__}: {error}")
    return {name: found[name] for name in RESULTS}
