"""Certified bounds on ε of a training run, for the ways of drawing its batches."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import time
from typing import Any

from dp_accounting_ext import displays
from dp_accounting_ext.accountants import explanation
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "ADJACENCIES",
    "COLUMNS",
    "NOTHING",
    "REPLACED",
    "Row",
    "Rows",
    "bracket",
    "compare",
    "table",
    "timed",
]
__dir__ = __all__.copy

ADJACENCIES = {
    training_run.NeighborRel.ADD_OR_REMOVE_ONE: "add or remove",
    training_run.NeighborRel.REPLACE_ONE: "replace",
}
REPLACED = "if a record is replaced; if one is added or removed, no bound is known"
NOTHING = "ε is so large that nothing is promised: e^ε δ ≥ 1"
_UNKNOWN = "no bound is known: without a record, others move to other batches"


@dataclasses.dataclass(frozen=True)
class Row(displays.Displayed):
    """Certified bounds on ε of one run.

    `compare`, `calibrate`, statements and sweeps return lists of rows, which
    `pandas.DataFrame(rows)` takes.

    Attributes:
        sampling: How batches are drawn.
        adjacency: "add or remove", or "replace".
        group_size: Number of records that are protected together.
        noise_multiplier: The noise multiplier, given or found by calibration.
        delta: δ; None if no ε is requested.
        epsilon_lower: Lower bound on ε, in nats; None where no bound is known.
        epsilon_upper: Upper bound on ε, in nats; None if the lower bound is None.
        seconds: CPU time.
        note: A warning that the reader must see beside the numbers, or "".
        risk_lower: Lower bound on the risk that noise was found for; None without one.
        risk_upper: Upper bound on the same risk.
    """

    sampling: str
    adjacency: str
    group_size: int
    noise_multiplier: float
    delta: float | None
    epsilon_lower: float | None
    epsilon_upper: float | None
    seconds: float
    note: str = ""
    risk_lower: float | None = None
    risk_upper: float | None = None

    @property
    def promises_nothing(self) -> bool:
        """Whether e^ε δ is 1 or more, by the upper bound."""
        if self.epsilon_upper is None or not self.delta:
            return False
        return self.epsilon_upper >= -math.log(self.delta)

    @property
    def width(self) -> float:
        """The difference of the bounds over the upper one; 0 if there are no bounds."""
        if self.epsilon_lower is None or self.epsilon_upper is None:
            return 0.0
        if math.isinf(self.epsilon_upper):
            return 1.0
        return explanation.relative_width(self.epsilon_lower, self.epsilon_upper)

    @property
    def is_wide(self) -> bool:
        """Whether the upper bound need not be close to the truth."""
        return self.width > explanation.TIGHT

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields by their names."""
        return {**dataclasses.asdict(self), "is_wide": self.is_wide}

    def _display(self) -> displays.Table:
        return Rows([self])._display()


class Rows(displays.Displayed, list[Row]):
    """A list of rows that shows itself as a table, with bounds rounded outwards."""

    def _display(self) -> displays.Table:
        heads = ["sampling"]
        if len({(row.adjacency, row.group_size) for row in self}) > 1:
            heads += ["adjacency", "group size"]
        heads += ["noise"]
        if any(row.delta is not None for row in self):
            heads += ["ε lower", "ε upper"]
        if any(row.risk_upper is not None for row in self):
            heads += ["risk lower", "risk upper"]
        deltas = {row.delta for row in self} - {None}
        at = f"ε at δ = {deltas.pop():g}" if len(deltas) == 1 else "certified bounds"
        groups = {row.group_size for row in self}
        if len(groups) == 1 and groups != {1}:
            at += f", groups of {groups.pop()}"
        return table(at, heads, self)


