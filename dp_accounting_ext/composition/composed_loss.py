"""Composition at the query: sums of privacy losses, tilted to where δ is read.

Laws are kept with their counts, or made anew when they are needed; the loss interval,
the tilt and the window are those of the stretch in which an answer lies. So a small δ
is as accurate as a large one, and what one question computed answers the next.
"""

from collections.abc import Sequence
import copy
import dataclasses
import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_atoms
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import memory
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
FloatArray = npt.NDArray[np.float64]

# Tuning. In brackets: gap and time for half of it, and twice, over what they are for
# 10,000 Poisson samples of rate 0.01 and σ = 1 at δ = 1e-6.
# How far the lattice may move ε, relatively. (0.6 and 1.3, 1.4 and 0.8.)
_MOVED = 2.75e-6
_OF_THE_LARGEST = 0.96  # Share of the largest loss interval that is asked for.
_NEAR_THE_MEAN = 0.015  # The largest loss interval, over the deviation of one loss.
_RARE = 1e-7  # Share of δ that may become infinite. (The same.)
_NEGLIGIBLE = 1e-12  # Share of a law that may move to the safe side. (The same.)
_TRIES = 8  # At how many places an ε is looked for.
_COARSEST = 1.0  # The largest loss interval, in nats. Not measured.
_FINEST = 1e-12  # The least one, over the largest loss, for the digits of an index.
_MOST_CELLS = 2.0**25  # Of one law on a lattice: a quarter of a gigabyte.
_FEWEST_POINTS = 1 << 13  # That many cost next to nothing.
_MOST_POINTS = 1 << 21  # Bounds the memory: 16 MB an array.
# Of more different laws the interval may be coarser, by so much at most, and they are
# composed in both directions at once: their pairs are not kept.
_MANY = 50
_COARSER = 10.0
_LESS = 0.85  # Their lattice moves ε by less, as their pairs, which are rough, do too.
# One that another direction outweighs is composed on so much coarser a lattice first.
_ROUGHLY = 12.0
# A direction is not prepared whose ε is surely below that of another, but for what a
# guess at that may be off.
_RULED_OUT = 0.95
_OUTWEIGHED = 1 - 1e-3
# What is composed atom by atom: a few microseconds for each copy.
_MOST_ATOMS = 256
_MOST_COPIES = 100
_EQUAL = 1e-14  # Losses that count as one, over the largest.
# Certified: of a sum of a million positive terms, relatively.
_ROUNDING = 1e-10
# Of the exponents of a moment under a negative tilt, over the tilt and a loss: two
# products, a difference and a sum, each of up to twice the largest loss.
_EXPONENT_ERROR = 16.0
# What fewer than 10^9 atoms may lack that have lost digits, or all.
_LOST = 1e9 * floats.SMALLEST_MASS

# What was composed last, for all compositions together.
_MEMORY: memory.Memory[composed_atoms.Atoms] = memory.Memory(64 << 20)
_NUMBERS = itertools.count()
_NONE: FloatArray = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class _Sketch:
    """What is kept of a law that is not kept.

    Attributes:
        high: So many of its losses are not too rare to matter.
        rest: The law without the others, and without its arrays.
        ends: Its least and its largest loss.
        log_mass: The logarithm of its mass, at least 0.
        group: A few of its atoms.
    """

    high: int
    rest: LossDistribution
    ends: tuple[float, float]
    log_mass: float
    group: anchors.Group

    @classmethod
    def of(cls, law: LossDistribution, num_laws: int, delta: float) -> "_Sketch":
        """Returns that of one of so many laws, for no less than some δ."""
        dropped = _RARE * delta / num_laws
        above = np.cumsum(law.masses[::-1]) * law.count
        rare = int(np.searchsorted(above, dropped, side="right"))
        high = max(law.masses.size - rare, 1)
        masses, losses = law.masses[:high], law.losses[:high]
        infinity_mass = law.infinity_mass
        if law.bound is Bound.UPPER:
            infinity_mass += floats.raised(float(law.masses[high:].sum()))
        rest = dataclasses.replace(
            law, losses=_NONE, masses=_NONE, infinity_mass=infinity_mass
        )
        return cls(
            high,
            rest,
            # Losses that are all rounding need not be in order.
            (float(losses.min()), float(losses.max())),
            math.log(max(float(masses.sum()), 1.0)),
            anchors.Group.of(losses, masses, law.count, num_laws, delta),
        )

    def shortened(self, law: LossDistribution, tilt: float) -> LossDistribution:
        """Returns the law without high losses, and low ones that a tilt hides.

        High ones are infinite and low ones are raised (upper bounds), or both are
        dropped (lower bounds). Any cut is certain. Stored losses may be out of order
        by their rounding, but those that they stand for are not, as the ratios of a
        pair increase: so what is raised to a later loss is raised.
        """
        low = self.group.negligible_below(tilt, _NEGLIGIBLE)
        masses = law.masses[low : self.high]
        if low and law.bound is Bound.UPPER:
            masses = masses.copy()
            masses[0] += floats.raised(float(law.masses[:low].sum()))
        losses = law.losses[low : self.high]
        return dataclasses.replace(self.rest, losses=losses, masses=masses)


