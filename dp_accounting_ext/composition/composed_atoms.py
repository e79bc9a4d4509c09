"""A composed loss under one tilt, and what is read off it: δ at ε and ε at δ."""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import uneven_cells
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Certified: a cost above it may have been cut off (`_exponentials`).
_LARGEST_COST = math.exp(600.0)
# In units of rounding: a share of a mass that is split, or its part of a cost.
_SPLIT_ERROR = 16.0
# A loss over the interval, and back; in nats, over the loss.
_PLACE_ERROR = 4.0
# Masses of uneven cells of an upper bound (`sums.gather_neighbours`).
_NEIGHBOURS_ERROR = 40.0
# A share, two expm1 and a quotient (10), moves the mean loss by 10 (e^h − 1) at most; a
# difference that is left by as much again. In nats, over the interval h, at most 1.
_SHARE_ERROR = 40.0
# A cost beside its gain: three exponentials and products (20), and their arguments, up
# to 745 each. In nats.
_COST_ERROR = 20.0 + 4 * floats.LARGEST_LOG
# What rounding among denormals takes off a cost.
_DENORMAL_UNITS = 2 * 5e-324

# Tuning: the most steps of Newton's method, which is done after one or two.
_MOST_STEPS = 100
# How many exponentials are made of one, and how far apart they may be, in nats.
_BLOCK = 256
_NEXT = np.arange(-1, 2)[:, np.newaxis]
_BLOCK_SPAN = 50.0
# What is read has an interval of its own, so much finer than the spread that those of
# the laws add up to: 1 % of what they move. Half and twice it: see there. Of more
# points it is as wide as moves ε by no more than 1 % of what they may, relatively.
_FINER = 10.0
_MOST_READ = 1 << 17
_MOVED = 2.9e-8
_FEWEST_READ = 1 << 13  # That many cost next to nothing.
_LEAST_SIZE = 4
# Tuning: of so many copies few frequencies matter, and rare losses need not be dense.
_UNEVEN_COPIES = 300
_UNEVEN_ATOMS = 1 << 10
_ROOM = 350.0  # From the origin of losses beyond what fits a float to the largest.


