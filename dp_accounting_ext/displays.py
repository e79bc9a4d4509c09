"""How results show themselves: as text on a terminal, as a table in a notebook."""

import abc
from collections.abc import Sequence
import dataclasses
import html

# Names are aligned on the left, and numbers on the right.
_ALIGNED = ' style="text-align: {}"'


@dataclasses.dataclass(frozen=True)
class Table:
    """The table that displays an object, in cells of text.

    Attributes:
        title: The title, at most one sentence.
        heads: The heads of the columns.
        rows: The rows, each with a cell for every column. The first cells of a row are
            names, which are aligned on the left. The others are numbers, which are
            aligned on the right.
        notes: Notes that are shown below the table.
        names: The number of columns that hold names.
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
    """A mix-in for classes that notebooks display as a `Table`.

    If the default `__repr__` of a class would print many numbers, the class uses
    `Displayed.__repr__`, which returns the same table as text.
    """

    @abc.abstractmethod
    def _display(self) -> Table:
        """Returns the table. It must not start a long computation."""

    def _repr_html_(self) -> str:
        return self._display().html()

    def __repr__(self) -> str:
        return self._display().text()


def aligned(
    lines: Sequence[Sequence[str]], gap: str = "  ", *, names: int = 1
) -> list[str]:
    """Returns lines of cells as columns.

    Args:
        lines: The cells of each line. All lines have the same number of cells.
        gap: The text between two columns.
        names: The number of columns aligned on the left. All others are aligned on the
            right.
    """
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        gap.join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
