"""Channels of noise around random sums, with outputs cut into cells."""

from collections.abc import Sequence
import fractions
import itertools
import math
from typing import Any

from flint import arb
from flint import ctx

from dp_accounting_ext.verify import channels

# Shifts and their probabilities, which may be balls if there is no upper bound.
Shifts = tuple[tuple[float, Any], ...]
Law = Sequence[tuple[arb, arb]]
Side = channels.Side
ONE, ZERO, ball = channels.ONE, channels.ZERO, channels.ball
_APART = arb(2) ** -100  # Of two ratios, of which one must be larger.
_MOST_BITS = 2048  # The most extra bits of precision to separate ratios.
# Tuning: the most values of the normal distribution for one channel; and the least
# number of cells.
_MOST_TAILS, _FEWEST_CELLS = 200_000, 200


def noise(
    kind: str, scale: float, p: Shifts, q: Shifts, sizes: channels.Sizes
) -> channels.Channel:
    """Returns the channel of noise around random sums.

    Args:
        kind: "gaussian" or "laplace".
        scale: The scale of the noise, in norms of a record.
        p: (value, probability) of the sum with the record, in norms of a record.
        q: The same without the record. On the side `HIGH` no value is above one of p's.
        sizes: How finely the channel is bounded. A `LOW` channel releases the cell of
            the output. In a `HIGH` channel each cell is split into the two ratios at
            its ends.

    Raises:
        NoTheoremError: If the ratios are found to decrease, for `HIGH`.
    """
    if scale == 0:
        places = sorted({shift for law in (p, q) for shift, _ in law})
        laws = [
            [sum((ball(w) for s, w in law if s == place), ZERO) for place in places]
            for law in (q, p)
        ]
        return channels.exact(*laws)
    # A ball that may be zero counts.
    p, q = (
        tuple((shift, w) for shift, w in law if isinstance(w, arb) or w)
        for law in (p, q)
    )
    # A normal variable exceeds this number with probability below `rare`.
    reach = math.ceil(math.sqrt(-2 * math.log(sizes.rare)))
    # The time for each cell grows with the number of shifts.
    most = max(_MOST_TAILS // (len(p) + len(q)), _FEWEST_CELLS)
    cells = min(sizes.cells, most)
    # Ratios of adjacent cells may differ as little as the smallest weight or shift.
    more = 0
    if sizes.side is Side.HIGH:
        weights = [fractions.Fraction(w) for law in (q, p) for _, w in law if w]
        weights.append(min(fractions.Fraction(scale), 1 / fractions.Fraction(scale)))
        bits = [w.denominator.bit_length() - w.numerator.bit_length() for w in weights]
        more = 2 * max(min(max(bits), _MOST_BITS), 0)
    with ctx.workprec(ctx.prec + more):
        unit = ONE / ball(scale)
        laws = [[(ball(s) * unit, ball(w)) for s, w in law] for law in (q, p)]
        shifts = [ball(s) * unit for s in sorted({s for law in (q, p) for s, _ in law})]
        # The ratio of Laplace noise is constant beyond the shifts.
        beyond = ball(reach) if kind == "gaussian" else ZERO
        start, stop = shifts[0] - beyond, shifts[-1] + beyond
        inner = [(start + (stop - start) * i / cells).mid() for i in range(cells + 1)]
        if kind == "laplace":
            inner = [*inner[1:-1], *(x.mid() for x in shifts)]
        inner.sort(key=float)
        # Equal edges are kept only once.
        edges = [b for a, b in itertools.pairwise([inner[0] - 1, *inner]) if b > a]
        masses = []
        for law in laws:
            of_shifts = [[w * m for m in _masses(kind, s, edges)] for s, w in law]
            cells_of_shifts = zip(*of_shifts, strict=True)
            masses.append([sum(cell, ZERO) for cell in cells_of_shifts])
        columns = [*zip(*masses, strict=True)]
        if sizes.side is Side.HIGH:
            columns = _split(kind, laws, edges, columns)
    if sizes.side is Side.LOW:
        columns = [(a, b) for a, b in columns if a > 0 or b > 0]
    return channels.Channel([[column[i] for column in columns] for i in (0, 1)])


def _masses(kind: str, shift: arb, edges: Sequence[arb]) -> list[arb]:
    """Returns the probabilities of the cells, each as a difference of smaller tails."""
    tails = [(ZERO, ONE), *(_tails(kind, x - shift) for x in edges), (ONE, ZERO)]
    return [
        right[0] - left[0] if right[0] < left[1] else left[1] - right[1]
        for left, right in itertools.pairwise(tails)
    ]


def _tails(kind: str, x: arb) -> tuple[arb, arb]:
    """Returns the probabilities below and above x of noise of scale one."""
    size = abs(x)
    if kind == "gaussian":
        beyond = (size / arb(2).sqrt()).erfc() / 2
    else:
        beyond = (-size).exp() / 2
    return (1 - beyond, beyond) if x >= 0 else (beyond, 1 - beyond)


def _split(
    kind: str,
    laws: Sequence[Law],
    edges: Sequence[arb],
    columns: Sequence[tuple[arb, arb]],
) -> list[tuple[arb, arb]]:
    """Returns the columns of the cells, each split into the ratios at its ends.

    The ratio increases with the output, so that all ratios in a cell are between those
    at its ends. If the balls of the two overlap, as for two equal laws, they are moved
    apart.
    """

    def ratio(x: arb) -> arb:
        logs = [
            [
                (-((x - s) ** 2) / 2 if kind == "gaussian" else -abs(x - s), w)
                for s, w in law
            ]
            for law in laws
        ]
        top = max((log for law in logs for log, _ in law), key=float)
        below, above = (
            sum((w * (log - top).exp() for log, w in law), ZERO) for law in logs
        )
        return above / below

    ratios = [ratio(x) for x in edges]
    split: list[tuple[arb, arb]] = []
    for i, (mass_q, mass_p) in enumerate(columns):
        if kind == "laplace" and i in (0, len(edges)):
            split.append((mass_q, mass_p))  # One ratio.
            continue
        low = ratios[i - 1] if i else ZERO
        if i == len(edges):
            split.append((mass_q, low * mass_q))
            split.append((ZERO, (mass_p - low * mass_q).abs_upper()))
            continue
        high = ratios[i]
        if high < low:
            raise channels.NoTheoremError("no theorem for ratios that decrease")
        if not high > low:
            low, high = low.lower() * (1 - _APART), high.upper() * (1 + _APART)
        upper = ((mass_p - low * mass_q) / (high - low)).abs_upper()
        lower = ((high * mass_q - mass_p) / (high - low)).abs_upper()
        split += [(lower, (low * lower).upper()), (upper, (high * upper).upper())]
    return split
