"""Writes golden.json: what ε, test powers and Rényi divergences of events are.

Nothing of it is computed by the package: closed forms in 60 digits where there are
some, enumeration and the channels of `verify` for the rest. Every row
has a bracket that holds the truth, mostly of 15 equal digits, and the width that the
package's own bracket may have: 1e-4, where it has been that narrow; else half as much
again as it was when the row was written. Among the rows are answers that were wrong
once: of losses of hundreds of nats, of masses and rates among the denormals, and of
little noise.

    PYTHONPATH=tests:tests/referee:tests/golden python tests/golden/make_golden.py
"""

from collections.abc import Callable
from collections.abc import Iterator
import itertools
import json
import math
import multiprocessing
import pathlib
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import golden_events
import mpmath
from mpmath import mpf
import newer_events
import oracles
import own_readings
import registered

import dp_accounting_ext as ext
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import kinds

NeighborRel = privacy_accountant.NeighboringRelation
ADD, REPLACE, SPECIAL = (
    NeighborRel.ADD_OR_REMOVE_ONE,
    NeighborRel.REPLACE_ONE,
    NeighborRel.REPLACE_SPECIAL,
)
Gaussian, Laplace = stock.GaussianDpEvent, stock.LaplaceDpEvent
DiscreteLaplace = stock.DiscreteLaplaceDpEvent
Response = stock.RandomizedResponseDpEvent
Sampled, Composed = stock.PoissonSampledDpEvent, stock.ComposedDpEvent
Runs, Group = stock.SelfComposedDpEvent, ext.GroupSubsampledEvent
Allocation, Schedule = ext.RandomAllocationEvent, ext.ScheduledAllocationEvent
Matrix = ext.MatrixAllocationEvent
RARE = golden_events.RARE
PROCESSES = 4
PATH = pathlib.Path(__file__).with_name("golden.json")
mpmath.mp.dps = 60
assert own_readings  # It adds kinds to those of the package.

Row = dict[str, Any]
Bounds = Callable[[float], tuple[Any, Any]]


def gaussian_delta(mean: mpf) -> Bounds:
    """Returns ε ↦ δ of N(mean, 1) against N(0, 1)."""
    return lambda epsilon: (oracles.gaussian_delta(mean, epsilon),) * 2


def laplace_delta(scale: float) -> Bounds:
    """Returns ε ↦ δ of Laplace noise: 1 − e^{(ε − 1/b)/2}."""
    return lambda epsilon: (max(-mpmath.expm1((epsilon - 1 / mpf(scale)) / 2), 0),) * 2


def sampled_gaussian_delta(sigma: float, rate: float) -> Bounds:
    """Returns ε ↦ δ of one sampled Gaussian, the larger of the two directions."""
    p, q = ((0, 1 - mpf(rate)), (1 / mpf(sigma), rate)), ((0, 1),)

    def delta(epsilon: float) -> tuple[mpf, mpf]:
        value = max(oracles.shift_mixture_deltas(p, q, epsilon).values())
        return value, value

    return delta


def channel_delta(event: Any, relation: NeighborRel, rare: float) -> Bounds:
    """Returns ε ↦ bounds on δ of an event, by the referee; none above counts as 1."""
    low, high = (
        kinds.cases(event, relation, channels.Sizes(side, 600, 240, rare))
        for side in channels.Side
    )

    def delta(epsilon: float) -> tuple[float, float]:
        least = [c.delta(epsilon, remove=r)[0] for c in low for r in (True, False)]
        most = [c.delta(epsilon, remove=r)[1] for c in high for r in (True, False)]
        upper = max(float(each.upper()) for each in most) if most else 1.0
        return max(float(each.lower()) for each in least), upper

    return delta


def crossing(exceeds: Callable[[float], bool]) -> float:
    """Returns the float where a decreasing test turns false, from the side it holds."""
    low, high = 0.0, 1.0
    while exceeds(high) and high < 1e6:
        low, high = high, 2 * high
    for _ in range(64):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low


def row_of(
    what: str,
    event: Any,
    at: float,
    low: Any,
    high: Any,
    source: str = "closed form",
    relation: NeighborRel = ADD,
) -> Row:
    """Returns a row whose truth lies between two numbers of many digits.

    No float that is at least a positive number is less than the smallest of them.
    """
    least, most = float(low), float(high)
    return {
        "what": what,
        "event": golden_events.encoded(event),
        "relation": relation.name,
        "at": at,
        "low": max(math.nextafter(least, 0.0), math.ulp(0.0)),
        "high": math.nextafter(most, math.inf),
        "source": source,
    }


