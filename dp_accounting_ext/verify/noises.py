"""Channels of discretized noise around random shifts, and of discrete mechanisms."""

from collections.abc import Iterator
from collections.abc import Sequence
import fractions
import functools
import itertools
from typing import Any

from flint import arb
from flint import ctx

from dp_accounting_ext.verify import channels

# Shifts and their probabilities, which may be balls if there is no upper bound.
Shifts = tuple[tuple[float, Any], ...]
Side = channels.Side
_MOST_BITS = 2048  # The most extra bits of precision to separate ratios.
ONE, ZERO, ball = channels.ONE, channels.ZERO, channels.ball


def _tails(kind: str, x: arb) -> tuple[arb, arb]:
    """Returns the probabilities below and above x of noise of scale one."""
    size = abs(x)
    if kind == "gaussian":
        beyond = (size / arb(2).sqrt()).erfc() / 2
    else:
        beyond = (-size).exp() / 2
    return (1 - beyond, beyond) if x >= 0 else (beyond, 1 - beyond)


def _masses(kind: str, shift: arb, edges: Sequence[arb]) -> list[arb]:
    """Returns the probabilities of the cells, each as a difference of smaller tails."""
    tails = [(ZERO, ONE), *(_tails(kind, x - shift) for x in edges), (ONE, ZERO)]
    return [
        right[0] - left[0] if right[0] < left[1] else left[1] - right[1]
        for left, right in itertools.pairwise(tails)
    ]


def _log_density(kind: str, x: arb) -> arb:
    return -x * x / 2 if kind == "gaussian" else -abs(x)


def without_noise(p: Shifts, q: Shifts) -> channels.Channel:
    """Returns the channel that releases a random sum without noise."""
    places = sorted({shift for law in (p, q) for shift, _ in law})

    def masses(law: Shifts) -> Iterator[Any]:
        # Fractions, or balls, which a sum from 0 would not mix.
        for place in places:
            first, *others = [w for s, w in law if s == place] or [
                fractions.Fraction(0)
            ]
            yield sum(others, first)

    laws = [*masses(q)], [*masses(p)]
    return channels.exact(*laws)


@functools.lru_cache(maxsize=128)
def noise(
    kind: str,
    scale: float,
    p: Shifts,
    q: Shifts,
    side: Side,
    *,
    cells: int = 200,
    reach: float = 12.0,
) -> channels.Channel:
    """Returns the channel of noise around random shifts, with outputs cut into cells.

    Args:
        kind: "gaussian" or "laplace".
        scale: The scale of the noise, in norms of a record.
        p: (shift, probability) with the record, shifts in norms of a record.
        q: The same without the record. For `HIGH` no shift is above one of p's.
        side: A `LOW` channel releases the cell of the output. In a `HIGH` channel each
            cell is split into the two ratios at its ends.
        cells: The approximate number of cells.
        reach: How far cells extend beyond the shifts, in scales of the noise.

    Raises:
        NoTheoremError: If the ratios are found to decrease, for `HIGH`.
    """
    # Ratios of adjacent cells may differ as little as the smallest weight or shift.
    more = 0
    if side is Side.HIGH:
        weights = [fractions.Fraction(w) for law in (q, p) for _, w in law if w]
        weights.append(min(fractions.Fraction(scale), 1 / fractions.Fraction(scale)))
        bits = [w.denominator.bit_length() - w.numerator.bit_length() for w in weights]
        more = 2 * max(min(max(bits), _MOST_BITS), 0)
    with ctx.workprec(ctx.prec + more):
        return _noise(kind, scale, p, q, side, cells, reach)


