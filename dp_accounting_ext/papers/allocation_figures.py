"""The figures of paper 1: random allocation beside Poisson sampling.

Certified bands in place of the paper's bounds, beside the earlier bounds that it
compares with, each as its own paper has it (`papers.allocation_baselines`).

Source: https://arxiv.org/abs/2602.17284.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
import time

from dp_accounting import dp_event as stock
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.papers import allocation_baselines
from dp_accounting_ext.papers import allocation_sums
from dp_accounting_ext.papers import mean_estimation
from dp_accounting_ext.papers import preamble_noise
from dp_accounting_ext.papers import stated_allocation
from dp_accounting_ext.studies import drawing

Curve = drawing.Curve
Direction = dominating_pair.Direction
Route = allocation_sums.Route

DELTA = 1e-6
# Numbers that are drawn in all: the paper has a million outputs by importance sampling.
MONTE_CARLO_NUMBERS = 1 << 26
_CONFIDENCE = 0.95
_SEED = 0
_COMBINED = drawing.Look(drawing.Colour.GREEN, drawing.Dashes.DASH_DOT)
_DONG = drawing.Look(drawing.Colour.PURPLE, drawing.Dashes.DOTTED)
_CHUA = drawing.Look(drawing.Colour.BLACK, drawing.Dashes.DASHED)
_DOTS = drawing.Look(drawing.Colour.BLACK, kind=drawing.Kind.POINTS)

ALLOCATION_LABEL = "random allocation, certified"
COMBINED_LABEL = "Feldman and Shenfeld 2025, the best of their bounds"
DONG_LABEL = "Dong et al. 2025, Rényi bound"
CHUA_LABEL = "Chua et al. 2024, lower bound"
MEAN_LABEL = "Monte Carlo, mean"
LIMIT_LABEL = "Monte Carlo, 95 % limit"
# Training records of the two data sets of Chua et al. (2024): four fifths of 45.8 and
# of 16.0 million. The paper at hand gives neither these nor the noise.
CRITEO_RECORDS = {"pCTR": 36_700_000, "search": 12_800_000}
CRITEO_BATCHES = (1024, 8192)
CRITEO_NOISE = 0.4

ROUTE_POINTS: Mapping[Route, Sequence[int]] = {
    Route.GEOMETRIC: (500, 1000, 2000, 4000, 8000),
    Route.ADDITIVE: (2048, 4096, 8192, 16384, 32768),
}
_ROUTE_LOOKS = {
    Route.GEOMETRIC: ("multiplicative grid", drawing.ALLOCATION),
    Route.ADDITIVE: ("additive lattice (Fourier)", drawing.POISSON),
}


def allocation(noise: float, num_selected: int, num_steps: int) -> stock.DpEvent:
    """Returns k-out-of-t random allocation of the Gaussian mechanism."""
    step = stock.GaussianDpEvent(noise)
    return dp_event.RandomAllocationEvent(step, num_selected, num_steps)


def poisson(noise: float, num_selected: int, num_steps: int) -> stock.DpEvent:
    """Returns t Poisson samples of the Gaussian mechanism, of rate k / t."""
    step = stock.PoissonSampledDpEvent(
        num_selected / num_steps, stock.GaussianDpEvent(noise)
    )
    return stock.SelfComposedDpEvent(step, num_steps)


def epsilon_curves(
    x: Sequence[float],
    parameters: Sequence[tuple[float, int, int]],
    poisson_label: str,
    delta: float = DELTA,
) -> list[Curve]:
    """Returns ε of random allocation, of Poisson sampling, and by earlier bounds.

    Args:
        x: (n,) where the values stand.
        parameters: (n,) noise multipliers, numbers of selected steps and of steps.
        poisson_label: The legend of Poisson sampling.
        delta: δ.
    """

    def bounds(event: stock.DpEvent) -> tuple[float, float]:
        accountant = pld_accountant.PLDAccountant().compose(event)
        lower, upper = accountant.get_epsilon_bounds(delta)
        return float(lower), float(upper)

    def band(label: str, of: Callable[..., stock.DpEvent], look: drawing.Look) -> Curve:
        lower, upper = zip(*(bounds(of(*each)) for each in parameters), strict=True)
        return Curve(label, x, upper, lower, look)

    combined = [
        allocation_baselines.combined_epsilon(*each, delta) for each in parameters
    ]
    dong = [allocation_baselines.dong_epsilon(*each, delta) for each in parameters]
    return [
        Curve(COMBINED_LABEL, x, combined, look=_COMBINED),
        Curve(DONG_LABEL, x, dong, look=_DONG),
        band(ALLOCATION_LABEL, allocation, drawing.ALLOCATION),
        band(poisson_label, poisson, drawing.POISSON),
    ]


def delta_curves(
    noise: float, num_steps: int, epsilons: Sequence[float]
) -> list[Curve]:
    """Returns δ(ε) of one epoch, one step selected, and of Poisson sampling."""

    def band(label: str, event: stock.DpEvent, look: drawing.Look) -> Curve:
        accountant = pld_accountant.PLDAccountant().compose(event)
        lower, upper = accountant.get_delta_bounds(np.array(epsilons))
        return Curve(label, epsilons, upper.tolist(), lower.tolist(), look)

    sampled, drawn = poisson(noise, 1, num_steps), allocation(noise, 1, num_steps)
    return [
        band(ALLOCATION_LABEL, drawn, drawing.ALLOCATION),
        band("Poisson sampling, λ = 1/t", sampled, drawing.POISSON),
    ]


def earlier_delta_curves(
    noise: float,
    num_steps: int,
    epsilons: Sequence[float],
    *,
    numbers: int = MONTE_CARLO_NUMBERS,
) -> list[Curve]:
    """Returns δ(ε) of one epoch, one step selected, by earlier bounds and estimates."""
    positive = [max(epsilon, 1e-3) for epsilon in epsilons]
    combined = [
        allocation_baselines.combined_delta(noise, 1, num_steps, epsilon)
        for epsilon in positive
    ]
    least = [
        allocation_baselines.max_statistic_delta(noise, num_steps, epsilon)
        for epsilon in epsilons
    ]
    means, limits = allocation_baselines.monte_carlo_deltas(
        noise,
        num_steps,
        epsilons,
        samples=max(numbers // num_steps, 100),
        confidence=_CONFIDENCE,
        generator=np.random.default_rng(_SEED),
    )
    return [
        Curve(COMBINED_LABEL, epsilons, combined, look=_COMBINED),
        Curve(CHUA_LABEL, epsilons, least, look=_CHUA),
        Curve(MEAN_LABEL, epsilons, means.tolist(), look=_DOTS),
        Curve(LIMIT_LABEL, epsilons, limits.tolist(), look=_DONG),
    ]


def figure_1(
    *, steps: Sequence[int] = (10, 100, 1000, 10_000), points: int = 13
) -> drawing.Picture:
    """Returns ε against σ for several t.

    Source: https://arxiv.org/abs/2602.17284, Figure 1.
    """
    noises = np.geomspace(0.4, 4.0, points).tolist()
    panels = [
        drawing.Panel(
            f"t = {count:,} steps",
            "noise multiplier σ",
            "ε (nats)",
            epsilon_curves(
                noises,
                [(noise, 1, count) for noise in noises],
                "Poisson sampling, λ = 1/t",
            ),
            log_x=True,
            log_y=True,
        )
        for count in steps
    ]
    return drawing.Picture(
        f"ε of random allocation at δ = {DELTA:g}, one step of t, one epoch",
        panels,
        "Gaussian mechanism. The paper's values of t and σ are not in its text; these "
        "are ours. Earlier bounds to three digits, their rounding not counted.",
        columns=2,
    )


@functools.lru_cache(maxsize=8)  # Figure 2 is one of the panels of Figure 6.
def _criteo_panel(records: str, batch: int, points: int, numbers: int) -> drawing.Panel:
    count = -(-CRITEO_RECORDS[records] // batch)
    epsilons = (8.0 * np.linspace(0.0, 1.0, points) ** 2).tolist()
    return drawing.Panel(
        f"Criteo {records}, batches of {batch:,}: t = {count:,}",
        "ε (nats)",
        "δ",
        [
            *earlier_delta_curves(CRITEO_NOISE, count, epsilons, numbers=numbers),
            *delta_curves(CRITEO_NOISE, count, epsilons),
        ],
        log_y=True,
        y_limits=(1e-12, 1.0),
    )


_CRITEO_NOTE = (
    f"σ = {CRITEO_NOISE:g}, one epoch. σ and the numbers of records (36.7 and 12.8 "
    "million) are our reading of the setting of Chua et al. (2024); the paper gives "
    "neither. Monte Carlo of the direction where a record is removed, by plain samples "
    "(the paper: a million by importance sampling): below some 1e-3 its limit tells "
    "the number of samples."
)


def figure_2(
    *,
    batch: int = CRITEO_BATCHES[0],
    points: int = 13,
    numbers: int = MONTE_CARLO_NUMBERS,
) -> drawing.Picture:
    """Returns the privacy profile for the first of Figure 6's settings.

    Source: https://arxiv.org/abs/2602.17284, Figure 2.
    """
    panel = _criteo_panel("pCTR", batch, points, numbers)
    title = "Privacy profile of one epoch: random allocation and Poisson sampling"
    return drawing.Picture(title, [panel], _CRITEO_NOTE)


def figure_6(
    *,
    batches: Sequence[int] = CRITEO_BATCHES,
    points: int = 13,
    numbers: int = MONTE_CARLO_NUMBERS,
) -> drawing.Picture:
    """Returns privacy profiles in the setting of Chua et al. (2024).

    Source: https://arxiv.org/abs/2602.17284, Figure 6.
    """
    panels = [
        _criteo_panel(records, batch, points, numbers)
        for records in CRITEO_RECORDS
        for batch in batches
    ]
    title = "Privacy profiles of one epoch: random allocation and Poisson sampling"
    return drawing.Picture(title, panels, _CRITEO_NOTE, columns=2)


def figure_3(
    *,
    steps: Sequence[int] = (100, 1000, 10_000),
    points: Sequence[int] = (1000, 2000, 4000, 8000, 16_000),
    alphas: Sequence[float] = (0.8, 0.4, 0.2),
    counts: Sequence[int] = (10, 100, 1000, 10_000, 100_000, 1_000_000),
) -> drawing.Picture:
    """Returns CPU time against the accuracy reached or asked for, and against t.

    Source: https://arxiv.org/abs/2602.17284, Figure 3.
    """
    colours = (drawing.Colour.BLUE, drawing.Colour.GREEN, drawing.Colour.PURPLE)
    dashes = (drawing.Dashes.SOLID, drawing.Dashes.DASHED, drawing.Dashes.DASH_DOT)
    accuracy, requested = [], []
    for count, colour, dash in zip(steps, colours, dashes, strict=False):
        made = allocation_sums.compute(1.0, count, Route.GEOMETRIC, points)
        look = drawing.Look(colour, dash)
        gaps = [1 / sums.gap(DELTA) for sums in made]
        seconds = [sums.seconds for sums in made]
        accuracy.append(Curve(f"t = {count:,}", gaps, seconds, look=look))
        ends = [sums.epsilons(DELTA, Direction.REMOVE) for sums in made]
        widths = [1 / (high - low) for low, high in ends]
        requested.append(Curve(f"t = {count:,}, here", widths, seconds, look=look))
        requested.append(_stated_curve(count, alphas, colour))
    first = accuracy[0]
    ten_times = [first.x[0], 10 * first.x[0]]
    slope = [first.upper[0], 100 * first.upper[0]]
    label = "slope 2, the paper's Theorem 4.6"
    accuracy.append(Curve(label, ten_times, slope, look=drawing.PLAIN))
    by_steps = []
    for route, (label, look) in _ROUTE_LOOKS.items():
        made = [allocation_sums.compute(1.0, count, route)[0] for count in counts]
        seconds = [sums.seconds for sums in made]
        by_steps.append(Curve(label, counts, seconds, look=look))
    return drawing.Picture(
        "CPU time of both bounds, one of t steps, σ = 1",
        [
            drawing.Panel(
                "multiplicative grid, finer and finer",
                "1 / relative width of the bracket of ε",
                "CPU time (s)",
                accuracy,
                log_x=True,
                log_y=True,
            ),
            drawing.Panel(
                "like with like: how far ε may be off",
                "1 / α asked for, or 1 / width of the bracket (1/nat)",
                "CPU time (s)",
                requested,
                log_x=True,
                log_y=True,
            ),
            drawing.Panel(
                "usual accuracy (1e-5)",
                "number of steps t",
                "CPU time (s)",
                by_steps,
                log_x=True,
                log_y=True,
            ),
        ],
        f"Measured while this was drawn. Remove direction, δ = {DELTA:g}, β = 1e-12. "
        "In the middle the paper's Algorithm 1 as stated, which is asked for (α, β), "
        "beside the certified bracket of what is computed here.",
        columns=3,
    )


def _stated_curve(
    num_steps: int, alphas: Sequence[float], colour: drawing.Colour
) -> Curve:
    """Returns the CPU time of the paper's algorithm against what it is asked for."""
    seconds = []
    for alpha in alphas:
        begin = time.process_time()
        stated_allocation.remove(1.0, num_steps, alpha, 1e-12)
        seconds.append(time.process_time() - begin)
    look = drawing.Look(colour, drawing.Dashes.DOTTED)
    label = f"t = {num_steps:,}, the paper's"
    return Curve(label, [1 / alpha for alpha in alphas], seconds, look=look)


