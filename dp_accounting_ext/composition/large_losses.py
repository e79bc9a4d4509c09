"""Compositions whose tail one large loss makes, which no tilt shows.

A tilt shows where a sum is likely under it. Where the chance of a loss falls more
slowly than any exponential (one of many steps, and a rare one tells much), every tilt
shows the bulk or the largest losses, and nothing between. So losses beyond a place that
the runs pass with a probability of about the root of δ are taken apart: a composition
has none of them, or one, or more, which is rarer than δ. With none, and beside the one,
the sum is light-tailed.

    δ(ε) = δ of the runs without + Σ_i n_i · δ of one large loss and n_i − 1 without
           + at most the chance of two

is exact but for the last term, as each tuple of losses is in one of the parts. An
infinite loss, whatever is beside it, counts in the first.
"""

from collections.abc import Callable
from collections.abc import Sequence
import copy
import dataclasses
import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_atoms
from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
TruthArray = npt.NDArray[np.bool_]

# Tuning. Over the root of δ: how likely a run with a large loss is.
_LARGE = 1e-3
# How far Chernoff's bound at ε is above δ, in nats, where one large loss makes it. Of
# light tails it is 2 to 5 above.
_HEAVY = 10.0
# Of more different laws none are split: each is composed once for every other.
_MOST_LAWS = 8
_TRIES = 12  # Of the search for ε, and
_CLOSE = 1e-7  # how near its ends may be, relatively.
_LEAST_EXPONENT = -300  # Of δ, as a power of ten, below which none is.


