"""k out of t steps that are not all alike, from above and from below.

A record takes part in a uniformly random set of k of the t steps. Let X_i be the
likelihood ratio of step i, which has a law Q_i of its own without the record. The
theorem of `counts` holds for any steps: for any λ in (0, 1),

    Z ≤ e^L e^{−V} I₀(V) / Binom(k; t, λ),

with L = Σ ln(1 − λ + λ X_i) and V = Σ q_i (1 − q_i). The law of L and V is computed
under the product of the laws (1 − λ + λ X_i) dQ_i, which is that without the record,
times e^L.

If losses are small, what this loses, about 5 / (24 k) nats, is more than what another
bound loses: by Maclaurin's inequality, Z is at most the k-th power of the mean of all
X_i, the ratio of one out of t steps.

From below, the statistic is that of `scores`. Its law with the record is a mixture over
how many of the k steps are of each kind.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification import counts
from dp_accounting_ext.amplification import plane_sums
from dp_accounting_ext.amplification import scores
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import profile_pairs

DominatingPair = dominating_pair.DominatingPair
Hinges = profile_pairs.Hinges

# Certified: a relative gap that is far above all rounding errors of ratios.
_GAP = 1e-6
# Tuning: the largest ln κ at which a mass of P is bounded by one of Q.
_FURTHEST = 40.0
# Tuning: as for steps that are alike.
_EXPONENTS, _RARE = (0.0, 0.5, 1.5, 3.0, 5.5, 9.0, 14.0, 19.0, 27.0), 14.0


@dataclasses.dataclass(frozen=True)
class Kind:
    """Several steps with the same pair.

    Attributes:
        pair: An upper or a lower pair of one of them.
        count: The number of steps.
    """

    pair: DominatingPair
    count: int


@dataclasses.dataclass(frozen=True)
class Steps:
    """The t steps. A step of one kind has no mass at the outputs of the others.

    Attributes:
        ratios: (n,) finite likelihood ratios of the outputs of all kinds, increasing.
        absent: (n,) masses of a step of each kind without the record, with counts.
        num_selected: Number of steps with the record, k.
        mass_error: Bound on the relative error of a mass, with the record or without.
        ratio_error: Bound on the relative error of a ratio.
    """

    ratios: FloatArray
    absent: step_laws.Laws
    num_selected: int
    mass_error: float
    ratio_error: float

    @classmethod
    def of(cls, kinds: Sequence[Kind], num_selected: int) -> "Steps":
        """Returns the steps of these kinds, with their finite ratios."""
        total = sum(kind.count for kind in kinds)
        parts = [step_laws.Steps.of(kind.pair, num_selected, total) for kind in kinds]
        ratios = np.concatenate([part.ratios for part in parts])
        order = np.argsort(ratios, kind="stable")
        whose = np.concatenate([np.full(p.ratios.size, i) for i, p in enumerate(parts)])
        masses = np.concatenate([part.masses for part in parts])
        ratio_error = max(kind.pair.ratio_error for kind in kinds)
        return cls(
            ratios[order],
            [
                (np.where(whose == i, masses, 0.0)[order], kind.count)
                for i, kind in enumerate(kinds)
            ],
            num_selected,
            max(kind.pair.mass_error for kind in kinds)
            + ratio_error
            + 4 * floats.UNIT_ROUNDOFF,
            ratio_error,
        )

    @property
    def num_steps(self) -> int:
        """The number of steps, t."""
        return sum(count for _, count in self.absent)

    def with_record(self, numbers: Sequence[int]) -> step_laws.Laws:
        """Returns the laws if the record is in so many steps of each kind."""
        found: step_laws.Laws = []
        for (masses, count), number in zip(self.absent, numbers, strict=True):
            found += [(self.ratios * masses, number), (masses, count - number)]
        return [(masses, count) for masses, count in found if count]

    def up_to(self, mass: float) -> tuple["Steps", float]:
        """Returns the steps without the largest ratios, and a bound on what they have.

        Args:
            mass: The largest probability that a step with the record, or any step
                without it, has one of the ratios.
        """
        share = self.num_selected / self.num_steps
        each = sum(
            count * masses * (1 + share * self.ratios) for masses, count in self.absent
        )
        above = np.cumsum(np.asarray(each)[::-1])[::-1]
        first = max(int(np.searchsorted(-above, -mass)), 2)
        kept = dataclasses.replace(
            self,
            ratios=self.ratios[:first],
            absent=[(masses[:first], count) for masses, count in self.absent],
        )
        lost = float(above[first]) if first < above.size else 0.0
        return kept, floats.raised(lost * (1 + self.num_steps * self.mass_error))

    @property
    def few(self) -> "Steps":
        """The steps with a few hundred ratios."""
        places = step_laws.places_of(self.ratios.size)
        laws = [(np.add.reduceat(masses, places), n) for masses, n in self.absent]
        return dataclasses.replace(self, ratios=self.ratios[places], absent=laws)

    def rate_and_tilt(self, exponent: float) -> tuple[float, float]:
        """Returns a λ, and a tilt of the law with e^L, at −ln δ = `exponent`."""
        few, usual = self.few, self.num_selected / self.num_steps
        highest = min(2 * usual, (step_laws.HIGHEST_RATE + usual) / 2)

        def law(rate: float, tilt: float) -> tuple[step_laws.Terms, float, float]:
            """Returns terms, the mean of L, and the excess of the mean of k."""
            terms = step_laws.scores(few.ratios, rate)
            cumulant, laws = step_laws.tilted_laws(
                few.absent, (1 + tilt) * terms.losses
            )
            gain = tilt * step_laws.mean(laws, terms.losses) - cumulant
            return terms, gain, step_laws.mean(laws, terms.means) - self.num_selected

        def rate(tilt: float) -> float:
            found = step_laws.root(
                lambda log_rate: law(math.exp(log_rate), tilt)[2],
                math.log(usual / 100),
                math.log(highest),
            )
            return min(math.exp(found), step_laws.HIGHEST_RATE)

        if not exponent:
            return rate(0.0), 0.0

        def excess(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return law(rate(tilt), tilt)[1] - exponent

        tilt = math.exp(step_laws.root(excess, math.log(1e-4), math.log(1e4)))
        return rate(tilt), tilt


def upper_pair(
    kinds: Sequence[Kind],
    num_selected: int,
    mean: DominatingPair,
    known: Sequence[DominatingPair],
    *,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair that dominates the allocation when a record is removed.

    Args:
        kinds: All steps, by upper pairs.
        num_selected: Number of steps with the record, 1 < k < t.
        mean: An upper pair of one out of t of these steps, when a record is removed.
        known: Upper bounds of the allocation, when a record is removed; at least one.
        tail_mass: Probability of the rarest losses that are not counted as infinite.

    Guarantees:
        H(P‖Q) of the result is at least that of the allocation, at every κ ≥ 0. The
        pair is valid in this direction only.

    Source:
        docs/mathematics.md, "Steps that differ".
    """
    steps = Steps.of(kinds, num_selected)
    infinite = sum(kind.count * kind.pair.infinity_mass for kind in kinds)
    infinite *= num_selected / steps.num_steps
    found = [Hinges.of(each) for each in known]
    for exponent in step_laws.exponents_up_to(_EXPONENTS, tail_mass):
        bound = _bound(steps, exponent, floats.raised(infinite))
        if bound is not None:
            found.append(bound)
    bound = _by_mean(mean, num_selected, profile_pairs.least(found))
    return profile_pairs.least(found if bound is None else [*found, bound])


