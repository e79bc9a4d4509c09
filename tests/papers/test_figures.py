"""The papers' figures, with few points, are as the mathematics says."""

import functools
import math

import draw
import numpy as np
from papers import allocation_figures
from papers import group_figures
from papers import picture
from papers import ring
import pytest

SMALL = {
    "paper1-figure1": {"steps": (3,), "points": 2},
    "paper1-figure2": {"batch": 2**20, "points": 3, "numbers": 1 << 14},
    "paper1-figure3": {"steps": (10,), "alphas": (0.8, 0.4), "counts": (10, 100)},
    "paper1-figure4": {
        "settings": ((1.0, 1),),
        "num_steps": 4,
        "points": 2,
        "runs": 100,
    },
    "paper1-figure5": {"rates": (0.1,), "block_sizes": (4096,), "tolerance": 3e-2},
    "paper1-figure6": {"batches": (2**20,), "points": 3, "numbers": 1 << 14},
    "paper1-figure7": {"points": 5},
    "paper1-figure8": {
        "num_steps": 10,
        "alphas": (0.4, 0.1),
        "fourier_points": (16_384, 65_536),
    },
    "paper1-figure9": {"steps": (10, 50), "alphas": (0.4, 0.1)},
    "paper1-figure10": {"num_steps": 4, "selected": (2,), "points": 2},
    "paper1-figure11": {"num_steps": 5, "selected": (1,)},
    "paper2-figure3": {"truths": (0.75,), "points": 4},
    "paper2-figure4": {"sizes": (1, 4), "points": 5},
    "paper2-figure5": {"sizes": (1, 4), "points": 3},
    "paper2-figure6": {
        "sizes": (8,),
        "steps": (60_000, 100_000),
        "wide_sizes": (1, 2),
        "wide_steps": (10, 300),
    },
    "paper3-figure1": {"passes": (1, 20, 200)},
}


def curves_of(made, panel=0):
    return {curve.label: curve for curve in made.panels[panel].curves}


def falls_with_noise(made, sign=-1):
    """Or rises with the number of steps."""
    for panel in made.panels:
        for curve in panel.curves:
            assert (sign * np.diff(curve.upper) > 0).all()
        *earlier, drawn, poisson = panel.curves
        for curve in earlier:
            assert (np.asarray(curve.upper) >= drawn.lower).all()
        assert (np.asarray(drawn.upper) <= poisson.upper).all()


def earlier_bounds_are_on_their_side(made):
    for panel in made.panels:
        curves = {curve.label: np.asarray(curve.upper) for curve in panel.curves}
        for values in curves.values():
            assert (np.diff(values) < 0).all()
        drawn = next(c for c in panel.curves if c.label.endswith("certified"))
        assert (curves[allocation_figures.COMBINED_LABEL] >= drawn.lower).all()
        assert (curves[allocation_figures.CHUA_LABEL] <= drawn.upper).all()
        means = curves[allocation_figures.MEAN_LABEL]
        assert (curves[allocation_figures.LIMIT_LABEL] >= means).all()


def both_kinds_of_sums_are_above_the_truth(made):
    for panel in made.panels:
        stated, fourier, certified = panel.curves
        for curve in (stated, fourier):
            assert min(curve.upper) >= certified.lower[0]
            assert curve.upper[0] > curve.upper[-1]


def moments_are_above_the_closed_form(made):
    for panel, steps in zip(made.panels, (10, 50), strict=True):
        stated, truth = panel.curves
        assert truth.upper[0] == pytest.approx(math.log1p((math.e - 1) / steps))
        assert (np.asarray(stated.upper) >= np.multiply(truth.upper, 1 - 1e-4)).all()
        assert stated.upper[1] - truth.upper[1] < stated.upper[0] - truth.upper[0]


def tight_group_bounds_are_below_what_was_known(made):
    for panel in made.panels:
        curves = list(panel.curves)
        for tight, known in zip(curves[::2], curves[1::2], strict=True):
            assert (np.asarray(tight.upper) <= np.multiply(known.upper, 1.0001)).all()


def distributions_reach_the_ring(made):
    laws = curves_of(made)
    for name in ("private distribution", "KL projection", "Wasserstein projection"):
        assert sum(laws[name].upper) == pytest.approx(1.0)
    cost, masses = ring.ring_cost(), np.array(laws["private distribution"].upper)
    reached = [
        ring.reaching_cost(masses, cost, np.array(laws[name].upper))
        for name in ("Wasserstein projection", "KL projection")
    ]
    assert reached[0] < 0.6 * reached[1]
    paths = curves_of(made, 1)
    exact = paths["exact projection"].upper[0]
    assert exact == pytest.approx(reached[0] ** 0.5)
    finest = paths["λ = 0.0005 max C"].upper
    assert finest[0] > 2 * exact and exact <= finest[-1] * (1 + 1e-9) < 1.01 * exact


HOLDS = {
    "paper1-figure1": falls_with_noise,
    "paper1-figure6": earlier_bounds_are_on_their_side,
    "paper1-figure8": both_kinds_of_sums_are_above_the_truth,
    "paper1-figure9": moments_are_above_the_closed_form,
    "paper1-figure10": falls_with_noise,
    "paper1-figure11": functools.partial(falls_with_noise, sign=1),
    "paper2-figure3": tight_group_bounds_are_below_what_was_known,
    "paper2-figure4": tight_group_bounds_are_below_what_was_known,
    "paper2-figure5": tight_group_bounds_are_below_what_was_known,
    "paper2-figure6": tight_group_bounds_are_below_what_was_known,
    "paper3-figure1": distributions_reach_the_ring,
}


# Those that take less than a second; the others are asked at night.
QUICK = {f"paper1-figure{number}" for number in (7, 8, 9)}
QUICK |= {"paper2-figure4", "paper2-figure5", "paper3-figure1"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly)
        for name in draw.FIGURES
    ],
)
def test_every_figure_is_drawn_with_its_table(name, tmp_path):
    """And what must hold of it does: each is computed once."""
    made = draw.FIGURES[name](**SMALL[name])
    for panel in made.panels:
        assert len({curve.label for curve in panel.curves}) == len(panel.curves)
        for curve in panel.curves:
            assert len(curve.x) == len(curve.upper) and np.isfinite(curve.upper).all()
            if curve.lower is not None:
                assert (np.asarray(curve.lower) <= curve.upper).all()
    picture.draw(made, tmp_path / "picture.png", dpi=50)
    picture.write_table(made, tmp_path / "picture.csv")
    assert 5_000 < (tmp_path / "picture.png").stat().st_size < 100_000
    points = sum(len(curve.x) for panel in made.panels for curve in panel.curves)
    lines = (tmp_path / "picture.csv").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == 1 + points
    HOLDS.get(name, lambda made: None)(made)


@pytest.mark.parametrize("expected", [1, 66, 18_806, 39_998])
def test_the_affordable_number_of_steps(expected):
    asked = []

    def delta(count):
        asked.append(count)
        return 1e-6 * count / (expected + 0.5)

    candidates = range(1, 40_000)
    assert group_figures.affordable_steps(delta, 1e-6, candidates) == expected
    assert len(asked) <= 1 + math.log2(len(candidates))
    with pytest.raises(ValueError, match="candidates must hold the answer. Found"):
        group_figures.affordable_steps(float, 10.0, range(11, 20))
