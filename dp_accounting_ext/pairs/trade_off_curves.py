"""Trade-off curves of outputs on two batches, by the distance between the batches.

f_d(v) is the largest probability of an event for outputs on one batch if the event has
probability v on another one, at distance d. It is the same in both directions, and no
detour through other batches has a smaller bound: f_d(f_e(v)) ≥ f_{d + e}(v). Bounds use
the profile h_d(t) = max_v f_d(v) − t v, which is certified. The curves only lead the
search for these bounds.
"""

import abc
from collections.abc import Mapping
import dataclasses
import math
from typing import ClassVar
from typing import NamedTuple

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import profile_pairs

# Certified: distances are raised by this share, and to this least value. This covers
# the rounding of thresholds.
_RAISED, _CLOSEST = 1 + 16 * floats.UNIT_ROUNDOFF, 1e-6
# Certified: the relative error of `NoiseCurves.reached` within 37 standard deviations.
REACHED_ERROR = floats.normal_tail_error(37.0)
# Tuning: the lines of a curve that is not smooth, and logarithms of slopes near those
# that were found.
MOST_LINES, _NEAR = 24, np.linspace(-0.3, 0.3, 13)


class Lines(NamedTuple):
    """The (1 or k, m, n, l) slopes and values at zero of l lines above every f."""

    slopes: FloatArray
    values: FloatArray