@dataclasses.dataclass(frozen=True)
class Atoms:
    """A composed loss in a stretch: what is counted, from the largest loss down.

    Masses `spent` are relative to e^{origin}: with k losses above ε, δ(ε) = sink +
    found[k] − e^{ε − origin} spent[k], where it is read.

    Attributes:
        bound: The side that it is certain on.
        origin: See there.
        losses: (n,) losses, decreasing.
        found: (n + 1,) sums of the masses of the largest losses.
        spent: (n + 1,) sums of the masses under the other law.
        sink: The mass of infinite losses.
        shift: What makes an answer certain: is added to ε,
        factor: and multiplies δ.
        lowest: What is below is not read,
        highest: and what is above.
    """

    bound: Bound
    origin: float
    losses: FloatArray
    found: FloatArray
    spent: FloatArray
    sink: float
    shift: float
    factor: float
    lowest: float
    highest: float

    @classmethod
    def of(
        cls,
        bound: Bound,
        origin: float,
        losses: FloatArray,
        gain: FloatArray,
        cost: FloatArray,
        *,
        sink: float,
        mass_error: float,
        ratio_error: float,
        lowest: float = -math.inf,
        highest: float = math.inf,
    ) -> "Atoms":
        """Returns what n masses and costs are, which need not all be read."""
        shift, factor = dominating_pair.allowance(
            bound, gain.size, mass_error, ratio_error
        )
        found, spent = np.zeros((2, gain.size + 1))
        np.cumsum(gain, out=found[1:])
        np.cumsum(cost, out=spent[1:])
        # Copies: what is not read is not kept.
        kept = slice(int(np.searchsorted(-losses, -highest)), None)
        losses, found, spent = (x[kept].copy() for x in (losses, found, spent))
        return cls(
            bound, origin, losses, found, spent, sink, shift, factor, lowest, highest
        )

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return 5 * self.found.nbytes  # Two are made when they are read.

    def _around(self, numbers: IndexArray) -> IndexArray:
        """Returns (3, n) numbers of losses: one less, the same and one more."""
        around: IndexArray = np.maximum(numbers + _NEXT, 0)
        return np.minimum(around, self.losses.size)

    def _values(self, numbers: IndexArray, log_kappas: FloatArray) -> FloatArray:
        """Returns found − κ spent of so many losses, the largest ones."""
        # A κ that does not fit a float is too small in an upper bound, too large in a
        # lower one.
        largest = floats.LARGEST_EXPONENT
        least = -largest if self.bound is Bound.LOWER else -math.inf
        kappas = np.exp(np.clip(log_kappas, least, largest))
        values: FloatArray = self.found[numbers] - kappas * self.spent[numbers]
        return values

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns certified δ at (n,) ε, in nats."""
        number = self._minus.searchsorted(-(epsilons + self.shift))
        shifts, factors = self._allowances(number)
        log_kappas = epsilons + shifts - self.origin
        # Any number gives a lower bound on the largest, which is at this one or, by
        # rounding, at the next. Losses out of order by their rounding are no further
        # from ε than the shift allows for.
        around = self._around(number)
        totals = np.maximum(self._values(around, log_kappas).max(axis=0), 0.0)
        # Where κ does not fit a float, larger losses count as infinite, or not at all.
        beyond = log_kappas >= floats.LARGEST_EXPONENT
        totals[beyond] = 0.0
        if self.bound is Bound.UPPER:
            totals[beyond] = self.found[number[beyond]]
            totals[epsilons > self.highest] = self.found[0]
            totals[epsilons < self.lowest] = 1.0
        found: FloatArray = np.maximum(factors * (self.sink + totals), 0.0)
        return np.minimum(found, 1.0)

    def delta(self, epsilon: float) -> float:
        """Returns what `deltas` does at one ε of an upper bound, to the last digit."""
        number = int(self._minus.searchsorted(-(epsilon + self.shift)))
        fewer = 2 * (self.losses.size - 1 - number) * floats.UNIT_ROUNDOFF
        fewer = max(fewer, 0.0)
        log_kappa = epsilon + (self.shift + fewer) - self.origin
        if epsilon < self.lowest:
            total = 1.0
        elif epsilon > self.highest:
            total = float(self.found[0])
        elif log_kappa >= floats.LARGEST_EXPONENT:
            total = float(self.found[number])
        else:
            # NumPy's exponential, as of arrays: another may differ by a rounding.
            kappa = float(np.exp(log_kappa))
            first, end = max(number - 1, 0), number + 2
            spent = self.spent[first:end].tolist()
            found = self.found[first:end].tolist()
            total = max(x - kappa * y for x, y in zip(found, spent, strict=True))
        factor = self.factor * float(np.exp(-fewer))
        return min(max(factor * (self.sink + max(total, 0.0)), 0.0), 1.0)

    def _allowances(self, numbers: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) shifts and factors for sums of so many losses and one more.

        As `dominating_pair.allowance`. Those that count at ε are no more than those
        above the ε of the largest shift.
        """
        fewer = 2 * (self.losses.size - 1 - numbers) * floats.UNIT_ROUNDOFF
        fewer = np.maximum(fewer, 0.0)
        if self.bound is Bound.UPPER:
            return self.shift + fewer, self.factor * np.exp(-fewer)
        return self.shift - fewer, np.minimum(self.factor + fewer, 1.0)

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns ε at (n,) δ, certified where it is from `lowest` to `highest`.

        The largest of the lines "the mass of the k largest losses", each inverted: by
        Newton's method, whose steps go up to it and end there.
        """
        if self.factor == 0:
            return np.full(deltas.shape, -math.inf)
        goals = deltas / self.factor - self.sink
        numbers = self._profile.searchsorted(goals)
        best = np.full(deltas.shape, -math.inf)
        for _ in range(_MOST_STEPS):
            roots = self._roots(self._around(numbers), goals)
            best = np.maximum(best, roots.max(axis=0))
            again = self._minus.searchsorted(-best)
            if (np.abs(again - numbers) <= 1).all():
                break
            numbers = again
        best -= self.shift
        best[goals < 0] = math.inf
        return best

    def epsilon(self, delta: float) -> float:
        """Returns what `epsilons` does at one δ."""
        return float(self.epsilons(np.array([delta]))[0])

    def tests(self) -> tuple[FloatArray, FloatArray]:
        """Returns what tests that reject the largest losses find, and what they spend.

        Of lower bounds: some test of the mechanism finds as much at no larger a rate.

        Returns:
            (n,) true positive rates, and (n,) false positive rates, both increasing.
        """
        rounding = 2 * (self.losses.size + 16) * floats.UNIT_ROUNDOFF
        found = (self.sink + self.found[1:]) * max(self.factor - rounding, 0.0)
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.log(self.spent[1:] * (1 + rounding)) + (self.shift - self.origin)
            spent = np.exp(logs) * (1 + rounding)
        return np.minimum(found, 1.0), np.maximum(spent, floats.SMALLEST_MASS)

    @functools.cached_property
    def _minus(self) -> FloatArray:
        """(n,) minus the losses, increasing."""
        return -self.losses

    @functools.cached_property
    def _profile(self) -> FloatArray:
        """(n,) found − κ spent with κ at each loss, increasing."""
        numbers = np.arange(self.losses.size)
        values = self._values(numbers, self.losses - self.origin)
        increasing: FloatArray = np.maximum.accumulate(values)
        return increasing

    def _roots(self, numbers: IndexArray, goals: FloatArray) -> FloatArray:
        """Returns where found − e^{ε − origin} spent falls to a goal."""
        excess = self.found[numbers] - goals
        with np.errstate(divide="ignore", invalid="ignore"):
            roots = np.log(excess) - np.log(self.spent[numbers]) + self.origin
        return np.where(excess > 0, roots, -math.inf)


def of_one(law: LossDistribution) -> Atoms:
    """Returns the atoms of one law, which need no lattice.

    Losses are counted from an origin: those of a few need not fit a float as ratios. A
    cost that does not is too small in an upper bound, and too large in a lower one.
    """
    gain = law.masses[::-1]
    losses = law.losses[::-1]
    origin, rounding = float(losses[0]), 0.0
    if losses.size > 1 and origin <= floats.LARGEST_EXPONENT:
        origin = 0.0
    elif losses.size > 1:
        origin -= _ROOM
        rounding = _COST_ERROR * floats.UNIT_ROUNDOFF
    exponents = np.minimum(origin - losses, floats.LARGEST_EXPONENT)
    cost = gain * np.exp(exponents)
    if law.bound is Bound.LOWER:
        kept = origin - losses <= floats.LARGEST_EXPONENT
        losses, gain = losses[kept], gain[kept]
        cost = cost[kept] + _DENORMAL_UNITS
    return Atoms.of(
        law.bound,
        origin,
        losses,
        gain,
        cost,
        sink=law.infinity_mass,
        mass_error=law.mass_error,
        ratio_error=law.ratio_error + rounding,
    )


@dataclasses.dataclass(frozen=True)
class Totals:
    """What is known of a composition without composing it.

    Attributes:
        bound: The side of all its laws.
        copies: The number of all copies of laws.
        ends: The least and the largest finite loss of the composition.
        infinity_mass: The probability that a loss is infinite.
        most_mass: No mass of the composition is larger.
        mass_error: The sum of the laws' errors, of masses,
        ratio_error: and of losses.
    """

    bound: Bound
    copies: int
    ends: tuple[float, float]
    infinity_mass: float
    most_mass: float
    mass_error: float
    ratio_error: float


class Composition:
    """A composed loss around a place, to which one law after another is added.

    Args:
        totals: What is known of it.
        place: Where, and under what tilt.
        interval: The loss interval.
    """

    def __init__(self, totals: Totals, place: anchors.Place, interval: float) -> None:
        self._totals = totals
        self._place = place
        self._interval = interval
        # Bound on how far rounding moves the sum of the losses on their way to it.
        self._moved = 0.0
        # Bound on the relative error of masses that were added up quickly.
        self._gathered = 0.0
        # Each copy may move by an interval, or by more in a law's longer cells.
        least, most = totals.ends[0] / interval, totals.ends[1] / interval
        first = math.floor(max(place.low / interval, least - totals.copies)) - 2
        last = math.ceil(min(place.high / interval, most + totals.copies))
        self._stride = _stride(totals.copies, place, interval, last - first)
        first -= first % self._stride
        # The highest losses of an upper bound may move by a stride.
        size = last + 2 + self._stride - first
        # Any window is certain: what is outside folds onto it, and what is above counts
        # as infinite besides (upper bounds) or is bounded and taken off (lower ones).
        size = max(-(-size // self._stride), _LEAST_SIZE)
        size = int(fft.next_fast_len(size, real=True)) * self._stride
        changes = [change * interval for change in place.changes]
        tilt = place.tilt * interval
        self._gained = self._spent = lattice.TiltedProduct(tilt, size, changes)
        if totals.bound is Bound.LOWER:
            self._spent = lattice.TiltedProduct(tilt, size, changes)
        # Losses far below where the profile is read count for nothing there.
        self._lowest, self._last = first, first + size - 1
        if place.lowest > place.low:
            lowest = min(math.floor(place.lowest / interval), self._last)
            self._lowest = max(first, lowest - lowest % self._stride)
        # Not tilted, the law is all there, wherever it folds.
        self._is_whole = not place.tilt and self._lowest == first

    def add(self, law: LossDistribution, group: anchors.Group | None = None) -> None:
        """Adds a law, all its copies.

        Args:
            law: The law.
            group: A few atoms that stand for it, where there are some.
        """
        cells = None
        many = self._totals.copies >= _UNEVEN_COPIES
        if group is not None and many and law.masses.size >= _UNEVEN_ATOMS:
            masses = group.tilted(self._place.tilt)
            cells = uneven_cells.UnevenCells.of(
                group.values, masses, self._interval, law.bound
            )
        if cells is None:
            longest = self._interval
            factor, other = loss_distribution.on_lattice(
                law, self._interval, with_gaps=True
            )
        else:
            longest = max(self._interval, uneven_cells.LONGEST)
            factor, other = uneven_cells.on_lattice(law, self._interval, cells)
            self._gathered += law.count * _NEIGHBOURS_ERROR * floats.UNIT_ROUNDOFF
        self._gained.multiply(factor)
        if other is not None:
            self._spent.multiply(other)
        reach = max(abs(factor.start), abs(factor.end)) * self._interval
        units = _PLACE_ERROR * reach + _SHARE_ERROR * longest
        self._moved += law.count * units * floats.UNIT_ROUNDOFF

    def atoms(self) -> Atoms:
        """Returns what was composed."""
        self._read_finely()
        if self._totals.bound is Bound.UPPER:
            return self._upper()
        return self._lower()

    @property
    def _losses(self) -> FloatArray:
        """The (n,) losses that are read."""
        indices = np.arange(self._lowest, self._last + 1, self._stride)
        return indices.astype(np.float64) * self._interval

    def _summed(
        self, product: lattice.TiltedProduct, weights: FloatArray, begin: int
    ) -> lattice.TiltedValues:
        """Returns the masses at the losses that are read, summed with weights.

        The values are masses · e^{tilt · index − log_scale}.
        """
        number = self._losses.size
        if weights.size == 1:
            return product.masses(self._lowest, number)
        stencil = lattice.Stencil(self._stride, begin, weights)
        return product.sums(stencil, self._lowest, number)

    def _read_finely(self) -> None:
        """Reads every loss, where the law is too rough to be read at fewer."""
        if not self._gained.is_smooth(self._stride):
            self._stride = 1
        if not self._spent.is_smooth(self._stride):
            self._stride = 1

    def _upper(self) -> Atoms:
        """Returns the atoms of an upper bound: noise is added.

        Each mass is split between the losses that are read on either side.
        """
        losses = self._losses
        step = self._stride * self._interval
        up = np.expm1(-self._interval * np.arange(self._stride)) / math.expm1(-step)
        shares = np.append(up[1:], (1 - up))
        found = self._summed(self._gained, shares, 1 - self._stride)
        start = found.log_scale - found.tilt * self._lowest
        gain = np.maximum(found.values, 0.0) + found.noise
        gain *= _exponentials(start, -found.tilt * self._stride, losses.size)
        gain = np.minimum(gain, self._totals.most_mass)
        start = self._place.centre - float(losses[0])
        cost = gain * _exponentials(start, -step, losses.size)
        # What is below 1e-300 may have lost digits.
        lost = losses.size * floats.SMALLEST_MASS
        # On the circle the highest masses go up to the lowest loss: they are infinite.
        beyond = self._last + 2 - self._stride
        return self._atoms(
            losses[::-1],
            gain[::-1],
            cost[::-1],
            sink=self._totals.infinity_mass + self._gained.mass_above(beyond) + lost,
            mass_error=self._totals.mass_error
            + self._gained.mass_error
            + self._gathered
            + _SPLIT_ERROR * floats.UNIT_ROUNDOFF,
            ratio_error=self._totals.ratio_error + self._moved + self._reading_error,
        )

    @property
    def _reading_error(self) -> float:
        """Bounds how far the losses that are read are from those of their costs."""
        reach = max(abs(self._lowest), abs(self._last)) * self._interval
        units = _COST_ERROR + _PLACE_ERROR * reach
        units += _SHARE_ERROR * self._stride * self._interval
        return units * floats.UNIT_ROUNDOFF

    def _lower(self) -> Atoms:
        """Returns the atoms of a lower bound: noise, and what folds, is taken off.

        Masses from one loss that is read to the next are a group.
        """
        losses = self._losses
        ones = np.ones(self._stride)
        back = np.exp(-self._interval * np.arange(self._stride))
        found = self._summed(self._gained, ones, 0)
        spent = self._summed(self._spent, back, 0)
        folded = self._gained.folded_mass(self._lowest, self._last)
        folded *= math.exp(max(-found.tilt * self._stride, 0.0))
        gain = np.maximum(found.values - found.noise - folded, 0.0)
        start = found.log_scale - found.tilt * self._lowest
        gain *= _exponentials(start, -found.tilt * self._stride, losses.size)
        cost = np.maximum(spent.values, 0.0) + spent.noise
        start = spent.log_scale - spent.tilt * self._lowest
        start += self._place.centre - float(losses[0])
        step = self._stride * (-spent.tilt - self._interval)
        cost *= _exponentials(start, step, losses.size)
        cost += floats.SMALLEST_MASS
        # Beyond it a cost may have been cut off; it outweighs any gain.
        kept = np.flatnonzero((cost <= _LARGEST_COST) & (gain > 0))
        ratios = gain[kept] / cost[kept]
        kept, logs = kept[ratios > 0], np.log(ratios[ratios > 0])
        # Not the order of the lattice where a law has atoms of its own.
        order = np.argsort(logs, kind="stable")[::-1]
        kept = kept[order]
        tilting = self._gained.mass_error + self._spent.mass_error
        tilting += _SPLIT_ERROR * floats.UNIT_ROUNDOFF
        return self._atoms(
            self._place.centre + logs[order],
            gain[kept],
            cost[kept],
            sink=self._totals.infinity_mass,
            mass_error=self._totals.mass_error + tilting,
            # Gain and cost are rounded on their own, which moves their ratio. The
            # laws' masses count as exact: less than the mechanism is a share of them.
            ratio_error=self._totals.ratio_error + self._moved + 2 * tilting,
        )

    def _atoms(
        self,
        losses: FloatArray,
        gain: FloatArray,
        cost: FloatArray,
        *,
        sink: float,
        mass_error: float,
        ratio_error: float,
    ) -> Atoms:
        lowest = -math.inf if self._is_whole else self._lowest * self._interval
        return Atoms.of(
            self._totals.bound,
            self._place.centre,
            losses,
            gain,
            cost,
            sink=sink,
            mass_error=mass_error,
            ratio_error=ratio_error,
            lowest=lowest,
            highest=self._place.highest,
        )


def _stride(copies: int, place: anchors.Place, interval: float, size: int) -> int:
    """Returns how many indices apart losses are read, of so many around a place.

    An interval h adds about h²/6 to the variance, which moves ε by h² (1 + tilt) / 12.
    """
    widest = math.sqrt(12 * _MOVED * place.centre / (1 + place.tilt))
    stride = min(int(widest / interval), size // _MOST_READ)
    stride = max(stride, int(math.sqrt(copies) / _FINER))
    return max(min(stride, size // _FEWEST_READ), 1)


def _exponentials(start: float, step: float, number: int) -> FloatArray:
    """Returns e^{start + step · k}, k = 0, 1, …, step ≤ 0, at most about e^700.

    Products of two, and within e^50 of 700 perhaps less than they are.
    """
    block = max(min(_BLOCK, int(_BLOCK_SPAN / max(-step, 1e-300))), 1)
    within = np.exp(step * np.arange(block))
    ends = start + step * block * np.arange(-(-number // block))
    tops = np.exp(np.minimum(ends, floats.LARGEST_EXPONENT))
    values: FloatArray = np.multiply.outer(tops, within).reshape(-1)[:number]
    return values
