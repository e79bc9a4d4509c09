"""The table of cases that `run.py` measures, prints and holds to goals.

The goal of a case's width is on the page of measurements: its bracket may be
`WIDER` times as wide, relative to its upper end, as the page has it. The goals of its
time stand here: `work` is the CPU time of both bounds over that of the yardstick of
`timing.py`, as it was measured when the case was written, and a case that takes
`SLOWER` times as long misses its goal.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import math

import dp_accounting
from dp_accounting import dp_event
import numpy as np
import renyi_cases
import wpm_cases

import dp_accounting_ext as ext

Event = dp_accounting.DpEvent
Relation = dp_accounting.NeighboringRelation
Gaussian, Laplace = dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent
Poisson, Allocated = dp_accounting.PoissonSampledDpEvent, ext.RandomAllocationEvent

# Widths are the same in every run; times are not.
WIDER, SLOWER = 1.3, 2.5
EXACT = 1e-12  # The relative width of what has a closed form: of roundings alone.


@dataclasses.dataclass(frozen=True)
class Case:
    """A question about an event.

    Attributes:
        section: Where on the page of measurements it stands.
        name: What its row is called.
        event: What is composed; or, with a `target`, from a noise multiplier to it.
        count: How often it is composed.
        delta: ε is asked for at this δ.
        epsilon: If given, δ is asked for at this ε instead.
        target: If given, the least noise for this ε at δ is asked for.
        relation: The neighboring relation.
        enough: (upper − lower) / upper that is narrow enough, whatever the page has.
        work: CPU time of both bounds in yardsticks, as measured; not held if infinite.
        megabytes: The most memory that it may add.
        ratio: How many times as fast as dp_accounting's accountant it must be; None
            where that one is not asked.
        again: Whether the time of other questions after the first is what counts.
        short: Whether the short form has it.
        prepare: If given, there is no event: this returns what is timed, whose results
            are a lower and an upper bound.
    """

    section: str
    name: str
    event: Event | Callable[[float], Event] | None = None
    count: int = 1
    delta: float = 1e-6
    epsilon: float | None = None
    target: float | None = None
    relation: Relation = Relation.ADD_OR_REMOVE_ONE
    enough: float = EXACT
    work: float = math.inf
    megabytes: float = 600.0
    ratio: float | None = None
    again: bool = False
    short: bool = False
    prepare: Callable[[], wpm_cases.Job] | None = None


INTRODUCTIONS = {
    "Random allocation": "Noise multiplier σ; each record is in k of the t steps of an "
    "epoch. For 1 < k < t these are the bounds on the [block "
    "reduction](architecture.md#glossary), which is above the mechanism; the "
    "mechanism's own are those of k of t.",
    "k of t": "Bounds on the mechanism itself.",
    "Beside the stock accountant": "The same tree and the same question, for "
    "dp_accounting and for this package. The ratio is dp_accounting's CPU time over "
    "ours, of a first ε.",
    "Later questions": "Another question about what is composed; milliseconds of CPU "
    "time each.",
    "Noise for a target": "The least noise multiplier for which ε is certain, by "
    "dp_accounting's own search. Those of k of t are settings of a Monte Carlo "
    "accountant ([Dong and Özgür](https://arxiv.org/abs/2605.07072)), beside Poisson "
    "sampling of the rate k / t.",
    "Many mechanisms": "Compositions of many different mechanisms.",
    "Groups": "Every split of the group into records that leave and that join.",
    "Correlated noise": "Matrix mechanisms with 16 bands of the square root of all "
    "prefix sums, 1000 steps, a record in 1 % of all batches, its steps 16 apart, "
    "δ = 1e-5 ([which sampling](matrix.md)).",
    "Rényi divergences": "ε of `RdpAccountant` at its default orders, δ = 1e-6; the "
    "lower bound is what exact divergences at these orders would have.",
    "PREAMBLE": "DP-SGD with PREAMBLE: Poisson samples of random allocations (paper 1, "
    "section 5), B = 1024, q = 0.01, 1000 updates.",
    "Hard settings": "Settings at which brackets were wide once.",
    "Private draws": "Exact projections of one private distribution, with bounds on "
    "their cost; draws for crowds; maps without a matrix, construction and a draw of a "
    "user with 50 places.",
}


def sampled_gaussian(rate: float, sigma: float) -> Event:
    """Returns the Gaussian mechanism on a Poisson sample."""
    return Poisson(rate, Gaussian(sigma))


def blocks(sigma: float, selected: int, steps: int) -> Event:
    """Returns the block reduction: one step of each of k blocks, nearly of one size.

    Source: https://arxiv.org/abs/2602.17284, Lemma 2.8.
    """
    size, larger = divmod(steps, selected)
    parts = [(size, selected - larger), (size + 1, larger)]
    return dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(Allocated(Gaussian(sigma), 1, each), n)
            for each, n in parts
            if n
        ]
    )


# σ, t, k, epochs, δ, work, whether short.
_ALLOCATIONS = (
    (1.0, 10, 1, 1, 1e-6, 15, False),
    (1.0, 100, 1, 1, 1e-6, 15, False),
    (1.0, 1000, 1, 1, 1e-6, 20, True),
    (1.0, 10_000, 1, 1, 1e-6, 40, False),
    (1.0, 1_000_000, 1, 1, 1e-6, 60, False),
    (0.5, 1000, 1, 1, 1e-6, 50, True),
    (0.3, 100, 1, 1, 1e-6, 40, False),
    (2.0, 1000, 1, 1, 1e-6, 20, False),
    (5.0, 1000, 1, 1, 1e-8, 20, False),
    (1.0, 1000, 10, 1, 1e-6, 25, True),
    (1.0, 1000, 7, 1, 1e-6, 50, False),
    (0.5, 1000, 100, 1, 1e-6, 120, False),
    (1.0, 1000, 1, 100, 1e-6, 40, False),
    (0.8, 5000, 1, 10, 1e-10, 50, True),
    (1.0, 1000, 1, 1, 1e-12, 60, False),
    (10.0, 7, 1, 1, 1e-6, 11, True),
    (1.0, 10**7, 1, 1, 1e-6, 86, True),
)
# σ, t, k, δ: of one epoch and of ten.
_K_OF_T = (
    (0.5, 1000, 250, 1e-6),
    (1.42, 10_000, 205, 1e-5),
    (1.0, 1000, 100, 1e-6),
    (0.7, 1000, 30, 1e-6),
    (0.7, 240, 12, 1e-7),
    (1.0, 1000, 10, 1e-6),
    (0.55, 391, 5, 1.25e-5),
    (0.32, 17, 5, 1e-6),
    (0.7, 240, 3, 1e-7),
    (0.8, 10, 3, 1e-6),
    (1.0, 100, 2, 1e-6),
)
# Settings at which k of t took seconds once: σ, t, k, epochs, δ, work.
_SLOW_ONCE = (
    (1.0, 1000, 2, 1, 1e-6, 36),
    (1.0, 1000, 10, 10, 1e-6, 35),
    (0.7, 365, 2, 3000, 1e-9, 190),
    (0.4, 65_536, 5, 1, 1e-5, 140),
    (1.3, 65_536, 2, 300, 1e-30, 197),
    (0.4, 65_536, 2, 3000, 1e-30, 290),
    (0.7, 7, 2, 1, 1e-5, 425),
    (10.0, 4096, 2, 1, 1e-9, 30),
)
# q, σ, T, least ratio.
_DP_SGD = (
    (0.01, 1.0, 100, 3.0),
    (0.01, 1.0, 1000, 3.0),
    (0.01, 1.0, 10_000, 2.0),
    (0.001, 1.0, 10_000, 1.5),
    (0.02, 4.0, 10_000, 0.5),
    (1e-5, 1.0, 100_000, 0.1),
    (1e-3, 10.0, 100_000, 0.2),
    (1e-4, 1.0, 1_000_000, 0.3),
)
# Records in a group under 1 of 100 steps, work.
_ALLOCATED_GROUPS = ((9, 300), (16, 600), (17, 490), (32, 1000))


def allocation_cases() -> Iterator[Case]:
    """Yields one of t and its composition, and k of t."""
    for sigma, steps, selected, epochs, delta, work, short in _ALLOCATIONS:
        name = f"σ = {sigma:g}, {selected} of {steps:,}, δ = {delta:g}"
        name += f", {epochs} epochs" if epochs > 1 else ""
        event: Event = Allocated(Gaussian(sigma), selected, steps)
        if selected > 1:
            event = blocks(sigma, selected, steps)
        yield Case(
            "Random allocation",
            name,
            event,
            epochs,
            delta,
            work=work,
            short=short,
        )
    for sigma, steps, selected, delta in _K_OF_T:
        for epochs in (1, 10):
            name = f"σ = {sigma:g}, {selected} of {steps:,}, δ = {delta:g}"
            event = Allocated(Gaussian(sigma), selected, steps)
            name += f", {epochs} epochs" if epochs > 1 else ""
            short = epochs == 1 and selected in (10, 12)
            yield Case("k of t", name, event, epochs, delta, short=short)
    for sigma, steps, selected, epochs, delta, work in _SLOW_ONCE:
        yield Case(
            "k of t",
            f"σ = {sigma:g}, {selected} of {steps:,}, {epochs:,} runs, δ = {delta:g}",
            Allocated(Gaussian(sigma), selected, steps),
            epochs,
            delta,
            work=work,
            short=True,
        )


# σ, and whether fresh windows are measured too, which take long.
_CORRELATED = ((1.0, False), (2.0, True), (4.0, False))


def _correlated_noise() -> Iterator[Case]:
    """Yields matrix mechanisms with b-min-sep sampling, and with fresh windows."""
    case = functools.partial(Case, "Correlated noise", delta=1e-5)
    steps = np.arange(1, 16)
    column = np.append(1.0, np.cumprod((2 * steps - 1) / (2 * steps)))
    column /= np.linalg.norm(column)
    for sigma, of_windows in _CORRELATED:
        event: Event = ext.MinSepSamplingEvent(column, sigma, 1 / 85, 16, 1000)
        name = f"b-min-sep, σ = {sigma:g}"
        yield case(name, event, work=600.0, short=sigma == 2)
        if of_windows:
            event = ext.WindowedAllocationEvent(column, sigma, 85, 16, 10)
            yield case(f"fresh windows of 85, σ = {sigma:g}", event)


def stock_cases() -> Iterator[Case]:
    """Yields trees of every day."""
    section = "Beside the stock accountant"
    case = functools.partial(Case, section, short=True, ratio=1.0)
    replace = Relation.REPLACE_ONE
    for rate, sigma, steps, ratio in _DP_SGD:
        name = f"DP-SGD, q = {rate:g}, σ = {sigma:g}, T = {steps:,}"
        event = sampled_gaussian(rate, sigma)
        yield case(name, event, steps, ratio=ratio)
        if (rate, steps) == (0.01, 1000):
            replaced = f"{name}, REPLACE_ONE"
            yield case(replaced, event, steps, relation=replace, ratio=ratio)
            for delta in (1e-12, 1e-20):
                yield case(f"{name}, δ = {delta:g}", event, steps, delta, ratio=1.5)

    def mixture(sigma: float, weights: list[float]) -> Event:
        shifts = list(range(len(weights)))
        return dp_event.MixtureOfGaussiansDpEvent(sigma, shifts, weights)

    yield case(
        "mixture of 17 Gaussians, σ = 4, 10 times",
        mixture(4.0, [1 / 17] * 17),
        10,
        ratio=50.0,
        short=False,
    )
    three = mixture(16.0, [0.2, 0.6, 0.2])
    yield case("mixture of 3, σ = 16, 10 times", three, 10, ratio=20.0)
    composed = dp_accounting.ComposedDpEvent
    discrete = dp_event.DiscreteLaplaceDpEvent
    response = dp_event.RandomizedResponseDpEvent(0.5, 4)
    uneven = composed([sampled_gaussian(0.01 * i, 1 + 0.1 * i) for i in range(1, 11)])
    queries = composed([Laplace(20.0)] * 30 + [Gaussian(30.0)] * 5)
    parts = [sampled_gaussian(0.01, 1.0), Laplace(5.0), Gaussian(8.0)]
    four = composed([*parts, discrete(0.1, 1)])
    truncated = dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 60, 1.0)
    # Less than a millisecond, or nearly, is held to no ratio.
    for name, event, count, ratio in (
        ("Gaussian, σ = 2, 5 times", Gaussian(2.0), 5, 0.0),
        ("10 different sampled Gaussians, 10 times", uneven, 10, 1.0),
        ("Laplace, b = 1, 10 times", Laplace(1.0), 10, 1.0),
        ("Laplace, b = 10, 100 times", Laplace(10.0), 100, 1.0),
        ("Laplace, b = 10, once", Laplace(10.0), 1, 0.0),
        ("30 Laplace and 5 Gaussian queries", queries, 1, 1.0),
        ("sampled Laplace, 100 times", Poisson(0.05, Laplace(1.0)), 100, 1.0),
        ("discrete Laplace, 20 times", discrete(0.5, 3), 20, 1.0),
        ("four mechanisms, 20 times", four, 20, 1.0),
        ("one sampled Gaussian", sampled_gaussian(0.01, 5.0), 1, 0.0),
        # No tight lower bound is known of truncated batches.
        ("truncated sampled Gaussian, 100 times", truncated, 100, 1.0),
    ):
        yield case(name, event, count, ratio=ratio)
    name = "randomized response, REPLACE_ONE"
    yield case(name, response, relation=replace, ratio=0.0)


def later_cases() -> Iterator[Case]:
    """Yields questions after a first one, a thousand at once not among them."""
    thirty = [sampled_gaussian(0.01 + 0.001 * i, 1 + 0.02 * i) for i in range(30)]
    for name, event, count, ratio in (
        ("DP-SGD, T = 1000", sampled_gaussian(0.01, 1.0), 1000, 3.0),
        # Tenths of a millisecond are held to no ratio.
        ("30 sampled Gaussians", dp_accounting.ComposedDpEvent(thirty), 1, 0.0),
        ("one Laplace mechanism", Laplace(10.0), 1, 0.0),
        ("one sampled Gaussian", sampled_gaussian(0.01, 5.0), 1, 0.0),
    ):
        for word, epsilon in (("ε", None), ("δ", 0.05)):
            yield Case(
                "Later questions",
                f"another {word}: {name}",
                event,
                count,
                epsilon=epsilon,
                ratio=ratio,
                again=True,
                short=True,
            )


def other_cases() -> Iterator[Case]:
    """Yields noise for targets, many mechanisms, groups, PREAMBLE and hard settings."""
    noise = functools.partial(Case, "Noise for a target")

    def training(sigma: float) -> Event:
        return dp_accounting.SelfComposedDpEvent(sampled_gaussian(0.01, sigma), 1000)

    yield noise("DP-SGD, T = 1000, ε = 2", training, target=2.0, ratio=0.0, short=True)
    for selected, steps, delta, epsilon in (
        (5, 391, 1.25e-5, 8.0),
        (205, 10_000, 1e-5, 8.0),
        (655, 2000, 1e-5, 3.0),
    ):

        def drawn(sigma: float, k: int = selected, t: int = steps) -> Event:
            return Allocated(Gaussian(sigma), k, t)

        def sampled(sigma: float, k: int = selected, t: int = steps) -> Event:
            return dp_accounting.SelfComposedDpEvent(sampled_gaussian(k / t, sigma), t)

        name = f"{selected} of {steps:,}, ε = {epsilon:g}, δ = {delta:g}"
        yield noise(name, drawn, delta=delta, target=epsilon)
        yield noise(f"{name}, Poisson", sampled, delta=delta, target=epsilon)
    many = functools.partial(Case, "Many mechanisms")
    for number, factor, short in ((100, 1.0, True), (2000, 20.0, False)):
        shares = np.arange(number) / number
        sampled_ones = [sampled_gaussian(0.01, 1 + 2 * x) for x in shares]
        laplaces = [Laplace(100 + 200 * x) for x in shares]
        for kind, events, work in (
            ("sampled Gaussians", sampled_ones, 200.0),
            ("Laplace mechanisms", laplaces, 75.0),
        ):
            whole = dp_accounting.ComposedDpEvent(events)
            name = f"{number} {kind}"
            yield many(name, whole, work=work * factor, short=short)
    rare = sampled_gaussian(1e-3, 5.0)
    for size, step, count, work, short in (
        (16, rare, 1000, 20.0, True),
        (128, sampled_gaussian(0.01, 1.0), 300, 450.0, False),
    ):
        event = ext.GroupSubsampledEvent(size, step)
        name = f"{size} records, {count} steps"
        yield Case("Groups", name, event, count, work=work, short=short)
    yield from _correlated_noise()
    for size, work in _ALLOCATED_GROUPS:
        epoch = Allocated(Gaussian(1.0), 1, 100)
        event = ext.GroupSubsampledEvent(size, epoch)
        name = f"{size} records in 1 of 100 steps, σ = 1"
        yield Case("Groups", name, event, work=work, short=True)
    for name, prepare, work in renyi_cases.rows():
        section = "Rényi divergences"
        yield Case(section, name, work=work, short=True, prepare=prepare)
    for sigma in (1.0, 3.0):
        block = ext.PLDSubsampleEvent(0.01, Allocated(Gaussian(sigma), 32, 1024))
        name = f"noise multiplier {sigma:g}"
        yield Case("PREAMBLE", name, block, 1000, work=220.0, short=sigma > 1)
    yield from _hard_cases()
    for name, prepare, work, megabytes, short in wpm_cases.rows():
        yield Case(
            "Private draws",
            name,
            enough=wpm_cases.ENOUGH,
            work=work,
            megabytes=megabytes,
            short=short,
            prepare=prepare,
        )


def _hard_cases() -> Iterator[Case]:
    case = functools.partial(Case, "Hard settings")
    for scale in (1e3, 1e6):
        name = f"δ at ε = 0, Laplace, b = {scale:g}, twice"
        yield case(name, Laplace(scale), 2, epsilon=0.0)
    rare = Poisson(1e-6, Gaussian(1.0))
    yield case("δ at ε = 0, a sample of 1e-6, twice", rare, 2, epsilon=0.0)
    deep: Event = Gaussian(1.0)
    for _ in range(6):
        deep = Allocated(Poisson(0.5, deep), 1, 3)
    yield case("allocations of samples, six deep", deep)
    small = Allocated(Laplace(573.734), 1, 290_748)
    yield case("tiny losses, a million runs", small, 10**6, 4.5e-4)
    for sigma, steps, selected, runs, delta in (
        (1.0989, 835, 1, 940_133, 1.2e-28),
        (1.3, 10**7, 1, 1, 1e-15),
        (3.0, 10**5, 1, 1, 1e-30),
        (1.3, 65_536, 5, 1, 1e-30),
    ):
        name = f"σ = {sigma:g}, {selected} of {steps:,}, {runs:,} runs, δ = {delta:g}"
        event = Allocated(Gaussian(sigma), selected, steps)
        yield case(name, event, runs, delta)
    for sigma, steps, delta in ((3.0, 10**7, 1e-5), (0.4, 7, 1e-5)):
        name = f"σ = {sigma:g}, 1 of {steps:,}, 3,000 runs, δ = {delta:g}"
        event = Allocated(Gaussian(sigma), 1, steps)
        yield case(name, event, 3000, delta, short=True)
    three = dp_accounting.SelfComposedDpEvent(Poisson(0.2, Laplace(0.5)), 3)
    edge = dp_accounting.ComposedDpEvent([three, Poisson(1e-4, Gaussian(1.0))])
    name = "next to a largest loss, with a rare part, δ = 1e-08"
    yield case(name, edge, delta=1e-8, short=True)
    tree = dp_accounting.ComposedDpEvent([Gaussian(2.0), Laplace(3.0)])
    whole = Allocated(tree, 1, 10**5)
    yield case("a tree in 1 of 100,000, 300 runs", whole, 300)
    nested = Poisson(0.1, Allocated(Gaussian(1.5), 5, 1000))
    yield case("a sample of 5 of 1000, δ = 1e-30", nested, delta=1e-30)
    part = Poisson(0.1, Allocated(tree, 1, 1000))
    both = dp_accounting.ComposedDpEvent([part, sampled_gaussian(0.1, 1.0)])
    yield case("a sample of samples", Poisson(0.1, both))


def every_case() -> list[Case]:
    """Returns the table."""
    return [*allocation_cases(), *stock_cases(), *later_cases(), *other_cases()]


def _log_uniform(
    rng: np.random.Generator, low: float, high: float, digits: int
) -> float:
    """Returns a number whose digits are all printed, so that a name is the setting."""
    drawn = np.exp(rng.uniform(math.log(low), math.log(high)))
    return float(f"{drawn:.{digits}g}")


def random_allocations(number: int, seed: int) -> Iterator[Case]:
    """Yields 1 of t Gaussian steps, log-uniform in each parameter."""
    rng = np.random.default_rng(seed)

    def between(low: float, high: float, digits: int = 3) -> float:
        return _log_uniform(rng, low, high, digits)

    for _ in range(number):
        sigma, steps = between(0.4, 10), round(between(7, 1e7, 8))
        runs, delta = round(between(1, 3000, 8)), between(1e-30, 1e-5, 2)
        name = f"σ = {sigma:.3g}, 1 of {steps:,}, {runs} runs, δ = {delta:.1e}"
        event = Allocated(Gaussian(sigma), 1, steps)
        yield Case("random", name, event, runs, delta, enough=1.0)


def random_cases(number: int, seed: int) -> Iterator[Case]:
    """Yields settings that nobody chose, log-uniform in each parameter.

    Three of four are single events, compositions and training runs, beside the stock
    accountant; each fourth is a random allocation, beside nothing.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float, digits: int = 3) -> float:
        return _log_uniform(rng, low, high, digits)

    def single() -> tuple[str, Event]:
        kind = rng.integers(4)
        if kind == 0:
            return f"Laplace({(b := between(0.5, 100)):.3g})", Laplace(b)
        if kind == 1:
            a, size = between(0.01, 1.0), int(rng.integers(1, 20))
            event = dp_event.DiscreteLaplaceDpEvent(a, size)
            return f"DiscreteLaplace({a:.3g}, {size})", event
        sigma = between(0.7, 50)
        if kind == 2:
            return f"Gaussian({sigma:.3g})", Gaussian(sigma)
        rate = between(1e-4, 0.5, 2)
        name = f"Poisson({rate:.2g}, Gaussian({sigma:.3g}))"
        return name, sampled_gaussian(rate, sigma)

    for index in range(number):
        if index % 4 == 3:
            sigma, steps = between(0.4, 10), round(between(7, 1e7, 8))
            runs, delta = round(between(1, 3000, 8)), between(1e-30, 1e-5, 2)
            selected = 1 if index % 8 == 3 else min(round(between(1, 300, 8)), steps)
            name = f"σ = {sigma:.3g}, {selected} of {steps:,}, {runs} runs, δ = "
            event: Event = Allocated(Gaussian(sigma), selected, steps)
            yield Case("random", f"{name}{delta:.1e}", event, runs, delta, enough=1.0)
            continue
        many = int(rng.integers(1, 9)) if index % 4 == 1 else 1
        names, events = zip(*(single() for _ in range(many)), strict=True)
        count = round(between(1, 1e4, 8)) if index % 4 == 2 else 1
        event = dp_accounting.ComposedDpEvent(list(events)) if many > 1 else events[0]
        name = f"{' + '.join(names)}, {count} times"
        yield Case("random", name, event, count, enough=1.0, ratio=0.0)
