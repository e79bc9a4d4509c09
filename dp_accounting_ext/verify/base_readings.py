"""Channels of base mechanisms, truncated samples and allocations, by definition."""

import fractions
from typing import Any

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant

from dp_accounting_ext import dp_event
from dp_accounting_ext.verify import allocations
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import readings
from dp_accounting_ext.wpm import sampling_event

NeighborRel = privacy_accountant.NeighboringRelation
Channel = channels.Channel
Shifts = noises.Shifts
Side = channels.Side
ball = channels.ball


def _gaussian(event: Any, referee: readings.Referee) -> list[Channel]:
    return [referee.noise(event, ((1.0, readings.ONE),), readings.UNSHIFTED)]


def _discrete_laplace(event: Any, referee: readings.Referee) -> list[Channel]:
    if event.noise_parameter == 0:
        return [channels.EVERYTHING]
    return [
        noises.discrete_laplace(float(event.noise_parameter), int(event.sensitivity))
    ]


def _randomized_response(event: Any, referee: readings.Referee) -> list[Channel]:
    return [
        noises.randomized_response(
            float(event.noise_parameter),
            int(event.num_buckets),
            replace_one=referee.relation is NeighborRel.REPLACE_ONE,
        )
    ]


def _mixture(event: Any, referee: readings.Referee) -> list[Channel]:
    deviation = float(event.standard_deviation)
    weights = [fractions.Fraction(float(w)) for w in event.sampling_probs]
    together: dict[float, fractions.Fraction] = {}
    for shift, weight in zip(event.sensitivities, weights, strict=True):
        together[float(shift)] = together.get(float(shift), 0) + weight / sum(weights)
    p = tuple(sorted((s, w) for s, w in together.items() if w))
    noise = stock.GaussianDpEvent(deviation)
    return [referee.noise(noise, p, readings.UNSHIFTED)]


def _truncated(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns the cases of a truncated sample: a record at +1, all others at v.

    Here m is the number of other records that were drawn, and B is the largest size of
    a batch. Without the record the batch has min(m, B) records. If the record is drawn,
    it is among the B records that are kept with probability min(1, B / (m + 1)), and
    the batch then has min(m, B − 1) others; otherwise it has min(m, B) others. A record
    that replaces it, or contributes nothing, is drawn in the same way.
    """
    if referee.side is Side.HIGH:
        return []
    size, most = int(event.dataset_size), int(event.truncated_batch_size)
    rate = float(event.sampling_probability)
    if not (size and most and rate):
        return [channels.NO_OP]
    others = {NeighborRel.REPLACE_ONE: -1, NeighborRel.REPLACE_SPECIAL: 0}
    found = []
    for value in (0, -1):
        p: dict[float, fractions.Fraction] = {}
        q: dict[float, fractions.Fraction] = {}

        def law(
            found: dict[float, fractions.Fraction], record: int, value: int = value
        ) -> None:
            for drawn, weight in readings.inclusions(size - 1, rate):
                kept = min(drawn, most)
                probability = fractions.Fraction(rate) * min(
                    readings.ONE, fractions.Fraction(most, drawn + 1)
                )
                for others, inside, share in (
                    (kept, 0, 1 - probability),
                    (min(drawn, most - 1), 1, probability),
                ):
                    total = float(value * others + record * inside)
                    found[total] = found.get(total, 0) + weight * share

        law(p, 1)
        if referee.relation in others:
            law(q, others[referee.relation])
        else:
            for drawn, weight in readings.inclusions(size - 1, rate):
                total = float(value * min(drawn, most))
                q[total] = q.get(total, 0) + weight
        noise = stock.GaussianDpEvent(event.noise_multiplier)
        found.append(referee.noise(noise, tuple(p.items()), tuple(q.items())))
    return found


def random_allocation(event: Any, referee: readings.Referee) -> list[Channel]:
    """Reads random allocation: the record takes part in k of t steps."""
    steps, selected = int(event.num_steps), int(event.num_selected)
    inner = referee.channel(event.event)
    if inner is None:
        return []
    return [
        allocations.allocated([(inner, steps)], selected, referee.most, referee.rare)
    ]


def _scheduled_allocation(event: Any, referee: readings.Referee) -> list[Channel]:
    steps = []
    for inner, count in zip(event.events, event.counts, strict=True):
        channel = referee.channel(inner)
        if channel is None:
            return []
        steps.append((channel, int(count)))
    # Steps that did not run release nothing, whether the record was allocated or not.
    rest = int(event.num_steps) - sum(number for _, number in steps)
    if rest:
        steps.append((channels.NO_OP, rest))
    return [allocations.allocated(steps, 1, referee.most, referee.rare)]


def _private_sampling(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns the case of two laws between the bounds, on 64 outputs of equal mass.

    The one law has its surplus mass on the first outputs, the other on the last. The
    upper bound is the limit of outputs of small masses, of which every measure is a
    merging.
    """
    number = 64
    half, mass = ball(event.epsilon) / 2, ball(event.total_mass)
    least, most = (-half).exp(), half.exp()
    if referee.side is Side.HIGH:
        best = (1 - least * mass).min(most * mass - 1) / (most - least)
        truth, lie = most * best, least * best
        nothing = 1 - truth - lie
        return [channels.exact([truth, nothing, lie], [lie, nothing, truth])]
    low, high = mass / number * least, mass / number * most
    law, left = [low] * number, 1 - number * low
    for place in range(number):
        law[place] += left.max(channels.ZERO).min(high - low)
        left -= high - low
    return [channels.exact(law, law[::-1])]


readings.READERS.update(
    {
        stock.GaussianDpEvent: _gaussian,
        stock.LaplaceDpEvent: _gaussian,
        stock.DiscreteLaplaceDpEvent: _discrete_laplace,
        stock.RandomizedResponseDpEvent: _randomized_response,
        stock.MixtureOfGaussiansDpEvent: _mixture,
        stock.TruncatedSubsampledGaussianDpEvent: _truncated,
        dp_event.RandomAllocationEvent: random_allocation,
        dp_event.ScheduledAllocationEvent: _scheduled_allocation,
        sampling_event.PrivateSamplingEvent: _private_sampling,
    }
)
