"""The kinds of events, and what each of them runs, by its definition."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import fractions
import functools
import math
from typing import Any

from dp_accounting import dp_event as stock
from flint import arb
from flint import ctx
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import mechanisms
from dp_accounting_ext.verify import noises
from dp_accounting_ext.verify import schemes

Cases = list[channels.Channel]
Known = mechanisms.Known
Mechanism = mechanisms.Mechanism
NeighborRel = mechanisms.NeighborRel
Reading = mechanisms.Reading
Sizes = channels.Sizes
Side = channels.Side
ball = channels.ball
_BITS = 2400  # For differences of two probabilities that are as small as floats can be.
_LARGEST_GROUP = 64
UNSHIFTED = mechanisms.UNSHIFTED


def cases(event: Any, relation: NeighborRel, sizes: Sizes) -> Cases:
    """Returns the channels of all cases of an event; an empty list if none is known.

    Raises:
        NoTheoremError: If an event in the tree is not known, or a group is too large.
    """
    mechanism = mechanism_of(event)
    found: Cases = []
    for first, second in _splits(event, relation):
        laws = mechanisms.certain(first), mechanisms.certain(second)
        of_split = Reading(relation, sizes, laws).cases(mechanism)
        if sizes.side is Side.HIGH and len(of_split) != 1:
            return []
        found += of_split
    return found


def _splits(event: Any, relation: NeighborRel) -> list[tuple[int, int]]:
    """Returns every pair of numbers of removed and of added members of the group.

    If one pair is told, these are it and its reverse.
    """
    size = group_size(event)
    if size > _LARGEST_GROUP:
        raise channels.NoTheoremError(
            f"no theorem that is quick for a group of {size} records"
        )
    if relation is NeighborRel.REPLACE_ONE:
        return [(size, size)]
    if not any(groups(event)):
        return [(1, 0)]
    told = [int(g.num_removed) for g in groups(event) if g.num_removed is not None]
    if told:
        return [(told[0], size - told[0]), (size - told[0], told[0])]
    return [(leaving, size - leaving) for leaving in range(size + 1)]


def groups(event: Any) -> Iterator[dp_event.GroupSubsampledEvent]:
    """Yields the groups in a tree of events."""
    if isinstance(event, dp_event.GroupSubsampledEvent):
        yield event
    for child in getattr(event, "events", ()):
        yield from groups(child)
    if isinstance(event, stock.SelfComposedDpEvent):
        yield from groups(event.event)


def group_size(event: Any) -> int:
    """Returns the number of records of the groups in a tree."""
    return max((int(group.group_size) for group in groups(event)), default=1)


def mechanism_of(event: Any) -> Mechanism:
    """Returns what an event runs.

    Raises:
        NoTheoremError: If its kind is not known.
    """
    home, name = type(event).__module__, type(event).__name__
    known = home.partition(".")[0] in ("dp_accounting", "dp_accounting_ext")
    name = name if known else f"{home}.{name}"
    if name not in KINDS:
        raise channels.NoTheoremError(f"no theorem for {name}")
    return KINDS[name](event)


def _self_composed(event: Any) -> Mechanism:
    return mechanisms.Runs([(mechanism_of(event.event), int(event.count))])


def _composed(event: Any) -> Mechanism:
    return mechanisms.Runs([(mechanism_of(each), 1) for each in event.events])


def _sampled(event: Any) -> Mechanism:
    inner, rate = mechanism_of(event.event), float(event.sampling_probability)
    if not rate or inner is mechanisms.NOTHING:
        return mechanisms.NOTHING
    return mechanisms.Sampled(rate, inner)


def _batch(event: Any) -> Mechanism:
    inner = mechanism_of(event.event)
    if inner is mechanisms.NOTHING:
        return inner
    size, batch = int(event.source_dataset_size), int(event.sample_size)
    replaced = isinstance(event, stock.SampledWithReplacementDpEvent)
    return mechanisms.Batch(inner, size, batch, replaced)


def _allocation(event: Any) -> Mechanism:
    steps = int(event.num_steps)
    parts = [(mechanism_of(event.event), steps)]
    return mechanisms.Allocated(parts, int(event.num_selected), steps)


def _schedule(event: Any) -> Mechanism:
    counts = map(int, event.counts)
    parts = [(mechanism_of(e), n) for e, n in zip(event.events, counts, strict=True)]
    return mechanisms.Allocated(parts, int(event.num_selected), int(event.num_steps))


def _correlated(
    event: Any, number: int, scheme: Callable[..., schemes.Scheme], *arguments: Any
) -> Mechanism:
    """Returns training with correlated noise.

    Args:
        event: The event.
        number: The number of steps.
        scheme: A function of `schemes` whose last argument are the products of columns.
        arguments: Its other arguments.
    """
    strategy = np.array(event.strategy, dtype=np.float64)
    deviation = float(event.noise_multiplier)
    if not deviation:
        raise channels.NoTheoremError("no theorem for a part without noise")
    shared = mechanisms.products(strategy, number, deviation)
    return mechanisms.Correlated(strategy, deviation, scheme(*arguments, shared))


def _bins(event: Any) -> Mechanism:
    bins = int(event.num_bins)
    number = bins * int(event.num_epochs)
    return _correlated(event, number, schemes.independent, number, 1.0, bins)


def _poisson(event: Any) -> Mechanism:
    number, rate = int(event.num_steps), float(event.sampling_probability)
    tracks = int(getattr(event, "cycle_length", 1))
    return _correlated(event, number, schemes.independent, number, rate, tracks)


def _windows(event: Any) -> Mechanism:
    window, rate = int(event.window), float(event.sampling_probability)
    cycle = window + int(event.separation) - 1
    number = cycle * int(event.num_cycles)
    return _correlated(event, number, schemes.windows, window, cycle, number, rate)


def _apart(event: Any) -> Mechanism:
    number, rate = int(event.num_steps), float(event.sampling_probability)
    arguments = number, rate, int(event.separation), bool(event.warm_start)
    return _correlated(event, number, schemes.apart, *arguments)


def _selected_steps(event: Any) -> Mechanism:
    period, chosen = int(event.num_steps), int(event.num_selected)
    number = period * int(event.num_epochs)
    return _correlated(event, number, schemes.selected, number, period, chosen, 1)


def _noise(kind: str) -> Callable[[Any], Mechanism]:
    return lambda event: mechanisms.Noise(kind, float(event.noise_multiplier))


def _known(
    make: Callable[[Any, Reading], Cases], *, is_replaced: bool = False
) -> Callable[[Any], Mechanism]:
    return lambda event: Known(functools.partial(make, event), is_replaced)


def _discrete_laplace(event: Any, reading: Reading) -> Cases:
    """Returns the channel of the discrete Laplace mechanism.

    The outputs beyond either center have the same ratio, and are merged.
    """
    if event.noise_parameter == 0:
        return [channels.EVERYTHING]
    sensitivity = int(event.sensitivity)
    decay = (-ball(event.noise_parameter)).exp()
    scale = (1 - decay) / (1 + decay)

    def law(center: int) -> list[arb]:
        # Outputs at most 0, those from 1 to s − 1, and those at least s.
        inner = [scale * decay ** abs(x - center) for x in range(1, sensitivity)]
        tails = [decay ** abs(x - center) / (1 + decay) for x in (0, sensitivity)]
        return [tails[0], *inner, tails[1]]

    return [channels.exact(law(0), law(sensitivity))]


def _randomized_response(event: Any) -> Mechanism:
    of_group = functools.partial(_response_to_group, event)
    return Known(functools.partial(_response_to_record, event), True, of_group)


def _response_to_record(event: Any, reading: Reading) -> Cases:
    """Returns the channel of randomized response over a number of buckets.

    The record is in the first bucket. Without it the answer is uniform, or, if it is
    replaced, that of a record in the last bucket.
    """
    number = int(event.num_buckets)
    lie = fractions.Fraction(float(event.noise_parameter))
    honest = [lie / number] * number
    honest[0] += 1 - lie
    without = [fractions.Fraction(1, number)] * number
    replaced = reading.relation is NeighborRel.REPLACE_ONE
    return [channels.exact(honest[::-1] if replaced else without, honest)]


def _response_to_group(event: Any, reading: Reading) -> Cases:
    """Returns cases of randomized response to whether the batch has a member.

    There is one case for removed members and one for added members.
    """
    lie = fractions.Fraction(float(event.noise_parameter)) / 2
    found = []
    for law, way in zip(reading.laws, (1, -1), strict=True):
        probability = sum(weight for number, weight in law if number)
        if probability:
            yes = probability * (1 - lie) + (1 - probability) * lie
            bits = [[lie, 1 - lie], [yes, 1 - yes]]
            found.append(channels.exact(*bits[::way]))
    if reading.is_high and len(found) > 1:
        return []
    return found or [channels.NO_OP]


def _mixture(event: Any, reading: Reading) -> Cases:
    weights = [fractions.Fraction(float(w)) for w in event.sampling_probs]
    together: dict[float, fractions.Fraction] = {}
    for shift, weight in zip(event.sensitivities, weights, strict=True):
        together[float(shift)] = together.get(float(shift), 0) + weight / sum(weights)
    p = tuple(sorted(together.items()))
    deviation = float(event.standard_deviation)
    return [noises.noise("gaussian", deviation, p, UNSHIFTED, reading.sizes)]


def _truncated(event: Any, reading: Reading) -> Cases:
    """Returns the cases of a truncated sample: a record at +1, all others at v.

    Here m is the number of other records that were drawn, and B is the largest size of
    a batch. Without the record the batch has min(m, B) records. If the record is drawn,
    it is among the B records that are kept with probability min(1, B / (m + 1)), and
    the batch then has min(m, B − 1) others; otherwise it has min(m, B) others. A record
    that replaces it, or contributes nothing, is drawn in the same way.
    """
    if reading.is_high:
        return []
    size, most = int(event.dataset_size), int(event.truncated_batch_size)
    rate = ball(float(event.sampling_probability))
    if not (size and most and rate > 0):
        return [channels.NO_OP]
    most = min(most, size)
    drawn = mechanisms.binomial(size - 1, rate, most)
    more = 1 - sum(drawn, channels.ZERO)
    # The sum of P(m) / (m + 1) over m ≥ B is a tail of one draw more.
    kept = (
        (1 - sum(mechanisms.binomial(size, rate, most + 1), channels.ZERO))
        * most
        / size
    )
    # Each way is the number of other records in the batch, whether the record itself is
    # in it (1 or 0), and the probability of both.
    ways = [((m, 0), (1 - rate) * weight) for m, weight in enumerate(drawn)]
    ways += [((m, 1), rate * weight) for m, weight in enumerate(drawn)]
    ways += [((most, 0), more - kept), ((most - 1, 1), kept)]
    others = {NeighborRel.REPLACE_ONE: -1, NeighborRel.REPLACE_SPECIAL: 0}

    def law(value: int, record: int) -> mechanisms.Shifts:
        found: dict[float, arb] = {}
        for (number, inside), weight in ways:
            total = float(value * number + record * inside)
            found[total] = found.get(total, channels.ZERO) + weight
        return tuple(found.items())

    found = []
    for value in (0, -1):
        q: mechanisms.Shifts
        if reading.relation in others:
            q = law(value, others[reading.relation])
        else:
            sizes = [*enumerate(drawn), (most, more)]
            q = tuple((float(value * number), weight) for number, weight in sizes)
            if value == 0:
                q = ((0.0, channels.ONE),)
        deviation = float(event.noise_multiplier)
        p = law(value, 1)
        found.append(noises.noise("gaussian", deviation, p, q, reading.sizes))
    return found


def _private_sampling(event: Any, reading: Reading) -> Cases:
    """Returns the case of two laws that are as far apart as the bounds allow.

    The one law has its surplus mass on the first outputs, the other on the last. If no
    masses are given, three outputs are the worst: the laws of any other measure of this
    sum are a merging of finer ones, of which none are further apart. Of given masses
    the rest is one output.
    """
    half, total = ball(event.epsilon) / 2, ball(event.total_mass)
    least, most = (-half).exp(), half.exp()
    end = (1 - least * total).min(most * total - 1) / (most - least)
    masses = [end, total - 2 * end, end]
    if event.largest_masses and not reading.is_high:
        masses = [*map(ball, event.largest_masses)]
        masses.append((total - sum(masses, channels.ZERO)).max(channels.ZERO))

    def law(order: Sequence[arb]) -> list[arb]:
        left = 1 - least * sum(order, channels.ZERO)
        found: list[arb] = []
        for mass in order:
            more = left.min((most - least) * mass)
            left -= more
            found.append(least * mass + more)
        return found

    return [channels.exact(law(masses[::-1])[::-1], law(masses))]


def _response(epsilon: Any, delta: Any) -> channels.Channel:
    """Returns the dominating channel of all (ε, δ)-private mechanisms.

    With probability δ it reveals the bit; otherwise it is randomized response, whose
    answer is false with odds e^−ε. Every (ε, δ)-private mechanism is a post-processing
    of it.
    """
    epsilon, delta = ball(epsilon), ball(delta)
    lie = (1 - delta) / (1 + epsilon.exp())
    truth = (1 - delta) - lie
    return channels.exact([delta, truth, lie, 0], [0, lie, truth, delta])


def _epsilon_delta(event: Any, reading: Reading) -> Cases:
    return [_response(event.epsilon, event.delta)]


def _exponential(event: Any, reading: Reading) -> Cases:
    """Returns exponential mechanisms of two candidates, of losses t and t − ε."""
    if reading.is_high:
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


def _permute_and_flip(event: Any, reading: Reading) -> Cases:
    """Returns permute-and-flip mechanisms of two candidates.

    The worse candidate is released with probability e^−gap / 2.
    """
    epsilon = float(event.epsilon)
    if reading.is_high:
        if not epsilon:
            return []
        return mechanisms.Noise("laplace", 1 / epsilon).cases(reading) or []

    def probabilities(gap: Any) -> list[Any]:
        behind = (-abs(gap)).exp() / 2
        return [behind, 1 - behind] if gap >= 0 else [1 - behind, behind]

    whole = ball(epsilon)
    gaps = (whole / 2, whole, whole / 5)
    return [
        channels.exact(probabilities(gap - whole), probabilities(gap)) for gap in gaps
    ]


def _discrete_gaussian(event: Any, reading: Reading) -> Cases:
    """Returns two cases: one coordinate moves as far as it can, or several move by one.

    Each move is an integer, and their Euclidean norm is at most the sensitivity.
    """
    sigma, sensitivity = float(event.sigma), float(event.sensitivity)
    steps, dimension = math.floor(sensitivity), event.dimension
    if not steps:
        # An integer-valued function of a smaller sensitivity than one never moves, but
        # the package accounts for a move: no upper bound is given for the comparison.
        return [channels.NO_OP] if not reading.is_high else []
    if sigma == 0:
        return [channels.EVERYTHING]
    whole = _shifted_integers(sigma, steps, reading.sizes)
    several = min(dimension or 4, math.floor(sensitivity**2))
    if several == 1:
        return [whole]
    if reading.is_high:
        return []
    one = _shifted_integers(sigma, 1, reading.sizes)
    return [whole, lattices.power(one, min(several, 4), reading.sizes)]


def _shifted_integers(sigma: float, shift: int, sizes: Sizes) -> channels.Channel:
    """Returns the channel of discrete Gaussian noise around 0 and around a shift.

    Outputs far from one of the two are dropped for a lower bound. For an upper bound
    they reveal the law that they are from.
    """
    reach = math.ceil(sigma * math.sqrt(-2 * math.log(sizes.rare))) + shift
    half = 2 * ball(sigma) ** 2
    edge = ball(reach + 1)
    weights = {x: (-ball(x * x) / half).exp() for x in range(-reach, reach + 1)}
    total = sum(weights.values(), channels.ZERO)
    # The weight beyond is at most a geometric series on each side.
    beyond = 2 * (-(edge**2) / half).exp() / (1 - (-2 * edge / half).exp())
    total = total.union(total + beyond)
    places = range(shift - reach, reach + 1)
    laws = [[weights[x - move] / total for x in places] for move in (0, shift)]
    if sizes.side is Side.HIGH:
        far = sum((weights[x - reach] for x in range(shift)), beyond) / total
        laws = [[*laws[0], far, 0], [*laws[1], 0, far]]
    return channels.reduced(channels.exact(*laws), sizes.side, sizes.most)


def _zero_concentrated(event: Any) -> Mechanism:
    """Returns Gaussian noise, of Rényi divergence ρα, composed with ξ-private response.

    The divergence of their composition is at most ξ + ρα at every order α.
    """
    rho, xi = float(event.rho), float(event.xi)
    parts: list[Mechanism] = []
    if rho:
        parts.append(_gaussian(1 / math.sqrt(2 * rho)))
    if xi:
        parts.append(Known(lambda reading: [_response(xi, 0.0)]))
    return mechanisms.AtLeast(mechanisms.Runs([(part, 1) for part in parts]))


def _tree_aggregation(event: Any) -> Mechanism:
    """Returns the noisy sums on a path from a leaf to the root of the tallest tree."""
    steps = event.step_counts
    tallest = max(steps) if isinstance(steps, list | tuple) else steps
    depth = math.ceil(math.log2(int(tallest) + 1))
    scale = float(event.noise_multiplier) / math.sqrt(depth)
    return mechanisms.AtLeast(_gaussian(scale))


def _gaussian(noise_multiplier: float) -> Mechanism:
    """Returns Gaussian noise, slightly increased to cover a rounded square root."""
    return mechanisms.Noise("gaussian", noise_multiplier * (1 + 1e-12))


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


def _selection(event: Any, reading: Reading) -> Cases:
    """Returns three selections: the first run, and the largest and smallest ratio."""
    if reading.is_high:
        return []
    (inner, *_) = reading.cases(mechanism_of(event.event))
    inner = channels.reduced(inner, Side.LOW, reading.sizes.most // 2)
    order = sorted(range(inner.size), key=lambda i: _ratio(inner, i))
    with ctx.workprec(_BITS):
        runs = _runs(float(event.mean), float(event.shape))
        none = runs(channels.ZERO)
        first = [[x * (1 - none) for x in law] for law in inner.rows]
        found = [[[*law, none] for law in first]]
        for way in (order, order[::-1]):
            rows = [_best([law[i] for i in way], runs) for law in inner.rows]
            found.append([[*law, none] for law in rows])
    return [channels.Channel(rows) for rows in found]


def _ratio(channel: channels.Channel, i: int) -> float:
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
KINDS: dict[str, Callable[[Any], Mechanism]] = {
    "NoOpDpEvent": lambda event: mechanisms.NOTHING,
    "NonPrivateDpEvent": lambda event: mechanisms.Noise("gaussian", 0.0),
    "ComposedDpEvent": _composed,
    "SelfComposedDpEvent": _self_composed,
    "GroupSubsampledEvent": lambda event: mechanism_of(event.event),
    "PoissonSampledDpEvent": _sampled,
    "PLDSubsampleEvent": _sampled,
    "SampledWithoutReplacementDpEvent": _batch,
    "SampledWithReplacementDpEvent": _batch,
    "RandomAllocationEvent": _allocation,
    "RandomAllocationDpEvent": _allocation,
    "ScheduledAllocationEvent": _schedule,
    "MatrixAllocationEvent": _bins,
    "WindowedAllocationEvent": _windows,
    "MinSepSamplingEvent": _apart,
    "CyclicPoissonEvent": _poisson,
    "PoissonMatrixEvent": _poisson,
    "SelectedStepsMatrixEvent": _selected_steps,
    "GaussianDpEvent": _noise("gaussian"),
    "LaplaceDpEvent": _noise("laplace"),
    "DiscreteLaplaceDpEvent": _known(_discrete_laplace),
    "RandomizedResponseDpEvent": _randomized_response,
    "MixtureOfGaussiansDpEvent": _known(_mixture),
    "TruncatedSubsampledGaussianDpEvent": _known(_truncated, is_replaced=True),
    "EpsilonDeltaDpEvent": _known(_epsilon_delta),
    "ExponentialMechanismDpEvent": _known(_exponential),
    "PermuteAndFlipDpEvent": _known(_permute_and_flip),
    "DiscreteGaussianDpEvent": _known(_discrete_gaussian),
    "ZCDpEvent": _zero_concentrated,
    "SingleEpochTreeAggregationDpEvent": _tree_aggregation,
    "RepeatAndSelectDpEvent": _known(_selection),
    "PrivateSamplingEvent": _known(_private_sampling, is_replaced=True),
}
