"""Draws the three papers' figures, each with a table of its numbers beside it.

    python benchmarks/draw.py FOLDER [--only paper1-figure3 …] [--format pdf]

Needs matplotlib. All figures take about four CPU minutes, two of them about 70 s each;
on a terminal a line shows how many are done.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import time

from papers import allocation_figures
from papers import group_figures
from papers import picture
from papers import ring

from dp_accounting_ext.command_line import text

FIGURES: Mapping[str, Callable[[], picture.Picture]] = {
    **{
        f"paper1-figure{n}": getattr(allocation_figures, f"figure_{n}")
        for n in range(1, 12)
    },
    **{f"paper2-figure{n}": getattr(group_figures, f"figure_{n}") for n in range(3, 7)},
    "paper3-figure1": ring.figure_1,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws what the command line names."""
    parser = argparse.ArgumentParser(description="Draws the papers' figures.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=FIGURES, metavar="NAME")
    parser.add_argument("--format", choices=["pdf", "png", "svg"], default="png")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    names = options.only or list(FIGURES)
    paths = [options.folder / f"{name}.{options.format}" for name in names]
    for line in text.counted(map(_draw, names, paths), len(names), "figures"):
        print(line, flush=True)


def _draw(name: str, path: pathlib.Path) -> str:
    """Draws a figure. Returns where it is, and how long it took."""
    begin = time.process_time()
    made = FIGURES[name]()
    picture.draw(made, path)
    picture.write_table(made, path.with_suffix(".csv"))
    return f"{path}, .csv: {time.process_time() - begin:.1f} CPU s"


if __name__ == "__main__":
    main()
