"""Random allocation to one of t steps, on a lattice of likelihood ratios, in integers.

The ratio of an output is its probability with the record over that without the record.
If the record takes part in one of t steps, drawn uniformly, the ratio of all t outputs
is the mean of the t ratios of the steps. Without the record the steps are independent,
so that the law of the sum of the ratios is a power of a polynomial whose exponents
count lattice cells. Masses are integers, in units of 2^-bits.
"""

from collections.abc import Sequence
import dataclasses
import math

from flint import arb
from flint import fmpz
from flint import fmpz_poly
import numpy as np

from dp_accounting_ext.verify import channels

Channel = channels.Channel
Side = channels.Side
ZERO, ball = channels.ZERO, channels.ball
# Tuning: lattice steps per mean absolute deviation of the ratio, and per standard
# deviation.
_FINE, _COARSE = 16, 8
# Tuning: the most lattice points per output that a channel may have.
_NODES = 64


@dataclasses.dataclass(frozen=True)
class _Line:
    """The outputs of a number of steps, grouped by the sum of the steps' ratios.

    Each group i has two masses: q, its probability without the record, and s, the sum
    over the steps of its probability with the record in that step alone. A `LOW` line
    merges outputs: those of one step whose ratio is in [i h, (i + 1) h) form group i,
    and indices add when steps are combined. A `HIGH` line splits each output between
    points of the lattice, so that s = i h q at point i.

    Attributes:
        side: `LOW` or `HIGH`.
        bits: Masses are integers in units of 2^-bits.
        step: The lattice spacing is h = 2^step.
        start: The index i of the first group.
        count: The number of steps.
        q: The masses q, as coefficients of a polynomial.
        s: The masses s of a `LOW` line. A `HIGH` line has s = i h q instead.
        errors: Bounds on the error of each coefficient of q and of s, of a `LOW` line.
        lump: The mass q of the truncated outputs of a `HIGH` line, which are given the
            ratio zero. Their mass s is in `sink`.
        sink: The mass s of outputs that are impossible without the record.
    """

    side: Side
    bits: int
    step: int
    start: int
    count: int
    q: fmpz_poly
    s: fmpz_poly
    errors: tuple[int, int]
    lump: int
    sink: int

    @classmethod
    def of(cls, channel: Channel, bits: int, step: int, top: float) -> "_Line":
        """Returns the line of one step.

        Outputs of a ratio from `top` on are not placed on the lattice: their mass s
        goes to `sink`, unless a `LOW` line drops it.
        """
        apart = channels.Apart.of(channel)
        high = channel.side is Side.HIGH
        width = arb(2) ** step
        size = math.ceil(top / 2.0**step) + 3
        q, s = [0] * size, [0] * size
        sink, errors = ZERO, [0, 0]
        columns = [[row[i] for row in channel.rows] for i in apart.order.tolist()]
        for a, b in apart.ends:
            # A lower bound drops outputs whose masses are not certain.
            if b == 0 or a == 0 or high:
                columns.append([a, ZERO])
                sink += b if a == 0 or high else ZERO
        for a, b in columns:
            if not a > 0:
                continue
            ratio = b / a
            if not ratio < top:
                q[0] += _up(a, bits) if high else 0
                sink += b if high else ZERO
                continue
            if not high:
                place = int(float(ratio) / 2.0**step)
                for kind, (row, mass) in enumerate(((q, a), (s, b))):
                    row[place] += max(_down(mass.mid(), bits), 0)
                    errors[kind] += _up(mass.rad(), bits) + 2
                continue
            # The interval of a ratio may overlap two cells: it is split over both.
            first = max(_down(ratio, -step), 0)
            last = max(_up(ratio, -step), first + 1)
            above = (b - first * width * a) / ((last - first) * width)
            q[first] += _up(a - above, bits)
            q[last] += _up(above, bits)
        left = _up(sink, bits) if high else max(_down(sink, bits), 0)
        polynomials = fmpz_poly(q), fmpz_poly(s)
        return cls(
            channel.side,
            bits,
            step,
            0,
            1,
            *polynomials,
            (errors[0], errors[1]),
            0,
            left,
        )

    @property
    def totals(self) -> tuple[int, int]:
        """The total of q and the total of s, which is rounded up for a `HIGH` line."""
        whole = int(self.q(1))
        if self.side is Side.LOW:
            return whole, int(self.s(1))
        moment = self.start * whole + int(self.q.derivative()(1))
        return whole, self._of_steps(moment)

    def _of_steps(self, number: int) -> int:
        """Returns number · h, rounded up to an integer."""
        return number << self.step if self.step >= 0 else -(-number >> -self.step)

    def plus(self, other: "_Line", rare: int) -> "_Line":
        """Returns the line of the steps of both lines, with its tails truncated."""
        q = self.q * other.q
        a, b = self.totals
        c, d = (a, b) if other is self else other.totals
        mixed = self.sink * c + other.sink * a
        unit = 1 << self.bits  # No coefficient is negative, so that // rounds down.
        start, count = self.start + other.start, self.count + other.count
        found = dataclasses.replace(self, start=start, count=count)
        if self.side is Side.LOW:
            s = self.s * other.q
            s += s if other is self else self.q * other.s
            terms = min(self.q.length(), other.q.length()) + 1
            (of_q, of_s), (by_q, by_s) = self.errors, other.errors
            errors = (
                a * by_q + c * of_q + terms * of_q * by_q,
                b * by_q
                + c * of_s
                + terms * of_s * by_q
                + a * by_s
                + d * of_q
                + terms * of_q * by_s,
            )
            mixed -= self.sink * by_q * other.q.length()
            mixed -= other.sink * of_q * self.q.length()
            return dataclasses.replace(
                found,
                q=q // unit,
                s=s // unit,
                errors=((errors[0] >> self.bits) + 2, (errors[1] >> self.bits) + 2),
                sink=max(mixed, 0) >> self.bits,
            )._narrowed(rare)
        # Where one line's output is in its lump, the other's mass s goes to the sink.
        lump = self.lump * (c + other.lump) + other.lump * a
        mixed += self.lump * (d + other.sink) + other.lump * (b + self.sink)
        return dataclasses.replace(
            found,
            q=(q + fmpz_poly([unit - 1] * q.length())) // unit,
            lump=-(-lump >> self.bits),
            sink=-(-mixed >> self.bits),
        )._narrowed(rare)

    def _narrowed(self, rare: int) -> "_Line":
        q, size = self.q.coeffs(), self.q.length()
        s = self.s.coeffs()
        s += [fmpz(0)] * (size - len(s))

        def of_steps(i: int) -> int:
            high = self.side is Side.HIGH
            return self._of_steps((self.start + i) * int(q[i])) if high else int(s[i])

        first, last, left = 0, size, rare
        while first < last and q[first] <= left:
            left -= int(q[first])
            first += 1
        left = rare * self.count
        while last > first and (mass := of_steps(last - 1)) <= left:
            left -= mass
            last -= 1
        lump, sink = self.lump, self.sink
        if self.side is Side.HIGH:
            cut = [*range(first), *range(last, size)]
            lump += sum(int(q[i]) for i in cut)
            sink += sum(map(of_steps, cut))
        return dataclasses.replace(
            self,
            start=self.start + first,
            q=fmpz_poly(q[first:last]),
            s=fmpz_poly(s[first:last]) if self.side is Side.LOW else self.s,
            lump=lump,
            sink=sink,
        )

    def times(self, count: int, rare: int) -> "_Line":
        """Returns the line of `count` times as many steps."""
        found = None
        for digit in bin(count)[2:]:
            if found is not None:
                found = found.plus(found, rare)
            if digit == "1":
                found = self if found is None else found.plus(self, rare)
        assert found is not None
        return found

    def channel(self, blur: arb) -> Channel:
        """Returns the channel in which the record is in one step, drawn uniformly."""
        unit = arb(2) ** -self.bits
        share, width = unit / self.count, arb(2) ** self.step
        q, s = self.q.coeffs(), self.s.coeffs()
        if self.side is Side.LOW:
            s += [fmpz(0)] * (len(q) - len(s))
            of_q, of_s = (arb(0, 1) * error for error in self.errors)
            columns = [
                ((a + of_q) * unit, (b + of_s) * share)
                for a, b in zip(q, s, strict=True)
                if a or b
            ]
        else:
            columns = [
                ((a * unit).upper(), ((self.start + i) * a * share * width).upper())
                for i, a in enumerate(q)
                if a
            ]
        columns += [(self.lump * unit, ZERO)] * bool(self.lump)
        columns += [(ZERO, self.sink * share)] * bool(self.sink)
        rows = [[column[i] for column in columns] for i in (0, 1)]
        return Channel(rows, self.side, blur)