def epsilon_row(
    event: Any, relation: NeighborRel, delta: float, bounds: Bounds, source: str
) -> Row | None:
    """Returns the bracket of ε at δ; none where nothing bounds it well."""
    low = crossing(lambda e: bounds(e)[0] > delta)
    high = math.nextafter(crossing(lambda e: bounds(e)[1] > delta), math.inf)
    if low == 0 or high > 1.2 * low or low > 1e5:
        return None
    return row_of("epsilon", event, delta, low, high, source, relation)


def closed_forms() -> Iterator[Row | None]:
    for sigma, delta in itertools.product(
        (0.05, 0.3, 0.8, 1.0, 2.0, 8.0, 100.0), (1e-100, 1e-30, 1e-9, 1e-6, 1e-2, 0.3)
    ):
        bounds = gaussian_delta(1 / mpf(sigma))
        yield epsilon_row(Gaussian(sigma), ADD, delta, bounds, "closed form")
        bounds = gaussian_delta(2 / mpf(sigma))
        yield epsilon_row(Gaussian(sigma), REPLACE, delta, bounds, "closed form")
    for sigma, count, delta in itertools.product(
        (1.0, 5.0, 30.0), (2, 100, 10_000), (1e-20, 1e-6)
    ):
        bounds = gaussian_delta(mpmath.sqrt(count) / mpf(sigma))
        event = Runs(Gaussian(sigma), count)
        yield epsilon_row(event, ADD, delta, bounds, "closed form")
        size = 3
        bounds = gaussian_delta(size * mpmath.sqrt(count) / mpf(sigma))
        yield epsilon_row(Group(size, event), ADD, delta, bounds, "closed form")
    for scale, delta in itertools.product((0.01, 0.5, 1.0, 20.0), (1e-12, 1e-6, 1e-2)):
        bounds = laplace_delta(scale)
        yield epsilon_row(Laplace(scale), ADD, delta, bounds, "closed form")
    for sigma, rate, delta in itertools.product(
        (0.1, 0.5, 1.0, 4.0), (1e-6, 1e-3, 0.1, 0.7), (1e-20, 1e-9, 1e-5, 1e-2)
    ):
        event = Sampled(rate, Gaussian(sigma))
        bounds = sampled_gaussian_delta(sigma, rate)
        yield epsilon_row(event, ADD, delta, bounds, "closed form")


def few_outcomes() -> Iterator[tuple[Any, NeighborRel]]:
    """Yields events that are enumerated exactly."""
    for noise in (1e-9, 0.1, 0.5, 0.999):
        for buckets, count in ((2, 1), (2, 30), (2, 500), (5, 6)):
            for relation in (REPLACE, SPECIAL):
                yield Runs(Response(noise, buckets), count), relation
    for parameter, sensitivity in ((0.1, 1), (1.0, 1), (0.5, 3), (25.0, 1), (380.0, 1)):
        base = DiscreteLaplace(parameter, sensitivity)
        for event in (
            base,
            Runs(base, 7),
            Runs(Sampled(0.25, base), 2),
            Sampled(1e-6, Runs(base, 2)),
            Allocation(base, 1, 5),
            # Of sums of two draws a few are enough: they take a second each.
            *([] if parameter in (0.5, 1.0) else [Allocation(base, 2, 4)]),
            Allocation(base, 3, 3),
            Schedule([base, Sampled(0.5, base)], [2, 1], 4),
            Sampled(0.25, Allocation(base, 1, 3)),
            Composed([Allocation(base, 1, 3), Runs(base, 2)]),
        ):
            yield event, ADD
    for without, with_record in (
        ((1, 2, 5), (3, 4, 1)),
        ((0, 1, 7), (2, 5, 1)),
        ((1, 99), (1, 0)),
    ):
        base = registered.DiscreteEvent(without, with_record)
        for event in (
            base,
            Runs(base, 6),
            Runs(Sampled(0.1, base), 4),
            Allocation(base, 1, 6),
            Allocation(base, 2, 5),
            Allocation(Runs(base, 2), 1, 3),
        ):
            yield event, ADD
    for epsilon, chance in ((0.1, 0.0), (1.0, 1e-9), (5.0, 1e-3)):
        for count in (1, 10, 100):
            yield Runs(newer_events.EpsilonDelta(epsilon, chance), count), ADD