def figure_4(
    *,
    settings: Sequence[tuple[float, int]] = ((0.1, 1), (1.0, 1), (1.0, 1000)),
    points: int = 13,
    runs: int = 1000,
) -> drawing.Picture:
    """Returns square errors of a private mean against the number of values.

    Source: https://arxiv.org/abs/2602.17284, Figure 4.
    """
    sizes = np.geomspace(1e3, 1e6, points).astype(int).tolist()
    tasks = [mean_estimation.Task(*each) for each in settings]
    return mean_picture(
        [(task, mean_estimation.compare(task, sizes, runs=runs)) for task in tasks],
        runs=runs,
    )


_MEAN_LOOKS = {
    mean_estimation.Scheme.ALLOCATION: drawing.ALLOCATION,
    mean_estimation.Scheme.POISSON: drawing.POISSON,
    mean_estimation.Scheme.RENYI_ALLOCATION: drawing.RENYI,
}


def mean_picture(
    found: Sequence[tuple[mean_estimation.Task, Sequence[mean_estimation.Errors]]],
    *,
    runs: int,
) -> drawing.Picture:
    """Returns a panel for each task, of its errors in `runs` simulated runs."""
    panels = []
    for task, schemes in found:
        curves = []
        for errors in schemes:
            sizes, look = errors.sample_sizes, _MEAN_LOOKS[errors.scheme]
            name = errors.scheme.value
            curves.append(Curve(name, sizes, errors.expected, look=look))
            dots = drawing.Look(look.colour, kind=drawing.Kind.POINTS)
            curves.append(
                Curve(f"{name}, simulated", sizes, errors.simulated, look=dots)
            )
        panels.append(
            drawing.Panel(
                f"ε = {task.epsilon:g}, d = {task.dimension:,}",
                "number of values n",
                "square error of the mean",
                curves,
                log_x=True,
                log_y=True,
            )
        )
    first = found[0][0]
    return drawing.Picture(
        "Mean estimation: expected square error (lines) and simulated (dots)",
        panels,
        f"p = {first.mean:g}, t = {first.num_steps:,}, δ = {first.delta:g}; {runs:,} "
        "runs a dot. Noise is the least with which the upper bound on ε is certain, "
        "and is √(t d) σ / n in the estimate. ε, d and n are ours, the paper's text "
        "does not give them.",
    )