class HeavyTailedLoss:
    """The composition of privacy losses in one direction, heavy-tailed ones too.

    Args:
        laws: All upper or all lower bounds; see `composed_loss.ComposedLoss`.
        interval: The loss interval, in nats, at most.
        delta: The least δ for which it is to be tight.
        survey: That of the laws, if there is one.

    Attributes:
        whole: The same, none of whose losses are taken apart.

    Guarantees:
        `deltas` and `epsilons` are on the side of `laws`, whatever the interval and
        `delta`. An answer depends on these alone, and not on earlier ones.
    """

    def __init__(
        self,
        laws: Sequence[LossDistribution],
        interval: float,
        delta: float,
        survey: composed_loss.Survey | None = None,
    ) -> None:
        self.whole = composed_loss.ComposedLoss(laws, interval, delta, survey)
        self._laws = laws
        self._interval = interval
        self._splits: dict[int, _Split] = {}

    def about(self, epsilons: FloatArray | float) -> FloatArray:
        """Returns (n,) guesses at ln δ at (n,) ε, or one; 0 where none is needed."""
        return self.whole.about(epsilons)

    @functools.cached_property
    def roughly(self) -> "HeavyTailedLoss":
        """The same, as certain, less tight and in less time."""
        other = copy.copy(self)
        other.whole = self.whole.roughly
        return other

    @property
    def simple(self) -> anchors.SimpleBound:
        """What upper bounds do not exceed, at once and not tight."""
        return self.whole.simple

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        found = self.whole.deltas(epsilons)
        (open_,) = np.nonzero(self._may_be_heavy(epsilons, found))
        if open_.size:
            least = self._of_ones(epsilons[open_])
            most = np.maximum(least, found[open_])
            heavy = self._may_be_heavy(epsilons[open_], most)
            open_, least = open_[heavy], least[heavy]
        if open_.size:
            first = self._apart(epsilons[open_], _keys(least))
            found[open_] = self._better(found[open_], first)
            # What one run's large loss makes may be far less than all of δ.
            again = self._apart(epsilons[open_], _keys(found[open_]))
            found[open_] = self._better(found[open_], again)
        return found

    def delta(self, epsilon: float) -> float | None:
        """Returns what `deltas` does at one ε of an upper bound, in less time.

        None where it does not: of heavy tails, say.
        """
        found = self.whole.delta(epsilon)
        return None if found is None or self._is_heavy(epsilon, found) else found

    def epsilon(self, delta: float) -> float | None:
        """Returns what `epsilons` does at one δ of an upper bound, in less time.

        None where it does not.
        """
        found = self.whole.epsilon(delta)
        return None if found is None or self._is_heavy(found, delta) else found

    def _is_heavy(self, epsilon: float, delta: float) -> bool:
        """Tells what `_may_be_heavy` does of one ε."""
        if len(self._laws) > _MOST_LAWS or not self.whole.is_on_lattice:
            return False
        log_delta = float(np.log(max(delta, floats.SMALLEST_MASS)))
        return self.whole.log_chance(epsilon) > log_delta + _HEAVY

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) certified ε ≥ 0 at (n,) δ in (0, 1), in nats."""
        found = self.whole.epsilons(deltas)
        (open_,) = np.nonzero(self._may_be_heavy(found, deltas))
        if not open_.size:
            return found
        # Where one large loss makes the tail, it alone makes nearly all of ε.
        places = np.maximum(found[open_], self._of_one(deltas[open_]))
        heavy = (places > 0) & self._may_be_heavy(places, deltas[open_])
        open_, places = open_[heavy], places[heavy]
        if open_.size:
            apart = self._search(places, deltas[open_])
            found[open_] = self._better(found[open_], apart)
        return found

    def _may_be_heavy(self, epsilons: FloatArray, deltas: FloatArray) -> TruthArray:
        """Tells (n,) ε that no tilt shows: all that any allows is far above δ."""
        if len(self._laws) > _MOST_LAWS or not self.whole.is_on_lattice:
            return np.zeros(epsilons.shape, dtype=np.bool_)
        logs = np.log(np.maximum(deltas, floats.SMALLEST_MASS))
        return self.whole.log_chances(epsilons) > logs + _HEAVY

    @functools.cached_property
    def _ones(self) -> list[tuple[int, composed_atoms.Atoms]]:
        """Single runs, and how often each is composed."""
        laws = [dataclasses.replace(law, infinity_mass=0.0) for law in self._laws]
        return [
            (law.count, composed_atoms.of_one(law)) for law in laws if law.masses.size
        ]

    def _of_ones(self, epsilons: FloatArray) -> FloatArray:
        """Returns about (n,) δ of single runs, added up."""
        total = np.zeros(epsilons.shape)
        for count, one in self._ones:
            total += count * one.deltas(epsilons)
        return total

    def _of_one(self, deltas: FloatArray) -> FloatArray:
        """Returns about (n,) ε of one run at its share of (n,) δ."""
        most = np.zeros(deltas.shape)
        for count, one in self._ones:
            most = np.maximum(most, one.epsilons(deltas / count))
        return most

    def _better(self, first: FloatArray, second: FloatArray) -> FloatArray:
        upper = self.whole.bound is Bound.UPPER
        return np.minimum(first, second) if upper else np.maximum(first, second)

    def _apart(self, epsilons: FloatArray, keys: IndexArray) -> FloatArray:
        """Returns (n,) δ at (n,) ε with large losses apart, each in its own way."""
        found = np.empty(epsilons.shape)
        for key, here in anchors.grouped(keys):
            if key not in self._splits:
                self._splits[key] = _Split(self._laws, self._interval, key)
            found[here] = self._splits[key].deltas(epsilons[here])
        return found

    def _search(self, starts: FloatArray, deltas: FloatArray) -> FloatArray:
        """Returns (n,) ε at (n,) δ, on their side: each is checked by its own δ."""
        keys = _keys(deltas)

        def excess(epsilons: FloatArray, here: IndexArray) -> FloatArray:
            found = self._apart(epsilons, keys[here])
            with np.errstate(divide="ignore"):
                logs: FloatArray = np.log(found / deltas[here])
            return logs

        return _roots(excess, starts, upper=self.whole.bound is Bound.UPPER)


class _Split:
    """A composition by the number of its large losses: none, one, or more.

    Args:
        laws: What is composed.
        interval: The loss interval, in nats, at most.
        exponent: Of ten: about the δ that it is for.
    """

    def __init__(
        self, laws: Sequence[LossDistribution], interval: float, exponent: int
    ) -> None:
        delta = 10.0**exponent
        cuts = [_first_large(law, _LARGE * math.sqrt(delta)) for law in laws]
        bulks = [
            _Piece(place, slice(cut), law.count)
            for place, (law, cut) in enumerate(zip(laws, cuts, strict=True))
        ]
        without = _Pieces(laws, bulks, with_infinite=True)
        self._without = composed_loss.ComposedLoss(without, interval, delta)
        self._beside: list[tuple[int, composed_loss.ComposedLoss]] = []
        for place, cut in enumerate(cuts):
            if cut is None:
                continue
            count = bulks[place].count
            pieces = [
                *bulks[:place],
                dataclasses.replace(bulks[place], count=count - 1),
                *bulks[place + 1 :],
                _Piece(place, slice(cut, None), 1),
            ]
            beside = _Pieces(laws, [each for each in pieces if each.count])
            one = composed_loss.ComposedLoss(beside, interval, delta / count)
            self._beside.append((count, one))
        self._is_upper = laws[0].bound is Bound.UPPER
        self._chance_of_two = _chance_of_two(laws, cuts)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) certified δ at (n,) ε, in nats."""
        total = self._without.deltas(epsilons)
        for count, one in self._beside:
            total = total + count * one.deltas(epsilons)
        if not self._is_upper:
            return total * floats.lowered(1.0)
        return np.minimum(total * floats.raised(1.0) + self._chance_of_two, 1.0)