def _totals(sketches: Sequence[_Sketch]) -> composed_atoms.Totals:
    """Returns what is known of the composition of some laws."""
    rests = [sketch.rest for sketch in sketches]
    log_mass = math.fsum(each.rest.count * each.log_mass for each in sketches)
    return composed_atoms.Totals(
        bound=rests[0].bound,
        copies=sum(law.count for law in rests),
        ends=(
            math.fsum(each.rest.count * each.ends[0] for each in sketches),
            math.fsum(each.rest.count * each.ends[1] for each in sketches),
        ),
        infinity_mass=loss_distribution.infinity_mass(rests),
        most_mass=floats.raised(math.exp(min(log_mass, floats.LARGEST_EXPONENT))),
        mass_error=sum(law.count * law.mass_error for law in rests),
        ratio_error=sum(law.count * law.ratio_error for law in rests),
    )


def _constant(laws: Sequence[LossDistribution]) -> LossDistribution:
    """Returns the composition of laws with one finite loss each."""
    copies = sum(law.count for law in laws)
    loss = math.fsum(law.count * float(law.losses[0]) for law in laws)
    mass = math.prod(float(law.masses[0]) ** law.count for law in laws)
    rounding = 4 * (copies + abs(loss)) * floats.UNIT_ROUNDOFF
    return LossDistribution(
        losses=np.array([loss]),
        masses=np.array([mass]),
        infinity_mass=loss_distribution.infinity_mass(laws),
        count=1,
        bound=laws[0].bound,
        mass_error=rounding + sum(law.count * law.mass_error for law in laws),
        ratio_error=rounding + sum(law.count * law.ratio_error for law in laws),
    )


def _product(laws: Sequence[LossDistribution]) -> LossDistribution | None:
    """Returns the composition of a few laws of a few atoms, if it has a few."""
    copies = sum(law.count for law in laws)
    if copies > _MOST_COPIES or max(law.masses.size for law in laws) > _MOST_ATOMS:
        return None
    upper = laws[0].bound is Bound.UPPER
    losses, masses = np.zeros(1), np.ones(1)
    for law in itertools.chain.from_iterable([law] * law.count for law in laws):
        losses = np.add.outer(losses, law.losses).ravel()
        masses = np.multiply.outer(masses, law.masses).ravel()
        order = np.argsort(losses, kind="stable")
        losses, masses = losses[order], masses[order]
        # What is equal but for rounding counts as the one on the safe side.
        apart = np.diff(losses) > _EQUAL * float(np.abs(losses).max())
        starts = np.flatnonzero(np.append(True, apart))
        masses = np.add.reduceat(masses, starts)
        losses = losses[np.append(starts[1:], losses.size) - 1 if upper else starts]
        if losses.size > _MOST_ATOMS:
            return None
    largest = float(np.abs(losses).max())
    rounding = 2 * floats.UNIT_ROUNDOFF * copies
    least = math.prod(float(law.masses.min()) ** law.count for law in laws)
    # What products of masses lose among denormals counts as infinite.
    lost = _MOST_ATOMS**2 * copies * floats.SMALLEST_MASS
    lost = lost if upper and least < floats.SMALLEST_MASS else 0.0
    return LossDistribution(
        losses=losses,
        masses=masses,
        infinity_mass=loss_distribution.infinity_mass(laws) + lost,
        count=1,
        bound=laws[0].bound,
        mass_error=rounding * _MOST_ATOMS**2
        + sum(law.count * law.mass_error for law in laws),
        ratio_error=rounding * largest
        + sum(law.count * law.ratio_error for law in laws),
    )