# The columns of tables of rows: from heads to the functions that give their cells.
COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "sampling": lambda row: row.sampling,
    "adjacency": lambda row: row.adjacency,
    "group size": lambda row: str(row.group_size),
    "noise": lambda row: repr(row.noise_multiplier),
    "ε lower": lambda row: decimals.rounded_down(row.epsilon_lower),
    "ε upper": lambda row: decimals.rounded_up(row.epsilon_upper),
    "risk lower": lambda row: decimals.rounded_down(row.risk_lower),
    "risk upper": lambda row: decimals.rounded_up(row.risk_upper),
    "CPU s": lambda row: f"{row.seconds:.2f}",
}


def table(title: str, heads: Sequence[str], rows: Iterable[Row]) -> displays.Table:
    """Returns a table of rows; a row that has a note ends with the note's number.

    Args:
        title: The title of the table.
        heads: The heads of its columns, names in `COLUMNS`.
        rows: The rows that it shows.
    """
    listed = list(rows)
    notes = list(dict.fromkeys(row.note for row in listed if row.note))
    marks = [f"({notes.index(row.note) + 1})" if row.note else "" for row in listed]
    cells = [[COLUMNS[head](row) for head in heads] for row in listed]
    if notes:
        heads = [*heads, ""]
        cells = [[*line, mark] for line, mark in zip(cells, marks, strict=True)]
    numbered = [f"({number}) {note}" for number, note in enumerate(notes, start=1)]
    # The sampling is a name, and so is the adjacency after it.
    names = 2 if "adjacency" in heads else 1
    return displays.Table(title, heads, cells, notes=numbered, names=names)


def compare(run: training_run.TrainingRun) -> Rows:
    """Returns ε for each way of drawing batches, or for the one that the run names.

    For shuffled or fixed batches the bounds are for a record that is replaced, as none
    are known for a record that is added or removed.

    A warning is issued if δ is at least one over the dataset's size.

    Raises:
        ValueError: If the group is too large, or noise or δ is not given.
    """
    runs = training_run.schemes_of(run)
    training_run.warn(run)
    return Rows(bracket(way) for way in runs)


def bracket(
    run: training_run.TrainingRun,
    neighboring_relation: training_run.NeighborRel | None = None,
) -> Row:
    """Returns the bounds on ε of a run whose way of drawing batches is given.

    Args:
        run: The run.
        neighboring_relation: Which datasets are adjacent; by default the run's own.

    Raises:
        ValueError: If the group is too large, or noise, δ or sampling is not given.
    """
    delta = training_run.given("delta", run.delta)
    noise = training_run.given("noise_multiplier", run.noise_multiplier)
    relation = fields.neighboring_relation(
        neighboring_relation or run.neighboring_relation
    )
    adjacency = ADJACENCIES.get(relation, relation.name)
    scheme = run.scheme
    setting = (scheme, adjacency, run.group_size, noise, delta)
    is_shuffled = scheme == training_run.SHUFFLED
    if is_shuffled and relation != training_run.NeighborRel.REPLACE_ONE:
        return Row(*setting, None, None, 0.0, _UNKNOWN)
    row = timed(setting, lambda: run.accountant(relation).get_epsilon_bounds(delta))
    if not is_shuffled:
        return row
    return dataclasses.replace(row, note="; ".join(filter(None, [REPLACED, row.note])))


def timed(
    setting: tuple[str, str, int, float, float],
    bounds: Callable[[], tuple[float, float]],
) -> Row:
    """Returns a row with the results of a function and the CPU time that it took."""
    begin = time.process_time()
    row = Row(*setting, *bounds(), time.process_time() - begin)
    notes = []
    if row.epsilon_upper == math.inf:
        notes.append("no finite bound")
    elif row.promises_nothing:
        notes.append(NOTHING)
    if row.is_wide and row.epsilon_upper != math.inf:
        note = f"not tight: the bracket is {row.width:.1%} wide; where brackets "
        note += "overlap, either row may have the smaller ε"
        notes.append(note)
    return dataclasses.replace(row, note="; ".join(notes))