@dataclasses.dataclass(frozen=True)
class _Piece:
    """The losses of a law from one to another, so many times."""

    place: int
    kept: slice
    count: int


class _Pieces(Sequence[LossDistribution]):
    """Pieces of laws, made when they are asked for, as the laws may be.

    Args:
        laws: The laws.
        pieces: What is composed of them.
        with_infinite: Whether infinite losses are.
    """

    def __init__(
        self,
        laws: Sequence[LossDistribution],
        pieces: Sequence[_Piece],
        *,
        with_infinite: bool = False,
    ) -> None:
        self._laws = laws
        self._pieces = pieces
        self._with_infinite = with_infinite

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, number: Any) -> Any:
        piece = self._pieces[number]
        law = self._laws[piece.place]
        return dataclasses.replace(
            law,
            losses=law.losses[piece.kept],
            masses=law.masses[piece.kept],
            infinity_mass=law.infinity_mass if self._with_infinite else 0.0,
            count=piece.count,
        )


def _keys(deltas: FloatArray) -> IndexArray:
    """Returns the (n,) powers of ten at most (n,) δ, as exponents."""
    logs = np.log10(np.maximum(deltas, 10.0**_LEAST_EXPONENT))
    return np.floor(logs).astype(np.int64)


def _first_large(law: LossDistribution, chance: float) -> int | None:
    """Returns from where on losses are as rare, in all runs; None where none are."""
    above = np.cumsum(law.masses[::-1]) * law.count
    first = law.masses.size - int(np.searchsorted(above, chance, side="right"))
    return max(first, 1) if first < law.masses.size else None


def _chance_of_two(
    laws: Sequence[LossDistribution], cuts: Sequence[int | None]
) -> float:
    """Bounds the probability of two large losses and more, whatever is beside them."""
    chance = math.fsum(
        law.count * float(law.masses[cut:].sum())
        for law, cut in zip(laws, cuts, strict=True)
        if cut is not None
    )
    errors = sum(law.count * law.mass_error for law in laws)
    factor = dominating_pair.allowance(Bound.UPPER, 1, errors, 0.0)[1]
    # Half of the square: the rest is for the rounding of so many sums.
    most = factor * chance * chance * loss_distribution.most_mass(laws)
    return min(floats.raised(most), 1.0)


def _roots(
    excess: Callable[[FloatArray, IndexArray], FloatArray],
    starts: FloatArray,
    *,
    upper: bool,
) -> FloatArray:
    """Returns where decreasing functions are zero, nearly: from above, or from below.

    Args:
        excess: Their values at (m,) places, of those with (m,) numbers; only places
            where they were evaluated are returned.
        starts: (n,) places, positive.
        upper: Whether they must be ≤ 0 at the result, or ≥ 0.

    Returns:
        (n,) such places; inf (upper) or 0 (lower) where none was found.
    """
    low, high = np.zeros(starts.size), np.full(starts.size, math.inf)
    at_low, at_high = np.full((2, starts.size), math.nan)
    open_, places = np.arange(starts.size), starts
    for _ in range(_TRIES):
        values = excess(places, open_)
        for end, at_end, side in (
            (low, at_low, values >= 0),
            (high, at_high, values <= 0),
        ):
            end[open_[side]] = places[side]
            at_end[open_[side]] = values[side]
        open_ = open_[~(low[open_] >= (1 - _CLOSE) * high[open_])]
        if not open_.size:
            break
        places = _next(low[open_], at_low[open_], high[open_], at_high[open_])
    return high if upper else low


def _next(
    low: FloatArray, at_low: FloatArray, high: FloatArray, at_high: FloatArray
) -> FloatArray:
    """Returns where to look between (n,) places, or beyond those that are known."""
    with np.errstate(invalid="ignore"):
        shares = at_low / (at_low - at_high)
        # Away from the ends, or the search stays on one side.
        between = low + np.clip(shares, 0.02, 0.98) * (high - low)
        middle = np.where(low > 0, (low + high) / 2, high / 1.5)
    is_line = (at_low > 0) & np.isfinite(at_high)
    found: FloatArray = np.where(is_line, between, middle)
    return np.where(np.isinf(high), 1.5 * low, found)
