"""How results show themselves: as text on a terminal, as a table in a notebook."""

import abc
from collections.abc import Sequence
import dataclasses
import html

# Names are read from the left; digits stand below one another.
_ALIGNED = ' style="text-align: {}"'


@dataclasses.dataclass(frozen=True)
class Table:
    """What an object has to say, in cells of text.

    Attributes:
        title: What it is; a sentence at most.
        heads: Names of the columns.
        rows: Cells, as many in each row as there are columns. The first ones are
            names, set flush left; the others are numbers, set flush right.
        notes: What a reader must know beside the cells.
        names: How many of the columns are names.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    names: int = 1

    def text(self) -> str:
        """Returns lines of text, with aligned columns."""
        lines = aligned([self.heads, *self.rows], names=self.names)
        return "\n".join([self.title, *lines, *self.notes])

    def html(self) -> str:
        """Returns an HTML table; every text in it is escaped."""
        cells = [self._html_row("th", self.heads)]
        cells += [self._html_row("td", row) for row in self.rows]
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return (
            f"<div>{html.escape(self.title)}</div>"
            f"<table><thead>{cells[0]}</thead><tbody>{''.join(cells[1:])}</tbody>"
            f"</table>{notes}"
        )

    def _html_row(self, tag: str, row: Sequence[str]) -> str:
        cells = [
            f"<{tag}{_ALIGNED.format('left' if column < self.names else 'right')}>"
            f"{html.escape(cell)}</{tag}>"
            for column, cell in enumerate(row)
        ]
        return f"<tr>{''.join(cells)}</tr>"


class Displayed(abc.ABC):
    """A mix-in: what a subclass says as a `Table` is what notebooks show.

    A class whose `__repr__` would be a dump of numbers takes `Displayed.__repr__`,
    the same table as text.
    """

    @abc.abstractmethod
    def _display(self) -> Table:
        """Returns what is shown; it computes nothing that takes time."""

    def _repr_html_(self) -> str:
        return self._display().html()

    def __repr__(self) -> str:
        return self._display().text()


def aligned(
    lines: Sequence[Sequence[str]], gap: str = "  ", *, names: int = 1
) -> list[str]:
    """Returns lines of cells as columns.

    Args:
        lines: Cells, as many in each line.
        gap: What stands between columns.
        names: How many columns are flush left; all others are flush right.
    """
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        gap.join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