def figure_5(
    *,
    rates: Sequence[float] = (0.001, 0.01, 0.1),
    block_sizes: Sequence[int] = (32, 512, 4096, 32_768),
    tolerance: float = 1e-3,
) -> drawing.Picture:
    """Returns the noise that PREAMBLE needs over that of plain DP-SGD.

    Source: https://arxiv.org/abs/2602.17284, Figure 5.
    """
    rows = list(preamble_noise.noise_needed(rates, block_sizes, tolerance))
    looks = (drawing.ALLOCATION, drawing.RENYI, drawing.POISSON)
    curves = []
    for rate, look in zip(rates, looks, strict=False):
        ratios = [row.ratio for row in rows if row.setting.rate == rate]
        label = f"q = {rate:g}, {round(preamble_noise.EPOCHS / rate):,} updates"
        curves.append(Curve(label, block_sizes, ratios, look=look))
        renyi = [
            preamble_noise.renyi_ratio(row.setting, tolerance=1e-3)
            for row in rows
            if row.setting.rate == rate
        ]
        dotted = drawing.Look(look.colour, drawing.Dashes.DOTTED)
        curves.append(Curve(f"q = {rate:g}, by Rényi", block_sizes, renyi, look=dotted))
    panel = drawing.Panel(
        "", "block size B", "noise of PREAMBLE / noise of DP-SGD", curves, log_x=True
    )
    return drawing.Picture(
        f"PREAMBLE: noise for (ε = {preamble_noise.TARGET_EPSILON:g}, "
        f"δ = {preamble_noise.DELTA:g}), certified",
        [panel],
        "d = 2^20, C = 2^15, E = 10. B and q are ours: the paper's text does not give "
        "them, nor its scale of noise (here, of a coordinate of the gradient's "
        "estimate). By Rényi: divergences of integer orders up to 60, of an allocation "
        "and then of a sample of it, over DP-SGD's noise by the tight accountant.",
    )


