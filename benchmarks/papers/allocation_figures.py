"""The figures of paper 1: random allocation beside Poisson sampling.

Certified bands in place of the paper's bounds, beside its algorithms as stated and the
earlier bounds that it compares with, each as its own paper has it.

Source: https://arxiv.org/abs/2602.17284.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
import time

import dp_accounting
import numpy as np

import dp_accounting_ext as ext
from papers import earlier_allocation
from papers import mean_estimation
from papers import picture
from papers import preamble
from papers import stated_allocation

Curve, Panel, Picture = picture.Curve, picture.Panel, picture.Picture

DELTA, BETA = 1e-6, 1e-12
# Numbers that are drawn in all.
MONTE_CARLO_NUMBERS = 1 << 26
_CONFIDENCE = 0.95
_COMBINED = {"color": picture.GREEN, "ls": "-."}
_DONG = {"color": picture.PURPLE, "ls": ":"}
_CHUA = {"color": picture.BLACK, "ls": "--"}

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


def allocation(
    noise: float, num_selected: int, num_steps: int
) -> dp_accounting.DpEvent:
    """Returns k-out-of-t random allocation of the Gaussian mechanism."""
    step = dp_accounting.GaussianDpEvent(noise)
    return ext.RandomAllocationEvent(step, num_selected, num_steps)


def poisson(noise: float, num_selected: int, num_steps: int) -> dp_accounting.DpEvent:
    """Returns t Poisson samples of the Gaussian mechanism, of rate k / t."""
    gaussian = dp_accounting.GaussianDpEvent(noise)
    step = dp_accounting.PoissonSampledDpEvent(num_selected / num_steps, gaussian)
    return dp_accounting.SelfComposedDpEvent(step, num_steps)


def epsilon_panel(
    title: str,
    x_label: str,
    x: Sequence[float],
    parameters: Sequence[tuple[float, int, int]],
    poisson_label: str,
) -> Panel:
    """Returns ε of random allocation, of Poisson sampling, and by earlier bounds.

    Args:
        title: The panel's.
        x_label: What stands at the bottom.
        x: (n,) where the values stand.
        parameters: (n,) noise multipliers, numbers of selected steps and of steps.
        poisson_label: The legend of Poisson sampling.
    """

    def band(
        label: str, of: Callable[..., dp_accounting.DpEvent], style: dict[str, str]
    ) -> Curve:
        accountants = [ext.PLDAccountant().compose(of(*each)) for each in parameters]
        ends = [accountant.get_epsilon_bounds(DELTA) for accountant in accountants]
        lower, upper = zip(*ends, strict=True)
        return Curve(label, x, upper, lower, style)

    combined = [
        earlier_allocation.combined_epsilon(*each, DELTA) for each in parameters
    ]
    dong = [earlier_allocation.dong_epsilon(*each, DELTA) for each in parameters]
    curves = [
        Curve(COMBINED_LABEL, x, combined, style=_COMBINED),
        Curve(DONG_LABEL, x, dong, style=_DONG),
        band(ALLOCATION_LABEL, allocation, picture.ALLOCATION),
        band(poisson_label, poisson, picture.POISSON),
    ]
    return Panel(title, x_label, "ε (nats)", curves, "xy")


def delta_curves(
    noise: float, num_steps: int, epsilons: Sequence[float]
) -> list[Curve]:
    """Returns δ(ε) of one epoch, one step selected, and of Poisson sampling."""

    def band(label: str, event: dp_accounting.DpEvent, style: dict[str, str]) -> Curve:
        accountant = ext.PLDAccountant().compose(event)
        lower, upper = accountant.get_delta_bounds(np.array(epsilons))
        return Curve(label, epsilons, upper.tolist(), lower.tolist(), style)

    drawn, sampled = allocation(noise, 1, num_steps), poisson(noise, 1, num_steps)
    return [
        band(ALLOCATION_LABEL, drawn, picture.ALLOCATION),
        band("Poisson sampling, λ = 1/t", sampled, picture.POISSON),
    ]


def earlier_delta_curves(
    noise: float, num_steps: int, epsilons: Sequence[float], numbers: int
) -> list[Curve]:
    """Returns δ(ε) of one epoch, one step selected, by earlier bounds and estimates."""
    combined = [
        earlier_allocation.combined_delta(noise, 1, num_steps, max(epsilon, 1e-3))
        for epsilon in epsilons
    ]
    least = [
        earlier_allocation.max_statistic_delta(noise, num_steps, epsilon)
        for epsilon in epsilons
    ]
    means, limits = earlier_allocation.monte_carlo_deltas(
        noise,
        num_steps,
        epsilons,
        samples=max(numbers // num_steps, 100),
        confidence=_CONFIDENCE,
        generator=np.random.default_rng(0),
    )
    return [
        Curve(COMBINED_LABEL, epsilons, combined, style=_COMBINED),
        Curve(CHUA_LABEL, epsilons, least, style=_CHUA),
        Curve(MEAN_LABEL, epsilons, means.tolist(), style=picture.POINTS),
        Curve(LIMIT_LABEL, epsilons, limits.tolist(), style=_DONG),
    ]


def figure_1(
    *, steps: Sequence[int] = (10, 100, 1000, 10_000), points: int = 13
) -> Picture:
    """Returns ε against σ for several t.

    Source: https://arxiv.org/abs/2602.17284, Figure 1.
    """
    noises = np.geomspace(0.4, 4.0, points).tolist()
    panels = [
        epsilon_panel(
            f"t = {count:,} steps",
            "noise multiplier σ",
            noises,
            [(noise, 1, count) for noise in noises],
            "Poisson sampling, λ = 1/t",
        )
        for count in steps
    ]
    return Picture(
        f"ε of random allocation at δ = {DELTA:g}, one step of t, one epoch",
        panels,
        "Gaussian mechanism. The paper's values of t and σ are not in its text; these "
        "are ours. Earlier bounds to three digits, their rounding not counted.",
        columns=2,
    )


@functools.lru_cache(maxsize=8)  # Figure 2 is one of the panels of Figure 6.
def _criteo_panel(records: str, batch: int, points: int, numbers: int) -> Panel:
    count = -(-CRITEO_RECORDS[records] // batch)
    epsilons = (8.0 * np.linspace(0.0, 1.0, points) ** 2).tolist()
    curves = earlier_delta_curves(CRITEO_NOISE, count, epsilons, numbers)
    curves += delta_curves(CRITEO_NOISE, count, epsilons)
    title = f"Criteo {records}, batches of {batch:,}: t = {count:,}"
    return Panel(title, "ε (nats)", "δ", curves, "y", (1e-12, 1.0))


_CRITEO_TITLE = "Privacy profiles of one epoch: random allocation and Poisson sampling"
_CRITEO_NOTE = (
    f"σ = {CRITEO_NOISE:g}, one epoch. σ and the numbers of records (36.7 and 12.8 "
    "million) are our reading of the setting of Chua et al. (2024); the paper gives "
    "neither. Monte Carlo of the direction where a record is removed: all steps but "
    "its own are drawn, and its own is integrated (the paper: a million outputs by "
    "importance sampling). Limits are those of a normal law, which miss what rare "
    "outputs of the other steps add."
)


def figure_2(
    *,
    batch: int = CRITEO_BATCHES[0],
    points: int = 13,
    numbers: int = MONTE_CARLO_NUMBERS,
) -> Picture:
    """Returns the privacy profile for the first of Figure 6's settings.

    Source: https://arxiv.org/abs/2602.17284, Figure 2.
    """
    panel = _criteo_panel("pCTR", batch, points, numbers)
    return Picture(_CRITEO_TITLE, [panel], _CRITEO_NOTE)


def figure_6(
    *,
    batches: Sequence[int] = CRITEO_BATCHES,
    points: int = 13,
    numbers: int = MONTE_CARLO_NUMBERS,
) -> Picture:
    """Returns privacy profiles in the setting of Chua et al. (2024).

    Source: https://arxiv.org/abs/2602.17284, Figure 6.
    """
    panels = [
        _criteo_panel(records, batch, points, numbers)
        for records in CRITEO_RECORDS
        for batch in batches
    ]
    return Picture(_CRITEO_TITLE, panels, _CRITEO_NOTE, columns=2)


def figure_3(
    *,
    steps: Sequence[int] = (100, 1000, 10_000),
    alphas: Sequence[float] = (0.8, 0.4, 0.2, 0.1),
    counts: Sequence[int] = (10, 100, 1000, 10_000, 100_000, 1_000_000),
) -> Picture:
    """Returns CPU time against the accuracy asked for or reached, and against t.

    Source: https://arxiv.org/abs/2602.17284, Figure 3.
    """
    colours = (picture.BLUE, picture.GREEN, picture.PURPLE)
    accuracy = []
    for count, colour in zip(steps, colours, strict=False):
        seconds = [_stated_seconds(count, alpha) for alpha in alphas]
        x = [1 / alpha for alpha in alphas]
        label = f"t = {count:,}, as stated"
        accuracy.append(Curve(label, x, seconds, style={"color": colour}))
        width, spent = _certified(count)
        dot = {"color": colour, "ls": "none", "marker": "o"}
        accuracy.append(Curve(f"t = {count:,}, here", [width], [spent], style=dot))
    first = accuracy[0]
    ends = [first.x[0], 10 * first.x[0]]
    slope = [first.upper[0], 100 * first.upper[0]]
    label = "slope 2, the paper's Theorem 4.6"
    accuracy.append(Curve(label, ends, slope, style=picture.PLAIN))
    few = [count for count in counts if count <= 10_000]
    stated = [_stated_seconds(count, alphas[0]) for count in few]
    here = [_certified(count)[1] for count in counts]
    by_steps = [
        Curve(f"as stated, α = {alphas[0]:g}", few, stated, style=picture.POISSON),
        Curve("here, a bracket of 1e-4 of ε and less", counts, here),
    ]
    seconds_label = "CPU time (s)"
    x_label = "1 / α asked for, or 1 / width of the bracket (1/nat)"
    return Picture(
        "CPU time of both directions, one of t steps, σ = 1",
        [
            Panel("how far ε may be off", x_label, seconds_label, accuracy, "xy"),
            Panel("how many steps", "number of steps t", seconds_label, by_steps, "xy"),
        ],
        f"Measured while this was drawn. δ = {DELTA:g}, β = {BETA:g}. The paper's "
        "Algorithms 1 and 2 as stated, which are asked for (α, β), beside the bracket "
        "that the accountant gives, in nats.",
    )


def _stated_seconds(num_steps: int, alpha: float) -> float:
    """Returns the CPU time of the paper's algorithms for what they are asked."""
    pair = stated_allocation.GaussianPair(1.0)
    begin = time.process_time()
    stated_allocation.remove(pair, num_steps, alpha, BETA)
    stated_allocation.add(pair, num_steps, alpha, BETA)
    return time.process_time() - begin


