"""The papers' figures, with few points, and earlier bounds: as their authors say."""

import functools
import math

import dp_accounting
from dp_accounting.rdp import rdp_privacy_accountant
import draw
import numpy as np
from papers import allocation_figures
from papers import earlier_allocation
from papers import earlier_groups
from papers import group_figures
from papers import mirror_descent
from papers import picture
from papers import ring
from papers import stated_allocation as stated
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

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


REMOVE, ADD = "remove", "add"

# What the authors' own software says: the package random-allocation 1.0.5 by M.
# Shenfeld (its functions allocation_delta_decomposition, …_recursive, …_direct,
# …_RDP_DCO and …_lower_bound, the last that of Chua et al.'s public code, on a grid of
# thresholds of 0.01), with steps of 1e-4 and, for the direct method, orders 2 to 60.
THEIRS = (
    # Method, direction, σ, k, t, ε, δ, relative agreement.
    ("decomposition", REMOVE, 1.0, 1, 50, 0.3, 0.0276274, 5e-5),
    ("decomposition", ADD, 1.0, 1, 50, 0.3, 0.0188354, 5e-5),
    ("decomposition", ADD, 0.5, 1, 100, 1.0, 0.0095847, 1e-4),
    ("decomposition", REMOVE, 1.0, 1, 1000, 0.3, 7.01225e-07, 0.005),
    ("recursive", REMOVE, 1.0, 1, 50, 0.3, 0.297398, 1e-5),
    ("recursive", ADD, 1.0, 1, 50, 0.3, 0.381767, 1e-5),
    ("recursive", REMOVE, 1.0, 4, 400, 1.0, 0.0431382, 5e-5),
    ("direct", REMOVE, 1.0, 1, 50, 0.3, 0.0225887, 1e-5),
    ("direct", REMOVE, 1.0, 4, 400, 1.0, 0.000381317, 1e-5),
    ("direct", ADD, 1.0, 1, 50, 0.3, 0.178366, 1e-5),
    ("dong", REMOVE, 1.0, 1, 50, 0.3, 0.0553178, 1e-5),
    ("dong", ADD, 1.0, 1, 50, 0.8, 1.22064e-07, 1e-5),
    ("dong", ADD, 1.0, 4, 400, 1.0, 5.63834e-06, 1e-5),
    ("chua", REMOVE, 1.0, 1, 50, 0.3, 0.0019011, 2e-4),
    ("chua", REMOVE, 1.0, 1, 1000, 0.3, 6.21743e-09, 1e-4),
)


def delta_by(method, direction, setting):
    """δ of a method, σ, k, t and ε given."""
    noise, selected, steps, epsilon = setting
    if method == "decomposition":
        return earlier_allocation.decomposition_delta(*setting, direction)
    if method == "recursive":
        return earlier_allocation.recursive_delta(*setting, direction)
    if method == "chua":
        return earlier_allocation.max_statistic_delta(noise, steps, epsilon)
    if method == "dong":
        orders = earlier_allocation.DONG_ORDERS
        both = earlier_allocation.dong_rdp(noise, selected, steps, orders)
        rdp = both[0 if direction == REMOVE else 1].tolist()
        return rdp_privacy_accountant.compute_delta(orders, rdp, epsilon)[0]
    if direction == REMOVE:
        return earlier_allocation.direct_remove_delta(*setting)
    return earlier_allocation.direct_add_delta(*setting)


@pytest.mark.parametrize("row", THEIRS)
def test_each_number_is_what_its_authors_software_says(row):
    method, direction, *setting, theirs, agreement = row
    found = delta_by(method, direction, setting)
    assert found == pytest.approx(theirs, rel=agreement)


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_post_hoc_bounds_of_a_group(size, epsilon):
    """Step by step is below the closed form, and above what is true."""
    single = functools.partial(earlier_groups.gaussian_delta, 0.3)
    geometric = earlier_groups.post_hoc_geometric(single, size, epsilon)
    linear = earlier_groups.post_hoc_linear(single, size, epsilon)
    truth = earlier_groups.gaussian_delta(0.3 * size, epsilon)
    assert truth <= geometric <= linear


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_mirror_descent_brackets_the_minimax_cost(epsilon):
    cost = np.abs(np.subtract.outer(np.arange(5.0), np.arange(4.0)))
    best = wpm.minimax_base_measure(cost, epsilon)
    values = []
    for steps in (50, 500):
        _, value, below = mirror_descent.mirror_descent_base_measure(
            cost, epsilon, steps
        )
        assert below <= best.value
        assert best.lower_bound <= value
        values.append(value)
    assert values[1] < values[0]