def _noise(
    kind: str,
    scale: float,
    p: Shifts,
    q: Shifts,
    side: Side,
    cells: int,
    reach: float,
) -> channels.Channel:
    unit = ONE / ball(scale)
    laws = [[(ball(s) * unit, ball(w)) for s, w in law] for law in (q, p)]
    places = sorted({s for law in (q, p) for s, _ in law})
    shifts = [ball(s) * unit for s in places]
    # The ratio of Laplace noise is constant beyond the shifts.
    beyond = ball(reach) if kind == "gaussian" else ZERO
    start, stop = shifts[0] - beyond, shifts[-1] + beyond
    inner = [(start + (stop - start) * i / cells).mid() for i in range(cells + 1)]
    kinks = shifts if kind == "laplace" else []
    if kind == "laplace":
        inner = inner[1:-1]
    edges = sorted([*inner, *(x.mid() for x in kinks)], key=float)
    edges = [
        b for a, b in itertools.pairwise([edges[0] - 1, *edges]) if b > a
    ]  # Equal edges are kept only once.
    masses = []
    for law in laws:
        each = [[w * m for m in _masses(kind, s, edges)] for s, w in law]
        masses.append([sum(column, ZERO) for column in zip(*each, strict=True)])
    blur = ZERO
    if side is Side.HIGH:
        masses, blur = _split(kind, laws, edges, masses)
    kept = [
        i
        for i in range(len(masses[0]))
        if masses[0][i] > 0 or masses[1][i] > 0 or side is Side.HIGH
    ]
    return channels.Channel([[row[i] for i in kept] for row in masses], side, blur)


def _split(
    kind: str,
    laws: Sequence[Sequence[tuple[arb, arb]]],
    edges: Sequence[arb],
    masses: Sequence[Sequence[arb]],
) -> tuple[list[list[arb]], arb]:
    """Returns the columns of the cells, each split into the ratios at its ends.

    The ratio increases with the output, so that all ratios in a cell are between those
    at its ends. If the balls of the two overlap, as for two equal laws, the cell is not
    split. The second value returned, the blur, bounds the error of the logarithm of its
    ratio.
    """

    def ratio(x: arb) -> arb:
        logs = [[(_log_density(kind, x - s), w) for s, w in law] for law in laws]
        top = max((log for law in logs for log, _ in law), key=float)
        below, above = (
            sum((w * (log - top).exp() for log, w in law), ZERO) for law in logs
        )
        return above / below

    ratios = [ratio(x) for x in edges]
    found: list[tuple[arb, arb]] = []
    blur = ZERO
    for i, (mass_q, mass_p) in enumerate(zip(*masses, strict=True)):
        if kind == "laplace" and i in (0, len(edges)):
            found.append((mass_q, mass_p))  # One ratio.
            continue
        low = ratios[i - 1] if i else ZERO
        if i == len(edges):
            found.append((mass_q, low * mass_q))
            found.append((ZERO, (mass_p - low * mass_q).abs_upper()))
            continue
        high = ratios[i]
        if high < low:
            raise channels.NoTheoremError("no theorem for ratios that decrease")
        if not high > low:
            found.append((mass_q, mass_p))
            blur = blur.max((high.upper() / low.lower()).log().abs_upper())
            continue
        upper = ((mass_p - low * mass_q) / (high - low)).abs_upper()
        lower = ((high * mass_q - mass_p) / (high - low)).abs_upper()
        found += [(lower, (low * lower).upper()), (upper, (high * upper).upper())]
    return [[column[i] for column in found] for i in (0, 1)], blur


def discrete_laplace(parameter: float, sensitivity: int) -> channels.Channel:
    """Returns the channel of the discrete Laplace mechanism.

    The outputs beyond either center have the same ratio, and are merged.
    """
    decay = (-ball(parameter)).exp()
    scale = (1 - decay) / (1 + decay)

    def law(center: int) -> list[arb]:
        # Outputs at most 0, those from 1 to s − 1, and those at least s.
        inner = [scale * decay ** abs(x - center) for x in range(1, sensitivity)]
        tails = [decay ** abs(x - center) / (1 + decay) for x in (0, sensitivity)]
        return [tails[0], *inner, tails[1]]

    return channels.exact(law(0), law(sensitivity))


def randomized_response(
    noise_parameter: float, num_buckets: int, *, replace_one: bool
) -> channels.Channel:
    """Returns the channel of randomized response over a number of buckets.

    The record is in the first bucket. Without it the answer is uniform, or, with
    `replace_one`, that of a record in the last bucket.
    """
    p = fractions.Fraction(noise_parameter)
    other = p / num_buckets
    honest = [other] * num_buckets
    honest[0] += 1 - p
    without = [fractions.Fraction(1, num_buckets)] * num_buckets
    if replace_one:
        without = honest[::-1]
    return channels.exact(without, honest)