def _known(laws: Sequence[LossDistribution]) -> composed_atoms.Atoms | None:
    """Returns the composition of one law, of constant ones, or of a few atoms."""
    if len(laws) == 1 and laws[0].count == 1:
        return composed_atoms.of_one(laws[0])
    if all(law.losses.size == 1 for law in laws):
        return composed_atoms.of_one(_constant(laws))
    product = _product(laws)
    return None if product is None else composed_atoms.of_one(product)


class Survey:
    """What is found in laws that are gone through once.

    Args:
        num_laws: How many there are.
        delta: The least δ that matters.
    """

    def __init__(self, num_laws: int, delta: float) -> None:
        self._num_laws = num_laws
        self._delta = delta
        # By the places of the laws that are not left with nothing at all.
        self.sketches: dict[int, _Sketch] = {}
        self._small: list[LossDistribution] = []
        self.is_infinite = False

    def add(self, place: int, law: LossDistribution) -> None:
        """Adds the law at a place."""
        if not law.masses.size and not law.infinity_mass:
            return
        if not law.masses.size:
            law = dataclasses.replace(law, losses=np.zeros(1), masses=np.zeros(1))
        self.sketches[place] = _Sketch.of(law, self._num_laws, self._delta)
        if law.masses.size <= _MOST_ATOMS or self._num_laws == 1:
            self._small.append(law)
        self.is_infinite |= not law.masses.any()

    def known(self) -> composed_atoms.Atoms | None:
        """Returns the composition where no transform is needed."""
        if self._small and len(self._small) == len(self.sketches):
            return _known(self._small)
        return None


def surveys(each: Sequence[Sequence[LossDistribution]], delta: float) -> list[Survey]:
    """Returns surveys of the same mechanisms' laws, say in both directions.

    They are gone through together: what two laws are made of is made once.
    """
    found = [Survey(len(laws), delta) for laws in each]
    for place in range(len(each[0])):
        for survey, laws in zip(found, each, strict=True):
            survey.add(place, laws[place])
    return found