def noises() -> Iterator[tuple[Any, NeighborRel]]:
    """Yields events that the referee brackets."""
    for base in (Gaussian(0.8), Laplace(0.7)):
        for event in (
            Runs(Sampled(0.01, base), 100),
            Runs(Sampled(0.1, base), 10),
            Sampled(0.3, Runs(base, 2)),
            Composed([Runs(base, 3), Sampled(0.2, Laplace(2.0))]),
            Allocation(base, 1, 4),
            Allocation(base, 1, 32),
            Runs(Allocation(base, 1, 8), 3),
            Schedule([base, Gaussian(2.0)], [3, 2], 6),
        ):
            yield event, ADD
        for event in (Runs(Sampled(0.1, base), 10), Sampled(0.3, base)):
            yield event, REPLACE
        for batch in (
            stock.SampledWithoutReplacementDpEvent(20, 3, base),
            stock.SampledWithReplacementDpEvent(20, 3, base),
        ):
            yield batch, ADD
            yield Runs(batch, 5), ADD
            yield batch, REPLACE
        for size in (2, 4):
            yield Group(size, Runs(Sampled(0.05, base), 8)), ADD
    yield stock.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.5, 0.25, 0.25]), ADD
    yield newer_events.PermuteAndFlip(1.0), ADD
    yield newer_events.DiscreteGaussian(1.5), ADD


def quantile(rate: float) -> mpf:
    """Returns Φ⁻¹(rate)."""
    low, high = mpf(-40), mpf(10)
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (middle, high) if mpmath.ncdf(middle) < rate else (low, middle)
    return low


def powers() -> Iterator[Row]:
    """Yields the best test's power: Φ(Φ⁻¹(α) + 1/σ)."""
    places = (-37.5, -30.0, -12.0, -6.0, -2.0, 0.0, 1.0)
    rates = [float(mpmath.ncdf(place)) for place in places]
    # Beside a Laplace mechanism that tells hardly anything, and that is composed.
    hardly = Laplace(1e6)
    for sigma, rate in itertools.product(
        (0.05, 0.1, 0.5, 1.0, 5.0), [*rates, 1e-290, 1e-309, 1e-320, 5e-324]
    ):
        value = mpmath.ncdf(quantile(rate) + 1 / mpf(sigma))
        yield row_of("power", Gaussian(sigma), rate, value, value)
        if rate < 1e-280:
            one = Schedule([Gaussian(sigma)], [1], 1)
            yield row_of("power", one, rate, value, value)
        if sigma < 0.5 and (rate == 1e-290 or (rate == 5e-324 and sigma < 0.1)):
            both = Composed([Gaussian(sigma), hardly])
            yield row_of("power", both, rate, value, 1)
    for rate, scale in itertools.product((1e-9, 0.01, 0.29, 0.4, 0.7), (0.5, 2.0)):
        # Up to 1/2g, up to 1/2, and beyond.
        growth, a = mpmath.exp(1 / mpf(scale)), mpf(rate)
        if 2 * a * growth < 1:
            value = a * growth
        else:
            value = 1 - (1 / (4 * a * growth) if rate <= 0.5 else (1 - a) / growth)
        yield row_of("power", Laplace(scale), rate, value, value)
    for rate, chance in itertools.product((1e-12, 1e-6, 0.01, 0.5), (1e-3, 0.1)):
        # Removed: x > c. Added: x < c, where the sample has the rate below c.
        q, place = mpf(chance), quantile(rate)
        removed = (1 - q) * mpmath.ncdf(place) + q * mpmath.ncdf(place + 1)

        def below(x: mpf, q: mpf = q, rate: float = rate) -> mpf:
            return (1 - q) * mpmath.ncdf(x) + q * mpmath.ncdf(x - 1) - rate

        added = mpmath.ncdf(
            mpmath.findroot(below, (place, place + 2), solver="illinois")
        )
        both = max(removed, added)
        yield row_of("power", Sampled(chance, Gaussian(1.0)), rate, both, both)