def figure_7(*, points: int = 25) -> drawing.Picture:
    """Returns privacy profiles of two steps that cross.

    Source: https://arxiv.org/abs/2602.17284, Figure 7.
    """
    epsilons = np.geomspace(0.01, 6.0, points).tolist()
    curves = delta_curves(1.0, 2, epsilons)
    drawn, sampled = curves
    if sampled.lower is None or drawn.lower is None:
        raise TypeError("Both curves must be bands.")
    ratio = Curve(
        "random allocation / Poisson sampling",
        epsilons,
        [a / b for a, b in zip(drawn.upper, sampled.lower, strict=True)],
        [a / b for a, b in zip(drawn.lower, sampled.upper, strict=True)],
        drawing.ALLOCATION,
    )
    one = Curve("equally private", epsilons, [1.0] * points, look=drawing.PLAIN)
    return drawing.Picture(
        "σ = 1, t = 2: neither scheme dominates the other",
        [
            drawing.Panel("profiles", "ε (nats)", "δ", curves, True, True),
            drawing.Panel(
                "their ratio",
                "ε (nats)",
                "δ of random allocation / of Poisson",
                [one, ratio],
                True,
            ),
        ],
        "Certified bands; where that of the ratio is off 1, so is the truth.",
    )


def figure_8(
    *,
    route_points: Mapping[Route, Sequence[int]] = ROUTE_POINTS,
    num_steps: int = 1000,
) -> drawing.Picture:
    """Returns ε against the number of points of a sum, for both routes.

    Source: https://arxiv.org/abs/2602.17284, Figure 8.
    """
    made = {
        route: allocation_sums.compute(1.0, num_steps, route, numbers)
        for route, numbers in route_points.items()
    }

    def both(sums: allocation_sums.Sums) -> tuple[float, float]:
        ends = [sums.epsilons(DELTA, direction) for direction in Direction]
        return max(low for low, _ in ends), max(high for _, high in ends)

    ways: dict[str, Callable[[allocation_sums.Sums], tuple[float, float]]] = {
        "add": lambda sums: sums.epsilons(DELTA, Direction.ADD),
        "remove": lambda sums: sums.epsilons(DELTA, Direction.REMOVE),
        "both (the larger)": both,
    }
    panels = []
    for title, ends_of in ways.items():
        curves = []
        for route, (label, look) in _ROUTE_LOOKS.items():
            ends = [ends_of(sums) for sums in made[route]]
            lower, upper = zip(*ends, strict=True)
            curves.append(Curve(label, route_points[route], upper, lower, look))
        panels.append(
            drawing.Panel(title, "points of a sum", "ε (nats)", curves, log_x=True)
        )
    return drawing.Picture(
        f"ε at δ = {DELTA:g} by both routes, σ = 1, t = {num_steps:,}",
        panels,
        "Tails of 1e-12. Both sides of each route; the paper's shows upper bounds, and "
        "its own grids. As there, Fourier sums are tighter for remove, the grid for "
        "add where losses reach far below. A point of one route does not cost what one "
        "of the other does.",
    )