def _down(mass: arb, bits: int) -> int:
    """Returns the lower end of a mass in units of 2^-bits, rounded down."""
    mantissa, exponent = mass.lower().man_exp()
    shift = int(exponent) + bits
    return int(mantissa) << shift if shift >= 0 else int(mantissa) >> -shift


def _up(mass: arb, bits: int) -> int:
    """Returns the upper end of a mass in units of 2^-bits, rounded up; at least 0."""
    return max(-_down(-mass, bits), 0)


def one_of(
    steps: Sequence[tuple[Channel, int]], most: int, rare: float
) -> Channel | None:
    """Returns the channel of several steps, one of which the record takes part in.

    This step is drawn uniformly at random.

    Args:
        steps: Channels of one side, `LOW` or `HIGH`, and the number of steps of each.
        most: The number of outputs that other channels may have. It limits the number
            of lattice points.
        rare: Probability of tails that may be truncated. A `LOW` channel drops them;
            in a `HIGH` channel they reveal whether the record is there.

    Returns:
        The channel, or None if the lattice would have too many points or the ratios are
        too large for it.
    """
    total = sum(number for _, number in steps)
    tops, means, squares = [], 0.0, 0.0
    for channel, number in steps:
        apart = channels.Apart.of(channel)
        q, p = (
            np.array([float(row[i]) for i in apart.order.tolist()], dtype=float)
            for row in channel.rows
        )
        if not q.size or apart.losses[-1] > 600:
            return None
        ratios = np.exp(apart.losses)
        kept = np.cumsum(p[::-1])[::-1] > rare
        tops.append(float(ratios[kept].max(initial=2.0)) * 1.001)
        distance = abs(ratios - 1)[kept]
        means += number / total * float(q[kept] @ distance)
        with np.errstate(over="ignore"):
            # The mass comes first, as zero times a square that overflows is NaN.
            squares += number / total * float((q[kept] * distance) @ distance)
    if not means > 1e-9 or math.isinf(squares):
        return None
    span = max(tops) + 14 * math.sqrt(total * squares)
    fine, coarse = means / _FINE, math.sqrt(squares) / _COARSE
    least = span / (_NODES * most)
    if least > max(fine, coarse):
        return None
    step = math.floor(math.log2(max(fine, min(least * 2, coarse))))
    step = min(step, 0)  # So that the ratio one is a lattice point.
    bits = 128 + math.ceil(math.log2(span * _NODES * most / rare))
    edge = _down(ball(rare), bits)
    found = None
    for (channel, number), top in zip(steps, tops, strict=True):
        line = _Line.of(channel, bits, step, top).times(number, edge)
        found = line if found is None else found.plus(line, edge)
    assert found is not None
    return found.channel(sum((channel.blur for channel, _ in steps), ZERO))