@functools.cache  # Asked for again, the accountant would remember.
def _certified(num_steps: int) -> tuple[float, float]:
    """Returns one over the width of the accountant's bracket, and its CPU time."""
    begin = time.process_time()
    accountant = ext.PLDAccountant().compose(allocation(1.0, 1, num_steps))
    lower, upper = accountant.get_epsilon_bounds(DELTA)
    return 1 / (upper - lower), time.process_time() - begin


_MEAN_STYLES = (picture.ALLOCATION, picture.POISSON, picture.RENYI)


def figure_4(
    *,
    settings: Sequence[tuple[float, int]] = ((0.1, 1), (1.0, 1), (1.0, 1000)),
    num_steps: int = 1000,
    points: int = 13,
    runs: int = 1000,
) -> Picture:
    """Returns square errors of a private mean against the number of values.

    Source: https://arxiv.org/abs/2602.17284, Figure 4.
    """
    sizes = np.geomspace(1e3, 1e6, points).astype(int).tolist()
    rng = np.random.default_rng(0)
    panels = []
    for epsilon, dimension in settings:
        task = mean_estimation.Task(epsilon, dimension, num_steps=num_steps)
        curves = []
        for scheme, style in zip(mean_estimation.SCHEMES, _MEAN_STYLES, strict=True):
            noise = mean_estimation.least_noise(scheme, task)
            setting = scheme, task, noise
            expected = [mean_estimation.expected_error(*setting, n) for n in sizes]
            simulated = [
                mean_estimation.simulated_error(*setting, n, runs=runs, rng=rng)
                for n in sizes
            ]
            dots = {**picture.POINTS, "color": style["color"]}
            curves.append(Curve(scheme, sizes, expected, style=style))
            curves.append(Curve(f"{scheme}, simulated", sizes, simulated, style=dots))
        title = f"ε = {epsilon:g}, d = {dimension:,}"
        error = "square error of the mean"
        panels.append(Panel(title, "number of values n", error, curves, "xy"))
    return Picture(
        "Mean estimation: expected square error (lines) and simulated (dots)",
        panels,
        f"p = {task.mean:g}, t = {num_steps:,}, δ = {task.delta:g}; {runs:,} runs a "
        "dot. Noise is the least with which the upper bound on ε is certain, and is "
        "√(t d) σ / n in the estimate. ε, d and n are ours, the paper's text does not "
        "give them.",
    )


