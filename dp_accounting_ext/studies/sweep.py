"""Bounds for many settings, on several processes or machines.

A setting is a row of a table; its columns are the fields of a run, and others.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import difflib
import pathlib
import re
import time
from typing import Any
from typing import NamedTuple

from dp_accounting_ext.accountants import risk
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import result_file
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

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

Cells = Mapping[str, Any]
# The results that can be requested, and the columns of each.
RESULTS: Mapping[str, tuple[str, ...]] = {
    "epsilon": ("epsilon_lower", "epsilon_upper"),
    "noise": ("noise_multiplier",),
    "risks": ("advantage_lower", "advantage_upper", "tpr_lower", "tpr_upper"),
}
_ALWAYS = ("seconds", "note")
_RUN = tuple(field.name for field in dataclasses.fields(training_run.TrainingRun))
COLUMNS = (*_RUN, "epsilon", "fpr")
# Words that the user's own columns must not contain. For example, `num_groups` is
# probably a misspelt parameter, which would otherwise keep its default and give a
# smaller ε.
_TAKEN = {"batches": "batches_per_record", "epoch": "epochs", "epochs": "epochs"}
_TAKEN |= dict.fromkeys(["group", "groups"], "group_size")
_TAKEN |= dict.fromkeys(["iterations", "steps"], "num_steps")
_TAKEN |= dict.fromkeys(["sampler", "sampling", "scheme"], "sampling")
_TAKEN |= dict.fromkeys(["strategies", "strategy"], "strategy")
# Names that are not like that of the parameter which is meant.
_SHORT = dict.fromkeys(["noise", "sigma"], "noise_multiplier")
_ALIKE = 0.75


class Setting(NamedTuple):
    """The setting that a row describes.

    Attributes:
        run: The run. Its noise is None if the noise is to be calibrated.
        epsilon: The ε that calibrated noise must meet, in nats; None if no noise is
            calibrated.
        fpr: The false positive rate of the membership test whose true positive rate is
            among the risks.
    """

    run: training_run.TrainingRun
    epsilon: float | None = None
    fpr: float = 0.001


def bound_row(row: Cells, results: Sequence[str] = ("epsilon",)) -> dict[str, Any]:
    """Returns the results of one row.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    begin = time.process_time()
    check_columns(row, results)
    run, epsilon, fpr = setting_of(row)
    cells: dict[str, Any] = dict.fromkeys(columns_of(results))
    bounds = None
    if "noise" in results:
        bounds = calibration.calibrated(run, training_run.given("epsilon", epsilon))
        cells["noise_multiplier"] = noise = bounds.noise_multiplier
        run = dataclasses.replace(run, noise_multiplier=noise)
    if "epsilon" in results:
        bounds = bounds or comparison.bracket(run)
        cells["epsilon_lower"] = bounds.epsilon_lower
        cells["epsilon_upper"] = bounds.epsilon_upper
    if "risks" in results:
        accountant = run.accountant()
        for name, ends in (
            ("advantage", risk.advantage(accountant)),
            ("tpr", accountant.get_true_positive_rate_bounds(fpr)),
        ):
            cells[f"{name}_lower"], cells[f"{name}_upper"] = map(float, ends)
    cells["seconds"] = time.process_time() - begin
    note = comparison.REPLACED if run.sampling == training_run.SHUFFLED else ""
    cells["note"] = note if bounds is None else bounds.note
    return cells


