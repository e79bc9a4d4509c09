"""Where an accountant's bounds come from, and which of them is the loose one."""

from collections.abc import Sequence
import dataclasses
import math
import textwrap

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals

# Tuning: a relative width of brackets that nobody needs to be told of.
TIGHT = 1e-3
# Characters of an event in the table, and of a line below it.
_LONGEST, _WIDTH = 42, 79


@dataclasses.dataclass(frozen=True)
class Part(displays.Displayed):
    """What bounds one of the events that an accountant has composed.

    Attributes:
        event: The event in words.
        runs: How often it was composed.
        lower: Lower bound on ε of these runs alone, in nats.
        upper: Upper bound on ε of these runs alone, in nats.
        from_below: What the lower bound is the bound of.
        from_above: What the upper bound is the bound of.
    """

    event: str
    runs: int
    lower: float
    upper: float
    from_below: str
    from_above: str

    @property
    def width(self) -> float:
        """How far apart the bounds are, over the upper one; 0 where they are equal."""
        return relative_width(self.lower, self.upper)

    def _display(self) -> displays.Table:
        return _table("one event", [self])


@dataclasses.dataclass(frozen=True)
class Explanation(displays.Displayed):
    """Where an accountant's bounds on ε come from.

    Attributes:
        delta: δ.
        lower: Lower bound on ε of all that was composed, in nats.
        upper: Upper bound on it.
        parts: One for each event, in the order in which they were composed.
    """

    delta: float
    lower: float
    upper: float
    parts: Sequence[Part]

    __repr__ = displays.Displayed.__repr__

    @property
    def loosest(self) -> Part | None:
        """The event whose own bounds are furthest apart; None where all are tight."""
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
    """Returns how far apart two bounds are, over the upper one; 0 if they are equal."""
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