def figure_5(
    *,
    rates: Sequence[float] = (0.001, 0.01, 0.1),
    block_sizes: Sequence[int] = (32, 512, 4096, 32_768),
    tolerance: float = 1e-3,
) -> Picture:
    """Returns the noise that PREAMBLE needs over that of plain DP-SGD.

    Source: https://arxiv.org/abs/2602.17284, Figure 5.
    """
    curves = []
    colours = (picture.BLUE, picture.GREEN, picture.VERMILLION)
    for rate, colour in zip(rates, colours, strict=False):
        settings = [preamble.Setting(size, rate) for size in block_sizes]
        ratios = [preamble.ratio_needed(each, tolerance) for each in settings]
        renyi = [preamble.renyi_ratio(each) for each in settings]
        label = f"q = {rate:g}, {round(preamble.EPOCHS / rate):,} updates"
        curves.append(Curve(label, block_sizes, ratios, style={"color": colour}))
        dotted = {"color": colour, "ls": ":"}
        curves.append(
            Curve(f"q = {rate:g}, by Rényi", block_sizes, renyi, style=dotted)
        )
    y_label = "noise of PREAMBLE / noise of DP-SGD"
    return Picture(
        f"PREAMBLE: noise for (ε = {preamble.TARGET_EPSILON:g}, "
        f"δ = {preamble.DELTA:g}), certified",
        [Panel("", "block size B", y_label, curves, "x")],
        "d = 2^20, C = 2^15, E = 10. B and q are ours: the paper's text does not give "
        "them, nor its scale of noise (here, of a coordinate of the gradient's "
        "estimate). By Rényi: divergences of integer orders up to 60, of an allocation "
        "and then of a sample of it, over DP-SGD's noise by the tight accountant.",
    )