def columns_of(results: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of the results, in the order of `RESULTS`.

    Raises:
        ValueError: If there are none, or one is unknown.
    """
    unknown = [repr(name) for name in results if name not in RESULTS]
    if unknown or not results or isinstance(results, str):
        raise ValueError(
            f"results must be of {', '.join(RESULTS)}, one at least. "
            f"Found {', '.join(unknown) or repr(results)}."
        )
    names = [name for kind in RESULTS if kind in results for name in RESULTS[kind]]
    return (*names, *_ALWAYS)


def setting_of(row: Cells) -> Setting:
    """Returns the setting of a row, from columns to values or to their text.

    Raises:
        TypeError, ValueError: If a cell is not what its column says, naming it.
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name in COLUMNS and _text(value):
            values[name] = _text(value) if name == "strategy" else _number(value)
    beside = {name: values.pop(name) for name in [*values] if name not in _RUN}
    _require_sampling(values.keys() | beside.keys())
    if "epsilon" in beside:
        beside["epsilon"] = fields.real_number("epsilon", beside["epsilon"])
    if "fpr" in beside:
        beside["fpr"] = fields.probability("fpr", beside["fpr"])
    return Setting(training_run.TrainingRun(**values), **beside)


def check_columns(names: Iterable[str], results: Sequence[str] = ("epsilon",)) -> None:
    """Checks the columns of a grid.

    Raises:
        ValueError: If one is misspelt, is there twice, or has the name of a result; or
            if one belongs to results that are not requested; or if neither `sampling`
            nor `strategy` is there.
    """
    header = list(names)
    for number, name in enumerate(header):
        if name in header[:number]:
            raise ValueError(f"columns must have different names. Found two {name!r}.")
        if name in columns_of(results):
            reason = "is found" if name == "noise_multiplier" else "is of the results"
            raise ValueError(
                f"columns must have other names than results. Found {name!r}, which "
                f"{reason}; leave it out, or rename it."
            )
        for column, kind in (("epsilon", "noise"), ("fpr", "risks")):
            if name == column and kind not in results:
                raise ValueError(
                    f"columns must be such as results need: {column} goes with "
                    f"{kind}. Found {column!r} without it; ask for {kind}, or rename "
                    "the column."
                )
        meant = _meant(name)
        if meant:
            raise ValueError(
                f"columns must have the names of a run's fields, or names that are not "
                f"like these. Found {name!r:.60}; write {meant} if that is meant."
            )
    _require_sampling(header)


def _require_sampling(given: Iterable[str]) -> None:
    """Raises ValueError unless it is said how batches are drawn: ε depends on it."""
    if not {"sampling", "strategy"} & set(given):
        raise ValueError(
            f"sampling must be one of {', '.join(training_run.OPTIONS)}; or strategy "
            f"be given, for correlated noise. Found neither."
        )


def _meant(name: str) -> str:
    """Returns the column that a misspelt name may mean; usually there is none."""
    if name in COLUMNS:
        return ""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    plain = "_".join(words)
    near = difflib.get_close_matches(plain, COLUMNS, 1, _ALIKE)
    by_word = [_TAKEN[word] for word in words if word in _TAKEN]
    return (near or by_word or [_SHORT.get(plain, "")])[0]


def _text(value: Any) -> str:
    """Returns a cell as it stands in a file: NaN and None are empty."""
    value = _of_python(value)
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return "" if value is None or value != value else str(value)


def _of_python(value: Any) -> Any:
    """Returns a value; of an array or a number of NumPy, the same of Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def _number(value: Any) -> Any:
    """Returns the number that a text means, as an int if it is an integer."""
    value = _of_python(value)
    with contextlib.suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
            not; `epsilon` and `fpr`, as in `Setting`; and any others, which are passed
            through.
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
    added_columns = columns_of(results)
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
        if any(set("\r\n") & set(_text(value)) for value in row.values()):
            raise ValueError(
                "rows must have cells of one line each. Found one of several lines."
            )
    target = pathlib.Path(path)
    done = result_file.resumed(
        target,
        [*header, *added_columns],
        "the columns of the grid and of results",
        lambda row: bool(row[added_columns[0]]),
    )
    contents = {_content({name: row[name] for name in header}) for row in done}
    left = {_content(row): row for row in grid if _content(row) not in contents}
    added, without, seconds = 0, 0, 0.0
    with result_file.appended(target) as add:
        swept = sweep(left.values(), executor, results)
        for row in progress_of.counted(swept, progress, len(left)):
            add(map(_text, row.values()))
            added += 1
            without += row[added_columns[0]] is None
            seconds += row["seconds"]
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


def _content(row: Cells) -> tuple[Any, tuple[str, ...]]:
    """Returns the identity of a row: its setting, and the user's own columns.

    If it has no valid setting, all of its cells are in place of the setting.
    """
    others = tuple(_text(row[name]) for name in row if name not in COLUMNS)
    try:
        return setting_of(row), others
    except (TypeError, ValueError):
        return tuple(map(_text, row.values())), others
