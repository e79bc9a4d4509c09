"""What each event is in ball arithmetic: the channels of its outputs, by definition.

A reader returns the cases of an event, as `readings` says. Some are some of the
mechanisms that the event describes, as lower bounds. If one of them is known to be the
worst, there is a `HIGH` channel as well.
"""

from collections.abc import Callable
from collections.abc import Sequence
import fractions
import functools
import math
from typing import Any

from dp_accounting import dp_event as stock
from flint import arb
from flint import ctx
from flint import fmpz

from dp_accounting_ext.verify import allocations
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import readings
from dp_accounting_ext.verify import runs

Channel = channels.Channel
NeighborRel = readings.NeighborRel
Side = channels.Side
ball = channels.ball
# Precision for differences of two probabilities that are as small as floats can be.
_BITS = 2400


def _noise(event: Any, referee: readings.Referee) -> list[Channel]:
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
    rate = ball(float(event.sampling_probability))
    if not (size and most and rate > 0):
        return [channels.NO_OP]
    most = min(most, size)
    drawn = _binomial(size - 1, rate, most)
    more = 1 - sum(drawn, channels.ZERO)
    # The sum of P(m) / (m + 1) over m ≥ B is a tail of one draw more.
    kept = (1 - sum(_binomial(size, rate, most + 1), channels.ZERO)) * most / size
    # Each way is the number of other records in the batch, whether the record itself is
    # in it (1 or 0), and the probability of both.
    ways = [((m, 0), (1 - rate) * weight) for m, weight in enumerate(drawn)]
    ways += [((m, 1), rate * weight) for m, weight in enumerate(drawn)]
    ways += [((most, 0), more - kept), ((most - 1, 1), kept)]
    others = {NeighborRel.REPLACE_ONE: -1, NeighborRel.REPLACE_SPECIAL: 0}

    def law(value: int, record: int) -> noises.Shifts:
        found: dict[float, arb] = {}
        for (number, inside), weight in ways:
            total = float(value * number + record * inside)
            found[total] = found.get(total, channels.ZERO) + weight
        return tuple(found.items())

    found = []
    for value in (0, -1):
        q: noises.Shifts
        if referee.relation in others:
            q = law(value, others[referee.relation])
        else:
            sizes = [*enumerate(drawn), (most, more)]
            q = tuple((float(value * number), weight) for number, weight in sizes)
            if value == 0:
                q = ((0.0, channels.ONE),)
        noise = stock.GaussianDpEvent(event.noise_multiplier)
        found.append(referee.noise(noise, law(value, 1), q))
    return found


def _binomial(size: int, rate: arb, most: int) -> list[arb]:
    """Returns the probabilities of fewer than `most` of `size` draws."""
    found = []
    for number in range(min(most, size + 1)):
        ways = arb(fmpz.bin_uiui(size, number))
        found.append(ways * rate**number * (1 - rate) ** (size - number))
    return found


def _random_allocation(event: Any, referee: readings.Referee) -> list[Channel]:
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


def _response(epsilon: Any, delta: Any) -> Channel:
    """Returns the dominating channel of all (ε, δ)-private mechanisms.

    With probability δ it reveals the bit; otherwise it is randomized response, whose
    answer is false with odds e^−ε. Every (ε, δ)-private mechanism is a post-processing
    of it.
    """
    epsilon, delta = ball(epsilon), ball(delta)
    lie = (1 - delta) / (1 + epsilon.exp())
    truth = (1 - delta) - lie
    return channels.exact([delta, truth, lie, 0], [0, lie, truth, delta])


def _epsilon_delta(event: Any, referee: readings.Referee) -> list[Channel]:
    return [_response(event.epsilon, event.delta)]