def _by_mean(
    mean: DominatingPair, num_selected: int, known: DominatingPair
) -> Hinges | None:
    """Returns the bound by Z ≤ Y^k, where Y is the mean of all ratios.

    Up to a number R, (y^k − κ)₊ is at most a convex function of y whose slope is at
    most k R^{k−1}, so that an upper pair of Y bounds its expectation. Beyond R, P's
    mass is bounded by Q's, which is at most E (Y − r)₊ / (R − r) for any r < R.

    Args:
        mean: An upper pair, of which Y is the ratio.
        num_selected: k.
        known: An upper pair of Z.
    """
    largest = float(mean.ratios[-1])
    if num_selected * math.log(max(largest, 1.0)) > floats.LARGEST_LOSS / 2:
        return None
    below = mean.ratios[mean.ratios < largest * (1 - _GAP)]
    beyond = Hinges.of(mean).values(below) / (largest * (1 - _GAP / 2) - below)
    of_q = float(beyond.min(initial=1.0))
    kappas = np.exp(np.linspace(0.0, _FURTHEST, 256))
    of_p = float((Hinges.of(known).values(kappas) + kappas * of_q).min())
    steepest = num_selected * largest ** (num_selected - 1)
    rounding = 4 * num_selected * floats.UNIT_ROUNDOFF
    return Hinges(
        mean.ratios**num_selected,
        mean.masses,
        infinity_mass=(of_p + steepest * mean.infinity_mass) * (1 + _GAP),
        mass_error=mean.mass_error,
        ratio_error=num_selected * mean.ratio_error + rounding,
    )