def figure_7(*, points: int = 61) -> Picture:
    """Returns profiles of random allocation and of Poisson sampling that cross.

    Source: https://arxiv.org/abs/2602.17284, Figure 7.
    """
    epsilons = np.geomspace(0.01, 4.0, points).tolist()
    drawn, sampled = curves = delta_curves(1.0, 2, epsilons)
    assert drawn.lower is not None and sampled.lower is not None
    ratio = Curve(
        "random allocation / Poisson",
        epsilons,
        [a / b for a, b in zip(drawn.upper, sampled.lower, strict=True)],
        [a / b for a, b in zip(drawn.lower, sampled.upper, strict=True)],
    )
    one = Curve("equally private", epsilons, [1.0] * points, style=picture.PLAIN)
    label = "δ of random allocation / of Poisson"
    return Picture(
        "σ = 1, t = 2: neither scheme dominates the other",
        [
            Panel("profiles", "ε (nats)", "δ", curves, "xy"),
            Panel("their ratio", "ε (nats)", label, [one, ratio], "x"),
        ],
        "Certified bands; where that of the ratio is off 1, so is the truth.",
    )


def figure_8(
    *,
    noise: float = 1.0,
    num_steps: int = 1000,
    alphas: Sequence[float] = (0.8, 0.4, 0.2, 0.1, 0.05),
    fourier_points: Sequence[int] = (1 << 13, 1 << 15, 1 << 17),
) -> Picture:
    """Returns ε against the points of a sum, as stated and by Fourier sums.

    Source: https://arxiv.org/abs/2602.17284, Figure 8.
    """
    pair = stated_allocation.GaussianPair(noise)
    removed = [stated_allocation.remove(pair, num_steps, a, BETA) for a in alphas]
    added = [stated_allocation.add(pair, num_steps, a, BETA) for a in alphas]
    sums = [stated_allocation.fourier(pair, num_steps, n, BETA) for n in fourier_points]
    profiles = {
        "remove": ([each.delta for each in removed], [each.remove for each in sums]),
        "add": ([each.delta for each in added], [each.add for each in sums]),
    }
    accountant = ext.PLDAccountant().compose(allocation(noise, 1, num_steps))
    points = [each.masses.size for each in removed]
    panels = []
    for direction, (stated, fourier) in profiles.items():
        lower, upper = accountant.get_epsilon_bounds(DELTA, direction=direction)
        ends = [points[0], fourier_points[-1]]
        panels.append(
            Panel(
                direction,
                "points of a sum",
                "ε (nats)",
                [
                    Curve(
                        "as stated (multiplicative grid)",
                        points,
                        [stated_allocation.epsilon_at(each, DELTA) for each in stated],
                    ),
                    Curve(
                        "Fourier sums (additive grid)",
                        fourier_points,
                        [stated_allocation.epsilon_at(each, DELTA) for each in fourier],
                        style=picture.POISSON,
                    ),
                    Curve(
                        "certified here",
                        ends,
                        [upper] * 2,
                        [lower] * 2,
                        picture.PLAIN,
                    ),
                ],
                "x",
            )
        )
    return Picture(
        f"ε at δ = {DELTA:g}, σ = {noise:g}, t = {num_steps:,}, by direction",
        panels,
        f"Upper bounds of the paper's Algorithms 1 and 2 for α from {alphas[0]:g} to "
        f"{alphas[-1]:g}, β = {BETA:g}, and of a power of one Fourier transform, whose "
        "ratios keep their means. A point of one does not cost what one of the other "
        "does.",
    )


