"""All figures of the papers that can be computed again, by name."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import time

from dp_accounting_ext.papers import allocation_figures
from dp_accounting_ext.papers import group_figures
from dp_accounting_ext.papers import projection
from dp_accounting_ext.studies import drawing

FIGURES: Mapping[str, Callable[[], drawing.Picture]] = {
    "paper1-figure1": allocation_figures.figure_1,
    "paper1-figure2": allocation_figures.figure_2,
    "paper1-figure3": allocation_figures.figure_3,
    "paper1-figure4": allocation_figures.figure_4,
    "paper1-figure5": allocation_figures.figure_5,
    "paper1-figure6": allocation_figures.figure_6,
    "paper1-figure7": allocation_figures.figure_7,
    "paper1-figure8": allocation_figures.figure_8,
    "paper1-figure9": allocation_figures.figure_9,
    "paper1-figure10": allocation_figures.figure_10,
    "paper1-figure11": allocation_figures.figure_11,
    "paper2-figure3": group_figures.figure_3,
    "paper2-figure4": group_figures.figure_4,
    "paper2-figure5": group_figures.figure_5,
    "paper2-figure6": group_figures.figure_6,
    "paper3-figure1": projection.figure_1,
}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A figure that was drawn.

    Attributes:
        name: Its name in `FIGURES`.
        picture: The picture's file.
        table: The CSV of its numbers.
        seconds: CPU time of all.
    """

    name: str
    picture: str
    table: str
    seconds: float


def redraw(
    directory: pathlib.Path,
    names: Sequence[str] | None = None,
    *,
    suffix: str = ".png",
    dpi: int = drawing.DPI,
    progress: Callable[[int, int], None] | None = None,
) -> list[Drawn]:
    """Computes figures and writes each as a picture with a table beside it.

    Args:
        directory: Where to; made if it is not there.
        names: Names in `FIGURES`; all of them if none are given.
        suffix: Of the pictures, one of `drawing.SUFFIXES`.
        dpi: Dots of an inch of a PNG.
        progress: Called with the number of figures done, and of all, after each.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        OSError: If the directory cannot be made, or written to.
        ValueError: If a name is not in `FIGURES`.
    """
    names = list(dict.fromkeys(names or FIGURES))
    for name in names:
        if name not in FIGURES:
            known = ", ".join(FIGURES)
            raise ValueError(f"figure must be one of {known}. Found {name}.")
    drawing.check_matplotlib()
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name in names:
        begin = time.process_time()
        path = directory / f"{name}{suffix}"
        drawing.check_output(path, dpi=dpi)
        picture = FIGURES[name]()
        drawing.write_table(picture, path.with_suffix(".csv"))
        drawing.draw(picture, path, dpi=dpi)
        table = str(path.with_suffix(".csv"))
        drawn.append(Drawn(name, str(path), table, time.process_time() - begin))
        if progress:
            progress(len(drawn), len(names))
    return drawn