class Curves(abc.ABC):
    """What is known of outputs on two batches, by their distance d > 0.

    Attributes:
        effort: About how many times as long a program takes as for Gaussian noise.
    """

    effort: ClassVar[int] = 1

    @abc.abstractmethod
    def profile(self, distances: FloatArray, thresholds: FloatArray) -> FloatArray:
        """Returns upper bounds on h_d(t), elementwise."""

    @abc.abstractmethod
    def moved(self, levels: FloatArray, distances: FloatArray) -> FloatArray:
        """Returns about f_d(u), or its inverse at −d if d is negative, elementwise."""

    def allowed(self, levels: FloatArray, distances: FloatArray) -> FloatArray:
        """Returns the (k, m) largest u_i with u_i ≤ f_d(u_j) for all j.

        Args:
            levels: (k, n) u_j.
            distances: (m, n) distances.
        """
        largest: FloatArray = self.moved(levels[:, np.newaxis], distances).min(axis=2)
        return largest

    @abc.abstractmethod
    def tangents(
        self, levels: FloatArray, distances: FloatArray, lines: Lines | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns one or more concave curves whose minimum is f, nearly.

        Args:
            levels: (k, 1, n) probabilities.
            distances: (m, n) distances.
            lines: What `lines` returned.

        Returns:
            (k, m, n, l) values; slopes times u; second derivatives times u².
        """

    def lines(self, distances: FloatArray, ratios: FloatArray | None) -> Lines | None:
        """Returns lines whose minimum is nearly f, if f is not smooth.

        Args:
            distances: (m, n) distances.
            ratios: (k, m, n) slopes near which lines are dense, if these are known.
        """
        return None


class NoiseCurves(Curves):
    """Noise that is added to points x and y of a line, with |x − y| = d.

    Attributes:
        reach: How far noise reaches with a probability that `reached` computes.
    """

    reach: ClassVar[float] = 600.0

    @abc.abstractmethod
    def places(self, levels: FloatArray) -> FloatArray:
        """Returns the points x for which x plus noise is above 0 with probability u."""

    @abc.abstractmethod
    def reached(self, places: FloatArray) -> FloatArray:
        """Returns about the probabilities that x plus noise is above 0, for points x.

        The relative error is at most `REACHED_ERROR` for points of at least −reach.
        """

    def moved(self, levels: FloatArray, distances: FloatArray) -> FloatArray:
        return self.reached(self.places(levels) + distances)

    def allowed(self, levels: FloatArray, distances: FloatArray) -> FloatArray:
        places = self.places(levels)[:, np.newaxis] + distances
        return self.reached(places.min(axis=2))


@dataclasses.dataclass(frozen=True)
class GaussianCurves(NoiseCurves):
    """N(x, 1) and N(y, 1), with |x − y| = d."""

    reach = 37.0

    def profile(self, distances: FloatArray, thresholds: FloatArray) -> FloatArray:
        d = np.maximum(distances, _CLOSEST) * _RAISED
        at = np.log(np.maximum(thresholds, floats.SMALLEST_MASS)) / d
        gain, cost = special.ndtr(d / 2 - at), special.ndtr(-d / 2 - at)
        cost *= thresholds
        # The argument of the smaller probability; beyond 37 both are negligible.
        furthest = np.minimum(np.abs(at) + d / 2, 37.0)
        error = 2 * floats.normal_tail_error(furthest) + 8 * floats.UNIT_ROUNDOFF
        values = gain - cost + error * (gain + cost) + floats.SMALLEST_MASS
        bounds: FloatArray = np.clip(values, 0.0, 1.0)
        return bounds

    def places(self, levels: FloatArray) -> FloatArray:
        places: FloatArray = special.ndtri(levels)
        return places

    def reached(self, places: FloatArray) -> FloatArray:
        probabilities: FloatArray = special.ndtr(places)
        return probabilities

    def tangents(
        self, levels: FloatArray, distances: FloatArray, lines: Lines | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        z = special.ndtri(levels)
        rises = np.exp(np.log(levels) - z * distances - distances**2 / 2)
        over_density = levels * math.sqrt(2 * math.pi) * np.exp(z * z / 2)
        bends = -rises * distances * over_density
        values: FloatArray = special.ndtr(z + distances)
        return values[..., None], rises[..., None], bends[..., None]


@dataclasses.dataclass(frozen=True)
class LaplaceCurves(NoiseCurves):
    """Laplace noise of parameter one around x and around y, with |x − y| = d."""

    def profile(self, distances: FloatArray, thresholds: FloatArray) -> FloatArray:
        d = distances * _RAISED + 16 * floats.UNIT_ROUNDOFF
        log = np.log(np.maximum(thresholds, floats.SMALLEST_MASS))
        middle = -np.expm1((np.clip(log, -d, d) - d) / 2)
        values = np.where(log < -d, 1 - thresholds + 8 * floats.UNIT_ROUNDOFF, middle)
        bounds: FloatArray = np.maximum(values, 0.0) * (1 + 16 * floats.UNIT_ROUNDOFF)
        return bounds

    def places(self, levels: FloatArray) -> FloatArray:
        places: FloatArray = np.where(
            levels < 0.5, np.log(2 * levels), -np.log(2 - 2 * levels)
        )
        return places

    def reached(self, places: FloatArray) -> FloatArray:
        tail = np.exp(-np.abs(places)) / 2
        probabilities: FloatArray = np.where(places < 0, tail, 1 - tail)
        return probabilities

    def tangents(
        self, levels: FloatArray, distances: FloatArray, lines: Lines | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        # With a = e^−d, f_d(u) is u / a for u ≤ a / 2, 1 − a (1 − u) for u ≥ ½, and
        # 1 − a / (4 u) in between.
        factor = np.exp(-distances)
        low, high = levels <= factor / 2, levels >= 0.5
        straight, middle = levels / factor, factor / 4 / levels
        values = np.where(high, 1 - factor * (1 - levels), 1 - middle)
        values = np.where(low, straight, values)
        rises = np.where(low, straight, np.where(high, factor * levels, middle))
        bends = np.where(low | high, 0.0, -2 * middle)
        return values[..., None], rises[..., None], bends[..., None]


@dataclasses.dataclass(frozen=True, eq=False)
class PairCurves(Curves):
    """Any mechanism, by its upper pairs for two batches at each distance.

    Attributes:
        profiles: The profiles by distance, each valid in both directions.
    """

    effort = 24

    profiles: Mapping[float, profile_pairs.Hinges]

    def profile(self, distances: FloatArray, thresholds: FloatArray) -> FloatArray:
        distances = np.broadcast_to(distances, thresholds.shape)
        values = np.empty(thresholds.shape)
        for distance, profile in self.profiles.items():
            at_distance = distances == distance
            values[at_distance] = profile.values(thresholds[at_distance])
        return np.minimum(values, 1.0)

    def moved(self, levels: FloatArray, distances: FloatArray) -> FloatArray:
        # f_d is the minimum of a few increasing lines and of a constant. Its inverse is
        # the maximum of the inverse lines.
        levels, distances = np.broadcast_arrays(levels, distances)
        moved = np.empty(levels.shape)
        for distance in self.profiles:
            slopes, values = self._lines_at(distance)
            is_direct, is_inverse = distances == distance, distances == -distance
            lines = values + np.multiply.outer(levels[is_direct], slopes)
            moved[is_direct] = lines.min(axis=1)
            inverses = np.subtract.outer(levels[is_inverse], values[1:]) / slopes[1:]
            moved[is_inverse] = inverses.max(axis=1)
        return moved

    def tangents(
        self, levels: FloatArray, distances: FloatArray, lines: Lines | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        assert lines is not None
        rises = lines.slopes * levels[..., np.newaxis]
        return lines.values + rises, rises, np.zeros(rises.shape)

    def lines(self, distances: FloatArray, ratios: FloatArray | None) -> Lines:
        number = 1 + self._number()
        shape = (1, *distances.shape, number)
        slopes, values = np.empty(shape), np.empty(shape)
        for distance in self.profiles:
            at_distance = distances == distance
            lines = self._lines_at(distance)
            slopes[:, at_distance], values[:, at_distance] = lines
        if ratios is None or number <= MOST_LINES:
            return Lines(slopes, values)
        near = np.multiply.outer(ratios, np.exp(_NEAR))
        all_lines = (*ratios.shape, number)
        more = self.profile(distances[..., np.newaxis], near)
        return Lines(
            np.concatenate([np.broadcast_to(slopes, all_lines), near], axis=3),
            np.concatenate([np.broadcast_to(values, all_lines), more], axis=3),
        )

    def _number(self) -> int:
        """Returns the number of lines besides the constant one, for each distance."""
        return min(max(h.ratios.size for h in self.profiles.values()), MOST_LINES)

    def _lines_at(self, distance: float) -> Lines:
        """Returns a line of slope 0, and `_number` other lines, above f at a distance.

        The slopes of the others are the profile's ratios, repeated if these are fewer;
        or a geometric sequence from the first to the last of more ratios.
        """
        profile, number = self.profiles[distance], self._number()
        ratios = profile.ratios
        if ratios.size > number:
            ratios = np.geomspace(max(ratios[0], 1e-30), ratios[-1], number)
        slopes = np.append(0.0, np.resize(ratios, number))
        return Lines(slopes, np.minimum(profile.values(slopes), 1.0))