DIRECTIONS = ("remove", "add")


def certified(base, num_steps, pessimistic):
    """Losses of one of t steps in both directions."""
    event = ext.RandomAllocationEvent(base, 1, num_steps)
    made = ext.pld.from_event(event, pessimistic_estimate=pessimistic)
    return {"remove": made._pmf_remove, "add": made._pmf_add}


def response_pair(noise, buckets):
    """Randomized response: two losses apart, and what both answers share."""
    true, other = 1 - noise + noise / buckets, noise / buckets
    ratio = math.log(true / other)
    masses = np.array([other, (buckets - 2) * other, true])
    return stated.AtomicPair(np.array([-ratio, 0.0, ratio]), masses)


PAIRS = [
    (stated.GaussianPair(1.0), dp_accounting.GaussianDpEvent(1.0), 2, 0.3, 1e-9),
    (stated.GaussianPair(1.0), dp_accounting.GaussianDpEvent(1.0), 100, 0.4, 1e-9),
    (stated.GaussianPair(0.6), dp_accounting.GaussianDpEvent(0.6), 37, 0.8, 1e-10),
]


@pytest.mark.parametrize(("pair", "event", "steps", "alpha", "beta"), PAIRS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_they_are_above_and_tight_as_asked(pair, event, steps, alpha, beta, direction):
    """Theorem 4.6: at most α to the right, but for β."""
    found = getattr(stated, direction)(pair, steps, alpha, beta)
    least = certified(event, steps, False)[direction]
    most = certified(event, steps, True)[direction]
    for epsilon in (-0.5, 0.0, 0.5, 1.0, 2.0, 4.0):
        delta = found.delta(epsilon)
        assert delta >= least.get_delta_for_epsilon(epsilon) * (1 - 1e-9)
        assert delta <= most.get_delta_for_epsilon(epsilon - alpha) + beta


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_any_pair_is_taken(direction):
    """Two outcomes of each of three steps, added up one by one."""
    pair, steps, alpha = response_pair(0.5, 4), 3, 0.2
    found = getattr(stated, direction)(pair, steps, alpha, 1e-9)
    without = pair.masses * np.exp(-pair.losses)
    mesh = np.meshgrid(*[pair.losses] * steps, indexing="ij")
    mean = np.mean(np.exp(mesh), axis=0)
    absent = np.prod(np.meshgrid(*[without] * steps, indexing="ij"), axis=0)

    def truth(epsilon):
        if direction == "remove":
            return float((absent * np.maximum(mean - math.exp(epsilon), 0)).sum())
        return float((absent * np.maximum(1 - math.exp(epsilon) * mean, 0)).sum())

    for epsilon in (0.0, 0.2, 0.7, 1.2):
        assert truth(epsilon) <= found.delta(epsilon) * (1 + 1e-9)
        assert found.delta(epsilon) <= truth(epsilon - alpha) + 1e-9


def test_an_infinite_loss_stays_infinite():
    losses, masses = np.array([-0.5, 0.5]), np.array([0.3, 0.6])
    pair = stated.AtomicPair(losses, masses, 0.1)
    assert stated.remove(pair, 5, 0.3, 1e-9).infinite == pytest.approx(0.1, abs=1e-8)
    assert stated.add(pair.dual(), 5, 0.3, 1e-9).infinite >= 0.1
    assert pair.dual().infinite == pytest.approx(1 - masses @ np.exp(-losses))


@pytest.mark.parametrize("steps", [2, 100])
def test_fourier_sums_are_above_and_near(steps):
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    found = stated.fourier(stated.GaussianPair(1.0), steps, 1 << 16, 1e-12)
    profiles = {"remove": found.remove, "add": found.add}
    for direction, profile in profiles.items():
        least = certified(gaussian, steps, False)[direction]
        most = certified(gaussian, steps, True)[direction]
        for epsilon in (0.05, 0.1, 0.3):
            assert profile(epsilon) >= least.get_delta_for_epsilon(epsilon)
            assert profile(epsilon) <= 1.02 * most.get_delta_for_epsilon(epsilon)