def _bound(steps: Steps, exponent: float, infinity_mass: float) -> Hinges | None:
    """Returns the theorem's bound for one λ, if a lattice holds it."""
    rate, tilt = steps.rate_and_tilt(exponent)
    steps, lost = steps.up_to(math.exp(-exponent - _RARE))
    total, few = steps.num_steps, steps.few
    terms, few_terms = (step_laws.scores(s.ratios, rate) for s in (steps, few))
    if terms.losses[-1] > floats.LARGEST_LOSS:
        return None
    laws, few_laws = (
        [(masses * np.exp(each.losses), count) for masses, count in some.absent]
        for some, each in ((steps, terms), (few, few_terms))
    )
    grid = plane_sums.Grid.of(few_terms[::2], few_laws, tilt)
    if not grid.column_step > 0:
        return None
    window = plane_sums.Window.of(grid, terms[::2], laws)
    if window is None:
        return None
    log_binomial, error = step_laws.log_binomial(steps.num_selected, total, rate)
    largest = float(np.abs(terms.losses).max())
    error += total * (step_laws.error_of_score(largest) + steps.ratio_error)
    return counts.by_counts(
        window,
        log_binomial,
        is_of_p=False,
        lost=lost + infinity_mass,
        mass_error=total * (steps.mass_error + step_laws.error_of_score(largest)),
        ratio_error=error,
    )


def lower_pair(
    kinds: Sequence[Kind],
    num_selected: int,
    numbers: Sequence[tuple[Sequence[int], float]],
    direction: Direction,
    *,
    tail_mass: float,
) -> DominatingPair:
    """Returns a pair dominated, in one direction, by the allocation.

    Args:
        kinds: All steps, by lower pairs.
        num_selected: Number of steps with the record, 1 < k < t.
        numbers: How many of the k steps are of each kind, with the probability of this.
            All ways are listed.
        direction: Which of the two datasets holds the record.
        tail_mass: Probability of the rarest sums that are considered.

    Source:
        Data processing, https://arxiv.org/abs/2602.17284, Remark 4.7 (lower bounds).
    """
    kinds = [dataclasses.replace(kind, pair=scores.seen(kind.pair)) for kind in kinds]
    steps = Steps.of(kinds, num_selected)
    numbers = sorted(numbers, key=lambda each: -each[1])
    mass_error = steps.num_steps * steps.mass_error
    ratio_error = 2 * num_selected * (steps.ratio_error + 2 * floats.UNIT_ROUNDOFF)
    if direction is Direction.ADD:
        tests = scores.tests_when_added(
            steps.ratios,
            [(steps.with_record(each), weight) for each, weight in numbers],
            steps.absent,
            rate=num_selected / steps.num_steps,
            tail_mass=tail_mass,
        )
        mass_error += ratio_error
    else:
        found = [np.zeros((2, 1))]
        for exponent in step_laws.exponents_up_to(_EXPONENTS, tail_mass):
            rate, tilt = steps.rate_and_tilt(exponent)
            common, _ = steps.up_to(math.exp(-exponent - _RARE))
            drawn = [(common.with_record(each), weight) for each, weight in numbers]
            found.append(
                scores.tests_at_rate(
                    common.ratios, drawn, common.absent, rate=rate, tilt=tilt
                )
            )
        tests = np.concatenate(found, axis=1)
    pair = profile_pairs.pair_below(
        tests, mass_error=mass_error, ratio_error=ratio_error
    )
    return pair if direction is Direction.REMOVE else dominating_pair.dual(pair)
