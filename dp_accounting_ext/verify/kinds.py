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
ZERO, ball = channels.ZERO, channels.ball
_BITS = 2400  # For differences of two probabilities that are as small as floats can be.
_LARGEST_GROUP = 64
# By so many ε the losses of two candidates differ, on average over both datasets. Each
# is the best choice for some ε and number of runs; the reverse of one is as good.
_GAPS = (0.0, 0.3, 0.5, 1.6)


def cases(event: Any, relation: NeighborRel, sizes: Sizes) -> Cases:
    """Returns the channels of all cases of an event; an empty list if none is known.

    Raises:
        NoTheoremError: If an event in the tree is not known, or a group is too large.
    """
    mechanism = mechanism_of(event)
    of_splits: Cases = []
    for first, second in _splits(event, relation):
        laws = mechanisms.certain(first), mechanisms.certain(second)
        of_split = Reading(relation, sizes, laws).cases(mechanism)
        if sizes.side is Side.HIGH and len(of_split) != 1:
            return []
        of_splits += of_split
    return of_splits


def _splits(event: Any, relation: NeighborRel) -> list[tuple[int, int]]:
    """Returns every pair of numbers of removed and of added members of the group.

    If an event says how many members are removed, these are its pair and the reverse.
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
    said = [int(g.num_removed) for g in groups(event) if g.num_removed is not None]
    if said:
        return [(said[0], size - said[0]), (size - said[0], said[0])]
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
    if home.partition(".")[0] not in ("dp_accounting", "dp_accounting_ext"):
        name = f"{home}.{name}"
    if name not in KINDS:
        raise channels.NoTheoremError(f"no theorem for {name}")
    return KINDS[name](event)


def _runs(events: Sequence[Any], counts: Sequence[int]) -> mechanisms.Runs:
    """Returns what several events run, of which each runs a number of times."""
    parts = [(mechanism_of(e), int(n)) for e, n in zip(events, counts, strict=True)]
    parts = [(part, n) for part, n in parts if part is not mechanisms.NOTHING]
    return mechanisms.Runs(parts) if parts else mechanisms.NOTHING


def _sampled(event: Any) -> Mechanism:
    inner, rate = mechanism_of(event.event), float(event.sampling_probability)
    if not rate or inner is mechanisms.NOTHING:
        return mechanisms.NOTHING
    return mechanisms.Sampled([(inner, 1)], rate)


def _batch(event: Any) -> Mechanism:
    inner = mechanism_of(event.event)
    if inner is mechanisms.NOTHING:
        return inner
    size, batch = int(event.source_dataset_size), int(event.sample_size)
    replaced = isinstance(event, stock.SampledWithReplacementDpEvent)
    return mechanisms.Batch(inner, size, batch, replaced)


def _allocation(event: Any) -> Mechanism:
    total = int(event.num_steps)
    if hasattr(event, "counts"):
        runs = _runs(event.events, event.counts)
    else:
        runs = _runs([event.event], [total])
    if runs is mechanisms.NOTHING:
        return runs
    return schemes.Allocated(runs.parts, int(event.num_selected), total)


def _correlated(
    scheme: Callable[..., schemes.Scheme], *names: str
) -> Callable[[Any], Mechanism]:
    """Returns the reading of events whose scheme is made of the fields of these names.

    It raises `NoTheoremError` for an event without noise.
    """

    def read(event: Any) -> Mechanism:
        if not event.noise_multiplier:
            raise channels.NoTheoremError("no theorem for a part without noise")
        values = (np.asarray(getattr(event, name)).item() for name in names)
        of_event = scheme(*values)
        return schemes.Correlated.of(event.strategy, event.noise_multiplier, of_event)

    return read


def _noise(kind: str) -> Callable[[Any], Mechanism]:
    return lambda event: mechanisms.Noise(kind, float(event.noise_multiplier))


def _gaussian(noise_multiplier: float) -> Mechanism:
    """Returns Gaussian noise, slightly increased to cover a rounded square root."""
    return mechanisms.Noise("gaussian", noise_multiplier * (1 + 1e-12))


def _known(
    make: Callable[[Any, Reading], Cases], *, is_replaced: bool = False
) -> Callable[[Any], Mechanism]:
    """Returns the reading of events whose cases the function `make` returns."""
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
    cases = []
    for law, way in zip(reading.laws, (1, -1), strict=True):
        probability = sum(weight for number, weight in law if number)
        if probability:
            yes = probability * (1 - lie) + (1 - probability) * lie
            bits = [[lie, 1 - lie], [yes, 1 - yes]]
            cases.append(channels.exact(*bits[::way]))
    if reading.is_high and len(cases) > 1:
        return []
    return cases or [channels.NO_OP]


def _mixture(event: Any, reading: Reading) -> Cases:
    weights = [fractions.Fraction(float(w)) for w in event.sampling_probs]
    total = sum(weights)
    p = _merged(zip(event.sensitivities, [w / total for w in weights], strict=True))
    deviation = float(event.standard_deviation)
    return [noises.noise("gaussian", deviation, p, mechanisms.UNSHIFTED, reading.sizes)]


def _merged(shifts: Any) -> mechanisms.Shifts:
    """Returns shifts and their probabilities, with equal shifts merged."""
    weights: dict[float, Any] = {}
    for shift, weight in shifts:
        weights[float(shift)] = weights.get(float(shift), 0) + weight
    return tuple(sorted(weights.items()))


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
    size, cap = int(event.dataset_size), int(event.truncated_batch_size)
    rate = ball(float(event.sampling_probability))
    if not (size and cap and rate > 0):
        return [channels.NO_OP]
    cap = min(cap, size)
    drawn = mechanisms.binomial(size - 1, rate, cap)
    more = 1 - sum(drawn, ZERO)
    # The sum of P(m) / (m + 1) over m ≥ B is a tail of one draw more.
    tail = 1 - sum(mechanisms.binomial(size, rate, cap + 1), ZERO)
    in_full = tail * cap / size  # The record is drawn and kept, and m ≥ B.
    # Each way is the number of other records in the batch, whether the record itself is
    # in it (1 or 0), and the probability of both.
    ways = [((m, 0), (1 - rate) * weight) for m, weight in enumerate(drawn)]
    ways += [((m, 1), rate * weight) for m, weight in enumerate(drawn)]
    ways += [((cap, 0), more - in_full), ((cap - 1, 1), in_full)]
    missing = [((m, 0), weight) for m, weight in [*enumerate(drawn), (cap, more)]]

    def law(ways: Any, value: int, record: int) -> mechanisms.Shifts:
        return _merged((value * m + record * inside, w) for (m, inside), w in ways)

    cases = []
    for value in (0, -1):
        q = law(missing, value, 0)
        if reading.relation is not NeighborRel.ADD_OR_REMOVE_ONE:
            is_replaced = reading.relation is NeighborRel.REPLACE_ONE
            q = law(ways, value, -1 if is_replaced else 0)
        elif value == 0:
            q = mechanisms.UNSHIFTED
        deviation, p = float(event.noise_multiplier), law(ways, value, 1)
        cases.append(noises.noise("gaussian", deviation, p, q, reading.sizes))
    return cases


def _private_sampling(event: Any, reading: Reading) -> Cases:
    """Returns the case of two laws that are as far apart as the bounds allow.

    The one law has its surplus mass on the first outputs, the other on the last. If no
    masses are given, three outputs are the worst: the laws of any other measure of this
    sum are a merging of finer ones, of which none are further apart. If the largest
    masses are given, all other mass is one output.
    """
    half, total = ball(event.epsilon) / 2, ball(event.total_mass)
    least, most = (-half).exp(), half.exp()
    end = (1 - least * total).min(most * total - 1) / (most - least)
    masses = [end, total - 2 * end, end]
    if event.largest_masses and not reading.is_high:
        masses = [*map(ball, event.largest_masses)]
        masses.append((total - sum(masses, ZERO)).max(ZERO))

    def law(order: Sequence[arb]) -> list[arb]:
        left = 1 - least * sum(order, ZERO)
        probabilities: list[arb] = []
        for mass in order:
            more = left.min((most - least) * mass)
            left -= more
            probabilities.append(least * mass + more)
        return probabilities

    return [channels.exact(law(masses[::-1])[::-1], law(masses))]


def _response(epsilon: Any, delta: Any = 0.0) -> Cases:
    """Returns the dominating channel of all (ε, δ)-private mechanisms.

    With probability δ it reveals the bit; otherwise it is randomized response, whose
    answer is false with odds e^−ε. Every (ε, δ)-private mechanism is a post-processing
    of it.
    """
    epsilon, delta = ball(epsilon), ball(delta)
    lie = (1 - delta) / (1 + epsilon.exp())
    truth = (1 - delta) - lie
    return [channels.exact([delta, truth, lie, 0], [0, lie, truth, delta])]


def _of_candidates(epsilon: Any, law: Callable[[arb], arb]) -> Cases:
    """Returns selections of one of two candidates, whose losses change by ε / 2.

    The function `law` returns the probability of the first candidate, given the gap by
    which its loss is larger than that of the second one.
    """
    cases, epsilon = [], ball(epsilon)
    for gap in _GAPS:
        firsts = [law(epsilon * (ball(gap) + half)) for half in (-0.5, 0.5)]
        cases.append(channels.exact(*([first, 1 - first] for first in firsts)))
    return cases


def _exponential(event: Any, reading: Reading) -> Cases:
    if reading.is_high:
        return _response(event.epsilon)
    return _of_candidates(event.epsilon, lambda gap: 1 / (1 + gap.exp()))


def _permute_and_flip(event: Any, reading: Reading) -> Cases:
    """Returns Laplace noise, which dominates it; from below, two candidates.

    The worse candidate is released with probability e^−gap / 2.
    """
    epsilon = float(event.epsilon)
    if not reading.is_high:
        return _of_candidates(
            epsilon,
            lambda gap: (-abs(gap)).exp() / 2 if gap >= 0 else 1 - gap.exp() / 2,
        )
    return reading.cases(mechanisms.Noise("laplace", 1 / epsilon)) if epsilon else []


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
    furthest = _shifted_integers(sigma, steps, reading.sizes)
    several = min(dimension or 4, math.floor(sensitivity**2), 4)
    if several == 1:
        return [furthest]
    if reading.is_high:
        return []
    by_one = _shifted_integers(sigma, 1, reading.sizes)
    return [furthest, lattices.composed([(by_one, several)], reading.sizes)]


def _shifted_integers(sigma: float, shift: int, sizes: Sizes) -> channels.Channel:
    """Returns the channel of discrete Gaussian noise around 0 and around a shift.

    Outputs far from one of the two are dropped for a lower bound. For an upper bound
    they reveal the law that they are from.
    """
    reach = math.ceil(sigma * math.sqrt(-2 * math.log(sizes.rare))) + shift
    half = 2 * ball(sigma) ** 2
    edge = ball(reach + 1)
    weights = {x: (-ball(x * x) / half).exp() for x in range(-reach, reach + 1)}
    total = sum(weights.values(), ZERO)
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
    parts: list[tuple[Mechanism, int]] = []
    if rho:
        parts.append((_gaussian(1 / math.sqrt(2 * rho)), 1))
    if xi:
        parts.append((Known(lambda reading: _response(xi)), 1))
    return mechanisms.AtLeast(parts)


def _tree_aggregation(event: Any) -> Mechanism:
    """Returns the noisy sums on a path from a leaf to the root of the tallest tree."""
    steps = event.step_counts
    tallest = max(steps) if isinstance(steps, list | tuple) else steps
    depth = math.ceil(math.log2(int(tallest) + 1))
    scale = float(event.noise_multiplier) / math.sqrt(depth)
    return mechanisms.AtLeast([(_gaussian(scale), 1)])


@functools.lru_cache(maxsize=64)
def _generating(mean: float, shape: float) -> Callable[[arb], arb]:
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
        base = 1 - (1 - gamma) * x
        if shape == 0:
            return base.log() / gamma.log()
        return (base**-shape - 1) / (gamma**-shape - 1)

    return at


def _selection(event: Any, reading: Reading) -> Cases:
    """Returns three selections: of the first run, the largest and the smallest ratio.

    Which output is the best is the choice of the event's user. If no run takes place,
    that is an output of its own.
    """
    if reading.is_high:
        return []
    (inner, *_) = reading.cases(mechanism_of(event.event))
    inner = channels.reduced(inner, Side.LOW, reading.sizes.most // 2)
    ratios = [
        math.inf if q == 0 else float(p / q) for q, p in zip(*inner.rows, strict=True)
    ]
    order = np.argsort(ratios, kind="stable").tolist()
    with ctx.workprec(_BITS):
        runs = _generating(float(event.mean), float(event.shape))
        none = runs(ZERO)
        of_first = [[*(x * (1 - none) for x in law), none] for law in inner.rows]
        cases = [channels.Channel(of_first)]
        for way in (order, order[::-1]):
            laws = ([law[i] for i in way] for law in inner.rows)
            rows = [[*_largest(law, runs), none] for law in laws]
            cases.append(channels.Channel(rows))
    return cases


def _largest(law: Sequence[arb], runs: Callable[[arb], arb]) -> list[arb]:
    """Returns the law of the largest of the outputs of a random number of runs.

    Args:
        law: The law of the output of one run, from the smallest output to the largest.
        runs: The probability generating function of the number of runs. At the
            probability that one run is below an output, it is that of all runs.
    """
    masses = []
    cumulated, below = ZERO, runs(ZERO)
    for mass in law:
        cumulated += mass
        at_most = runs(cumulated.min(channels.ONE))
        masses.append((at_most - below).max(ZERO))
        below = at_most
    return masses


# By the names of events, some of which not every version of dp_accounting has.
KINDS: dict[str, Callable[[Any], Mechanism]] = {
    "NoOpDpEvent": lambda event: mechanisms.NOTHING,
    "NonPrivateDpEvent": lambda event: mechanisms.Noise("gaussian", 0.0),
    "ComposedDpEvent": lambda e: _runs(e.events, [1] * len(e.events)),
    "SelfComposedDpEvent": lambda e: _runs([e.event], [e.count]),
    "GroupSubsampledEvent": lambda event: mechanism_of(event.event),
    "PoissonSampledDpEvent": _sampled,
    "PLDSubsampleEvent": _sampled,
    "SampledWithoutReplacementDpEvent": _batch,
    "SampledWithReplacementDpEvent": _batch,
    "RandomAllocationEvent": _allocation,
    "RandomAllocationDpEvent": _allocation,
    "ScheduledAllocationEvent": _allocation,
    "MatrixAllocationEvent": _correlated(schemes.bins, "num_bins", "num_epochs"),
    "WindowedAllocationEvent": _correlated(
        schemes.windows, "window", "separation", "num_cycles", "sampling_probability"
    ),
    "MinSepSamplingEvent": _correlated(
        schemes.apart, "num_steps", "sampling_probability", "separation", "warm_start"
    ),
    "CyclicPoissonEvent": _correlated(
        schemes.independent, "num_steps", "sampling_probability", "cycle_length"
    ),
    "PoissonMatrixEvent": _correlated(
        schemes.independent, "num_steps", "sampling_probability"
    ),
    "SelectedStepsMatrixEvent": _correlated(
        schemes.selected, "num_steps", "num_selected", "num_epochs"
    ),
    "GaussianDpEvent": _noise("gaussian"),
    "LaplaceDpEvent": _noise("laplace"),
    "DiscreteLaplaceDpEvent": _known(_discrete_laplace),
    "RandomizedResponseDpEvent": _randomized_response,
    "MixtureOfGaussiansDpEvent": _known(_mixture),
    "TruncatedSubsampledGaussianDpEvent": _known(_truncated, is_replaced=True),
    "EpsilonDeltaDpEvent": _known(lambda e, reading: _response(e.epsilon, e.delta)),
    "ExponentialMechanismDpEvent": _known(_exponential),
    "PermuteAndFlipDpEvent": _known(_permute_and_flip),
    "DiscreteGaussianDpEvent": _known(_discrete_gaussian),
    "ZCDpEvent": _zero_concentrated,
    "SingleEpochTreeAggregationDpEvent": _tree_aggregation,
    "RepeatAndSelectDpEvent": _known(_selection),
    "PrivateSamplingEvent": _known(_private_sampling, is_replaced=True),
}