def _exponential(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns exponential mechanisms of two candidates, of losses t and t − ε."""
    if referee.side is Side.HIGH:
        return [_response(event.epsilon, 0.0)]
    epsilon = ball(event.epsilon)
    found = []
    for share in (0.5, 0.9, 0.1):
        odds = (epsilon * (ball(share) - ball(0.5)) * 4).exp()
        laws = []
        for move in (-1, 1):
            moved = odds * (move * epsilon / 2).exp()
            laws.append([moved / (1 + moved), 1 / (1 + moved)])
        found.append(channels.exact(*laws))
    return found


def _permute_and_flip(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns permute-and-flip mechanisms of two candidates.

    The worse candidate is released with probability e^−gap / 2.
    """
    epsilon = float(event.epsilon)
    if referee.side is Side.HIGH:
        noise = stock.LaplaceDpEvent(1 / epsilon) if epsilon else None
        one = ((1.0, readings.ONE),)
        return [referee.noise(noise, one, readings.UNSHIFTED)] if noise else []

    def probabilities(gap: Any) -> list[Any]:
        behind = (-abs(gap)).exp() / 2
        return [behind, 1 - behind] if gap >= 0 else [1 - behind, behind]

    whole = ball(epsilon)
    gaps = (whole / 2, whole, whole / 5)
    return [
        channels.exact(probabilities(gap - whole), probabilities(gap)) for gap in gaps
    ]


def _discrete_gaussian(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns two cases: one coordinate moves as far as it can, or several move by one.

    Each move is an integer, and their Euclidean norm is at most the sensitivity.
    """
    sigma, sensitivity = float(event.sigma), float(event.sensitivity)
    steps, dimension = math.floor(sensitivity), event.dimension
    if not steps:
        # An integer-valued function of a smaller sensitivity than one never moves, but
        # the package accounts for a move: no upper bound is given for the comparison.
        return [channels.NO_OP] if referee.side is Side.LOW else []
    if sigma == 0:
        return [channels.EVERYTHING]
    whole = _shifted_integers(sigma, steps, referee)
    several = min(dimension or 4, math.floor(sensitivity**2))
    if several == 1:
        return [whole]
    if referee.side is Side.HIGH:
        return []
    one = _shifted_integers(sigma, 1, referee)
    return [whole, runs.power(one, min(several, 4), referee.most)]


def _shifted_integers(sigma: float, shift: int, referee: readings.Referee) -> Channel:
    """Returns the channel of discrete Gaussian noise around 0 and around a shift.

    The tails are merged into one output on each side for a lower bound. For an upper
    bound they reveal the law that they are from.
    """
    reach = math.ceil(9 * sigma) + shift
    half = 2 * ball(sigma) ** 2
    places = range(-reach, reach + shift + 1)
    edge = 3 * reach + 9
    weights = {x: (-ball(x * x) / half).exp() for x in range(1 - edge, edge)}
    total = sum(weights.values(), channels.ZERO)
    # The weight beyond the edge is at most a geometric series on each side.
    rest = (-ball(edge * edge) / half).exp() / (1 - (-2 * ball(edge) / half).exp())
    total = total.union(total + 2 * rest)
    laws = [[weights[x - move] / total for x in places] for move in (0, shift)]
    ends = [
        sum((w for x, w in weights.items() if x + move in far_out), channels.ZERO)
        / total
        for far_out in (
            range(-edge - shift, places[0]),
            range(places[-1] + 1, edge + shift),
        )
        for move in (0, shift)
    ]
    if referee.side is Side.HIGH:
        rest = 2 * rest / total
        laws[0] += [ends[0] + ends[2] + rest, 0]
        laws[1] += [0, ends[1] + ends[3] + rest]
    else:
        laws[0] += [ends[0], ends[2]]
        laws[1] += [ends[1], ends[3]]
    found = channels.exact(*laws)
    return channels.reduced(channels.bounding(found, referee.side), referee.most)


def _zero_concentrated(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns Gaussian noise, of Rényi divergence ρα, composed with ξ-private response.

    The divergence of their composition is at most ξ + ρα at every order α.
    """
    rho, xi = float(event.rho), float(event.xi)
    if referee.side is Side.HIGH:
        return []
    parts = [channels.NO_OP]
    if rho:
        parts.append(_gaussian(1 / math.sqrt(2 * rho), referee))
    if xi:
        parts.append(_response(xi, 0.0))
    found = parts[0]
    for part in parts[1:]:
        found = channels.product(found, part, referee.most)
    return [found]


def _tree_aggregation(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns the noisy sums on a path from a leaf to the root of the tallest tree."""
    if referee.side is Side.HIGH:
        return []
    if float(event.noise_multiplier) == 0:
        return [channels.EVERYTHING]
    steps = event.step_counts
    tallest = max(steps) if isinstance(steps, list | tuple) else steps
    depth = math.ceil(math.log2(int(tallest) + 1))
    return [_gaussian(float(event.noise_multiplier) / math.sqrt(depth), referee)]


def _gaussian(noise_multiplier: float, referee: readings.Referee) -> Channel:
    """Returns Gaussian noise, slightly increased to cover a rounded square root."""
    noise = stock.GaussianDpEvent(noise_multiplier * (1 + 1e-12))
    return referee.noise(noise, ((1.0, readings.ONE),), readings.UNSHIFTED)


@functools.lru_cache(maxsize=64)
def _runs(mean: float, shape: float) -> Callable[[arb], arb]:
    """Returns the probability generating function x ↦ E x^K of the number of runs K.

    K has a Poisson law if the shape is infinite, otherwise a truncated negative
    binomial law, whose parameter γ is found from the mean. γ is rounded up, which makes
    the number of runs smaller, for a lower bound.
    """
    mean = ball(mean)
    if math.isinf(shape):
        return lambda x: (mean * (x - 1)).exp()
    shape = ball(shape)

    def mean_of(gamma: arb) -> arb:
        if shape == 0:
            return (1 / gamma - 1) / (1 / gamma).log()
        return shape * (1 / gamma - 1) / (1 - gamma**shape)

    low, high = arb(2) ** -100, 1 - arb(2) ** -200
    for _ in range(320):
        middle = ((low + high) / 2).mid()
        low, high = (middle, high) if mean_of(middle) > mean else (low, middle)
    gamma = high

    def at(x: arb) -> arb:
        rest = 1 - (1 - gamma) * x
        if shape == 0:
            return rest.log() / gamma.log()
        return (rest**-shape - 1) / (gamma**-shape - 1)

    return at


def _selection(event: Any, referee: readings.Referee) -> list[Channel]:
    """Returns three selections: the first run, and the largest and smallest ratio."""
    if referee.side is Side.HIGH:
        return []
    (inner, *_) = referee.cases(event.event)
    inner = channels.reduced(channels.bounding(inner, Side.LOW), referee.most // 2)
    order = sorted(range(inner.size), key=lambda i: _ratio(inner, i))
    with ctx.workprec(_BITS):
        runs = _runs(float(event.mean), float(event.shape))
        none = runs(channels.ZERO)
        first = [[x * (1 - none) for x in law] for law in inner.rows]
        found = [[[*law, none] for law in first]]
        for way in (order, order[::-1]):
            rows = [_best([law[i] for i in way], runs) for law in inner.rows]
            found.append([[*law, none] for law in rows])
    return [channels.Channel(rows, Side.LOW) for rows in found]


def _ratio(channel: Channel, i: int) -> float:
    without, with_record = channel.rows
    if without[i] == 0:
        return math.inf
    return float(with_record[i] / without[i])


def _best(law: Sequence[arb], runs: Callable[[arb], arb]) -> list[arb]:
    """Returns the law of the outcome that comes last in the order, over all runs."""
    found = []
    below, before = channels.ZERO, runs(channels.ZERO)
    for mass in law:
        below += mass
        after = runs(below.min(channels.ONE))
        found.append((after - before).max(channels.ZERO))
        before = after
    return found


# By the names of events, some of which not every version of dp_accounting has.
READERS: readings.Readers = {
    "GaussianDpEvent": _noise,
    "LaplaceDpEvent": _noise,
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "RandomizedResponseDpEvent": _randomized_response,
    "MixtureOfGaussiansDpEvent": _mixture,
    "TruncatedSubsampledGaussianDpEvent": _truncated,
    "EpsilonDeltaDpEvent": _epsilon_delta,
    "ExponentialMechanismDpEvent": _exponential,
    "PermuteAndFlipDpEvent": _permute_and_flip,
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "ZCDpEvent": _zero_concentrated,
    "SingleEpochTreeAggregationDpEvent": _tree_aggregation,
    "RepeatAndSelectDpEvent": _selection,
    "RandomAllocationEvent": _random_allocation,
    "RandomAllocationDpEvent": _random_allocation,
    "ScheduledAllocationEvent": _scheduled_allocation,
    "PrivateSamplingEvent": _private_sampling,
}
