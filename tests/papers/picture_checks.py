"""What every picture of a paper must be."""

import numpy as np

from dp_accounting_ext.studies import drawing


class Drawn(dict):
    """Figures by name, each drawn when it is first asked for: workers share them out.

    Args:
        figures: What draws each, and its arguments.
    """

    def __init__(self, figures):
        super().__init__()
        self._figures = figures

    def __missing__(self, name):
        draw, sizes = self._figures[name]
        self[name] = draw(**sizes)
        return self[name]


def curves_of(picture, panel=0):
    return {curve.label: curve for curve in picture.panels[panel].curves}


def check_bands(picture):
    """Every label is once in a panel; values are numbers, and lower ends are lower."""
    for panel in picture.panels:
        assert len(curves_of(drawing.Picture("", [panel]))) == len(panel.curves)
        for curve in panel.curves:
            assert len(curve.x) == len(curve.upper) > 1
            assert np.isfinite(curve.upper).all()
            if curve.lower is not None:
                assert (np.asarray(curve.lower) <= curve.upper).all()


def check_files(picture, folder):
    """The picture can be drawn, and the table beside it has a line for every point."""
    drawing.draw(picture, folder / "picture.png")
    drawing.write_table(picture, folder / "picture.csv")
    assert 5_000 < (folder / "picture.png").stat().st_size < 250_000
    points = sum(len(c.x) for panel in picture.panels for c in panel.curves)
    lines = (folder / "picture.csv").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == 1 + points