def figure_9(
    *,
    steps: Sequence[int] = (10, 100, 1000),
    alphas: Sequence[float] = (0.8, 0.4, 0.2, 0.1, 0.05, 0.025),
) -> Picture:
    """Returns the Rényi divergence of order 2 of the sums, and its closed form.

    Source: https://arxiv.org/abs/2602.17284, Figure 9.
    """
    pair = stated_allocation.GaussianPair(1.0)
    panels = []
    for count in steps:
        made = [stated_allocation.remove(pair, count, a, 1e-8) for a in alphas]
        x = [1 / alpha for alpha in alphas]
        exact = math.log1p(math.expm1(1.0) / count)
        curves = [
            Curve("of Algorithm 1 as stated", x, [s.second_moment() for s in made]),
            Curve("closed form", x, [exact] * len(x), style=picture.PLAIN),
        ]
        label = "Rényi divergence of order 2 (nats)"
        panels.append(Panel(f"t = {count:,}", "1 / α (1/nat)", label, curves, "x"))
    return Picture(
        "Second moment of the sums on the multiplicative grid, σ = 1, remove",
        panels,
        "β = 1e-8, whose share of the moment is left out as in the paper. The closed "
        "form is log(1 + (e − 1)/t). The time grows with 1/α²: it is some hours at "
        "the paper's 1e-3.",
    )


def figure_10(
    *,
    num_steps: int = 1000,
    selected: Sequence[int] = (3, 10, 100),
    points: int = 9,
) -> Picture:
    """Returns ε against σ for several k.

    Source: https://arxiv.org/abs/2602.17284, Figure 10.
    """
    noises = np.geomspace(0.5, 4.0, points).tolist()
    panels = [
        epsilon_panel(
            f"k = {number}",
            "noise multiplier σ",
            noises,
            [(noise, number, num_steps) for noise in noises],
            "Poisson sampling, λ = k/t",
        )
        for number in selected
    ]
    return Picture(
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
) -> Picture:
    """Returns ε against k.

    Source: https://arxiv.org/abs/2602.17284, Figure 11.
    """
    panel = epsilon_panel(
        "",
        "steps k with a record",
        selected,
        [(noise, number, num_steps) for number in selected],
        "Poisson sampling, λ = k/t",
    )
    return Picture(
        f"ε against k at δ = {DELTA:g}, σ = {noise:g}, t = {num_steps:,}, one epoch",
        [panel],
        "Both ends are of the mechanism itself, the upper one the least of the block "
        "reduction (Lemma 2.8) and what is below it. k are ours.",
    )