class ComposedLoss:
    """The composition of privacy losses in one direction.

    Args:
        laws: All upper or all lower bounds; of none the loss is zero. They are gone
            through once, and again for every stretch of ε that is asked for: they may
            be made when they are asked for.
        interval: The loss interval, in nats, at most.
        delta: The least δ for which it is to be tight.
        survey: That of the laws, if there is one.

    Guarantees:
        `deltas` and `epsilons` are on the side of `laws`, whatever the interval and
        `delta`. An answer depends on these alone, and not on earlier ones.

    Source:
        https://arxiv.org/abs/2106.08567, Theorem 10 (composition).
    """

    def __init__(
        self,
        laws: Sequence[LossDistribution],
        interval: float,
        delta: float,
        survey: Survey | None = None,
    ) -> None:
        self._laws = laws
        self._interval = interval
        self._coarser = 1.0
        self._delta = delta
        self._number = next(_NUMBERS)
        if survey is None:
            (survey,) = surveys([laws], delta)
        self._sketches = survey.sketches
        self._is_empty = not self._sketches
        self._exact = survey.known()
        known = self._is_empty or self._exact is not None
        self.is_on_lattice = not (known or survey.is_infinite)
        if not self._is_empty:
            self._totals = _totals(list(self._sketches.values()))

    @functools.cached_property
    def roughly(self) -> "ComposedLoss":
        """The same on a coarser lattice, as certain, less tight and in less time."""
        other = copy.copy(self)
        other._number = next(_NUMBERS)
        other._coarser = _ROUGHLY
        return other

    @property
    def bound(self) -> Bound:
        """The side that its answers are on; of nothing they are on both."""
        return self._totals.bound

    @functools.cached_property
    def _anchors(self) -> anchors.Anchors | None:
        """Where it is computed, if it is; not needed where simple bounds do."""
        if not self.is_on_lattice:
            return None
        return anchors.Anchors(
            self._groups, self._totals.bound, self._totals.ends[1], self._delta
        )

    @property
    def _groups(self) -> list[anchors.Group]:
        return [sketch.group for sketch in self._sketches.values()]

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        if self._is_empty:
            return np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        if self._exact is not None:
            return self._exact.deltas(epsilons)
        found = np.full(epsilons.shape, self._beyond_all_losses())
        if self._anchors is None:
            return found
        below = epsilons < self._largest_loss()
        found[below] = self._read(epsilons[below])
        return found

    def delta(self, epsilon: float) -> float | None:
        """Returns what `deltas` does at one ε of an upper bound, in less time.

        None where it does not.
        """
        if self._exact is not None:
            return self._exact.delta(epsilon)
        if self._anchors is None:
            return None
        if epsilon >= self._largest_loss():
            return self._beyond_all_losses()
        return self._atoms(self._anchors.key(epsilon)).delta(epsilon)

    def _read(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) δ at (n,) ε, each at the place that is for it."""
        found = np.empty(epsilons.shape)
        assert self._anchors is not None
        keys = self._anchors.keys(epsilons)
        for key, here in anchors.grouped(keys):
            found[here] = self._atoms(key).deltas(epsilons[here])
        return found

    def about(self, epsilons: FloatArray | float) -> FloatArray:
        """Returns (n,) guesses at ln δ at (n,) ε, or one; 0 where none is needed."""
        if self._anchors is None:
            return np.zeros(np.shape(epsilons))
        return self._anchors.log_deltas(epsilons)

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) certified ε ≥ 0 at (n,) δ in (0, 1), in nats."""
        if self._is_empty:
            return np.zeros(deltas.shape)
        if self._exact is not None:
            return np.maximum(self._exact.epsilons(deltas), 0.0)
        found = np.where(self._beyond_all_losses() > deltas, math.inf, 0.0)
        if self._anchors is not None:
            below = found == 0
            found[below] = self._search(deltas[below])
        return found

    def epsilon(self, delta: float) -> float | None:
        """Returns what `epsilons` does at one δ of an upper bound, in less time.

        None where it does not.
        """
        if self._exact is not None:
            return max(self._exact.epsilon(delta), 0.0)
        if self._anchors is None or self._beyond_all_losses() > delta:
            return None
        best = math.inf
        elsewhere = float(self._anchors.epsilons(np.array(delta)))
        key = self._anchors.key(max(elsewhere, 0.0))
        for _ in range(_TRIES):
            atoms = self._atoms(key)
            read = max(atoms.epsilon(delta), 0.0)
            elsewhere = min(max(read, atoms.lowest), atoms.highest)
            is_certain = elsewhere == read
            best = min(best, read) if is_certain else best
            elsewhere = max(min(elsewhere, self._totals.ends[1]), 0.0)
            there = self._anchors.key(elsewhere)
            will_do = len(self._sketches) > _MANY and is_certain and read != 0
            if there == key or will_do:
                break
            key = there
        return best if best < math.inf else None

    def _search(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) ε at (n,) δ: a guess by the saddle point, then the profile."""
        assert self._anchors is not None
        upper = self._totals.bound is Bound.UPPER
        best = np.full(deltas.shape, math.inf if upper else 0.0)
        keys = self._anchors.keys(np.maximum(self._anchors.epsilons(deltas), 0.0))
        open_ = np.arange(deltas.size)
        for _ in range(_TRIES):
            asked = deltas[open_]
            found, elsewhere = np.empty((2, open_.size))
            for key, here in anchors.grouped(keys):
                atoms = self._atoms(key)
                found[here], elsewhere[here] = _within(
                    atoms, atoms.epsilons(asked[here]), upper=upper
                )
            # Each is a bound.
            better = np.minimum if upper else np.maximum
            best[open_] = better(best[open_], found)
            elsewhere = np.maximum(np.minimum(elsewhere, self._totals.ends[1]), 0.0)
            there = self._anchors.keys(elsewhere)
            moved = there != keys
            if len(self._sketches) > _MANY:
                # Another place costs as much again: what is certain will do.
                moved &= np.isinf(found) | (found == 0)
            if not moved.any():
                break
            open_, keys = open_[moved], there[moved]
        if upper and np.isinf(best).any():
            lost = np.isinf(best)
            best[lost] = self.simple.epsilons(deltas[lost])
        return best

    def _atoms(self, key: int) -> composed_atoms.Atoms:
        return _MEMORY.get((self._number, key), lambda: self._composed(key))

    def _composed(self, key: int) -> composed_atoms.Atoms:
        assert self._anchors is not None
        return self.atoms(self._anchors.place(key))

    def atoms(self, place: anchors.Place) -> composed_atoms.Atoms:
        """Returns the composed loss at a place; where it is known at once, all of it.

        Raises:
            ValueError: If no loss is finite.
        """
        if self._exact is not None:
            return self._exact
        if self._anchors is None:
            raise ValueError("There must be a finite loss. Found none.")
        composition = self._composition(place)
        for number in reversed(self._sketches):
            law = self._law(number, place.tilt)
            composition.add(law, self._uneven_group(number))
        return composition.atoms()

    def _composition(self, place: anchors.Place) -> composed_atoms.Composition:
        interval = self._interval_for(place)
        return composed_atoms.Composition(self._totals, place, interval)

    def _uneven_group(self, number: int) -> anchors.Group | None:
        """Returns what stands for a law where rare losses may be moved further.

        Beside a few other laws a law's rare losses may be what matters.
        """
        if 1 < len(self._sketches) <= _MANY:
            return None
        return self._sketches[number].group

    def _law(self, number: int, tilt: float) -> LossDistribution:
        """Returns a law, without what does not matter under a tilt."""
        return self._sketches[number].shortened(self._laws[number], tilt)

    @property
    def _ends(self) -> list[tuple[float, float]]:
        """The least and the largest loss of each law."""
        return [sketch.ends for sketch in self._sketches.values()]

    def _interval_for(self, place: anchors.Place) -> float:
        """Returns the loss interval: fine enough for ε, no coarser than asked.

        An interval h adds about h²/6 to the variance of each loss, which moves ε by
        n h² (1 + tilt) / 12; near the mean it moves δ as much as it does the variance.
        """
        assert self._anchors is not None
        coarsest = _OF_THE_LARGEST * self._interval * self._coarser
        if len(self._sketches) > _MANY:
            coarsest *= _COARSER
        moved = _MOVED * place.centre
        if len(self._sketches) > _MANY:
            moved *= _LESS
        fine = math.sqrt(12 * moved / (self._totals.copies * (1 + place.tilt)))
        narrow = self._anchors.deviation / math.sqrt(self._totals.copies)
        fine = min(fine, _NEAR_THE_MEAN * narrow) * self._coarser
        largest = max(abs(end) for ends in self._ends for end in ends)
        width = place.high - place.low
        interval = min(fine, coarsest, _COARSEST, width / _FEWEST_POINTS)
        span = max(ends[1] - ends[0] for ends in self._ends)
        interval = max(
            interval, _FINEST * largest, width / _MOST_POINTS, span / _MOST_CELLS
        )
        # An atom at the end of the losses is better on the lattice than between.
        cells = math.ceil(largest / interval)
        return largest / cells if cells > 1 else interval

    def _largest_loss(self) -> float:
        """Returns the largest finite loss of the composition."""
        largest = self._totals.ends[1]
        return largest + self._totals.ratio_error + 1e-12 * abs(largest)

    def _beyond_all_losses(self) -> float:
        """Returns a certified δ for an ε that no finite loss exceeds."""
        factor = dominating_pair.allowance(
            self._totals.bound, len(self._sketches), self._totals.mass_error, 0.0
        )[1]
        return min(factor * self._totals.infinity_mass, 1.0)

    @functools.cached_property
    def simple(self) -> anchors.SimpleBound:
        """What upper bounds do not exceed, at once and not tight."""
        if not self.is_on_lattice:
            return anchors.SimpleBound.trivial()
        tilts, exponents = anchors.few_chernoff(self._groups, self._moment_error)
        exponents += tilts * self._totals.ratio_error
        return anchors.SimpleBound(tilts, exponents, self._beyond_all_losses())

    def simple_dual(self, infinity_mass: float) -> anchors.SimpleBound:
        """Returns `simple` of the laws of the same pairs with P and Q exchanged.

        Of upper bounds that are those of pairs, without a look at their atoms.

        Args:
            infinity_mass: The probability that a loss of these laws is infinite.
        """
        if self._anchors is None or len(self._sketches) < len(self._laws):
            return anchors.SimpleBound.trivial()
        # An exchange counts the errors of masses and ratios, and of losses, once more.
        error = 2 * self._totals.mass_error + self._totals.copies * _ROUNDING
        tilted_error, sink = 3 * self._totals.ratio_error, infinity_mass
        for each in self._sketches.values():
            count, mass = each.rest.count, float(each.group.masses.sum())
            # What was left out is above all other losses, which have more of a moment
            # under a negative tilt than of the mass.
            error += count * floats.raised(each.rest.infinity_mass + _LOST) / mass
            largest = max(abs(end) for end in each.ends)
            tilted_error += count * _EXPONENT_ERROR * largest * floats.UNIT_ROUNDOFF
            # What P has less of than a float tells is infinite instead.
            lost = count * each.high * floats.SMALLEST_MASS
            sink += lost * floats.exponential(-each.ends[0])
        tilts, exponents = self._anchors.dual_chernoff(error, tilted_error)
        factor = dominating_pair.allowance(
            self._totals.bound, len(self._sketches), error, 0.0
        )[1]
        return anchors.SimpleBound(tilts, exponents, min(factor * sink, 1.0))

    def log_chance(self, epsilon: float) -> float:
        """Returns what `log_chances` does at one ε."""
        tilts, exponents = self._chernoff
        return min(float((exponents - epsilon * tilts).min()), 0.0)

    def log_chances(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) ln δ at (n,) ε of finite losses, as large as all tilts allow."""
        tilts, exponents = self._chernoff
        logs = (exponents - np.multiply.outer(epsilons, tilts)).min(axis=1)
        return np.asarray(np.minimum(logs, 0.0))

    @functools.cached_property
    def _chernoff(self) -> tuple[FloatArray, FloatArray]:
        assert self._anchors is not None
        tilts, exponents = self._anchors.chernoff(self._moment_error)
        return tilts, exponents + tilts * self._totals.ratio_error

    @property
    def _moment_error(self) -> float:
        # Sums of thousands of masses, each shared, and of that many moments.
        return self._totals.mass_error + self._totals.copies * _ROUNDING