def figure_9(
    *,
    steps: Sequence[int] = (10, 100, 1000),
    points: Sequence[int] = (250, 500, 1000, 2000, 4000),
) -> drawing.Picture:
    """Returns the Rényi divergence of order 2 of the sums, and its closed form.

    Source: https://arxiv.org/abs/2602.17284, Figure 9.
    """
    panels = []
    for count in steps:
        made = allocation_sums.compute(
            1.0, count, Route.GEOMETRIC, points, tail_mass=1e-8
        )
        exact = math.log1p(math.expm1(1.0) / count)
        truth = Curve("closed form", points, [exact] * len(points), look=drawing.PLAIN)
        band = Curve(
            "of the computed sums",
            points,
            [_second_order(sums.upper) for sums in made],
            [_second_order(sums.lower) for sums in made],
        )
        panels.append(
            drawing.Panel(
                f"t = {count:,}",
                "points of a sum (∝ 1/α)",
                "Rényi divergence of order 2 (nats)",
                [band, truth],
                log_x=True,
            )
        )
    return drawing.Picture(
        "Second moment of the sums on the multiplicative grid, σ = 1, remove",
        panels,
        "Tails of 1e-8, whose share of the moment is left out as in the paper: the "
        "band can lie a little under the closed form log(1 + (e − 1)/t).",
    )