def far_out() -> Iterator[Row]:
    """Yields δ at losses of hundreds of nats, and of rare masses."""
    for sigma, epsilon in itertools.product(
        (1 / 29, 0.05, 0.1, 0.3), (300.0, 420.0, 600.0, 665.0, 690.0, 699.0)
    ):
        of_one = gaussian_delta(1 / mpf(sigma))
        low, high = of_one(epsilon)[0], of_one(epsilon - 2e-6)[1]
        if low < RARE:
            continue
        # The Gaussian is a function of both; the other's loss is at most 1e-6.
        yield row_of(
            "delta", Composed([Gaussian(sigma), Laplace(1e6)]), epsilon, low, high
        )
        # Of 1 of 2 steps no less than this test shows, and no more than of one step.
        shift, kappa = 1 / mpf(sigma), mpmath.exp(epsilon)
        place = (mpf(epsilon) + mpmath.log(2)) / shift + shift / 2
        spent = mpmath.ncdf(-place)
        shown = (mpmath.ncdf(shift - place) + spent) / 2 - kappa * spent
        if shown > RARE:
            event = Allocation(Gaussian(sigma), 1, 2)
            yield row_of("delta", event, epsilon, shown, high)
    for rho, deviations in itertools.product((1e-6, 1.0, 30.0), (-1.0, 1.0, 5.0)):
        # A Gaussian has these divergences; nothing bounds them all from above.
        mean = mpmath.sqrt(2 * mpf(rho))
        epsilon = rho + deviations * math.sqrt(2 * rho)
        if epsilon > 0:
            low = gaussian_delta(mean)(epsilon)[0]
            yield row_of("delta", stock.ZCDpEvent(rho, 0.0), epsilon, low, 1)
    # Twice a rare sample of rare outputs; and registered masses among the denormals.
    rare = Sampled(1.75e-10, DiscreteLaplace(372.45, 1))
    tasks = [(Runs(rare, 2), (1.0, 340.0, 349.5, 690.0, 699.7, 705.0))]
    for mass in (1e-318, 1e-322, 3e-310, 1e-301, 1e-292):
        event = registered.DiscreteEvent((1 - mass, mass), (1 - 1e-21, 1e-21))
        tasks.append((event, (0.0, 1.0, 600.0, 640.0, 683.473)))
        tasks.append((Allocation(event, 1, 2), (0.5, 610.0, 665.0, 683.473, 684.1)))
    for event, epsilons in tasks:
        bounds = channel_delta(event, ADD, RARE)
        for epsilon in epsilons:
            low, high = bounds(epsilon)
            if low > RARE:
                yield row_of("delta", event, epsilon, low, high, "referee")
    for depth in (2, 3):
        event, rate = Gaussian(1.0), mpf(1e-100) ** depth
        for _ in range(depth):
            event = Sampled(1e-100, event)
        value = rate * (2 * mpmath.ncdf(mpf(0.5)) - 1)
        if depth == 2:
            yield row_of("delta", event, 0.0, value, value)
        yield row_of("renyi", event, 2.0, rate**2, 2 * rate**2)
    # Hardly any run is without an output of Q's alone.
    event = Runs(registered.DiscreteEvent((4, 8, 4), (7, 0, 9)), 999)
    yield row_of("delta", event, 0.5, 1 - mpf(2) ** -999, 1)


def little_noise() -> Iterator[Row]:
    """Yields what Rényi divergences of two steps are at least.

    E Z^α is at least 2^−α times that of either step, and of equal ones their sum.
    """
    for sigma, order in itertools.product(
        (0.01, 0.03, 0.07, 0.3), (1.1, 2.4, 3.1, 5.9, 40.0, 256.0)
    ):
        a = mpf(order)
        # Of correlated steps with σ = 0.3 a pair with such tails takes 12 s.
        more = 0.5 if sigma == 0.3 else sigma
        for event, length, alike in (
            (Schedule([Gaussian(sigma)], [1], 2), 1 / mpf(sigma), 1),
            (Schedule([Gaussian(sigma)], [2], 2), 1 / mpf(sigma), 2),
            (Matrix([[1.0, 0.0], [0.0, 0.9]], sigma, 2, 1), 1 / mpf(sigma), 1),
            (Matrix([1.0, 0.5], more, 2, 1), mpmath.sqrt(1.25) / mpf(more), 1),
        ):
            moment = a * (a - 1) * length**2 / 2
            least = (moment - a * mpmath.log(2) + mpmath.log(alike)) / (a - 1)
            if least > 0:
                yield row_of("renyi", event, order, least, math.inf)