def _within(
    atoms: composed_atoms.Atoms, epsilons: FloatArray, *, upper: bool
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) ε as far as they are certain, and where else they may be read."""
    read = np.maximum(epsilons, 0.0)
    elsewhere = np.minimum(np.maximum(read, atoms.lowest), atoms.highest)
    if upper:
        read = np.where(elsewhere == read, read, math.inf)
    return read, elsewhere


def prepare(losses: Sequence[ComposedLoss], deltas: FloatArray) -> None:
    """Composes what an answer at one of (n,) δ will need, where laws are many.

    Args:
        losses: Of the same mechanisms, say in both directions.
        deltas: δ in (0, 1).
    """
    needed: list[tuple[ComposedLoss, int, float, composed_atoms.Composition]] = []
    largest = 0.0
    for loss in losses:
        if len(loss._sketches) <= _MANY or loss._anchors is None:
            continue
        if loss.simple.epsilon(float(deltas[0])) < _RULED_OUT * largest:
            continue  # Another direction will tell more.
        guess = np.maximum(loss._anchors.epsilons(deltas[:1]), 0.0)
        key = int(loss._anchors.keys(guess)[0])
        place = loss._anchors.place(key)
        if float(guess[0]) < _OUTWEIGHED * largest:
            loss = loss.roughly  # That will do to tell that it is not the larger.
        largest = max(largest, float(guess[0]))
        if (loss._number, key) in _MEMORY:
            continue
        needed.append((loss, key, place.tilt, loss._composition(place)))
    if len(needed) < 2:
        return
    for number in reversed(needed[0][0]._sketches):
        for loss, _, tilt, composition in needed:
            if number in loss._sketches:
                composition.add(loss._law(number, tilt), loss._uneven_group(number))
    for loss, key, _, composition in needed:
        _MEMORY.get((loss._number, key), composition.atoms)