def _second_order(pair: dominating_pair.DominatingPair) -> float:
    """Returns log E[Z²] of the finite ratios."""
    return math.log(float(pair.p_masses @ pair.ratios))


def figure_10(
    *,
    num_steps: int = 1000,
    selected: Sequence[int] = (3, 10, 100),
    points: int = 9,
) -> drawing.Picture:
    """Returns ε against σ for several k.

    Source: https://arxiv.org/abs/2602.17284, Figure 10.
    """
    noises = np.geomspace(0.5, 4.0, points).tolist()
    panels = [
        drawing.Panel(
            f"k = {number}",
            "noise multiplier σ",
            "ε (nats)",
            epsilon_curves(
                noises,
                [(noise, number, num_steps) for noise in noises],
                "Poisson sampling, λ = k/t",
            ),
            log_x=True,
            log_y=True,
        )
        for number in selected
    ]
    return drawing.Picture(
        f"ε of k-out-of-t allocation at δ = {DELTA:g}, t = {num_steps:,}, one epoch",
        panels,
        "Both ends are of the mechanism itself, the upper one the least of the block "
        "reduction (Lemma 2.8) and what is below it. k and σ are ours. Poisson "
        "sampling has the rate k/t (the caption says 1/t).",
    )


def figure_11(
    *,
    noise: float = 0.5,
    num_steps: int = 1000,
    selected: Sequence[int] = (1, 2, 3, 5, 10, 22, 50, 110, 250),
) -> drawing.Picture:
    """Returns ε against k.

    Source: https://arxiv.org/abs/2602.17284, Figure 11.
    """
    curves = epsilon_curves(
        selected,
        [(noise, number, num_steps) for number in selected],
        "Poisson sampling, λ = k/t",
    )
    panel = drawing.Panel("", "steps k with a record", "ε (nats)", curves, True, True)
    return drawing.Picture(
        f"ε against k at δ = {DELTA:g}, σ = {noise:g}, t = {num_steps:,}, one epoch",
        [panel],
        "Both ends are of the mechanism itself, the upper one the least of the block "
        "reduction (Lemma 2.8) and what is below it. k are ours.",
    )
