"""How an accountant's bounds are computed, and which of them is the loose one."""

from collections.abc import Sequence
import dataclasses
import math
import textwrap

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals

# A bracket with a smaller relative width is called tight.
TIGHT = 1e-3
# The most characters of an event in the table, and of a line below the table.
_LONGEST, _WIDTH = 42, 79


@dataclasses.dataclass(frozen=True)
class Part(displays.Displayed):
    """The bounds of one event that an accountant has composed.

    Attributes:
        event: A description of the event.
        runs: The number of its runs.
        lower: A lower bound on ε of these runs alone, in nats.
        upper: An upper bound on ε of these runs alone, in nats.
        from_below: How the lower bound is computed, in words.
        from_above: How the upper bound is computed, in words.
    """

    event: str
    runs: int
    lower: float
    upper: float
    from_below: str
    from_above: str

    @property
    def width(self) -> float:
        """The relative width of the bracket; 0 if the bounds are equal."""
        return relative_width(self.lower, self.upper)

    def _display(self) -> displays.Table:
        return _table("one event", [self])


@dataclasses.dataclass(frozen=True)
class Explanation(displays.Displayed):
    """How an accountant's bounds on ε are computed.

    Attributes:
        delta: δ.
        lower: A lower bound on ε of everything that was composed, in nats.
        upper: An upper bound on the same ε, in nats.
        parts: The bounds of each event, in the order in which they were composed.
    """

    delta: float
    lower: float
    upper: float
    parts: Sequence[Part]

    __repr__ = displays.Displayed.__repr__

    @property
    def loosest(self) -> Part | None:
        """The event with the widest bracket of its own; None if all are tight."""
        wide = [part for part in self.parts if part.width > TIGHT]
        return max(wide, key=lambda part: part.width, default=None)

    def _display(self) -> displays.Table:
        low, high = _outwards(self.lower, self.upper)
        title = f"ε at δ = {self.delta:g} is in [{low}, {high}]; of each event alone:"
        shown = _table(title, self.parts)
        loosest = self.loosest
        said = "All bounds are tight."
        if loosest is not None:
            number = list(self.parts).index(loosest) + 1
            said = f"The loosest is ({number}): its bounds are {loosest.width:.2g} of"
            said += " the upper one apart."
        return dataclasses.replace(shown, notes=[*shown.notes, said])


def relative_width(lower: float, upper: float) -> float:
    """Returns the width of a bracket over its upper end; 0 if both ends are equal."""
    if lower == upper:
        return 0.0
    return 1.0 if math.isinf(upper) else (upper - lower) / upper


def _table(title: str, parts: Sequence[Part]) -> displays.Table:
    rows, notes = [], []
    for number, part in enumerate(parts, 1):
        name = part.event
        if len(name) > _LONGEST:
            name = f"{name[: _LONGEST - 1]}…"
        ends = _outwards(part.lower, part.upper)
        rows.append((f"({number}) {name}", str(part.runs), *ends))
        said = [f"from above by {part.from_above}", f"from below by {part.from_below}"]
        if part.from_above == part.from_below:
            said = [f"both bounds by {part.from_above}"]
        notes += textwrap.wrap(
            f"({number}) {'; '.join(said)}.", _WIDTH, subsequent_indent="    "
        )
    return displays.Table(title, ("event", "runs", "ε lower", "ε upper"), rows, notes)


def _outwards(lower: float, upper: float) -> tuple[str, str]:
    return decimals.rounded_down(lower), decimals.rounded_up(upper)