def renyi() -> Iterator[Row]:
    """Yields divergences: α/2σ², Laplace's closed form, sums at integer orders."""

    def row(event: Any, order: float, value: mpf) -> Row:
        return row_of("renyi", event, order, value, value)

    for order in (1.5, 3.1, 10.7, 64.0):
        a = mpf(order)
        for sigma in (0.05, 0.1, 0.3, 1.0, 20.0):
            yield row(Gaussian(sigma), order, a / (2 * mpf(sigma) ** 2))
            one = Schedule([Gaussian(sigma)], [1], 1)
            yield row(one, order, a / (2 * mpf(sigma) ** 2))
        for scale in (0.2, 1.0, 8.0):
            t = 1 / mpf(scale)
            mean = a / (2 * a - 1) * mpmath.exp((a - 1) * t)
            mean += (a - 1) / (2 * a - 1) * mpmath.exp(-a * t)
            yield row(Laplace(scale), order, mpmath.log(mean) / (a - 1))
    for sigma, rate, order in itertools.product(
        (0.5, 1.0, 3.0), (1e-4, 0.01, 0.3), (2, 5, 32)
    ):
        q, half = mpf(rate), 1 / (2 * mpf(sigma) ** 2)
        total = sum(
            (
                math.comb(order, i)
                * (1 - q) ** (order - i)
                * q**i
                * mpmath.exp((i * i - i) * half)
                for i in range(order + 1)
            ),
            mpf(0),
        )
        value = mpmath.log(total) / (order - 1)
        yield row(Sampled(rate, Gaussian(sigma)), float(order), value)
    for rate, order in itertools.product((0.01, 0.3), (2, 3, 8)):
        # Of two noises on one sample, by the binomial theorem.
        q, b, total = mpf(rate), mpf(2.0), mpf(0)
        for i in range(order + 1):
            laplace = i * mpmath.exp((i - 1) / b) + (i - 1) * mpmath.exp(-i / b)
            moment = mpmath.exp(mpf(i) * (i - 1) / 2) * laplace / (2 * i - 1)
            total += math.comb(order, i) * q**i * (1 - q) ** (order - i) * moment
        event = Sampled(rate, Composed([Gaussian(1.0), Laplace(2.0)]))
        yield row(event, float(order), mpmath.log(total) / (order - 1))
    for sigma, steps in itertools.product((0.5, 1.0, 3.0), (2, 5, 40)):
        # Order 2 of 1 of t: E Z² = 1 + (e^{1/σ²} − 1)/t; and 3 likewise.
        grown = mpmath.exp(1 / mpf(sigma) ** 2) - 1
        second = mpmath.log1p(grown / steps)
        yield row(Allocation(Gaussian(sigma), 1, steps), 2.0, second)


def with_width(row: Row) -> Row:
    """Adds the width that a row's bracket may have."""
    low, high = golden_events.bracket(row)
    width = max(high - low - RARE, 0.0) / high if math.isfinite(high) else 1.0
    return {**row, "width": 1e-4 if width <= 1e-4 else float(f"{1.5 * width:.2g}")}


def judged(task: tuple[Any, NeighborRel, tuple[float, ...]]) -> list[Row]:
    """Returns the rows of an event that the referee reads."""
    code, relation, deltas = task
    event = golden_events.decoded(code)  # Events made at run time are not pickled.
    bounds = channel_delta(event, relation, min(deltas) * 1e-8)
    rows = [epsilon_row(event, relation, d, bounds, "referee") for d in deltas]
    return [with_width(row) for row in rows if row]


def main() -> None:
    known = [row for row in closed_forms() if row]
    known += [*powers(), *far_out(), *little_noise(), *renyi()]
    encoded = golden_events.encoded
    tasks = [(encoded(e), r, (1e-40, 1e-9, 1e-3)) for e, r in few_outcomes()]
    tasks += [(encoded(e), r, (1e-9, 1e-3)) for e, r in noises()]
    with multiprocessing.Pool(PROCESSES) as pool:
        rows = list(pool.imap(with_width, known, chunksize=8))
        print(f"{len(rows)} closed forms", flush=True)
        for found in pool.imap(judged, tasks):
            rows += found
    of_events: dict[str, list[Row]] = {}  # Side by side, for they are asked so.
    for row in rows:
        name = json.dumps([row["what"] == "renyi", row["event"], row["relation"]])
        of_events.setdefault(name, []).append(row)
    lines = ",\n".join(map(json.dumps, itertools.chain(*of_events.values())))
    PATH.write_text(f"[\n{lines}\n]\n")
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
